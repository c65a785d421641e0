package status

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	kit "github.com/kubenergy/kubenergy/internal/controller/controllertest"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/test/kit/bubble"
)

func testShadow(view func() *kube.View, leads func() bool, recorder events.EventRecorder) *Shadow {
	return NewShadow(ShadowOptions{
		View: view, Leads: leads, Events: recorder, Signal: func() string { return "average" }, Log: kit.Silent,
		Registerer: prometheus.NewRegistry(), CronJob: func(namespace, name string) *batchv1.CronJob {
			return crons[name]
		},
	})
}

// crons contains the CronJobs of each namespace.
var crons = map[string]*batchv1.CronJob{
	"etl": {
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "enforce", Name: "etl", Annotations: map[string]string{v1alpha1.AnnotationFinishBy: "08:00"},
		},
		Spec: batchv1.CronJobSpec{Schedule: "*/10 * * * *", ConcurrencyPolicy: batchv1.AllowConcurrent},
	},
	"one": {Spec: batchv1.CronJobSpec{Schedule: "*/10 * * * *", ConcurrencyPolicy: batchv1.ForbidConcurrent}},
}

// TestEventsOfCronJobs verifies that a CronJob with a delay beyond its period, and with an annotation that only has an
// effect on its template, gets one event per hour for each.
func TestEventsOfCronJobs(t *testing.T) {
	inShadow(t, func(t *testing.T, s *Shadow, recorder *events.FakeRecorder, _ *bool) {
		for i, cron := range []string{"etl", "etl", "one", "unknown"} {
			for _, ns := range []string{"enforce", "off", "elsewhere"} {
				j := kit.Job(ns, fmt.Sprint(cron, i), time.Now())
				j.Annotations = map[string]string{v1alpha1.AnnotationAllowedDelay: "6h"}
				if ns == "elsewhere" {
					j.Annotations = nil
				}
				j.OwnerReferences = []metav1.OwnerReference{{
					APIVersion: "batch/v1", Kind: "CronJob", Name: cron, Controller: new(true),
				}}
				s.Created(j)
			}
		}
		settle()
		close(recorder.Events)
		var reported []string
		for e := range recorder.Events {
			reported = append(reported, e)
		}
		want := []string{
			"Warning NoEffect annotation kubenergy.io/finish-by of a CronJob has no effect: set it in spec.jobTemplate.metadata",
			"Warning DelayReduced the allowed delay of 6h0m0s exceeds the period of the CronJob, so 36 runs would " +
				"wait at once; each run is only held until the next one is due: reduce the delay to at most 10m0s, or run the " +
				"CronJob less often",
		}
		if !slices.Equal(reported, want) {
			t.Errorf("got events %q, want %q", reported, want)
		}
	})
}

