package hold

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
	"github.com/kubenergy/kubenergy/internal/scheduler/record"
	"github.com/kubenergy/kubenergy/internal/sim"
	"github.com/kubenergy/kubenergy/test/kit/bubble"
)

// change is a number of replicas from a time on.
type change struct {
	hours    float64 // since the creation of the Job, rounded to minutes
	replicas int     // 0 while the Job is suspended
}

// syncPods creates and deletes the pods of the Job as the Job controller and the kubelet do, without delay.
func (w *world) syncPods() (replicas int) {
	w.t.Helper()
	j, pods := w.read("j"), w.client.CoreV1().Pods("default")
	if !*j.Spec.Suspend {
		replicas = int(*j.Spec.Parallelism)
	}
	have, err := pods.List(w.t.Context(), metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	for i := len(have.Items); i > replicas; i-- {
		if err := pods.Delete(w.t.Context(), fmt.Sprint("p", i), metav1.DeleteOptions{}); err != nil {
			w.t.Fatal(err)
		}
	}
	now := metav1.NewTime(time.Now().Truncate(time.Second)) // the resolution of the API server
	for i := len(have.Items) + 1; i <= replicas; i++ {
		pod := &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "default", Name: fmt.Sprint("p", i), Labels: map[string]string{batchv1.ControllerUidLabel: "j"},
			},
			Status: v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{{
				State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: now}},
			}}},
		}
		if _, err := pods.Create(w.t.Context(), pod, metav1.CreateOptions{}); err != nil {
			w.t.Fatal(err)
		}
	}
	if started := replicas > 0; started != (j.Status.StartTime != nil) {
		if j.Status.StartTime = nil; started {
			j.Status.StartTime = &now
		}
		j.ResourceVersion += "0"
		if _, err := w.client.BatchV1().Jobs("default").Update(w.t.Context(), j, metav1.UpdateOptions{}); err != nil {
			w.t.Fatal(err)
		}
	}
	return replicas
}

// TestReplicasAsSimulated verifies, with random signals and speedups, that the number of pods of an elastic Job changes
// at the same times and to the same values as in a simulation, that its work is booked to within the delay of its pods,
// and that each recorded decision is reproduced from its snapshot.
//
//test:norace
func TestReplicasAsSimulated(t *testing.T) {
	scaled, paused, different, seeds := 0, 0, 0, uint64(8)
	if long {
		seeds = 100
	}
	for seed := range seeds {
		draw := rand.New(rand.NewPCG(seed, 0))
		values := []float64{50} // the Job starts at once
		for range 47 {
			values = append(values, 50+900*draw.Float64())
		}
		throughput := []float64{1}
		for gain := 1.; len(throughput) < 2+draw.IntN(4); {
			gain *= []float64{1, 0.9, 0.7, 0.4}[draw.IntN(4)]
			throughput = append(throughput, throughput[len(throughput)-1]+gain)
		}
		work := time.Duration(110+draw.IntN(350)) * time.Minute
		restart := startTime
		if draw.IntN(2) == 0 {
			restart = 10 * time.Minute
		}
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			want := simulated(t, values, throughput, work, restart)
			got := live(t, values, throughput, work, restart)
			if d := differ(got, want); d > time.Duration(len(want))*lag {
				different++
				t.Logf("different for %v: work of %v, speedup %v, restart cost %v, signal %v:\n got %v\nwant %v", d, work, throughput,
					restart, values[:20], got, want)
			}
			for _, c := range want {
				scaled++
				if c.replicas == 0 {
					paused++
				}
			}
		})
	}
	// A lag of seconds may reverse a decision about the last minute of work.
	if different > max(1, int(seeds)/30) {
		t.Errorf("%d of %d Jobs were scaled differently", different, seeds)
	}
	if scaled < 24 || paused < 8 {
		t.Errorf("the Jobs were scaled %d times and paused %d times, which is too rare for a test", scaled, paused)
	}
}

const (
	elasticDelay = 12 * time.Hour
	lag          = time.Minute // more than Jobs and pods start later than decided
)

// replicasAt returns the number of replicas in each minute of two days.
func replicasAt(changes []change) (replicas [48 * 60]int) {
	for _, c := range changes {
		for i := int(math.Round(60 * c.hours)); i < len(replicas); i++ {
			replicas[i] = c.replicas
		}
	}
	return replicas
}

