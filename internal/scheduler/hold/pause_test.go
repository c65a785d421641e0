package hold

import (
	"strings"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
	"github.com/kubenergy/kubenergy/internal/scheduler/record"
	"github.com/kubenergy/kubenergy/test/kit/bubble"
)

// pauseRecords enables pauses and collects the records of the loop.
type pauseRecords struct {
	mu      sync.Mutex
	records []record.Entry
}

func (p *pauseRecords) enable(_ *world, c *Config) {
	c.Pauses = true
	c.Record = func(e *record.Entry) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.records = append(p.records, *e)
	}
}

// hours publishes hourly carbon intensities of two days. The last value is that of all remaining hours.
func (w *world) hours(values ...float64) {
	w.t.Helper()
	for len(values) < 48 {
		values = append(values, values[len(values)-1])
	}
	series, err := grid.NewSeries(time.Now(), time.Hour, values)
	if err != nil {
		w.t.Fatal(err)
	}
	w.know(kube.Contents{Sites: []*sched.Site{{Name: "here", Carbon: grid.Signal{Series: series}}}})
}

// runsJob creates a running interruptible Job with one pod, and the binding of the policy that suspends Jobs.
func (w *world) runsJob(annotations map[string]string, change ...func(*batchv1.Job)) {
	w.t.Helper()
	binding := &admissionv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: kube.HoldPolicy}}
	if _, err := w.client.AdmissionregistrationV1().MutatingAdmissionPolicyBindings().Create(w.t.Context(), binding,
		metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	all := map[string]string{
		v1alpha1.AnnotationAllowedDelay: "6h", v1alpha1.AnnotationExpectedDuration: "3h",
		v1alpha1.AnnotationStrategy: "carbon+residual", v1alpha1.AnnotationReleasedAt: "2000-01-01T00:00:00Z",
	}
	for key, value := range annotations {
		all[key] = value
	}
	w.job("j", all, append([]func(*batchv1.Job){func(j *batchv1.Job) {
		j.Labels = map[string]string{v1alpha1.LabelInterruptible: "true"}
		j.Spec.Suspend = new(false)
		j.Spec.Template.Labels = map[string]string{"app": "training"}
		j.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{batchv1.ControllerUidLabel: "j"}}
	}}, change...)...)
	w.jobRuns(new(metav1.Now()))
}

// jobRuns sets the status of the Job and of its pod as the Job controller and the kubelet do after a start, or after
// the Job was suspended if at is nil.
func (w *world) jobRuns(at *metav1.Time) {
	w.t.Helper()
	ctx, j := w.t.Context(), w.read("j")
	if j.Status.StartTime = at; at != nil {
		// The times of the API server have a resolution of a second.
		j.Status.StartTime = new(metav1.NewTime(at.Truncate(time.Second)))
	}
	j.ResourceVersion += "0"
	if _, err := w.client.BatchV1().Jobs("default").Update(ctx, j, metav1.UpdateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	pods := w.client.CoreV1().Pods("default")
	_ = pods.Delete(ctx, "p", metav1.DeleteOptions{}) // of the previous run, if any
	if at == nil {
		return
	}
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "p", Labels: map[string]string{batchv1.ControllerUidLabel: "j"},
		},
		Status: v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{{
			State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: *at}},
		}}},
	}
	if _, err := pods.Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// TestJobIsPausedAndResumed verifies that a running Job is paused in dirty hours, resumed after them, that its work is
