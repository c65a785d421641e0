package hold

import (
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/energy"
	"github.com/kubenergy/kubenergy/grid"
	"github.com/kubenergy/kubenergy/kube"
	"github.com/kubenergy/kubenergy/sched"
)

// oneMachine is a cluster that has room for one Job of four cores at a time, and runs those that were let go for half an
// hour.
func (w *world) oneMachine(names ...string) func(*kube.View, time.Time) []sched.Node {
	ends := map[string]time.Time{}
	return func(view *kube.View, now time.Time) []sched.Node {
		room := sched.Resources{MilliCPU: 4000, Memory: 1 << 34}
		n := sched.Node{
			Name: "n1", Site: view.DefaultSite(), Capacity: room, Free: room, Awake: true,
			Profile: &energy.Profile{Idle: 50, Max: 150, Sleep: 50, Quality: energy.Estimated},
		}
		for _, name := range names {
			if end, runs := ends[name]; !runs && !w.suspended(name) {
				ends[name] = now.Add(30 * time.Minute)
			} else if runs && end.After(now) {
				asks := sched.Resources{MilliCPU: 4000}
				n = n.Place(asks)
				n.Ends = append(n.Ends, sched.End{At: end, Request: asks})
			}
		}
		return []sched.Node{n}
	}
}

// anHourFromNow makes carbon cheap for an hour, an hour from now.
func (w *world) anHourFromNow() {
	w.t.Helper()
	values := []float64{500, 100, 500, 500, 500, 500, 500, 500, 500, 500, 500, 500}
	series, err := grid.NewSeries(time.Now(), time.Hour, values)
	if err != nil {
		w.t.Fatal(err)
	}
	w.know(kube.Contents{Sites: []*sched.Site{{Name: "here", Carbon: grid.Signal{Series: series}}}})
}

// planned is a Job of four cores and half an hour under the rule "plan".
func (w *world) planned(name string, delay time.Duration) {
	w.t.Helper()
	w.asks(name, "4", delay)
}

// asks is the same of so many cores.
func (w *world) asks(name, cores string, delay time.Duration) {
	w.t.Helper()
	w.job(name, map[string]string{
		v1alpha1.AnnotationAllowedDelay: delay.String(), v1alpha1.AnnotationExpectedDuration: "30m",
		v1alpha1.AnnotationStrategy: "carbon+plan",
	}, func(j *batchv1.Job) {
		j.Spec.Template.Spec.Containers = []v1.Container{{Name: "c", Resources: v1.ResourceRequirements{
			Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse(cores)},
		}}}
	})
}

// starts waits for some Jobs to be released, and returns after how many minutes each was.
func (w *world) starts(most time.Duration, names ...string) []int {
	w.t.Helper()
	began, after := time.Now(), make([]int, len(names))
	for time.Since(began) < most {
		time.Sleep(time.Minute)
		for i, name := range names {
			if after[i] == 0 && !w.suspended(name) {
				after[i] = int(time.Since(began) / time.Minute)
			}
		}
	}
	return after
}

// Two Jobs that each fill the cluster get half of the clean hour each.
func TestTheCleanHourIsShared(t *testing.T) {
	during(t, func(w *world, _ *Config) { w.anHourFromNow() }, func(w *world) {
		w.planned("a", 4*time.Hour)
		w.planned("b", 4*time.Hour)
		w.loop.Nodes(w.oneMachine("a", "b"))
		time.Sleep(time.Minute)
		if why := w.read("b").Annotations[v1alpha1.AnnotationHeldReason]; !strings.Contains(why, "together") {
			t.Errorf("b is held because %q", why)
		}
		got := w.starts(3*time.Hour, "a", "b")
		first, second := min(got[0], got[1]), max(got[0], got[1])
		if first < 55 || first > 66 || second < 82 || second > 96 {
			t.Errorf("they start after %v minutes, want about 60 and 90", got)
		}
	})
}

// What no machine is large enough for is planned alone.
func TestWhatNoMachineHoldsIsPlannedAlone(t *testing.T) {
	during(t, func(w *world, _ *Config) { w.anHourFromNow() }, func(w *world) {
		w.planned("a", 4*time.Hour)
		w.asks("large", "8", 4*time.Hour)
		w.loop.Nodes(w.oneMachine("a"))
		if got := w.starts(3*time.Hour, "a", "large"); got[1] < 55 || got[1] > 66 {
			t.Errorf("they start after %v minutes, want about 60", got)
		}
	})
}

// Where no plan can be made, each Job is planned alone; deadlines are kept even where making one never ends.
func TestWithoutAPlanEachIsPlannedAlone(t *testing.T) {
	for name, nodes := range map[string]func(*kube.View, time.Time) []sched.Node{
		"unknown": nil,
		"panics":  func(*kube.View, time.Time) []sched.Node { panic("planted") },
		"hangs":   func(*kube.View, time.Time) []sched.Node { time.Sleep(6 * time.Hour); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			during(t, func(w *world, _ *Config) { w.anHourFromNow() }, func(w *world) {
				w.loop.Nodes(nodes)
				w.planned("a", 4*time.Hour)
				w.planned("b", 4*time.Hour)
				w.planned("soon", 30*time.Second)
				got := w.starts(3*time.Hour, "a", "b", "soon")
				if got[0] < 55 || got[0] > 66 || got[1] < 55 || got[1] > 66 || got[2] > 1 {
					t.Errorf("they start after %v minutes, want about 60, 60 and 1", got)
				}
				if nodes != nil {
					time.Sleep(4 * time.Hour) // what hangs ends
				}
			})
		})
	}
}