// differ returns how long two series of changes have different numbers of replicas.
func differ(a, b []change) (sum time.Duration) {
	x, y := replicasAt(a), replicasAt(b)
	for i := range x {
		if x[i] != y[i] {
			sum += time.Minute
		}
	}
	return sum
}

func simulated(t *testing.T, values, throughput []float64, work, restart time.Duration) (changes []change) {
	t.Helper()
	start := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	series, err := grid.NewSeries(start, time.Hour, values)
	if err != nil {
		t.Fatal(err)
	}
	site := &sched.Site{Name: "here", Carbon: grid.Signal{Series: series}}
	room := sched.Resources{MilliCPU: 1000 * int64(len(throughput))}
	s, err := strategy.New("carbon+carbon-scaler")
	if err != nil {
		t.Fatal(err)
	}
	r, err := sim.Run(t.Context(), &sim.Scenario{
		Start: start, Sites: []*sched.Site{site},
		Nodes: []sched.Node{{Name: "n", Site: site, Capacity: room, Free: room, Profile: &energy.Profile{Idle: 1, Max: 100}}},
		Jobs: []sched.Job{{
			ID: "j", Submitted: start, Duration: work, Request: sched.Resources{MilliCPU: 1000}, AllowedDelay: elasticDelay,
			Interruptible: true, RestartCost: restart, Scaling: &sched.Scaling{Least: 1, Throughput: throughput},
		}, { // Because of it, capacity is not assured.
			ID: "later", Submitted: start.Add(work + elasticDelay - time.Minute), Duration: time.Hour,
			Request: sched.Resources{MilliCPU: 1000},
		}},
	}, "carbon+carbon-scaler", s)
	if err != nil {
		t.Fatal(err)
	}
	o := r.Outcomes[0]
	at := func(t time.Time) float64 { return t.Sub(start).Round(time.Minute).Hours() }
	for i, w := range o.Runs {
		if i > 0 && w.Start.After(o.Runs[i-1].End) {
			changes = append(changes, change{at(o.Runs[i-1].End), 0})
		}
		changes = append(changes, change{at(w.Start), o.Replicas[i]})
	}
	return append(changes, change{at(o.Finish), -1})
}

// TestPodsStartLate verifies that a Job is scaled when its containers have started, minutes after the Job, and not an
// hour later.
func TestPodsStartLate(t *testing.T) {
	var p pauseRecords
	during(t, p.enable, func(w *world) {
		w.hours(50, 900)
		w.runsJob(map[string]string{
			v1alpha1.AnnotationStrategy: "carbon+carbon-scaler", v1alpha1.AnnotationReplicas: "1-4",
		}, func(j *batchv1.Job) { j.Spec.Parallelism = new(int32(1)) })
		if err := w.client.CoreV1().Pods("default").Delete(t.Context(), "p", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		bubble.Advance(10 * time.Minute)
		if got := *w.read("j").Spec.Parallelism; got != 1 {
			t.Fatalf("the Job was scaled to %d before its pods started", got)
		}
		w.syncPods()
		bubble.Advance(2 * time.Minute)
		if got := *w.read("j").Spec.Parallelism; got != 4 {
			t.Errorf("the Job runs on %d replicas, want 4", got)
		}
	})
}

// TestFailingRequests verifies, with requests that fail before or after they take effect as if the API server or the
// scheduler were killed, that the work and the pauses of elastic Jobs are booked once, and that they end in time.
//
//test:norace
func TestFailingRequests(t *testing.T) {
	failures := 0
	for seed := range uint64(5) {
		draw := rand.New(rand.NewPCG(seed, 1))
		values := []float64{50}
		for range 47 {
			values = append(values, 50+900*draw.Float64())
		}
		live(t, values, []float64{1, 1.8, 2.5}, 5*time.Hour, 10*time.Minute, func(w *world, _ *Config) {
			var lock sync.Mutex
			fail := func(share float64) bool {
				lock.Lock()
				defer lock.Unlock()
				failed := draw.Float64() < share
				if failed {
					failures++
				}
				return failed
			}
			apply := clienttesting.ObjectReaction(w.client.Tracker())
			w.client.PrependReactor("*", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
				unavailable := apierrors.NewInternalError(errors.New("the server is stopping"))
				switch a.GetResource().Resource {
				case "poddisruptionbudgets", "mutatingadmissionpolicybindings":
					return a.GetVerb() != "create" && fail(0.1), nil, unavailable
				case "jobs":
					if a.GetVerb() == "patch" && fail(0.2) {
						return true, nil, unavailable
					}
					if a.GetVerb() == "patch" && fail(0.2) {
						if _, _, err := apply(a); err != nil {
							return true, nil, err
						}
						return true, nil, unavailable
					}
				}
				return false, nil, nil
			})
		})
	}
	if failures < 20 {
		t.Errorf("only %d requests failed", failures)
	}
}

