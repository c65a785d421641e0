package hold

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/kube/panics"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/scheduler/record"
	"github.com/kubenergy/kubenergy/test/kit/bubble"
)

// world runs a loop against a fake API server in virtual time.
type world struct {
	rule   string // of planned Jobs, by default plan
	t      *testing.T
	client *fake.Clientset
	loop   *Loop
	stop   func()

	late      bool   // the test calls watchPods, which is otherwise called before Run
	watchPods func() // passes the informer of pods to the loop and starts it

	mu     sync.Mutex
	view   *kube.View
	active map[string]time.Time
	panics int // number of further activations that panic
}

// during runs a test against a running loop in virtual time. prepare may change the world and the configuration
// before the loop starts.
func during(t *testing.T, prepare func(*world, *Config), test func(*world)) {
	panics.Reset() // panics of other tests would open the circuit breaker, since the fake clock starts in the past
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, client: fake.NewClientset(), active: map[string]time.Time{}}
		w.know(kube.Contents{})
		c := Config{
			Client: w.client,
			View: func() *kube.View {
				w.mu.Lock()
				defer w.mu.Unlock()
				return w.view
			},
		}
		// Bypass the object tracker for renewals of the Lease, which happen every few seconds for many hours and
		// would dominate the run time.
		w.client.PrependReactor("update", "leases", func(a clienttesting.Action) (bool, runtime.Object, error) {
			return true, a.(clienttesting.UpdateAction).GetObject(), nil
		})
		if prepare != nil {
			prepare(w, &c)
		}
		w.loop = New(c)
		w.loop.SetActivator(func(pods map[string]*v1.Pod) {
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.panics--; w.panics >= 0 {
				panic("planted")
			}
			for key, pod := range pods {
				if _, held := w.loop.Hold(pod); held {
					t.Errorf("%s was activated while the gate held it", key)
				}
				w.active[key] = time.Now()
			}
		})
		ctx, cancel := context.WithCancel(t.Context())
		factory := informers.NewSharedInformerFactory(w.client, 0)
		w.watchPods = func() {
			w.loop.WatchPods(factory.Core().V1().Pods().Informer())
			factory.StartWithContext(ctx)
		}
		if !w.late {
			w.watchPods()
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := w.loop.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		w.stop = func() { cancel(); wg.Wait(); factory.Shutdown() }
		bubble.Advance(5 * time.Second) // acquire the Lease
		test(w)
		w.stop()
		// The caches of client-go's fake watches are drained by their own goroutines, which terminate together with
		// them.
		synctest.Wait()
	})
}

// green publishes a forecast of a day in which carbon intensity is low after the given time.
func (w *world) green(after time.Duration) { w.forecast(after, 24*time.Hour) }

// forecast publishes a forecast of the given length in which carbon intensity is low after the given time.
func (w *world) forecast(after, length time.Duration) {
	w.t.Helper()
	values := make([]float64, length/time.Minute)
	for i := range values {
		values[i] = 500
		if time.Duration(i)*time.Minute >= after {
			values[i] = 100
		}
	}
	series, err := grid.NewSeries(time.Now(), time.Minute, values)
	if err != nil {
		w.t.Fatal(err)
	}
	w.know(kube.Contents{Sites: []*sched.Site{{Name: "here", Carbon: grid.Signal{Series: series}}}})
}

// know publishes a view with the limits of the tests.
func (w *world) know(c kube.Contents) {
	w.t.Helper()
	c.Defaults = policy.Defaults{Terms: policy.Terms{ExpectedDuration: 10 * time.Minute}, MaxDelay: 12 * time.Hour}
	view, err := c.View()
	if err != nil {
		w.t.Fatal(err)
	}
	w.see(view)
}

func (w *world) see(view *kube.View) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.view = view
}

