package hold

import (
	"errors"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/test/kit/bubble"
)

// policy publishes a signal that is clean after the given time, and a policy for the namespace of the tests that
// allows a delay of three hours by default.
func (w *world) policy(mode v1alpha1.Mode, after time.Duration) {
	w.t.Helper()
	values := make([]float64, 24*60)
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
	w.know(kube.Contents{
		Sites: []*sched.Site{{Name: "here", Carbon: grid.Signal{Series: series}}},
		Policies: []*v1alpha1.EnergyPolicy{{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: v1alpha1.PolicyName},
			Spec: v1alpha1.EnergyPolicySpec{
				Mode:             mode,
				WorkloadSettings: v1alpha1.WorkloadSettings{AllowedDelay: &metav1.Duration{Duration: 3 * time.Hour}},
			},
		}},
	})
}

func TestNamespacePolicyHolds(t *testing.T) {
	during(t, nil, func(w *world) {
		w.policy(v1alpha1.ModeEnforce, time.Hour)
		w.job("j", nil)
		if _, held := w.loop.Hold(w.pod("p", nil)); !held {
			t.Error("the pod is not held")
		}
		w.wantJob("j", 59*time.Minute, time.Hour)
		if got := w.events("j"); got != "Held Released" {
			t.Errorf("events are %q", got)
		}
		if w.read("j").Annotations[v1alpha1.AnnotationLatestStart] == "" {
			t.Error("the annotation latest-start is missing")
		}
	})
}

// TestLeavingEnforceReleases verifies that held objects are released when their namespace leaves the mode enforce.
func TestLeavingEnforceReleases(t *testing.T) {
	for _, mode := range []v1alpha1.Mode{v1alpha1.ModeAdvise, v1alpha1.ModeShadow, v1alpha1.ModeOff} {
		t.Run(string(mode), func(t *testing.T) {
			during(t, nil, func(w *world) {
				w.policy(v1alpha1.ModeEnforce, 2*time.Hour)
				w.job("j", nil)
				w.loop.Hold(w.pod("p", nil))
				bubble.Advance(10 * time.Minute)
				if !w.suspended("j") {
					t.Fatal("the Job was not held")
				}
				w.policy(mode, 2*time.Hour)
				w.wantJob("j", 0, time.Second)
				if _, ok := w.activated("p"); !ok {
					t.Error("the pod is still held")
				}
				// Admission may still hold a new Job, because it sees the change of the mode later.
				w.job("late", nil)
				w.wantJob("late", time.Second, 3*time.Second)
				if _, held := w.loop.Hold(w.pod("late", nil)); held {
					t.Error("a new pod is held")
				}
				bubble.Advance(time.Minute)
				if got := w.events("j"); !strings.HasPrefix(got, "Held ") {
					t.Errorf("events are %q", got)
				}
			})
		})
	}
}

// TestUnknownPoliciesKeepThePromise verifies that a Job without an annotation for its delay is neither released nor
// held beyond the deadline written by an earlier process until the policies are loaded.
func TestUnknownPoliciesKeepThePromise(t *testing.T) {
	latest := func(in time.Duration) func(*batchv1.Job) {
		return func(j *batchv1.Job) {
			j.Annotations = map[string]string{v1alpha1.AnnotationLatestStart: time.Now().Add(in).UTC().Format(
				time.RFC3339)}
		}
	}
	during(t, nil, func(w *world) {
		w.see(kube.Unsettled())
		w.job("promised", nil, latest(20*time.Second))
		w.job("later", nil, latest(time.Hour))
		w.job("new", nil)
		if _, held := w.loop.Hold(w.pod("p", nil)); held {
			t.Error("a pod is held before the policies are loaded")
		}
		w.wantJob("promised", 10*time.Second, 21*time.Second)
		for _, name := range []string{"later", "new"} {
			if !w.suspended(name) {
				t.Errorf("Job %s was released before the policies were loaded", name)
			}
		}
		w.policy(v1alpha1.ModeEnforce, 30*time.Minute)
		w.wantJob("new", 28*time.Minute, 31*time.Minute)
	})
	during(t, nil, func(w *world) {
		w.see(kube.Unsettled())
		w.job("new", nil)
		bubble.Advance(20 * time.Second)
		w.know(kube.Contents{}) // there are no policies
		w.wantJob("new", 0, time.Second)
	})
}

func TestThresholdIsHeldAndReleased(t *testing.T) {
	during(t, nil, func(w *world) {
		w.green(45 * time.Minute)
		annotations := map[string]string{"compute-gardener-scheduler.kubernetes.io/carbon-intensity-threshold": "200"}
		w.job("j", annotations)
		w.loop.Hold(w.pod("p", annotations))
		w.wantJob("j", 44*time.Minute, 45*time.Minute)
		if _, ok := w.activated("p"); !ok {
			t.Error("the pod is held")
		}
		if reason := w.read("j").Annotations[v1alpha1.AnnotationHeldReason]; !strings.Contains(reason, "200") {
			t.Errorf("the reason of the hold is %q", reason)
		}
	})
}

// TestHopeEndsWithTheSignals verifies that a Job with a threshold that may be met after the end of the forecast
// waits only while there are signals.
func TestHopeEndsWithTheSignals(t *testing.T) {
	during(t, nil, func(w *world) {
		w.forecast(6*time.Hour, 8*time.Hour)
		never := map[string]string{v1alpha1.AnnotationCarbonThreshold: "50", v1alpha1.AnnotationAllowedDelay: "10h"}
		later := map[string]string{v1alpha1.AnnotationCarbonThreshold: "200", v1alpha1.AnnotationAllowedDelay: "8h"}
		w.job("never", never)
		w.job("later", later)
		bubble.Advance(10 * time.Minute)
		if !w.suspended("never") || !w.suspended("later") {
			t.Fatal("not held")
		}
		w.know(kube.Contents{})
		w.wantJob("never", 0, time.Second)
		w.wantJob("later", 5*time.Hour, 6*time.Hour)
	})
}

