package hold

import (
	"bytes"
	"cmp"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unique"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/kube/panics"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/scheduler/record"
	"github.com/kubenergy/kubenergy/test/kit/bubble"
)

// oneMachine simulates a cluster with capacity for one Job of four cores at a time. Each released Job runs for half
// an hour.
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

// anHourFromNow publishes a forecast with a single hour of low carbon intensity that starts in an hour.
func (w *world) anHourFromNow() {
	w.t.Helper()
	values := []float64{500, 100, 500, 500, 500, 500, 500, 500, 500, 500, 500, 500}
	series, err := grid.NewSeries(time.Now(), time.Hour, values)
	if err != nil {
		w.t.Fatal(err)
	}
	w.know(kube.Contents{Sites: []*sched.Site{{Name: "here", Carbon: grid.Signal{Series: series}}}})
}

// planned creates a Job with four cores and a duration of half an hour under the rule "plan".
func (w *world) planned(name string, delay time.Duration) {
	w.t.Helper()
	w.asks(name, "4", delay)
}

// asks creates such a Job with the given number of cores.
func (w *world) asks(name, cores string, delay time.Duration) {
	w.t.Helper()
	w.job(name, map[string]string{
		v1alpha1.AnnotationAllowedDelay: delay.String(), v1alpha1.AnnotationExpectedDuration: "30m",
		v1alpha1.AnnotationStrategy: "carbon+" + cmp.Or(w.rule, "plan"),
	}, func(j *batchv1.Job) {
		j.Spec.Template.Spec.Containers = []v1.Container{{Name: "c", Resources: v1.ResourceRequirements{
			Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse(cores)},
		}}}
	})
}

// starts waits for the Jobs to be released, and returns the delay of each release in minutes.
func (w *world) starts(most time.Duration, names ...string) []int {
	w.t.Helper()
	began, after := time.Now(), make([]int, len(names))
	for time.Since(began) < most {
		bubble.Advance(time.Minute)
		for i, name := range names {
			if after[i] == 0 && !w.suspended(name) {
				after[i] = int(time.Since(began) / time.Minute)
			}
		}
	}
	return after
}

// TestTheCleanHourIsShared verifies that two Jobs that each fill the cluster get half of the clean hour each.
//
//test:norace
func TestTheCleanHourIsShared(t *testing.T) {
	during(t, func(w *world, _ *Config) { w.anHourFromNow() }, func(w *world) {
		w.planned("a", 4*time.Hour)
		w.planned("b", 4*time.Hour)
		w.loop.Nodes(w.oneMachine("a", "b"))
		bubble.Advance(time.Minute)
		if why := w.read("b").Annotations[v1alpha1.AnnotationHeldReason]; !strings.Contains(why, "joint plan") {
			t.Errorf("the reason of the hold is %q", why)
		}
		got := w.starts(3*time.Hour, "a", "b")
		first, second := min(got[0], got[1]), max(got[0], got[1])
		if first < 55 || first > 66 || second < 82 || second > 96 {
			t.Errorf("the Jobs start after %v minutes, want about 60 and 90", got)
		}
	})
}

// TestReasonsOfJointPlansAreSpecific verifies that a Job that a joint plan does not hold gets the reason of the signals,
// with and without capacity and power profiles.
func TestReasonsOfJointPlansAreSpecific(t *testing.T) {
	flat, rising := []float64{300}, []float64{300, 400, 500, 600}
	for _, c := range []struct {
		rule   string
		values []float64
		node   func(*sched.Node)
		want   string
	}{
		{"plan", flat, nil, "not held: waiting saves nothing"},
		{"plan", rising, nil, "not held: waiting saves nothing"},
		{"plan", flat, func(n *sched.Node) { n.Profile = nil }, "not held: waiting saves nothing"},
		{"plan", rising, func(n *sched.Node) { n.Free = sched.Resources{} }, "not held: waiting saves nothing"},
		{"guarded", flat, nil, "not held: scheduled now: the signal varies too little"},
		{"guarded", flat, func(n *sched.Node) { n.Profile = nil }, "not held: scheduled now: the signal varies too little"},
		{"guarded", rising, nil, "not held: waiting saves nothing"},
		{"guarded", rising, func(n *sched.Node) { n.Profile = nil }, "not held: waiting saves nothing"},
	} {
		during(t, func(w *world, _ *Config) {
			series, err := grid.NewSeries(time.Now(), time.Hour, append(c.values, slices.Repeat(c.values[len(c.values)-1:], 40)...))
			if err != nil {
				t.Fatal(err)
			}
			w.know(kube.Contents{Sites: []*sched.Site{{Name: "here", Carbon: grid.Signal{Series: series}}}})
		}, func(w *world) {
			w.rule = c.rule
			machine := w.oneMachine()
			w.loop.Nodes(func(view *kube.View, now time.Time) []sched.Node {
				nodes := machine(view, now)
				if c.node != nil {
					c.node(&nodes[0])
				}
				return nodes
			})
			w.planned("a", 4*time.Hour)
			bubble.Advance(time.Minute)
			if got := w.notes("a"); w.events("a") != "NotHeld" || !strings.HasPrefix(got, c.want) {
				t.Errorf("%s, %v: the event is %s: %q, want NotHeld: %q", c.rule, c.values, w.events("a"), got, c.want)
			}
		})
	}
}