// recorded to the second, and that the recorded decision is reproduced from its snapshot.
func TestJobIsPausedAndResumed(t *testing.T) {
	var p pauseRecords
	during(t, p.enable, func(w *world) {
		began := time.Now()
		w.hours(100, 900, 900, 100)
		w.runsJob(map[string]string{v1alpha1.AnnotationRestartCost: "2m", v1alpha1.AnnotationCheckpointInterval: "7m"})
		bubble.Advance(59 * time.Minute)
		if w.suspended("j") {
			t.Fatal("the Job was paused in a clean hour")
		}
		bubble.Advance(2 * time.Minute)
		j := w.read("j")
		ran := time.Since(began).Truncate(time.Minute).Round(time.Minute)
		if !*j.Spec.Suspend || j.Labels[v1alpha1.LabelHeld] != "true" {
			t.Fatalf("the Job was not paused: %v %v", j.Labels, j.Annotations)
		}
		worked, _ := time.ParseDuration(j.Annotations[v1alpha1.AnnotationWorked])
		lost, _ := time.ParseDuration(j.Annotations[v1alpha1.AnnotationLostWork])
		// 8 checkpoints within an hour; the rest of 4 minutes and the work repeated after the pause are lost
		if worked != 56*time.Minute || (worked+lost-2*time.Minute-ran).Abs() > 2*time.Minute ||
			j.Annotations[v1alpha1.AnnotationPauses] != "1" || j.Annotations[v1alpha1.AnnotationReleasedAt] != "" {
			t.Errorf("annotations %v", j.Annotations)
		}
		w.jobRuns(nil)
		bubble.Advance(time.Hour + 50*time.Minute)
		if !w.suspended("j") {
			t.Fatal("the Job was resumed in a dirty hour")
		}
		bubble.Advance(10 * time.Minute)
		if w.suspended("j") {
			t.Fatal("the Job was not resumed after the dirty hours")
		}
		if got := w.events("j"); got != "Paused Released" && got != "Paused Held Released" {
			t.Errorf("events %q: %s", got, w.notes("j"))
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		paused := p.records[0]
		rule, err := strategy.New(paused.Strategy)
		if err != nil || paused.Action != record.Pause {
			t.Fatalf("%+v %v", paused, err)
		}
		if d := rule.Plan(paused.Question)[0]; !d.Window.Start.Equal(paused.Start) ||
			d.Reason.Kind.String() != paused.Reason {
			t.Errorf("the replayed decision is %+v", d)
		}
	})
}

// TestSeveralPauses verifies the booked work and the deadline after two pauses.
func TestSeveralPauses(t *testing.T) {
	var p pauseRecords
	during(t, p.enable, func(w *world) {
		w.hours(100, 900, 100, 900, 100)
		w.runsJob(map[string]string{
			v1alpha1.AnnotationRestartCost: "5m", v1alpha1.AnnotationStrategy: "carbon+ecovisor",
		})
		created := w.read("j").CreationTimestamp
		pauses, started := 0, time.Now()
		var ran time.Duration // of the runs that have ended
		for range 4 * 60 {
			before := w.suspended("j")
			bubble.Advance(time.Minute)
			switch after := w.suspended("j"); {
			case after && !before:
				pauses++
				ran += time.Since(started)
				w.jobRuns(nil)
			case before && !after:
				started = time.Now()
				w.jobRuns(new(metav1.Now()))
			}
		}
		j := w.read("j")
		worked, _ := time.ParseDuration(j.Annotations[v1alpha1.AnnotationWorked])
		if pauses != 2 || j.Annotations[v1alpha1.AnnotationPauses] != "2" ||
			j.Annotations[v1alpha1.AnnotationLostWork] != "10m0s" || // a second run and the next one repeat work
			(ran-5*time.Minute-worked).Abs() > 2*time.Minute {
			t.Errorf("%d pauses, %v of work in %v: %v", pauses, worked, ran, j.Annotations)
		}
		want := created.Add(6*time.Hour + worked - 5*time.Minute).UTC().Format(time.RFC3339)
		if got := j.Annotations[v1alpha1.AnnotationLatestStart]; got != want {
			t.Errorf("the latest resumption is %s, want %s", got, want)
		}
	})
}

// TestResumedByItsUser verifies that a Job that its user has resumed is not paused again.
func TestResumedByItsUser(t *testing.T) {
	var p pauseRecords
	during(t, p.enable, func(w *world) {
		w.hours(100, 900, 900, 900, 100)
		w.runsJob(nil)
		bubble.Advance(61 * time.Minute)
		if !w.suspended("j") {
			t.Fatal("the Job was not paused")
		}
		j := w.read("j")
		j.Spec.Suspend = new(false)
		if _, err := w.client.BatchV1().Jobs("default").Update(t.Context(), j, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		bubble.Advance(time.Minute)
		w.jobRuns(new(metav1.Now()))
		bubble.Advance(90 * time.Minute)
		if w.suspended("j") || w.read("j").Labels[v1alpha1.LabelHeld] != "" {
			t.Errorf("the Job was paused again: %v", w.read("j").Annotations)
		}
	})
}

// TestPausesEndInTime verifies that the sum of all pauses and the repeated work does not exceed the allowed delay (P1),
// although the grid remains dirty.
func TestPausesEndInTime(t *testing.T) {
	var p pauseRecords
	during(t, p.enable, func(w *world) {
		w.hours(100, 900, 900, 900, 900, 900, 900, 900, 900, 900, 100)
		w.runsJob(map[string]string{v1alpha1.AnnotationAllowedDelay: "3h", v1alpha1.AnnotationStrategy: "carbon+ecovisor",
			v1alpha1.AnnotationRestartCost: "10m"})
		paused, started := time.Duration(0), metav1.Now()
		for at := 0; at < 12*60; at++ {
			before := w.suspended("j")
			bubble.Advance(time.Minute)
			switch after := w.suspended("j"); {
			case after:
				paused += time.Minute
				if !before {
					w.jobRuns(nil)
				}
			case before:
				started = metav1.Now()
				w.jobRuns(&started)
			}
		}
		if limit := 3*time.Hour - 10*time.Minute; paused > limit+2*time.Minute || paused < limit-5*time.Minute {
			t.Errorf("paused for %v, want about %v", paused, limit)
		}
	})
}

// TestNotPaused lists Jobs that continue to run in dirty hours.
func TestNotPaused(t *testing.T) {
	for name, tc := range map[string]struct {
		annotations map[string]string
		change      func(*world, *batchv1.Job)
		event       string
	}{
		"repeats more than it saves": {annotations: map[string]string{v1alpha1.AnnotationRestartCost: "3h"}},
		"as often as allowed": {annotations: map[string]string{
			v1alpha1.AnnotationMaxPauses: "2", v1alpha1.AnnotationPauses: "2", v1alpha1.AnnotationPaused: "j",
		}},
		// the last pause must not end at once
		"next run of its CronJob": {
			annotations: map[string]string{v1alpha1.AnnotationExpectedDuration: "3h"},
			change: func(w *world, j *batchv1.Job) {
				c := &batchv1.CronJob{
					ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c"},
					Spec: batchv1.CronJobSpec{
						Schedule: "0 3 * * *", TimeZone: new("Etc/UTC"), ConcurrencyPolicy: batchv1.ReplaceConcurrent,
					},
				}
				if _, err := w.client.BatchV1().CronJobs("default").Create(w.t.Context(), c, metav1.CreateOptions{}); err != nil {
					w.t.Fatal(err)
				}
				j.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(c,
					batchv1.SchemeGroupVersion.WithKind("CronJob"))}
			},
			event: "before its pods have ended",
		},
		"requested to run":     {annotations: map[string]string{v1alpha1.AnnotationRunNow: "true"}},
		"rule that only holds": {annotations: map[string]string{v1alpha1.AnnotationStrategy: "carbon+rolling"}},
		"not interruptible": {change: func(_ *world, j *batchv1.Job) {
			j.Labels[v1alpha1.LabelInterruptible] = "false"
		}},
		"Kueue": {change: func(_ *world, j *batchv1.Job) { j.Labels["kueue.x-k8s.io/queue-name"] = "q" }},
		"another controller": {change: func(_ *world, j *batchv1.Job) {
			j.Spec.ManagedBy = new("example.com/controller")
		}},
		"complete": {change: func(_ *world, j *batchv1.Job) {
			j.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: v1.ConditionTrue}}
		}},
		"parallelism of 0": {change: func(_ *world, j *batchv1.Job) { j.Spec.Parallelism = new(int32(0)) }},
		"work queue that is nearly complete": {
			change: func(_ *world, j *batchv1.Job) { j.Status.Succeeded = 1 },
			event:  "it would be complete without the others",
		},
		"long grace period": {
			change: func(_ *world, j *batchv1.Job) {
				j.Spec.Template.Spec.TerminationGracePeriodSeconds = new(int64(7 * 3600))
			},
			event: "before its pods have ended",
		},
		"disruption budget": {
			change: func(w *world, _ *batchv1.Job) {
				b := &policyv1.PodDisruptionBudget{
					ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "all"},
					Spec: policyv1.PodDisruptionBudgetSpec{
						MinAvailable: ptr.To(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{},
					},
				}
				if _, err := w.client.PolicyV1().PodDisruptionBudgets("default").Create(w.t.Context(), b,
					metav1.CreateOptions{}); err != nil {
					w.t.Fatal(err)
				}
			},
			event: "PodDisruptionBudget all",
		},
		"holding disabled": {
			change: func(w *world, _ *batchv1.Job) {
				if err := w.client.AdmissionregistrationV1().MutatingAdmissionPolicyBindings().Delete(w.t.Context(),
					kube.HoldPolicy, metav1.DeleteOptions{}); err != nil {
					w.t.Fatal(err)
				}
			},
			event: "holding is disabled",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var p pauseRecords
			during(t, p.enable, func(w *world) {
				w.hours(100, 900, 900, 600)
				w.runsJob(tc.annotations, func(j *batchv1.Job) {
					if tc.change != nil {
						tc.change(w, j)
					}
				})
				bubble.Advance(150 * time.Minute)
				if w.suspended("j") {
					t.Error("the Job was paused")
				}
				if notes := w.notes("j"); tc.event == "" && notes != "" || !strings.Contains(notes, tc.event) {
					t.Errorf("events %q, want %q", notes, tc.event)
				}
			})
		})
	}
}
