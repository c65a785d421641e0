package hold

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"
	"unique"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/sched"
)

// forecastOf returns a view with a single carbon forecast in steps of ten minutes.
func forecastOf(t *testing.T, values []float64) *kube.View {
	t.Helper()
	series, err := grid.NewSeries(epoch, 10*time.Minute, values)
	if err != nil {
		t.Fatal(err)
	}
	view, err := (&kube.Contents{
		Sites:    []*sched.Site{{Name: "here", Carbon: grid.Signal{Series: series}}},
		Defaults: policy.Defaults{Terms: policy.Terms{ExpectedDuration: 10 * time.Minute, MinSaving: 0.01}, MaxDelay: 12 * time.Hour},
	}).View()
	if err != nil {
		t.Fatal(err)
	}
	return view
}

// bench is a loop with iterations that are performed by the test.
type bench struct {
	loop *Loop
	view *kube.View
	h    *hold
}

func newBench(t *testing.T, name string, annotations map[string]string) *bench {
	t.Helper()
	b := &bench{}
	b.loop = New(Config{View: func() *kube.View { return b.view }})
	b.view = kube.Unsettled()
	b.saw(name, annotations)
	b.h = b.loop.jobs.byUID[types.UID(name)]
	return b
}

// saw passes a held Job, or its new annotations, to the loop.
func (b *bench) saw(name string, annotations map[string]string) {
	suspended := true
	b.loop.sawJob(readJob(&batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, UID: types.UID(name), Annotations: annotations,
			Labels: map[string]string{v1alpha1.LabelHeld: "true"}, CreationTimestamp: metav1.NewTime(epoch),
		},
		Spec: batchv1.JobSpec{Suspend: &suspended},
	}))
}

// turn plans, and reports whether the Job is released.
func (b *bench) turn(now time.Time) bool {
	for b.loop.planAll(klog.Background(), now) {
	}
	return len(b.loop.jobs.due(now, true)) > 0
}

// TestOscillatingForecastsDoNotMoveHolds verifies that forecasts that change every minute, randomly or between two
// extremes, change a plan at most once per minHold, and that released objects are not held again.
//
//test:norace
func TestOscillatingForecastsDoNotMoveHolds(t *testing.T) {
	moves, flips := 0, 0
	for seed := range seeds() {
		random := rand.New(rand.NewPCG(seed, 5))
		delay := time.Duration(1+random.IntN(10)) * time.Hour
		annotations := marked(delay)
		if random.IntN(4) == 0 {
			annotations[v1alpha1.AnnotationCarbonThreshold] = "150"
		}
		b := newBench(t, "j", annotations)
		base := make([][]float64, 2)
		for i := range base {
			base[i] = make([]float64, 24*6)
			for k := range base[i] {
				base[i][k] = 100 + 400*random.Float64()
			}
		}
		noise := []float64{0.002, 0.05, 0.5}[random.IntN(3)]
		var changed time.Time
		var last time.Time
		for minute := 0; ; minute++ {
			now := epoch.Add(time.Duration(minute) * time.Minute)
			values := make([]float64, 24*6)
			for k := range values {
				values[k] = base[minute%2][k] * (1 + noise*random.NormFloat64())
				if values[k] < 1 {
					values[k] = 1
				}
			}
			b.view = forecastOf(t, values)
			gone := b.turn(now)
			if b.h.basis != unplanned && !last.IsZero() && !b.h.start.Equal(last) {
				if !changed.IsZero() && now.Sub(changed) < minHold {
					t.Fatalf("seed %d: a plan changes %v after its last change", seed, now.Sub(changed))
				}
				changed = now
				moves++
			}
			if b.h.basis != unplanned {
				last = b.h.start
				flips++
			}
			if gone {
				byPlan := !now.Add(b.loop.jobs.pace.lead()).Before(last)
				if b.h.basis == onForecast && !byPlan && !changed.IsZero() && now.Sub(changed) < minHold {
					t.Fatalf("seed %d: released before the window, %v after a change of plan", seed, now.Sub(changed))
				}
				break
			}
			if now.After(epoch.Add(delay)) {
				t.Fatalf("seed %d: the Job is held beyond its deadline", seed)
			}
		}
		// A release is final, regardless of new forecasts.
		b.view = forecastOf(t, append([]float64{1000}, make([]float64, 24*6)...))
		b.turn(epoch.Add(time.Minute))
		if b.h.state != releasing {
			t.Fatalf("seed %d: a released Job is held again", seed)
		}
	}
	t.Logf("%d forecasts moved %d plans", flips, moves)
	if moves == 0 {
		t.Error("no plan has changed")
	}
}