// TestStartsNow verifies which reason is reported if neither the joint plan nor the decision alone delays a hold.
func TestStartsNow(t *testing.T) {
	for _, c := range []struct{ plan, alone, want sched.ReasonKind }{
		{sched.Cheapest, sched.NothingToSave, sched.NothingToSave},
		{sched.Planned, sched.NothingToSave, sched.NothingToSave},
		{sched.NoRoom, sched.NothingToSave, sched.NothingToSave},
		{sched.AlreadyReleased, sched.FlatSignal, sched.FlatSignal},
		{sched.Planned, sched.CheaperLater, sched.Planned},
		{sched.NoRoom, sched.CheaperLater, sched.Planned},
		{sched.ScarceCapacity, sched.NothingToSave, sched.NothingToSave},
		{sched.ScarceCapacity, sched.CheaperLater, sched.ScarceCapacity},
		{sched.FlatSignal, sched.CheaperLater, sched.FlatSignal},
		{sched.NoFreshSignal, sched.CheaperLater, sched.NoFreshSignal},
	} {
		if got := startsNow(sched.Reason{Kind: c.plan}, sched.Reason{Kind: c.alone}).Kind; got != c.want {
			t.Errorf("%v and %v: got %v, want %v", c.plan, c.alone, got, c.want)
		}
	}
}

// TestShortagesAreRecordedWithoutHolds verifies that after the first plan, nodes are observed every minute even
// without holds.
func TestShortagesAreRecordedWithoutHolds(t *testing.T) {
	during(t, func(w *world, _ *Config) { w.anHourFromNow() }, func(w *world) {
		var looks atomic.Int64
		machine := w.oneMachine("a")
		w.loop.Nodes(func(view *kube.View, now time.Time) []sched.Node {
			looks.Add(1)
			return machine(view, now)
		})
		if bubble.Advance(10 * time.Minute); looks.Load() != 0 {
			t.Errorf("nodes are observed %d times before the first hold, want 0", looks.Load())
		}
		w.planned("a", 4*time.Hour)
		w.starts(3*time.Hour, "a")
		bubble.Advance(time.Hour) // the Job has started
		before := looks.Load()
		bubble.Advance(10 * time.Minute)
		if n := looks.Load() - before; n < 9 || n > 11 {
			t.Errorf("nodes are observed %d times in ten minutes, want 10", n)
		}
	})
}

// TestNamespacesShareAPlan verifies that a namespace with many holds, early deadlines and its own policy neither
// displaces other namespaces from the plan nor determines its policy.
func TestNamespacesShareAPlan(t *testing.T) {
	during(t, func(w *world, _ *Config) { w.anHourFromNow() }, func(w *world) {
		w.loop.post(func() { w.loop.together.most = 8 })
		w.loop.Nodes(w.oneMachine())
		in := func(namespace, name, strategy string, delay time.Duration) {
			w.job(name, map[string]string{
				v1alpha1.AnnotationAllowedDelay: delay.String(), v1alpha1.AnnotationExpectedDuration: "30m",
				v1alpha1.AnnotationStrategy: strategy,
			}, func(j *batchv1.Job) {
				j.Namespace = namespace
				j.Spec.Template.Spec.Containers = []v1.Container{{Name: "c", Resources: v1.ResourceRequirements{
					Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")},
				}}}
			})
		}
		for i := range 20 {
			in("greedy", fmt.Sprint("g", i), "carbon+plan", 3*time.Hour)
		}
		for _, namespace := range []string{"a", "b"} {
			for i := range 2 {
				in(namespace, fmt.Sprint(namespace, i), "carbon+plan", 4*time.Hour)
			}
		}
		bubble.Advance(2 * planEvery)
		type result struct{ planned, apart []string }
		got := make(chan result)
		w.loop.post(func() {
			var r result
			for uid := range w.loop.together.of {
				r.planned = append(r.planned, string(uid))
			}
			for uid := range w.loop.together.apart {
				r.apart = append(r.apart, string(uid))
			}
			slices.Sort(r.planned)
			got <- r
		})
		r := <-got
		if want := []string{"a0", "a1", "b0", "b1"}; len(r.planned) != 8 || !slices.Equal(r.planned[:4], want) ||
			len(r.apart) != 16 {
			t.Errorf("planned jointly: %v, separately: %v, want a, b and four of greedy jointly", r.planned, r.apart)
		}
	})
}

