package hold

import (
	"sync/atomic"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2"

	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/kube/panics"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/scheduler/record"
	"github.com/kubenergy/kubenergy/test/kit/bubble"
)

// TestPodsGoWhileTheRecorderPanics verifies that all due pods are released even if recording the releases panics.
func TestPodsGoWhileTheRecorderPanics(t *testing.T) {
	t.Cleanup(panics.Reset)
	prepare := func(_ *world, c *Config) {
		c.Record = func(e *record.Entry) {
			if e.Action == record.Release {
				panic("write failed")
			}
		}
	}
	during(t, prepare, func(w *world) {
		w.green(30 * time.Minute)
		for _, name := range []string{"p", "q"} {
			w.loop.Hold(w.pod(name, marked(2*time.Hour)))
		}
		bubble.Advance(31 * time.Minute)
		for _, name := range []string{"p", "q"} {
			if _, ok := w.activated(name); !ok {
				t.Errorf("%s was released but not activated", name)
			}
		}
	})
}

// TestDeadlinesAreKeptWithoutWatts verifies that deadlines are met even if the power of a hold cannot be estimated.
func TestDeadlinesAreKeptWithoutWatts(t *testing.T) {
	t.Cleanup(panics.Reset)
	l := New(Config{MaxRamp: 100, View: func() *kube.View { return kube.Unsettled() }})
	for _, name := range []string{"a", "b"} {
		// the work was not read, so that estimating its power panics
		l.jobs.add(heldUntil(name, time.Minute, time.Hour))
	}
	var panicked any
	func() {
		defer func() { panicked = recover() }()
		if due := l.jobs.due(epoch.Add(time.Hour), true); len(due) != 2 {
			t.Errorf("%d of 2 holds are released", len(due))
		}
	}()
	if panicked != nil {
		t.Errorf("no hold is released: %v", panicked)
	}
}

// TestReleasesThatPanicAreTriedAgain verifies that a release that panics is retried and does not block the
// following ones.
func TestReleasesThatPanicAreTriedAgain(t *testing.T) {
	t.Cleanup(panics.Reset)
	l := New(Config{View: func() *kube.View { return kube.Unsettled() }})
	for _, name := range []string{"a", "b"} {
		l.jobs.add(heldUntil(name, time.Minute, time.Hour)) // the work was not read, so that building the patch panics
	}
	l.releaseDueJobs(klog.Background(), epoch.Add(time.Hour))
	if due := l.jobs.due(time.Now().Add(time.Hour), true); len(due) != 2 {
		t.Errorf("%d of 2 releases are retried", len(due))
	}
}

// TestAReaderThatPanicsLetsTheJobGo verifies that a Job that makes its reader panic is released, because it would
// otherwise remain suspended forever.
func TestAReaderThatPanicsLetsTheJobGo(t *testing.T) {
	t.Cleanup(panics.Reset)
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "j", UID: "u"}}
	h := readSafely(j, func(*batchv1.Job) *hold { panic("planted") })
	if h == nil || h.state != freed || h.UID != "u" || h.namespace() != "n" || h.name != "j" {
		t.Errorf("%+v", h)
	}
	during(t, nil, func(w *world) {
		w.green(2 * time.Hour)
		w.job("j", marked(3*time.Hour))
		w.job("other", marked(3*time.Hour))
		bubble.Advance(time.Minute)
		changed := w.read("j")
		w.loop.post(func() { w.loop.sawJob(readSafely(changed, func(*batchv1.Job) *hold { panic("planted") })) })
		w.wantJob("j", 0, 5*time.Second)
		w.wantJob("other", 118*time.Minute, 119*time.Minute)
	})
}

// TestAHoldThatPanicsIsLetGoAlone verifies that an object is released if its processing panics, while all other
// objects of the list are added and planned.
func TestAHoldThatPanicsIsLetGoAlone(t *testing.T) {
	t.Cleanup(panics.Reset)
	view, err := (&kube.Contents{}).View()
	if err != nil {
		t.Fatal(err)
	}
	read := func(name string) *hold {
		j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{
			Namespace: "n", Name: name, UID: types.UID(name), CreationTimestamp: metav1.Now(),
		}}
		j.Spec.Suspend = new(true)
		return readJob(j)
	}
	// The work of these holds was not read, so that evaluating it panics.
	bad := func(name string) *hold { return &hold{HeldJob: kube.HeldJob{UID: types.UID(name)}, state: waiting} }
	l := New(Config{View: func() *kube.View { return view }})
	l.sawJobs([]*hold{bad("a"), read("b"), bad("c"), read("d")})
	pod := bad("e") // in no queue, so that evaluating it panics
	l.pods.byUID[pod.UID] = pod
	l.gate.tickets.Store(pod.UID, &ticket{})
	if l.sawPod(&v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: pod.UID}}, refusal{}); pod.state != freed {
		t.Errorf("the pod is %+v", pod)
	}
	for _, name := range []types.UID{"a", "b", "c", "d"} {
		if h := l.jobs.byUID[name]; h == nil || name < "b" && h.state != freed {
			t.Errorf("%s is %+v", name, h)
		}
	}
	l = New(Config{View: func() *kube.View { return view }})
	for _, h := range []*hold{bad("a"), read("b"), bad("c"), read("d")} {
		h.latest = time.Now().Add(time.Hour)
		l.jobs.add(h)
	}
	l.planAll(klog.Background(), time.Now())
	for name, h := range l.jobs.byUID {
		if h.state != freed {
			t.Errorf("%s is not planned: %+v", name, h)
		}
	}
}

