package release

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	kit "github.com/kubenergy/kubenergy/internal/controller/controllertest"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/kube/panics"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/test/kit/bubble"
)

// jobServer is a fake API server with Jobs and a clock. It notifies the replicas of the controller of each change.
type jobServer struct {
	*kubefake.Clientset
	ahead    time.Duration // offset of its clock
	away     atomic.Bool
	patches  atomic.Int32
	asked    atomic.Int32 // requests for its time
	panics   atomic.Int32 // remaining patches that panic
	events   *events.FakeRecorder
	runs     bool         // a scheduler is running
	looks    atomic.Int32 // checks for a scheduler
	mu       sync.Mutex
	reported []*Held
}

func newJobServer(t *testing.T, jobs ...runtime.Object) *jobServer {
	t.Helper()
	for _, j := range jobs {
		j.(metav1.Object).SetResourceVersion("1")
	}
	s := &jobServer{Clientset: kubefake.NewClientset(jobs...), events: events.NewFakeRecorder(1000)}
	s.PrependReactor("create", "selfsubjectreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
		s.asked.Add(1)
		if s.away.Load() {
			return true, nil, errors.New("the server is unavailable")
		}
		return true, &authenticationv1.SelfSubjectReview{ObjectMeta: metav1.ObjectMeta{
			CreationTimestamp: metav1.NewTime(time.Now().Add(s.ahead).Truncate(time.Second)),
		}}, nil
	})
	react := clienttesting.ObjectReaction(s.Tracker())
	s.PrependReactor("patch", "jobs", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if s.away.Load() {
			return true, nil, errors.New("the server is unavailable")
		}
		if s.panics.Add(-1) >= 0 {
			panic("planted")
		}
		s.patches.Add(1)
		handled, o, err := react(action)
		if j, ok := o.(*batchv1.Job); ok && err == nil {
			go s.notify(j.DeepCopy())
		}
		return handled, o, err
	})
	return s
}

func (s *jobServer) notify(j *batchv1.Job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.reported {
		h.Saw(j)
	}
}

// replica starts a Releaser that stops with the test.
func (s *jobServer) replica(ctx context.Context, t *testing.T, view *kube.View, local func() time.Time) *Releaser {
	r := New(Options{
		Client: s.Clientset, Held: NewHeld(), View: func() *kube.View { return view }, Clock: local, Log: kit.Silent,
		Registerer: prometheus.NewRegistry(), Leads: func() bool { return true }, Events: s.events,
		NoScheduler: func(context.Context) bool { s.looks.Add(1); return !s.runs },
	})
	all, err := s.BatchV1().Jobs("").List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range all.Items {
		r.o.Held.Saw(&all.Items[i])
	}
	s.reported = append(s.reported, r.o.Held)
	for _, run := range []func(context.Context) error{r.Run, r.Warn} {
		go func() {
			if err := run(ctx); err != nil {
				t.Error(err)
			}
		}()
	}
	return r
}

func (s *jobServer) job(t *testing.T, ns, name string) *batchv1.Job {
	t.Helper()
	j, err := s.BatchV1().Jobs(ns).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func suspended(t *testing.T, s *jobServer, ns, name string) bool {
	t.Helper()
	j := s.job(t, ns, name)
	if *j.Spec.Suspend != (j.Labels[v1alpha1.LabelHeld] == "true") {
		t.Errorf("%s: suspended is %v with labels %v", name, *j.Spec.Suspend, j.Labels)
	}
	return *j.Spec.Suspend
}

// TestOverdueJobsAreReleased verifies that the replicas of the controller release overdue Jobs, and only these, if
// no scheduler is running.
func TestOverdueJobsAreReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		kueued := kit.HeldUntil("enforce", "kueued", now, now.Add(time.Minute))
		kueued.Labels[policy.LabelKueueQueue] = "q"
		server := newJobServer(t,
			kit.HeldUntil("enforce", "minute", now, now.Add(time.Minute)),
			kit.HeldUntil("enforce", "hour", now, now.Add(time.Hour)),
			kit.HeldUntil("enforce", "silent", now, time.Time{}), // the namespace allows 6 h
			kit.HeldUntil("enforce", "absurd", now, now.Add(9999*time.Hour)),
			kit.HeldUntil("enforce", "late", now, now.Add(7*time.Hour)),
			kueued,
		)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		view := kit.Valley(t, now)
		one := server.replica(ctx, t, view, time.Now)
		two := server.replica(ctx, t, view, time.Now)
		if one.o.Held.Count("") != 6 || one.o.Held.Count("enforce") != 6 || one.o.Held.Count("other") != 0 {
			t.Errorf("got %d held Jobs", one.o.Held.Count(""))
		}
		check := func(after time.Duration, want ...string) {
			bubble.Advance(time.Until(now.Add(after)))
			var left []string
			for _, name := range []string{"minute", "hour", "silent", "absurd", "late", "kueued"} {
				if suspended(t, server, "enforce", name) {
					left = append(left, name)
				}
			}
			if fmt.Sprint(left) != fmt.Sprint(want) {
				t.Errorf("after %v: got held Jobs %v, want %v", after, left, want)
			}
		}
		check(time.Minute+300*time.Millisecond, "minute", "hour", "silent", "absurd", "late", "kueued")
		check(time.Minute+time.Second, "hour", "silent", "absurd", "late", "kueued")
		check(time.Hour+time.Second, "silent", "absurd", "late", "kueued")
		check(6*time.Hour, "silent", "absurd", "late", "kueued")
		check(6*time.Hour+time.Second, "kueued")
		released := testutil.ToFloat64(one.releases.WithLabelValues("released")) +
			testutil.ToFloat64(two.releases.WithLabelValues("released"))
		if released != 5 {
			t.Errorf("got %v counted releases, want 5", released)
		}
		if one.o.Held.Count("") != 1 {
			t.Errorf("got %d held Jobs after the releases, want 1", one.o.Held.Count(""))
		}
		job := server.job(t, "enforce", "minute")
		if job.Annotations[v1alpha1.AnnotationReleasedAt] == "" ||
			job.Annotations[v1alpha1.AnnotationLatestStart] == "" {
			t.Errorf("unexpected annotations %v", job.Annotations)
		}
	})
}