// live runs an elastic Job on the loop, verifies its bookings and records, and returns its numbers of replicas.
func live(t *testing.T, values, throughput []float64, work, restart time.Duration, prepare ...func(*world, *Config),
) (changes []change) {
	t.Helper()
	var p pauseRecords
	speedup := ""
	for i, v := range throughput {
		if i > 0 {
			speedup += ","
		}
		speedup += fmt.Sprintf("%.4g", v)
	}
	during(t, func(w *world, c *Config) {
		p.enable(w, c)
		for _, f := range prepare {
			f(w, c)
		}
	}, func(w *world) {
		w.hours(values...)
		began := time.Now()
		scaling := sched.Scaling{Least: 1, Throughput: throughput}
		w.runsJob(map[string]string{
			v1alpha1.AnnotationStrategy: "carbon+carbon-scaler", v1alpha1.AnnotationExpectedDuration: work.String(),
			v1alpha1.AnnotationAllowedDelay: elasticDelay.String(), v1alpha1.AnnotationRestartCost: restart.String(),
			v1alpha1.AnnotationReplicas: fmt.Sprintf("1-%d", len(throughput)), v1alpha1.AnnotationSpeedup: speedup,
		}, func(j *batchv1.Job) { j.Spec.Parallelism = new(int32(1)) })
		_ = w.client.CoreV1().Pods("default").Delete(t.Context(), "p", metav1.DeleteOptions{})
		replicas, pauses := 0, 0
		var repeats, done, idle time.Duration
		const step = 5 * time.Second
		for done < work {
			if now := w.syncPods(); now != replicas {
				at := time.Since(began).Round(time.Minute).Hours()
				if n := len(changes); n > 0 && changes[n-1].hours == at {
					changes = changes[:n-1] // it starts on the number of replicas in its spec
				}
				changes = append(changes, change{at, now})
				if now == 0 {
					repeats = restart
					pauses++
				}
				replicas = now
				if worked, _ := time.ParseDuration(w.read("j").Annotations[v1alpha1.AnnotationWorked]); len(changes) > 1 &&
					(worked-done).Abs() > time.Duration(len(changes))*step*time.Duration(len(throughput)) {
					t.Errorf("%v of work is booked, want %v", worked, done)
				}
			}
			bubble.Advance(step)
			if replicas == 0 {
				idle += step
			}
			did := time.Duration(float64(step) * scaling.Rate(replicas))
			done += max(0, did-repeats)
			repeats = max(0, repeats-did)
		}
		changes = append(changes, change{time.Since(began).Round(time.Minute).Hours(), -1})
		if w.suspended("j") && replicas > 0 { // by the last decision before its completion
			pauses++
		}
		m := w.read("j").Annotations
		lost, _ := time.ParseDuration(m[v1alpha1.AnnotationLostWork])
		if n, _ := strconv.Atoi(m[v1alpha1.AnnotationPauses]); n != pauses || lost != time.Duration(pauses)*restart {
			t.Errorf("%d pauses are booked, want %d; lost work is %v", n, pauses, lost)
		}
		if fast := done - time.Duration(float64(time.Since(began)-idle)); idle > elasticDelay+max(0, fast) {
			t.Errorf("suspended for %v", idle)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, e := range p.records {
			if e.Action != record.Scale && e.Action != record.Pause {
				continue
			}
			again, err := strategy.New(e.Strategy)
			if err != nil {
				t.Fatal(err)
			}
			d := again.Plan(e.Question)[0]
			if d.Reason.Kind == sched.NoRoom { // there are no nodes in the question
				d.Reason.Kind = sched.Cheapest
			}
			var text string
			if e.Action == record.Scale {
				text = fmt.Sprintf("to %d replicas: %v", d.Replicas, d.Reason)
			} else {
				text = d.Reason.String()
			}
			if !strings.HasSuffix(e.Message, text) {
				t.Errorf("replayed decision %q, recorded %q", text, e.Message)
			}
		}
	})
	return changes
}