// TestReadSafelyAllocatesNothing verifies that readSafely allocates no memory unless read panics, because it is called
// for each of a hundred thousand listed Jobs.
//
//test:norace
func TestReadSafelyAllocatesNothing(t *testing.T) {
	j, h := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "j"}}, &hold{}
	read := func(*batchv1.Job) *hold { return h }
	if n := testing.AllocsPerRun(1000, func() { readSafely(j, read) }); n != 0 {
		t.Errorf("readSafely allocates %v times per Job, want 0", n)
	}
}

func byCron(j *batchv1.Job) {
	j.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "batch/v1", Kind: "CronJob", Name: "c", Controller: new(true),
	}}
}

// TestAPanicAnywhereKeepsNothing verifies that a panic in a background goroutine or in a step of the loop is
// counted, and that no object is held beyond its window because of it.
func TestAPanicAnywhereKeepsNothing(t *testing.T) {
	t.Cleanup(panics.Reset)
	for _, c := range []struct{ name, verb, resource string }{
		{"patching Jobs", "patch", "jobs"},
		{"events", "create", "events"},
		{"reading CronJobs", "get", "cronjobs"},
		{"reading the time", "create", "selfsubjectreviews"},
		{"campaigning", "get", "leases"},
		{"watching Jobs", "list", "jobs"},
		{"a step of each iteration", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			panics.Reset()
			left := atomic.Int64{}
			left.Store(2)
			prepare := func(w *world, _ *Config) {
				w.client.PrependReactor(c.verb, c.resource, func(clienttesting.Action) (bool, runtime.Object, error) {
					if left.Add(-1) >= 0 {
						panic("planted")
					}
					return false, nil, nil
				})
			}
			during(t, prepare, func(w *world) {
				if c.verb == "" {
					w.loop.starts.Store(types.UID("no start"), "planted")
				}
				w.green(time.Hour)
				w.job("j", marked(3*time.Hour))
				w.job("run", marked(3*time.Hour), byCron)
				if c.verb != "" {
					w.wantJob("j", 59*time.Minute, 61*time.Minute)
				}
				bubble.Advance(3 * time.Hour)
				if w.suspended("j") || w.suspended("run") {
					t.Error("a Job is held beyond its deadline")
				}
			})
			if again := panics.Note("hold"); again < 2 {
				t.Errorf("%d panics are counted, %d panics did not happen", again-1, left.Load())
			}
		})
	}
}

// TestAScheduleThatPanics verifies that a run is released immediately if parsing the schedule of its CronJob
// panics.
func TestAScheduleThatPanics(t *testing.T) {
	t.Cleanup(panics.Reset)
	prepare := func(w *world, _ *Config) {
		w.client.PrependReactor("get", "cronjobs", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, &batchv1.CronJob{Spec: batchv1.CronJobSpec{
				Schedule: "TZ=0", ConcurrencyPolicy: batchv1.ForbidConcurrent,
			}}, nil
		})
	}
	during(t, prepare, func(w *world) {
		w.green(time.Hour)
		w.job("run", marked(3*time.Hour), byCron)
		w.wantJob("run", 0, 5*time.Second)
	})
	if again := panics.Note("hold"); again != 2 {
		t.Errorf("%d panics are counted", again-1)
	}
}

// TestALoopThatIsStuck verifies that Stuck is called once for a loop that is blocked for two minutes, and never for
// an idle loop.
func TestALoopThatIsStuck(t *testing.T) {
	var hang atomic.Bool
	stuck := atomic.Int64{}
	resume := make(chan struct{})
	prepare := func(_ *world, c *Config) {
		resume = make(chan struct{}) // created in the bubble of the test
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
		bubble.Advance(time.Hour)
		if stuck.Load() != 0 {
			t.Error("an idle loop is reported as stuck")
		}
		hang.Store(true)
		w.job("j", marked(3*time.Hour))
		bubble.Advance(119 * time.Second)
		if stuck.Load() != 0 {
			t.Error("the loop is reported as stuck too early")
		}
		bubble.Advance(30 * time.Second)
		if stuck.Load() != 1 {
			t.Errorf("Stuck was called %d times, want 1", stuck.Load())
		}
		hang.Store(false)
		close(resume)
	})
}

// TestABrokenCircuitHoldsNothingNew verifies that after too many panics, new Jobs start as without KubEnergy, while
// planned Jobs keep their windows.
func TestABrokenCircuitHoldsNothingNew(t *testing.T) {
	t.Cleanup(panics.Reset)
	during(t, nil, func(w *world) {
		w.green(2 * time.Hour)
		w.job("planned", marked(3*time.Hour))
		bubble.Advance(time.Minute)
		for range 3 {
			panics.Count("test")
		}
		w.job("new", marked(3*time.Hour))
		w.wantJob("new", 0, 5*time.Second)
		w.wantJob("planned", 118*time.Minute, 119*time.Minute) // two hours after its creation
	})
}

// TestPodsAreActivatedAfterAPanic verifies that pods that were released by the gate are activated in the next
// iteration if the activator panics.
func TestPodsAreActivatedAfterAPanic(t *testing.T) {
	t.Cleanup(panics.Reset)
	during(t, nil, func(w *world) {
		w.green(time.Hour)
		if _, held := w.loop.Hold(w.pod("p", marked(time.Hour))); !held {
			t.Fatal("the pod is not held")
		}
		w.mu.Lock()
		w.panics = 1
		w.mu.Unlock()
		bubble.Advance(61 * time.Minute)
		if at, ok := w.activated("p"); !ok || time.Since(at) > 2*time.Minute {
			t.Errorf("activated is %v, %v ago", ok, time.Since(at))
		}
	})
}