// inShadow runs a test with a running Shadow and a fake clock.
func inShadow(t *testing.T, test func(t *testing.T, s *Shadow, recorder *events.FakeRecorder, leads *bool)) {
	synctest.Test(t, func(t *testing.T) {
		view := kit.Valley(t, time.Now())
		leads := true
		recorder := events.NewFakeRecorder(100)
		s := testShadow(func() *kube.View { return view }, func() bool { return leads }, recorder)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			if err := s.Run(ctx); err != nil {
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
	bubble.Advance(2 * settleFor)
}

func TestShadowByMode(t *testing.T) {
	inShadow(t, func(t *testing.T, s *Shadow, recorder *events.FakeRecorder, _ *bool) {
		var log strings.Builder
		s.o.Log = slog.New(slog.NewTextHandler(&log, nil))
		for _, ns := range []string{"off", "shadow", "advise", "enforce", "elsewhere"} {
			s.Created(kit.Job(ns, "job", time.Now()))
			s.Created(kit.Pod(ns, "pod", time.Now()))
		}
		settle()
		for ns, want := range map[string]bool{
			"off": false, "shadow": true, "advise": true, "enforce": false, "elsewhere": false,
		} {
			got := s.status(ns)
			if !want && got != nil {
				t.Errorf("%s: unexpected counts %+v", ns, got)
			}
			if want && (got == nil || got.Decided != 2 || got.Held != 2 || got.SavedGrams <= 0 || got.Last.IsZero()) {
				t.Errorf("%s: counts = %+v, want 2 decisions", ns, got)
			}
		}
		if all := s.status(""); all.Decided != 4 || all.Held != 4 {
			t.Errorf("counts of all namespaces = %+v", all)
		}
		if n := testutil.ToFloat64(s.decisions.WithLabelValues("shadow", "guarded", outcomeHeld)); n != 2 {
			t.Errorf("counter of held decisions = %v, want 2", n)
		}
		if !strings.Contains(log.String(), "kind=Pod ") || !strings.Contains(log.String(), "kind=Job ") {
			t.Errorf("the log does not contain the kinds: %s", &log)
		}
		close(recorder.Events)
		var reported []string
		for e := range recorder.Events {
			reported = append(reported, e)
		}
		all := strings.Join(reported, "\n")
		if len(reported) != 3 || !strings.Contains(reported[0], "would be held until") ||
			strings.Count(all, "kubectl label namespace advise kubenergy.io/mode=enforce") != 2 ||
			strings.Count(all, "kubectl label namespace shadow kubenergy.io/mode=enforce") != 1 {
			t.Errorf("events = %q, want one for each object in mode advise and one for the namespace in mode shadow", reported)
		}
		s.Forget("shadow")
		if n := testutil.CollectAndCount(s.decisions); n != 1 || s.status("shadow") != nil {
			t.Errorf("%d series and status %+v after the namespace was deleted", n, s.status("shadow"))
		}
	})
}

// TestWhatIsWrittenInVainIsToldOnce verifies that annotations without effect are reported in all modes, once per
// namespace.
func TestWhatIsWrittenInVainIsToldOnce(t *testing.T) {
	inShadow(t, func(t *testing.T, s *Shadow, recorder *events.FakeRecorder, _ *bool) {
		typo := map[string]string{"kubenergy.io/alowed-delay": "6h"}
		for _, name := range []string{"first", "second"} {
			j := kit.Job("enforce", name, time.Now())
			j.Annotations = typo
			s.Created(j)
		}
		template := kit.Job("elsewhere", "template", time.Now())
		template.Annotations, template.Spec.Template.Annotations = nil, typo
		s.Created(template)
		of := kit.Pod("elsewhere", "of", time.Now()) // a pod of a Deployment
		of.Annotations = map[string]string{v1alpha1.AnnotationFinishBy: time.Now().Add(time.Minute).Format(time.RFC3339)}
		of.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "r", Controller: new(true)}}
		s.Created(of)
		long := kit.Job("enforce", "long", time.Now())
		long.Annotations = map[string]string{v1alpha1.AnnotationAllowedDelay: "900h"}
		s.Created(long)
		nonsense := kit.Job("elsewhere", "nonsense", time.Now())
		nonsense.Annotations = map[string]string{v1alpha1.AnnotationStrategy: "luck"}
		s.Created(nonsense)
		settle()
		close(recorder.Events)
		var reported []string
		for e := range recorder.Events {
			reported = append(reported, e)
		}
		all := strings.Join(reported, "\n")
		if len(reported) != 5 || strings.Count(all, "Warning NoEffect") != 4 || !strings.Contains(all, "leaves no time") ||
			!strings.Contains(all, "Warning DelayReduced kubenergy.io/allowed-delay is 900h0m0s, but at most 24h0m0s is allowed") ||
			strings.Count(all, "did you mean kubenergy.io/allowed-delay?") != 2 || !strings.Contains(all, `"luck"`) {
			t.Errorf("unexpected events:\n%s", all)
		}
	})
}

func TestShadowLeavesAlone(t *testing.T) {
	suspended, annotated, urgent := kit.Job("shadow", "suspended", time.Time{}),
		kit.Job("shadow", "nonsense", time.Time{}), kit.Job("shadow", "urgent", time.Time{})
	suspended.Spec.Suspend = new(true)
	annotated.Annotations = map[string]string{v1alpha1.AnnotationAllowedDelay: "soon"}
	urgent.Annotations = map[string]string{v1alpha1.AnnotationRunNow: "true"}
	hook, queued := kit.Job("shadow", "hook", time.Time{}), kit.Job("shadow", "queued", time.Time{})
	hook.Annotations = map[string]string{"helm.sh/hook": "pre-install"}
	queued.Labels = map[string]string{policy.LabelKueueQueue: "q"}
	owned := kit.Pod("shadow", "owned", time.Time{})
	owned.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "r", Controller: new(true)}}
	inShadow(t, func(t *testing.T, s *Shadow, _ *events.FakeRecorder, leads *bool) {
		for _, j := range []*batchv1.Job{suspended, annotated, hook, queued, urgent} {
			j.CreationTimestamp = metav1.Now()
			s.Created(j)
		}
		owned.CreationTimestamp = metav1.Now()
		s.Created(owned)
		s.Created(kit.Job("shadow", "older", time.Now().Add(-time.Hour)))
		s.Created(kit.Job("kube-system", "system", time.Now()))
		*leads = false
		s.Created(kit.Job("shadow", "of-the-leader", time.Now()))
		settle()
		if got := s.status(""); got == nil || got.Decided != 1 || got.Held != 0 {
			t.Errorf("counts = %+v, want only the Job with run-now, not held", got)
		}
	})
}

// TestShadowCountsOnce verifies that objects that are added again after a restart of the watch are counted once.
func TestShadowCountsOnce(t *testing.T) {
	inShadow(t, func(t *testing.T, s *Shadow, _ *events.FakeRecorder, _ *bool) {
		j := kit.Job("shadow", "job", time.Now())
		for range 5 {
			s.Created(j)
			settle()
		}
		if got := s.status("shadow"); got.Decided != 1 {
			t.Errorf("counts = %+v, want one decision", got)
		}
		bubble.Advance(2 * shadowMemory)
		s.Created(j)
		s.Created(kit.Job("shadow", "next", time.Now()))
		settle()
		if got := s.status("shadow"); got.Decided != 2 {
			t.Errorf("counts = %+v, want two decisions", got)
		}
	})
}

// TestShadowSaysWhatItLost verifies that new work is counted as lost if the queue is full.
func TestShadowSaysWhatItLost(t *testing.T) {
	s := testShadow(func() *kube.View { return &kube.View{} }, func() bool { return true }, nil)
	for range shadowQueue + 7 {
		s.Created(kit.Job("shadow", "job", time.Now()))
	}
	if n := testutil.ToFloat64(s.missed); n != 7 {
		t.Errorf("lost %v objects, want 7", n)
	}
}