// annotate sets annotations on the Job j and on pods with other names.
func (w *world) annotate(annotations map[string]string, names ...string) {
	w.t.Helper()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, name := range names {
		if name == "j" {
			_, err = w.client.BatchV1().Jobs("default").Patch(w.t.Context(), name, types.MergePatchType, patch,
				metav1.PatchOptions{})
		} else {
			_, err = w.client.CoreV1().Pods("default").Patch(w.t.Context(), name, types.MergePatchType, patch,
				metav1.PatchOptions{})
		}
		if err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *world) activated(name string) (time.Time, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at, ok := w.active["default/"+name]
	return at, ok
}

func marked(delay time.Duration) map[string]string {
	return map[string]string{
		v1alpha1.AnnotationAllowedDelay: delay.String(), v1alpha1.AnnotationExpectedDuration: "10m",
	}
}

func (w *world) pod(name string, annotations map[string]string) *v1.Pod {
	w.t.Helper()
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: name, UID: types.UID(name), Annotations: annotations,
		CreationTimestamp: metav1.Now(),
	}}
	pod, err := w.client.CoreV1().Pods("default").Create(w.t.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return pod
}

// job creates a Job as the admission policy would.
func (w *world) job(name string, annotations map[string]string, change ...func(*batchv1.Job)) {
	w.t.Helper()
	suspended := true
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, UID: types.UID(name), Annotations: annotations,
			Labels: map[string]string{v1alpha1.LabelHeld: "true"}, CreationTimestamp: metav1.Now(),
			ResourceVersion: "1",
		},
		Spec: batchv1.JobSpec{Suspend: &suspended},
	}
	for _, f := range change {
		f(job)
	}
	if _, err := w.client.BatchV1().Jobs(job.Namespace).Create(w.t.Context(), job, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) read(name string) *batchv1.Job {
	w.t.Helper()
	job, err := w.client.BatchV1().Jobs("default").Get(w.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return job
}

func (w *world) suspended(name string) bool { return *w.read(name).Spec.Suspend }

// wantJob verifies that a Job is released within the given interval from now.
func (w *world) wantJob(name string, from, to time.Duration) {
	w.t.Helper()
	bubble.Advance(from)
	if from > 0 && !w.suspended(name) {
		w.t.Errorf("Job %s was released before %v", name, from)
	}
	bubble.Advance(to - from)
	if w.suspended(name) {
		w.t.Errorf("Job %s is still held after %v", name, to)
	}
}

// events returns the reasons of the events about an object in order.
func (w *world) events(name string) string {
	return w.reported(name, func(e *eventsv1.Event) string { return e.Reason })
}

func (w *world) notes(name string) string {
	return w.reported(name, func(e *eventsv1.Event) string { return e.Note })
}

func (w *world) reported(name string, what func(*eventsv1.Event) string) string {
	list, err := w.client.EventsV1().Events("default").List(w.t.Context(), metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	var all []string
	for i := range list.Items {
		if e := &list.Items[i]; e.Regarding.Name == name {
			all = append(all, what(e))
		}
	}
	return strings.Join(all, " ")
}

// TestNothingHeldCostsNothing verifies that a loop without holds rarely wakes up.
func TestNothingHeldCostsNothing(t *testing.T) {
	during(t, nil, func(w *world) {
		bubble.Advance(time.Minute)
		before := w.loop.beat.Load()
		bubble.Advance(idlePause - time.Second)
		if turned := time.Duration(w.loop.beat.Load() - before); turned > idlePause {
			t.Errorf("the next iteration was %v later", turned)
		}
		w.green(time.Hour)
		w.job("j", marked(3*time.Hour))
		bubble.Advance(3 * time.Second)
		w.wantJob("j", 59*time.Minute, time.Hour)
	})
}

func TestJobIsReleasedWhenItsWindowOpens(t *testing.T) {
	during(t, nil, func(w *world) {
		w.green(time.Hour)
		w.job("j", marked(3*time.Hour))
		bubble.Advance(time.Minute)
		held := w.read("j")
		if got, want := held.Annotations[v1alpha1.AnnotationHeldUntil],
			time.Now().Add(59*time.Minute).UTC().Format(time.RFC3339); got != want {
			t.Errorf("held-until is %q, want %q", got, want)
		}
		if reason := held.Annotations[v1alpha1.AnnotationHeldReason]; !strings.HasPrefix(reason, "held until") {
			t.Errorf("held-reason is %q", reason)
		}
		w.wantJob("j", 58*time.Minute, 59*time.Minute)
		bubble.Advance(time.Second)
		released := w.read("j")
		if released.Annotations[v1alpha1.AnnotationReleasedAt] == "" || released.Labels[v1alpha1.LabelHeld] != "" {
			t.Errorf("labels %v, annotations %v", released.Labels, released.Annotations)
		}
		if got := w.events("j"); got != "Held Released" {
			t.Errorf("events are %q", got)
		}
		w.wantLatest(released, 3*time.Hour)
	})
}

// wantLatest checks the deadline of a released Job.
func (w *world) wantLatest(job *batchv1.Job, delay time.Duration) {
	w.t.Helper()
	want := job.CreationTimestamp.Add(delay)
	if latest, known := w.loop.LatestStart(job.UID); !known || !latest.Equal(want) {
		w.t.Errorf("latest start of the released Job is %v (%v), want %v", latest, known, want)
	}
}

// TestJobWaitsForItsSites verifies that a Job waits for the window of the sites where it may run, which become
// known a second after its creation.
func TestJobWaitsForItsSites(t *testing.T) {
	var known atomic.Bool
	var asked atomic.Pointer[sched.Snapshot]
	during(t, func(_ *world, c *Config) {
		c.Sites = func(id string) ([]string, bool) {
			if id != "default/j" {
				t.Errorf("unexpected ID %s", id)
			}
			return []string{"there"}, known.Load()
		}
		c.Record = func(e *record.Entry) { asked.CompareAndSwap(nil, e.Question) }
	}, func(w *world) {
		var sites []*sched.Site
		for name, after := range map[string]int{"here": 1, "there": 3} {
			values := []float64{500, 500, 500, 500, 500, 500, 500, 500}
			values[after] = 100
			series, err := grid.NewSeries(time.Now(), time.Hour, values)
			if err != nil {
				t.Fatal(err)
			}
			sites = append(sites, &sched.Site{Name: name, Carbon: grid.Signal{Series: series}})
		}
		w.know(kube.Contents{Sites: sites})
		w.job("j", marked(6*time.Hour))
		bubble.Advance(time.Second)
		known.Store(true)
		w.wantJob("j", 3*time.Hour-5*time.Second, 3*time.Hour+time.Minute)
		if s := asked.Load(); s == nil || !slices.Equal(s.Queue[0].Sites, []string{"there"}) {
			t.Errorf("recorded: %+v", s)
		}
	})
}

func TestJobWithoutSignalsRunsAtOnce(t *testing.T) {
	during(t, nil, func(w *world) {
		w.job("j", marked(3*time.Hour))
		w.wantJob("j", 0, time.Second)
		if got := w.events("j"); got != "NotHeld" {
			t.Errorf("events are %q", got)
		}
	})
}

func TestSignalsThatVanishLeaveThePlan(t *testing.T) {
	during(t, nil, func(w *world) {
		w.green(30 * time.Minute)
		w.job("j", marked(time.Hour))
		pod := w.pod("p", marked(time.Hour))
		if _, held := w.loop.Hold(pod); !held {
			t.Fatal("the pod is not held")
		}
		bubble.Advance(time.Minute)
		w.know(kube.Contents{})
		w.wantJob("j", 28*time.Minute, 29*time.Minute)
		if at, ok := w.activated("p"); !ok || time.Since(at) > time.Minute {
			t.Errorf("activated: %v, at %v", ok, at)
		}
	})
}

func TestPlanFollowsTheForecast(t *testing.T) {
	during(t, nil, func(w *world) {
		w.green(30 * time.Minute)
		w.job("j", marked(3*time.Hour))
		bubble.Advance(time.Minute)
		w.green(2 * time.Hour)
		w.wantJob("j", 119*time.Minute, 2*time.Hour)
	})
}

// TestMovedStartsAreTold verifies that the owner of a Job gets another event if its start moves by more than an hour,
// and that a smaller move, and that of a pod, only change the annotation or the condition.
func TestMovedStartsAreTold(t *testing.T) {
	during(t, nil, func(w *world) {
		w.green(30 * time.Minute)
		w.job("j", marked(6*time.Hour))
		w.loop.Hold(w.pod("p", marked(6*time.Hour)))
		for _, c := range []struct {
			after time.Duration
			want  string
		}{{30 * time.Minute, "Held"}, {70 * time.Minute, "Held"}, {4 * time.Hour, "Held Held"}} {
			w.green(c.after)
			bubble.Advance(10 * time.Minute)
			if got := w.events("j"); got != c.want {
				t.Errorf("events of the Job after a move to %v are %q, want %q", c.after, got, c.want)
			}
		}
		until := w.read("j").Annotations[v1alpha1.AnnotationHeldUntil]
		if notes := w.notes("j"); until == "" || strings.Count(notes, until) != 1 {
			t.Errorf("the notes %q do not contain the start %q once", notes, until)
		}
		if got := w.events("p"); got != "Held" {
			t.Errorf("events of the pod are %q, want Held", got)
		}
	})
}

func TestDeadlineIsForced(t *testing.T) {
	during(t, nil, func(w *world) {
		w.green(40 * time.Minute)
		w.job("late", marked(35*time.Minute))
		w.wantJob("late", 34*time.Minute, 35*time.Minute)
		bubble.Advance(time.Second)
		if got := w.events("late"); got != "Held DeadlineForced" {
			t.Errorf("events are %q", got)
		}
	})
}

func TestWhatIsWrittenWhileHeldCounts(t *testing.T) {
	for name, change := range map[string]map[string]string{
		"run-now":         {v1alpha1.AnnotationRunNow: "true"},
		"a shorter delay": {v1alpha1.AnnotationAllowedDelay: "1m"},
		"nonsense":        {v1alpha1.AnnotationAllowedDelay: "soon"},
	} {
		t.Run(name, func(t *testing.T) {
			during(t, nil, func(w *world) {
				w.green(time.Hour)
				w.job("j", marked(3*time.Hour))
				pod := w.pod("p", marked(3*time.Hour))
				w.loop.Hold(pod)
				bubble.Advance(time.Minute)
				if _, ok := w.activated("p"); ok || !w.suspended("j") {
					t.Fatal("the object is not held")
				}
				w.annotate(change, "j", "p")
				w.wantJob("j", 0, time.Second)
				if _, ok := w.activated("p"); !ok {
					t.Error("the pod is still held")
				}
			})
		})
	}
}

// TestReleasesThatOwnersAskForSaySo verifies that the event about a release requested by the owner mentions the
// request.
func TestReleasesThatOwnersAskForSaySo(t *testing.T) {
	for name, c := range map[string]struct {
		change map[string]string
		want   string
	}{
		"run-now":  {map[string]string{v1alpha1.AnnotationRunNow: "true"}, "requested to run now"},
		"skip":     {map[string]string{v1alpha1.AnnotationSkip: "true"}, "requested not to be held"},
		"strategy": {map[string]string{v1alpha1.AnnotationStrategy: "carbon+now"}, "requested to run now"},
	} {
		t.Run(name, func(t *testing.T) {
			during(t, nil, func(w *world) {
				w.green(time.Hour)
				w.job("j", marked(3*time.Hour))
				bubble.Advance(time.Minute)
				w.annotate(c.change, "j")
				w.wantJob("j", 0, time.Second)
				bubble.Advance(time.Second)
				list, err := w.client.EventsV1().Events("default").List(t.Context(), metav1.ListOptions{})
				if err != nil {
					t.Fatal(err)
				}
				for _, e := range list.Items {
					if e.Reason == reasonReleased && e.Note == c.want {
						return
					}
				}
				t.Errorf("events are %v", list.Items)
			})
		})
	}
}

// TestWhatOwnersReadFollowsWhatTheyWrite verifies that the annotations of the loop are updated after a change by
// the owner, even if the start remains the same.
func TestWhatOwnersReadFollowsWhatTheyWrite(t *testing.T) {
	during(t, nil, func(w *world) {
		w.green(time.Hour)
		created := time.Now()
		w.job("j", marked(3*time.Hour))
		w.loop.Hold(w.pod("p", marked(3*time.Hour)))
		bubble.Advance(time.Minute)
		for _, delay := range []time.Duration{2 * time.Hour, 5 * time.Hour, 90 * time.Minute} {
			w.annotate(marked(delay), "j", "p")
			bubble.Advance(time.Minute)
			latest := created.Add(delay).UTC().Format(time.RFC3339)
			job, err := w.client.BatchV1().Jobs("default").Get(t.Context(), "j", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			pod, err := w.client.CoreV1().Pods("default").Get(t.Context(), "p", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			said := job.Annotations
			if said[v1alpha1.AnnotationLatestStart] != latest ||
				!strings.Contains(said[v1alpha1.AnnotationHeldReason], latest) {
				t.Errorf("%v: the Job has annotations %q and %q, want %s", delay, said[v1alpha1.AnnotationLatestStart],
					said[v1alpha1.AnnotationHeldReason], latest)
			}
			if c := pod.Status.Conditions; len(c) != 1 || !strings.Contains(c[0].Message, latest) {
				t.Errorf("%v: the conditions of the pod are %v, want %s", delay, c, latest)
			}
		}
	})
}

func TestPodSaysWhyItWaits(t *testing.T) {
	during(t, nil, func(w *world) {
		w.green(time.Hour)
		w.loop.Hold(w.pod("p", marked(3*time.Hour)))
		bubble.Advance(time.Minute)
		pod, err := w.client.CoreV1().Pods("default").Get(t.Context(), "p", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if c := pod.Status.Conditions; len(c) != 1 || c[0].Type != v1.PodScheduled ||
			c[0].Status != v1.ConditionFalse ||
			c[0].Reason != v1.PodReasonSchedulingGated || !strings.HasPrefix(c[0].Message, "held until") {
			t.Errorf("conditions are %v", c)
		}
		bubble.Advance(time.Hour)
		if got := w.events("p"); got != "Held Released" {
			t.Errorf("events are %q", got)
		}
	})
}

// TestADelayThatIsTakenBackMakesNothingLate verifies that a deadline that is moved into the past does not count as
// missed.
func TestADelayThatIsTakenBackMakesNothingLate(t *testing.T) {
	during(t, nil, func(w *world) {
		w.green(time.Hour)
		w.job("j", marked(3*time.Hour))
		pod := w.pod("p", marked(3*time.Hour))
		w.loop.Hold(pod)
		bubble.Advance(time.Minute)
		w.annotate(map[string]string{v1alpha1.AnnotationAllowedDelay: "0s"}, "j", "p")
		w.wantJob("j", 0, time.Second)
		synctest.Wait()
		expected := 0
		for _, of := range w.loop.starts.Range {
			st := of.(*start)
			expected++
			if st.at.Sub(st.latest) > 0 {
				t.Errorf("the release of a %s at %v has the deadline %v", st.queue.kind, st.at, st.latest)
			}
		}
		if expected != 2 {
			t.Errorf("%d starts are awaited, want 2", expected)
		}
	})
}

// TestWhatMakesNoSenseIsTold verifies that the event about an invalid value contains the value and a suggestion,
// even if the annotation alone would not hold the object.
func TestWhatMakesNoSenseIsTold(t *testing.T) {
	during(t, nil, func(w *world) {
		w.green(time.Hour)
		mistyped := marked(3 * time.Hour)
		mistyped[v1alpha1.AnnotationStrategy] = "enrgy"
		w.job("j", mistyped)
		w.wantJob("j", 0, time.Second)
		if _, held := w.loop.Hold(w.pod("p", mistyped)); held {
			t.Error("a pod with invalid annotations is held")
		}
		bubble.Advance(time.Minute)
		// a Job without the held label is not watched
		for name, want := range map[string]string{"j": "NoEffect", "p": "NoEffect"} {
			if got := w.events(name); got != want {
				t.Errorf("events of %s are %q, want %q", name, got, want)
			}
		}
		list, err := w.client.EventsV1().Events("default").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			if note := list.Items[i].Note; !strings.Contains(note, `kubenergy.io/strategy is "enrgy"`) ||
				!strings.Contains(note, "did you mean energy?") {
				t.Errorf("the note about %s is %s", list.Items[i].Regarding.Name, note)
			}
		}
	})
}

// TestEventsThatWouldBeRefused verifies that events comply with the limits of the API server, which are 253 bytes
// for names and 1,024 bytes for notes.
func TestEventsThatWouldBeRefused(t *testing.T) {
	during(t, nil, func(w *world) {
		w.green(time.Hour)
		wrong := map[string]string{}
		for _, key := range []string{
			v1alpha1.AnnotationStrategy, v1alpha1.AnnotationAllowedDelay, v1alpha1.AnnotationRunNow,
			v1alpha1.AnnotationMaxPower,
			v1alpha1.AnnotationPUE,
		} {
			wrong[key] = strings.Repeat("ä", 100)
		}
		wrong[v1alpha1.AnnotationStrategy] = "energy+whenever"
		wrong[v1alpha1.AnnotationSkip] = strings.Repeat("é", 500)
		name := strings.Repeat("p", 250)
		w.loop.Hold(w.pod(name, wrong))
		bubble.Advance(time.Minute)
		list, err := w.client.EventsV1().Events("default").List(t.Context(), metav1.ListOptions{})
		if err != nil || len(list.Items) != 1 {
			t.Fatalf("%d events, %v", len(list.Items), err)
		}
		if e := &list.Items[0]; len(e.Name) > 253 || len(e.Note) > 1024 || !utf8.ValidString(e.Note) ||
			e.Regarding.Name != name {
			t.Errorf("the event has a name of %d bytes and a note of %d bytes: %s", len(e.Name), len(e.Note), e.Note)
		} else {
			t.Logf("%d bytes: %s", len(e.Note), e.Note)
		}
	})
}

func TestPodsBeyondTheCapAreNotHeld(t *testing.T) {
	during(t, func(_ *world, c *Config) { c.MaxPods = 2 }, func(w *world) {
		w.green(time.Hour)
		var pods []*v1.Pod
		for i := range 3 {
			pods = append(pods, w.pod(fmt.Sprint("p", i), marked(3*time.Hour)))
			if _, held := w.loop.Hold(pods[i]); held != (i < 2) {
				t.Errorf("pod %d: held = %v", i, held)
			}
		}
		bubble.Advance(time.Second) // a fake server loses events between list and watch
		if err := w.client.CoreV1().Pods("default").Delete(t.Context(), "p0", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		bubble.Advance(time.Minute)
		if _, held := w.loop.Hold(pods[2]); held {
			t.Error("a refused pod is held after the number of held pods has decreased")
		}
		if _, held := w.loop.Hold(w.pod("p3", marked(time.Hour))); !held {
			t.Error("a deleted pod still counts against the limit")
		}
		if got := w.events("p2"); got != "NotHeld" {
			t.Errorf("events are %q", got)
		}
	})
}

// TestStandbyReleasesAtDeadlines verifies that a replica without the Lease enforces deadlines and does nothing
// else.
func TestStandbyReleasesAtDeadlines(t *testing.T) {
	other, seconds := "other", int32(3600)
	prepare := func(w *world, _ *Config) {
		now := metav1.NowMicro()
		lease := leaseOf(other, seconds, now)
		if _, err := w.client.CoordinationV1().Leases("kube-system").Create(t.Context(), lease,
			metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	during(t, prepare, func(w *world) {
		w.green(10 * time.Minute)
		w.job("j", marked(30*time.Minute))
		w.wantJob("j", 29*time.Minute, 30*time.Minute)
		if got := w.events("j"); got != "DeadlineForced" && got != "" {
			t.Errorf("events are %q", got)
		}
	})
}

func TestPanickingStrategyHoldsNothing(t *testing.T) {
	t.Cleanup(panics.Reset)
	prepare := func(_ *world, c *Config) {
		c.opinion = func(*kube.View, time.Time, sched.Job, policy.Settings) sched.Decision { panic("boom") }
	}
	during(t, prepare, func(w *world) {
		w.green(time.Hour)
		w.job("j", marked(3*time.Hour))
		w.loop.Hold(w.pod("p", marked(3*time.Hour)))
		w.wantJob("j", 0, time.Second)
		if _, ok := w.activated("p"); !ok {
			t.Error("the pod is held")
		}
	})
}

func TestReleaseIsRepeatedUntilItIsAccepted(t *testing.T) {
	refuse := 5
	prepare := func(w *world, _ *Config) {
		w.client.PrependReactor("patch", "jobs", func(clienttesting.Action) (bool, runtime.Object, error) {
			if refuse--; refuse >= 0 {
				return true, nil, apierrors.NewInternalError(errors.New("no leader"))
			}
			return false, nil, nil
		})
	}
	during(t, prepare, func(w *world) {
		w.job("j", marked(time.Hour))
		w.wantJob("j", 0, 15*time.Second)
	})
}

func TestPodsAreServedWithoutPermissionOnJobs(t *testing.T) {
	prepare := func(w *world, _ *Config) {
		w.client.PrependReactor("list", "jobs", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(schema.GroupResource{Group: "batch", Resource: "jobs"}, "", nil)
		})
	}
	during(t, prepare, func(w *world) {
		w.green(time.Hour)
		w.loop.Hold(w.pod("p", marked(2*time.Hour)))
		bubble.Advance(time.Hour + time.Minute)
		if _, ok := w.activated("p"); !ok {
			t.Error("the pod is held")
		}
	})
}

func TestJobsThatAreNotToBeHeldAreLetGo(t *testing.T) {
	for name, change := range map[string]func(*batchv1.Job){
		"Helm hook": func(j *batchv1.Job) { j.Annotations["helm.sh/hook"] = "post-install" },
		"other owner": func(j *batchv1.Job) {
			j.OwnerReferences = []metav1.OwnerReference{{APIVersion: "x/v1", Kind: "Other", Name: "o"}}
		},
		"run-now": func(j *batchv1.Job) { j.Annotations[v1alpha1.AnnotationRunNow] = "true" },
		"no mark": func(j *batchv1.Job) { j.Annotations, j.ResourceVersion = nil, "7" },
		"CronJob that cannot be read": func(j *batchv1.Job) {
			yes := true
			j.OwnerReferences = []metav1.OwnerReference{{
				APIVersion: "batch/v1", Kind: "CronJob", Name: "gone", Controller: &yes,
			}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			during(t, nil, func(w *world) {
				w.green(time.Hour)
				w.job("j", marked(3*time.Hour), change)
				w.wantJob("j", 0, time.Second)
			})
		})
	}
}

func TestJobThatKueueTookOverStaysSuspended(t *testing.T) {
	during(t, nil, func(w *world) {
		w.green(time.Hour)
		w.job("j", marked(3*time.Hour), func(j *batchv1.Job) { j.Labels[policy.LabelKueueQueue] = "q" })
		bubble.Advance(4 * time.Hour)
		if job := w.read("j"); !*job.Spec.Suspend || job.Labels[v1alpha1.LabelHeld] != "" {
			t.Errorf("suspended: %v, labels %v", *job.Spec.Suspend, job.Labels)
		}
	})
}

// TestJobWithoutLabelIsNotTouched verifies that the loop ignores a Job after its user has removed the held label.
func TestJobWithoutLabelIsNotTouched(t *testing.T) {
	during(t, nil, func(w *world) {
		w.green(time.Hour)
		w.job("j", marked(3*time.Hour))
		bubble.Advance(time.Minute)
		job := w.read("j")
		if _, known := w.loop.LatestStart(job.UID); known {
			t.Error("a held Job counts as released")
		}
		delete(job.Labels, v1alpha1.LabelHeld)
		if _, err := w.client.BatchV1().Jobs("default").Update(t.Context(), job, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		bubble.Advance(time.Second)
		w.wantLatest(job, 3*time.Hour) // as if another replica had released it
		bubble.Advance(4 * time.Hour)
		if !w.suspended("j") {
			t.Error("the Job was resumed")
		}
	})
}

// TestPlanOfAJobOutlivesTheProcess verifies that the plan of an earlier process remains in effect if there are no
// signals after a restart.
func TestPlanOfAJobOutlivesTheProcess(t *testing.T) {
	during(t, nil, func(w *world) {
		annotations := marked(3 * time.Hour)
		annotations[v1alpha1.AnnotationHeldUntil] = time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
		w.job("j", annotations)
		w.wantJob("j", 59*time.Minute, time.Hour)
	})
}

func TestRunOfACronJobEndsBeforeTheNextTick(t *testing.T) {
	for policy, want := range map[batchv1.ConcurrencyPolicy]time.Duration{
		batchv1.ReplaceConcurrent: 49*time.Minute + 50*time.Second, // it runs for ten minutes
		batchv1.ForbidConcurrent:  49*time.Minute + 50*time.Second,
		batchv1.AllowConcurrent:   59*time.Minute + 50*time.Second,
	} {
		t.Run(string(policy), func(t *testing.T) {
			prepare := func(w *world, _ *Config) {
				c := &batchv1.CronJob{
					ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c"},
					Spec:       batchv1.CronJobSpec{Schedule: "0 * * * *", ConcurrencyPolicy: policy},
				}
				if _, err := w.client.BatchV1().CronJobs("default").Create(t.Context(), c,
					metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			during(t, prepare, func(w *world) {
				bubble.Advance(time.Until(time.Now().Truncate(time.Hour).Add(time.Hour)))
				w.green(2 * time.Hour)
				yes := true
				w.job("j", marked(3*time.Hour), func(j *batchv1.Job) {
					j.OwnerReferences = []metav1.OwnerReference{{
						APIVersion: "batch/v1", Kind: "CronJob", Name: "c", Controller: &yes,
					}}
				})
				w.green(45 * time.Minute)
				w.wantJob("j", 44*time.Minute, want+time.Minute)
				latest := w.read("j").Annotations[v1alpha1.AnnotationLatestStart]
				if got, err := time.Parse(time.RFC3339, latest); err != nil || got.Sub(got.Truncate(time.Hour)) != want {
					t.Errorf("latest start is %v (%v), want %v after the hour", got, err, want)
				}
			})
		})
	}
}

// TestDeadlinesAreKeptWhileTheViewPanics verifies that a view source that panics prevents planning, but no releases
// at deadlines.
func TestDeadlinesAreKeptWhileTheViewPanics(t *testing.T) {
	t.Cleanup(panics.Reset)
	var broken atomic.Bool
	prepare := func(_ *world, c *Config) {
		view := c.View
		c.View = func() *kube.View {
			if broken.Load() {
				panic("view source failed")
			}
			return view()
		}
	}
	during(t, prepare, func(w *world) {
		w.green(25 * time.Minute)
		w.job("j", marked(30*time.Minute))
		w.loop.Hold(w.pod("p", marked(30*time.Minute)))
		bubble.Advance(time.Minute)
		broken.Store(true)
		w.wantJob("j", 20*time.Minute, 30*time.Minute+time.Second)
		bubble.Advance(2 * time.Second)
		if _, ok := w.activated("p"); !ok {
			t.Error("the pod is held beyond its deadline")
		}
	})
}

// TestNewLeaderSaysWhyThingsWait verifies that a new leader annotates objects that it planned while it was a
// standby.
func TestNewLeaderSaysWhyThingsWait(t *testing.T) {
	other, seconds := "another", int32(60)
	prepare := func(w *world, _ *Config) {
		now := metav1.NowMicro()
		if err := w.client.Tracker().Add(leaseOf(other, seconds, now)); err != nil {
			t.Fatal(err)
		}
	}
	during(t, prepare, func(w *world) {
		w.green(time.Hour)
		w.job("j", marked(3*time.Hour))
		bubble.Advance(10 * time.Minute)
		if w.read("j").Annotations[v1alpha1.AnnotationHeldUntil] == "" {
			t.Error("the annotation held-until is missing")
		}
	})
}

// TestStartsThatAreTold verifies that starts can be reported by Started if no pods are watched. A hundred Jobs with
// windows that open at the same time are released as fast as they start.
//
//test:norace
func TestStartsThatAreTold(t *testing.T) {
	var reported atomic.Int64
	during(t, func(w *world, _ *Config) {
		w.client.PrependReactor("patch", "jobs", func(a clienttesting.Action) (bool, runtime.Object, error) {
			p := a.(clienttesting.PatchAction)
			if strings.Contains(string(p.GetPatch()), "/spec/suspend") {
				time.AfterFunc(100*time.Millisecond, func() {
					reported.Add(1)
					w.loop.Started(types.UID(p.GetName()), true)
				})
			}
			return false, nil, nil
		})
	}, func(w *world) {
		w.green(time.Hour)
		for i := range 100 {
			w.job(fmt.Sprint("j", i), marked(3*time.Hour))
		}
		bubble.Advance(time.Hour + 20*time.Second)
		if n := reported.Load(); n != 100 {
			t.Errorf("%d of 100 Jobs were released within 20 s of their window", n)
		}
	})
}