// TestPolicyOfAPlan verifies the choice of the policy of a joint plan.
func TestPolicyOfAPlan(t *testing.T) {
	fn := func(namespace string, p sched.Policy) planned {
		work := policy.Work{Namespace: namespace}
		return planned{candidate: candidate{hold: &hold{alike: unique.Make(work)}}, terms: terms{"plan", p}}
	}
	one, other := sched.Policy{MaxSignalAge: time.Hour}, sched.Policy{MaxSignalAge: time.Minute}
	for name, c := range map[string]struct {
		all  []planned
		want sched.Policy
	}{
		"none":               {nil, sched.Policy{}},
		"one namespace":      {[]planned{fn("a", one), fn("a", other), fn("a", other)}, other},
		"equal":              {[]planned{fn("a", one), fn("a", other)}, one},
		"more of fewer":      {[]planned{fn("g", other), fn("g", other), fn("g", other), fn("a", one), fn("b", one)}, one},
		"as many namespaces": {[]planned{fn("a", one), fn("b", other), fn("b", other)}, other},
	} {
		if got := mainTerms(c.all).policy; got != c.want {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestWhatNoMachineHoldsIsPlannedAlone verifies that a Job that is too large for every node is planned separately.
func TestWhatNoMachineHoldsIsPlannedAlone(t *testing.T) {
	during(t, func(w *world, _ *Config) { w.anHourFromNow() }, func(w *world) {
		w.planned("a", 4*time.Hour)
		w.asks("large", "8", 4*time.Hour)
		w.loop.Nodes(w.oneMachine("a"))
		if got := w.starts(3*time.Hour, "a", "large"); got[1] < 55 || got[1] > 66 {
			t.Errorf("the Jobs start after %v minutes, want about 60", got)
		}
	})
}

// TestWithoutAPlanEachIsPlannedAlone verifies that Jobs are planned separately if no joint plan can be made, and
// that deadlines are met even if planning never returns.
//
//test:norace
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
					t.Errorf("the Jobs start after %v minutes, want about 60, 60 and 1", got)
				}
				if nodes != nil {
					bubble.Advance(4 * time.Hour) // the blocked planner returns
				}
			})
		})
	}
}

// recordings contains the plans and holds that a loop has recorded.
type recordings struct {
	mu       sync.Mutex
	plans    bytes.Buffer
	messages []string // messages of the recorded holds
}

func (r *recordings) Write(line []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.plans.Write(line)
}

func (r *recordings) hold(e *record.Entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.Action == record.Hold {
		r.messages = append(r.messages, e.Message)
	}
}

// TestRecordedPlansAreMadeAgain verifies that replaying recorded plans yields the same plans, and that the record
// of a hold mentions the joint plan.
//
//test:norace
func TestRecordedPlansAreMadeAgain(t *testing.T) {
	for _, rule := range []string{"plan", "guarded"} {
		t.Run(rule, func(t *testing.T) { replayed(t, rule) })
	}
}

func replayed(t *testing.T, rule string) {
	t.Helper()
	var r recordings
	listen := func(w *world, c *Config) {
		w.anHourFromNow()
		c.Record = r.hold
		c.RecordPlan = policy.RecordPlans(&r, slog.New(slog.DiscardHandler))
	}
	during(t, listen, func(w *world) {
		w.rule = rule
		for _, name := range []string{"a", "b", "c"} {
			w.planned(name, 12*time.Hour)
		}
		one := w.oneMachine("a", "b", "c")
		w.loop.Nodes(func(view *kube.View, now time.Time) []sched.Node {
			nodes := one(view, now) // with additional capacity, without which "guarded" holds no more than one Job
			more := sched.Resources{MilliCPU: 16000}
			nodes[0].Capacity, nodes[0].Free = nodes[0].Capacity.Add(more), nodes[0].Free.Add(more)
			return nodes
		})
		w.starts(3*time.Hour, "a", "b", "c")
	})
	lines := bytes.Count(r.plans.Bytes(), []byte("\n"))
	same, err := policy.ReplayPlans(&r.plans)
	if err != nil || same != lines || lines < 3 || lines > 20 { // hundreds of plans are made
		t.Errorf("%d recorded plans, %d of them are reproduced: %v", lines, same, err)
	}
	const want = "; part of a joint plan of 3 jobs, the snapshot reproduces the rule window"
	if !slices.ContainsFunc(r.messages, func(m string) bool { return strings.HasSuffix(m, want) }) {
		t.Errorf("the messages of recorded holds are %q, want one with the suffix %q", r.messages, want)
	}
}

// TestPlansStandWhileTheirRecorderPanics verifies that plans take effect even if they cannot be recorded.
//
//test:norace
func TestPlansStandWhileTheirRecorderPanics(t *testing.T) {
	t.Cleanup(panics.Reset)
	var reported atomic.Int64
	prepare := func(w *world, c *Config) {
		w.anHourFromNow()
		c.RecordPlan = func(string, *sched.Snapshot, sched.Plan, int) { reported.Add(1); panic("nowhere to write") }
	}
	during(t, prepare, func(w *world) {
		w.planned("a", 4*time.Hour)
		w.planned("b", 4*time.Hour)
		w.loop.Nodes(w.oneMachine("a", "b"))
		got := w.starts(3*time.Hour, "a", "b")
		if second := max(got[0], got[1]); second < 82 || second > 96 || reported.Load() == 0 {
			t.Errorf("the Jobs start after %v minutes, want about 60 and 90; recorded %d plans", got, reported.Load())
		}
	})
}
