package controller

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/energy"
	"github.com/kubenergy/kubenergy/grid"
	"github.com/kubenergy/kubenergy/kube"
	"github.com/kubenergy/kubenergy/policy"
	"github.com/kubenergy/kubenergy/sched"
)

// valley is a view whose one site is dirty for an hour and clean from then on, in which every namespace named after a
// mode is in that mode and lets work wait for six hours.
func valley(t testing.TB, now time.Time) *kube.View {
	t.Helper()
	values := []float64{500, 100, 100, 100, 100, 100, 100, 100, 100, 100}
	series, err := grid.NewSeries(now.Truncate(time.Hour), time.Hour, values)
	if err != nil {
		t.Fatal(err)
	}
	contents := kube.Contents{
		Sites: []*sched.Site{{Name: "home", Zone: "DE", Carbon: grid.Signal{Series: series}}},
		Profiles: []*kube.NodeProfile{{
			Profile: energy.Profile{Name: "server", Idle: 100, Max: 200, Sleep: 100}, PUE: 1.5,
		}},
		DefaultProfile: "server",
		Defaults: policy.Defaults{
			Mode: v1alpha1.ModeShadow, MaxDelay: 24 * time.Hour, ExpectedDuration: time.Hour,
		},
	}
	for _, mode := range []v1alpha1.Mode{
		v1alpha1.ModeOff, v1alpha1.ModeShadow, v1alpha1.ModeAdvise, v1alpha1.ModeEnforce,
	} {
		contents.Policies = append(contents.Policies, energyPolicy(string(mode), mode, 6*time.Hour))
	}
	v, err := contents.View()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func newJob(ns, name string, created time.Time) *batchv1.Job {
	return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{
		Namespace: ns, Name: name, UID: types.UID(ns + "/" + name), CreationTimestamp: metav1.NewTime(created),
	}}
}

func newPod(ns, name string, created time.Time) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: ns, Name: name, UID: types.UID(ns + "/" + name), CreationTimestamp: metav1.NewTime(created),
	}}
}

// inShadow runs a test with a shadow that decides, on a fake clock.
func inShadow(t *testing.T, test func(t *testing.T, s *shadow, recorder *events.FakeRecorder, leads *bool)) {
	synctest.Test(t, func(t *testing.T) {
		view := valley(t, time.Now())
		leads := true
		recorder := events.NewFakeRecorder(100)
		s := newShadow(func() *kube.View { return view }, func() bool { return leads }, recorder,
			newInstruments(prometheus.NewRegistry()), silent)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			if err := s.run(ctx); err != nil {
				t.Error(err)
			}
			close(done)
		}()
		test(t, s, recorder, &leads)
		cancel()
		<-done
	})
}

func settle() {
	time.Sleep(2 * settleFor)
	synctest.Wait()
}

func TestShadowByMode(t *testing.T) {
	inShadow(t, func(t *testing.T, s *shadow, recorder *events.FakeRecorder, _ *bool) {
		for _, ns := range []string{"off", "shadow", "advise", "enforce", "elsewhere"} {
			s.sawJob(newJob(ns, "job", time.Now()))
			s.sawPod(newPod(ns, "pod", time.Now()))
		}
		settle()
		for ns, want := range map[string]bool{
			"off": false, "shadow": true, "advise": true, "enforce": false, "elsewhere": false,
		} {
			got := s.status(ns)
			if !want && got != nil {
				t.Errorf("%s: %+v was counted", ns, got)
			}
			if want && (got == nil || got.Decided != 2 || got.Held != 2 || got.SavedGrams <= 0 || got.Last.IsZero()) {
				t.Errorf("%s: counted %+v, want two", ns, got)
			}
		}
		if all := s.status(""); all.Decided != 4 || all.Held != 4 {
			t.Errorf("all are %+v", all)
		}
		if n := testutil.ToFloat64(s.metrics.shadowDecisions.WithLabelValues("shadow", "window", outcomeHeld)); n != 2 {
			t.Errorf("the counter is %v", n)
		}
		close(recorder.Events)
		var told []string
		for e := range recorder.Events {
			told = append(told, e)
		}
		if len(told) != 2 || !strings.Contains(told[0], "would be held until") {
			t.Errorf("events are %q: want one for each object in mode advise", told)
		}
		s.forget("shadow")
		s.metrics.forget("shadow")
		if n := testutil.CollectAndCount(s.metrics.shadowDecisions); n != 1 || s.status("shadow") != nil {
			t.Errorf("%d series, status %+v after the namespace is gone", n, s.status("shadow"))
		}
	})
}

