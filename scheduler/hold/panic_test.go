package hold

import (
	"sync/atomic"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/kubenergy/kubenergy/kube"
	"github.com/kubenergy/kubenergy/kube/panics"
	"github.com/kubenergy/kubenergy/policy"
	"github.com/kubenergy/kubenergy/sched"
	"github.com/kubenergy/kubenergy/scheduler/record"
)

// Recording releases may panic: the pods go all the same, all of a turn.
func TestPodsGoWhileTheRecorderPanics(t *testing.T) {
	t.Cleanup(panics.Reset)
	prepare := func(_ *world, c *Config) {
		c.Record = func(e *record.Entry) {
			if e.Action == record.Release {
				panic("nowhere to write")
			}
		}
	}
	during(t, prepare, func(w *world) {
		w.green(30 * time.Minute)
		for _, name := range []string{"p", "q"} {
			w.loop.Hold(w.pod(name, marked(2*time.Hour)))
		}
		time.Sleep(31 * time.Minute)
		for _, name := range []string{"p", "q"} {
			if _, ok := w.activated(name); !ok {
				t.Errorf("%s was let go and the scheduler was not told", name)
			}
		}
	})
}

// What a hold will draw may be impossible to say: that is no reason to keep it beyond its deadline, or others with it.
func TestDeadlinesAreKeptWithoutWatts(t *testing.T) {
	l := New(Config{MaxRamp: 100, View: func() *kube.View { return kube.Unsettled() }})
	for _, name := range []string{"a", "b"} {
		l.jobs.add(heldUntil(name, time.Minute, time.Hour)) // work that was not read: nothing can be told of it
	}
	var panicked any
	func() {
		defer func() { panicked = recover() }()
		if due := l.jobs.due(epoch.Add(time.Hour), true); len(due) != 2 {
			t.Errorf("%d of 2 are let go", len(due))
		}
	}()
	if panicked != nil {
		t.Errorf("nothing is let go: %v", panicked)
	}
}

// A release that cannot even be begun is tried again, and those after it go.
func TestReleasesThatPanicAreTriedAgain(t *testing.T) {
	t.Cleanup(panics.Reset)
	l := New(Config{View: func() *kube.View { return kube.Unsettled() }})
	for _, name := range []string{"a", "b"} {
		l.jobs.add(heldUntil(name, time.Minute, time.Hour)) // work that was not read: there is nothing to patch
	}
	l.releaseDueJobs(klog.Background(), epoch.Add(time.Hour))
	if due := l.jobs.due(time.Now().Add(time.Hour), true); len(due) != 2 {
		t.Errorf("%d of 2 are tried again", len(due))
	}
}

// A Job that makes its reader panic is let go: it would stay suspended for good.
func TestAReaderThatPanicsLetsTheJobGo(t *testing.T) {
	t.Cleanup(panics.Reset)
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "j", UID: "u"}}
	h := readSafely(j, func(*batchv1.Job) *hold { panic("planted") })
	if h == nil || h.state != freed || h.UID != "u" {
		t.Errorf("%+v", h)
	}
}

// A loop that does not move for two minutes says so once; one that only has nothing to do does not.
func TestALoopThatIsStuck(t *testing.T) {
	var hang atomic.Bool
	stuck := atomic.Int64{}
	resume := make(chan struct{})
	prepare := func(_ *world, c *Config) {
		resume = make(chan struct{}) // of the same bubble
		c.Stuck = func() { stuck.Add(1) }
		c.opinion = func(v *kube.View, now time.Time, j sched.Job, s policy.Settings) sched.Decision {
			if hang.Load() {
				<-resume
			}
			return v.Decide(now, j, s)
		}
	}
	during(t, prepare, func(w *world) {
		w.green(10 * time.Hour)
		time.Sleep(time.Hour)
		if stuck.Load() != 0 {
			t.Error("it has nothing to do, and counts as stuck")
		}
		hang.Store(true)
		w.job("j", marked(3*time.Hour))
		time.Sleep(119 * time.Second)
		if stuck.Load() != 0 {
			t.Error("it counts as stuck too early")
		}
		time.Sleep(30 * time.Second)
		if stuck.Load() != 1 {
			t.Errorf("it has told %d times that it is stuck", stuck.Load())
		}
		hang.Store(false)
		close(resume)
	})
}

// Where too much panics, new Jobs start as they would with stock; what has a window keeps it.
func TestABrokenCircuitHoldsNothingNew(t *testing.T) {
	t.Cleanup(panics.Reset)
	during(t, nil, func(w *world) {
		w.green(2 * time.Hour)
		w.job("planned", marked(3*time.Hour))
		time.Sleep(time.Minute)
		for range 3 {
			panics.Count("test")
		}
		w.job("new", marked(3*time.Hour))
		w.wantJob("new", 0, 5*time.Second)
		w.wantJob("planned", 118*time.Minute, 119*time.Minute) // two hours after it came
	})
}