// steps returns values that are high except for a single step.
func steps(cheap int, value float64) []float64 {
	values := make([]float64, 24*6)
	for i := range values {
		values[i] = 500
	}
	values[cheap] = value
	return values
}

// TestReasonsFollowWishesInAStandby verifies that a standby does not notify owners, and that changes by the owner
// are reflected in the reason that it reports after it has become the leader.
func TestReasonsFollowWishesInAStandby(t *testing.T) {
	b := newBench(t, "j", marked(3*time.Hour))
	b.view = forecastOf(t, steps(12, 100))
	b.turn(epoch)
	start, former := b.h.start, unique.Make("reason of the plan with the previous settings")
	b.h.reason = former
	changed := marked(3 * time.Hour)
	changed[v1alpha1.AnnotationExpectedDuration] = "5m"
	b.saw("j", changed)
	b.turn(epoch.Add(time.Minute))
	if !b.h.start.Equal(start) {
		t.Fatalf("the start is %v, want it to remain %v", b.h.start, start)
	}
	if b.h.reason == former {
		t.Error("the reason is that of the previous settings")
	}
}

// TestPlansMoveForAGain verifies that a plan does not change for a saving of 0.5 % of the cost of an immediate
// start, but does for 2 %. This holds with and without a threshold that will not be met.
func TestPlansMoveForAGain(t *testing.T) {
	for _, c := range []struct {
		gain      float64
		threshold string
		moves     bool
	}{{0.005, "", false}, {0.02, "", true}, {0.005, "50", false}, {0.02, "50", true}} {
		gain, moves, annotations := c.gain, c.moves, marked(10*time.Hour)
		if c.threshold != "" {
			annotations[v1alpha1.AnnotationCarbonThreshold] = c.threshold
		}
		b := newBench(t, "j", annotations)
		b.view = forecastOf(t, steps(12, 100))
		b.turn(epoch)
		previous := b.h.start
		if want := epoch.Add(2 * time.Hour); !previous.Equal(want) {
			t.Fatalf("the planned start is %v, want %v", previous, want)
		}
		better := steps(30, 100-500*gain)
		better[12] = 100
		b.view = forecastOf(t, better)
		b.turn(epoch.Add(time.Hour))
		if moved := !b.h.start.Equal(previous); moved != moves {
			t.Errorf("with the threshold %q and a gain of %v, moved = %v", c.threshold, gain, moved)
		}
	}
}

// TestNoTimeToWait verifies that a Job is released if its completion time is in the past or too close, and that its
// owner is notified of the reason.
func TestNoTimeToWait(t *testing.T) {
	for finishBy, want := range map[time.Duration]string{
		-time.Hour:      "has passed, so the job starts immediately",
		5 * time.Minute: "leaves no time to wait, because the job runs for 10m0s",
	} {
		annotations := marked(3 * time.Hour)
		annotations[v1alpha1.AnnotationFinishBy] = epoch.Add(finishBy).Format(time.RFC3339)
		b := newBench(t, "j", annotations)
		b.view = forecastOf(t, steps(12, 100))
		if !b.turn(epoch) || !strings.Contains(b.h.why(), want) {
			t.Errorf("finish by %v from now: %q, want %q", finishBy, b.h.why(), want)
		}
	}
}

// TestNewsWaitForTheirTurn verifies that a change that was ignored because it followed the previous one too closely
// takes effect later without a further update.
func TestNewsWaitForTheirTurn(t *testing.T) {
	b := newBench(t, "j", marked(10*time.Hour))
	for i, cheap := range []int{12, 24, 36} {
		b.view = forecastOf(t, steps(cheap, 100))
		b.turn(epoch.Add(time.Duration(i) * time.Minute))
	}
	if want := epoch.Add(4 * time.Hour); !b.h.start.Equal(want) {
		t.Errorf("after two changes in two minutes, the planned start is %v, want %v", b.h.start, want)
	}
	if at := b.h.again; !at.Equal(epoch.Add(time.Minute + minHold)) {
		t.Errorf("the next planning is at %v", at)
	}
	b.turn(epoch.Add(time.Minute + minHold))
	if want := epoch.Add(6 * time.Hour); !b.h.start.Equal(want) {
		t.Errorf("the planned start is later %v, want %v", b.h.start, want)
	}
}