func TestShadowLeavesAlone(t *testing.T) {
	suspended, annotated, urgent := newJob("shadow", "suspended", time.Time{}),
		newJob("shadow", "nonsense", time.Time{}), newJob("shadow", "urgent", time.Time{})
	suspended.Spec.Suspend = new(true)
	annotated.Annotations = map[string]string{v1alpha1.AnnotationAllowedDelay: "soon"}
	urgent.Annotations = map[string]string{v1alpha1.AnnotationRunNow: "true"}
	hook, queued := newJob("shadow", "hook", time.Time{}), newJob("shadow", "queued", time.Time{})
	hook.Annotations = map[string]string{"helm.sh/hook": "pre-install"}
	queued.Labels = map[string]string{policy.LabelKueueQueue: "q"}
	owned := newPod("shadow", "owned", time.Time{})
	owned.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "r", Controller: new(true)}}
	inShadow(t, func(t *testing.T, s *shadow, _ *events.FakeRecorder, leads *bool) {
		for _, j := range []*batchv1.Job{suspended, annotated, hook, queued, urgent} {
			j.CreationTimestamp = metav1.Now()
			s.sawJob(j)
		}
		owned.CreationTimestamp = metav1.Now()
		s.sawPod(owned)
		s.sawJob(newJob("shadow", "older", time.Now().Add(-time.Hour)))
		s.sawJob(newJob("kube-system", "system", time.Now()))
		*leads = false
		s.sawJob(newJob("shadow", "of-the-leader", time.Now()))
		settle()
		if got := s.status(""); got == nil || got.Decided != 1 || got.Held != 0 {
			t.Errorf("counted %+v, want the one that is to run now, as not held", got)
		}
	})
}

// Watches that break bring objects twice, and memory is bounded.
func TestShadowCountsOnce(t *testing.T) {
	inShadow(t, func(t *testing.T, s *shadow, _ *events.FakeRecorder, _ *bool) {
		j := newJob("shadow", "job", time.Now())
		for range 5 {
			s.sawJob(j)
			settle()
		}
		if got := s.status("shadow"); got.Decided != 1 {
			t.Errorf("counted %+v, want one", got)
		}
		time.Sleep(2 * shadowMemory)
		s.sawJob(j)
		s.sawJob(newJob("shadow", "next", time.Now()))
		settle()
		if got := s.status("shadow"); got.Decided != 2 || len(s.seen) != 1 {
			t.Errorf("counted %+v with %d remembered", got, len(s.seen))
		}
	})
}

// More new work than is remembered is not decided on, and that is counted.
func TestShadowSaysWhatItLost(t *testing.T) {
	s := newShadow(func() *kube.View { return &kube.View{} }, func() bool { return true }, nil,
		newInstruments(prometheus.NewRegistry()), silent)
	for i := range maxSeen + 7 {
		if first := s.first(types.UID(strconv.Itoa(i)), noon); first != (i < maxSeen) {
			t.Fatalf("number %d is looked at: %v", i, first)
		}
	}
	if s.first("0", noon) {
		t.Error("the first is looked at twice")
	}
	if n := testutil.ToFloat64(s.metrics.shadowLost); n != 7 {
		t.Errorf("%v were lost, want 7", n)
	}
	if !s.first("later", noon.Add(2*shadowMemory)) || len(s.seen) != 1 || len(s.order) != 1 {
		t.Errorf("%d are remembered long after, %d in order", len(s.seen), len(s.order))
	}
}