// TestUnmetThreshold verifies that a threshold that cannot be met before the latest start does not hold the Job.
// The owner is notified of this and of a cheaper window.
func TestUnmetThreshold(t *testing.T) {
	during(t, nil, func(w *world) {
		w.green(2 * time.Hour)
		w.job("now", map[string]string{v1alpha1.AnnotationCarbonThreshold: "50", v1alpha1.AnnotationAllowedDelay: "1h"})
		w.job("best", map[string]string{v1alpha1.AnnotationCarbonThreshold: "50", v1alpha1.AnnotationAllowedDelay: "6h"})
		w.wantJob("now", 0, time.Second)
		if said := w.notes("now"); !strings.Contains(said, "no forecast falls to the carbon-threshold of 50") {
			t.Errorf("the notes of the events are %q", said)
		}
		w.wantJob("best", 2*time.Hour-time.Minute, 2*time.Hour)
		if said := w.notes("best"); !strings.Contains(said, "no forecast falls to the carbon-threshold of 50") {
			t.Errorf("the notes of the events are %q", said)
		}
	})
}

// TestPromiseBeforePoliciesAreKnown verifies that a deadline written by an earlier process takes precedence over
// the delay in the annotation, because that process had loaded the schedule of the CronJob and the maximum delay of
// the cluster.
func TestPromiseBeforePoliciesAreKnown(t *testing.T) {
	during(t, nil, func(w *world) {
		w.see(kube.Unsettled())
		w.job("j", marked(5*time.Hour), func(j *batchv1.Job) {
			j.Annotations[v1alpha1.AnnotationLatestStart] = time.Now().Add(20 * time.Second).UTC().Format(time.RFC3339)
		})
		w.wantJob("j", 10*time.Second, 21*time.Second)
	})
}

// TestChangedLimitsCount verifies that changes to a held Job by its user, including those of thresholds, take
// effect immediately.
func TestChangedLimitsCount(t *testing.T) {
	during(t, nil, func(w *world) {
		w.green(time.Hour) // 500 g/kWh until then
		w.job("j", map[string]string{v1alpha1.AnnotationAllowedDelay: "3h", v1alpha1.AnnotationCarbonThreshold: "200"})
		pod := w.pod("p", map[string]string{
			v1alpha1.AnnotationAllowedDelay: "3h", v1alpha1.AnnotationCarbonThreshold: "200",
		})
		w.loop.Hold(pod)
		bubble.Advance(time.Minute)
		if !w.suspended("j") {
			t.Fatal("not held")
		}
		patch := []byte(`{"metadata":{"annotations":{"` + v1alpha1.AnnotationCarbonThreshold + `":"600"}}}`)
		if _, err := w.client.BatchV1().Jobs("default").Patch(t.Context(), "j", types.MergePatchType, patch,
			metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.client.CoreV1().Pods("default").Patch(t.Context(), "p", types.MergePatchType, patch,
			metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		w.wantJob("j", 0, time.Second)
		if _, ok := w.activated("p"); !ok {
			t.Error("the pod is held")
		}
	})
}

// TestRunNowDuringALookup verifies that the annotation run-now takes effect without waiting for an earlier lookup
// of the CronJob.
func TestRunNowDuringALookup(t *testing.T) {
	asked := make(chan struct{}, 8)
	prepare := func(w *world, _ *Config) {
		w.client.PrependReactor("get", "cronjobs", func(clienttesting.Action) (bool, runtime.Object, error) {
			asked <- struct{}{}
			return true, nil, apierrors.NewInternalError(errors.New("slow"))
		})
	}
	during(t, prepare, func(w *world) {
		w.green(2 * time.Hour)
		// Use up the concurrency limit, so that the lookup has to wait.
		for range parallelLookups {
			w.loop.lookups <- struct{}{}
		}
		w.job("j", marked(3*time.Hour), func(j *batchv1.Job) {
			j.OwnerReferences = []metav1.OwnerReference{{
				APIVersion: "batch/v1", Kind: "CronJob", Name: "c", Controller: new(true),
			}}
		})
		bubble.Advance(time.Second)
		patch := []byte(`{"metadata":{"annotations":{"` + v1alpha1.AnnotationRunNow + `":"true"}}}`)
		if _, err := w.client.BatchV1().Jobs("default").Patch(t.Context(), "j", types.MergePatchType, patch,
			metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		w.wantJob("j", 0, time.Second)
		for range parallelLookups {
			<-w.loop.lookups
		}
	})
}

func TestOtherModesAreSilent(t *testing.T) {
	during(t, nil, func(w *world) {
		w.policy(v1alpha1.ModeOff, time.Hour)
		w.loop.Hold(w.pod("p", map[string]string{v1alpha1.AnnotationAllowedDelay: "tomorrow"}))
		bubble.Advance(time.Minute)
		if got := w.events("p"); got != "" {
			t.Errorf("events are %q", got)
		}
	})
}

// TestNewHoldSurvivesALateMode verifies that a new hold survives if admission sees the switch of a namespace to
// enforce before the loop does.
func TestNewHoldSurvivesALateMode(t *testing.T) {
	during(t, nil, func(w *world) {
		w.policy(v1alpha1.ModeShadow, time.Hour)
		w.job("j", nil)
		bubble.Advance(time.Second)
		w.policy(v1alpha1.ModeEnforce, time.Hour)
		w.wantJob("j", 50*time.Minute, time.Hour)
	})
}