// TestReleaserFollowsTheServersClock verifies that deadlines use the clock of the API server.
func TestReleaserFollowsTheServersClock(t *testing.T) {
	for _, skew := range []time.Duration{2 * time.Hour, -2 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			now := time.Now()
			server := newJobServer(t, kit.HeldUntil("enforce", "job", now, now.Add(30*time.Minute)))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			server.replica(ctx, t, kit.Valley(t, now), func() time.Time { return time.Now().Add(skew) })
			bubble.Advance(30*time.Minute - 500*time.Millisecond)
			if !suspended(t, server, "enforce", "job") {
				t.Errorf("local clock skew %v: released too early", skew)
			}
			bubble.Advance(5 * time.Second)
			if suspended(t, server, "enforce", "job") {
				t.Errorf("local clock skew %v: not released", skew)
			}
		})
	}
}

// TestReleaserWaitsForTheServer verifies that requests are limited while the API server is unavailable and that all
// Jobs are released when it is available again.
//
//test:norace
func TestReleaserWaitsForTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		var jobs []runtime.Object
		for i := range 100 {
			jobs = append(jobs, kit.HeldUntil("enforce", fmt.Sprint("job-", i), now, now.Add(time.Minute)))
		}
		server := newJobServer(t, jobs...)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		r := server.replica(ctx, t, kit.Valley(t, now), time.Now)
		bubble.Advance(10 * time.Second)
		server.away.Store(true)
		asked := server.asked.Load()
		bubble.Advance(time.Hour)
		if n, most := server.asked.Load()-asked, int32(time.Hour/maxClockRetry)+20; n > most {
			t.Errorf("got %d requests for the time in an hour of failures, want at most %d", n, most)
		}
		if n := server.patches.Load(); n != 0 {
			t.Errorf("got %d patches while the server is unavailable, want none", n)
		}
		server.away.Store(false)
		bubble.Advance(maxReleaseRetry + time.Second)
		if n := r.o.Held.Count(""); n != 0 {
			t.Errorf("%d Jobs are held after the server is back", n)
		}
	})
}

// TestOldestDeadlineFirst verifies that Jobs are released in the order of their deadlines.
func TestOldestDeadlineFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		server := newJobServer(t)
		r := New(Options{
			Client: server.Clientset, Held: NewHeld(), View: func() *kube.View { return kit.Valley(t, now) }, Clock: time.Now,
			Log: kit.Silent, Registerer: prometheus.NewRegistry(),
		})
		for _, i := range []int{5, 2, 9, 1, 7, 3, 8, 4, 6} {
			r.o.Held.Saw(kit.HeldUntil("enforce", fmt.Sprint("job-", i), now, now.Add(time.Duration(i)*time.Second)))
		}
		bubble.Advance(time.Minute)
		due := r.due(t.Context())
		for i, j := range due {
			if want := fmt.Sprint("job-", i+1); j.name != want {
				t.Errorf("unexpected Job %s at position %d", j.name, i+1)
			}
		}
		if len(due) != 9 {
			t.Errorf("got %d due Jobs, want 9", len(due))
		}
	})
}

// TestReleaserRespectsATakeover verifies that a Job is not changed after a user has removed its label, even if the
// informer has not observed it.
func TestReleaserRespectsATakeover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		server := newJobServer(t, kit.HeldUntil("enforce", "job", now, now.Add(time.Minute)))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		r := server.replica(ctx, t, kit.Valley(t, now), time.Now)
		j := server.job(t, "enforce", "job")
		delete(j.Labels, v1alpha1.LabelHeld)
		if _, err := server.BatchV1().Jobs("enforce").Update(ctx, j, metav1.UpdateOptions{}); err != nil { // not observed yet
			t.Fatal(err)
		}
		bubble.Advance(2 * time.Minute)
		j = server.job(t, "enforce", "job")
		if !*j.Spec.Suspend || testutil.ToFloat64(r.releases.WithLabelValues("failed")) != 0 {
			t.Error("a Job that was taken over by its user was resumed")
		}
		r.o.Held.Saw(j)
		if r.o.Held.Count("") != 0 || r.o.Held.Count("enforce") != 0 {
			t.Error("a Job without the held label is counted as held")
		}
	})
}

// TestAJobThatPanicsKeepsNoOther verifies that a panic for one Job does not affect others and that the Job is
// eventually released.
func TestAJobThatPanicsKeepsNoOther(t *testing.T) {
	t.Cleanup(panics.Reset)
	if latest := latestStart(kit.Silent, nil, nil, nil); !latest.IsZero() {
		t.Errorf("got deadline %v after a panic, want zero", latest)
	}
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		server := newJobServer(t, kit.HeldUntil("enforce", "a", now, now.Add(time.Minute)),
			kit.HeldUntil("enforce", "b", now, now.Add(time.Minute)))
		server.panics.Store(1)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		server.replica(ctx, t, kit.Valley(t, now), time.Now)
		bubble.Advance(time.Minute + 5*time.Second)
		if suspended(t, server, "enforce", "a") || suspended(t, server, "enforce", "b") {
			t.Error("a Job is held past its deadline")
		}
	})
	if again := panics.Note("overdue"); again != 3 {
		t.Errorf("got %d counted panics, want 2", again-1)
	}
}
