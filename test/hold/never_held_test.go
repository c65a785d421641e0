package hold

import (
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/test/kit"
)

// timeout allows for a Job controller that is still busy with the Jobs of previous tests at its default rate
// limits.
const timeout = time.Minute

// TestNeverHeld has one test for each kind of workload that is never held and for released and resumed workloads.
func TestNeverHeld(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a control plane")
	}
	w := shared
	w.forgetLeases(t)
	w.Leads(t, w.scheduler(t, "never", w.declining(t)))
	n := w.Namespace(t, "never", nil)
	d := w.watch(t, n)
	ctx := t.Context()

	t.Run("rows", func(t *testing.T) {
		for name, test := range map[string]func(*testing.T){
			"a run of a CronJob with Replace": func(t *testing.T) {
				w.everyRunHappens(t, n, batchv1.ReplaceConcurrent)
			},
			"a run of a CronJob with Forbid": func(t *testing.T) { w.everyRunHappens(t, n, batchv1.ForbidConcurrent) },
			"a Job suspended by its user": func(t *testing.T) {
				w.createJob(t, n, newJob("suspended", "5s",
					func(j *batchv1.Job) { yes := true; j.Spec.Suspend = &yes }))
				time.Sleep(10 * time.Second) // the Job must not be released
				if j := w.job(t, n, "suspended"); !*j.Spec.Suspend || j.Labels[v1alpha1.LabelHeld] != "" {
					t.Errorf("unexpected Job: suspended %v, labels %v", *j.Spec.Suspend, j.Labels)
				}
			},
			"a Job in a Kueue queue": func(t *testing.T) {
				w.createJob(t, n, newJob("kueue", "5s",
					func(j *batchv1.Job) { j.Labels = map[string]string{"kueue.x-k8s.io/queue-name": "q"} }))
				if j := w.job(t, n, "kueue"); j.Spec.Suspend != nil && *j.Spec.Suspend ||
					j.Labels[v1alpha1.LabelHeld] != "" {
					t.Errorf("Job was suspended or labeled: %v", j.Labels)
				}
			},
			"a Helm hook": func(t *testing.T) {
				w.runsAtOnce(t, d, n, newJob("helm", "1h",
					func(j *batchv1.Job) { j.Annotations["helm.sh/hook"] = "pre-install" }))
			},
			"an Argo CD hook": func(t *testing.T) {
				w.runsAtOnce(t, d, n, newJob("argo", "1h",
					func(j *batchv1.Job) { j.Annotations["argocd.argoproj.io/hook"] = "PreSync" }))
			},
			"a Job of another controller": func(t *testing.T) {
				owner, err := w.Client.CoreV1().ConfigMaps(n).Create(ctx,
					&v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner"}}, metav1.CreateOptions{})
				if err != nil {
					t.Fatal(err)
				}
				w.runsAtOnce(t, d, n, newJob("owned", "1h", func(j *batchv1.Job) {
					j.OwnerReferences = []metav1.OwnerReference{{
						APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID,
					}}
				}))
			},
			"a Job with the annotation run-now": func(t *testing.T) {
				w.runsAtOnce(t, d, n, newJob("now", "1h",
					func(j *batchv1.Job) { j.Annotations[v1alpha1.AnnotationRunNow] = "true" }))
			},
			"a Job with an invalid delay": func(t *testing.T) {
				w.runsAtOnce(t, d, n, newJob("nonsense", "soon", nil))
			},
			"a Deployment's pods": func(t *testing.T) {
				labels := map[string]string{"app": "web"}
				two := int32(2)
				deployment := &appsv1.Deployment{
					ObjectMeta: metav1.ObjectMeta{Name: "web"},
					Spec: appsv1.DeploymentSpec{
						Replicas: &two, Selector: &metav1.LabelSelector{MatchLabels: labels},
						Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{
							Labels: labels, Annotations: map[string]string{v1alpha1.AnnotationAllowedDelay: "1h"},
						}, Spec: podSpec()},
					},
				}
				deployment.Spec.Template.Spec.RestartPolicy = v1.RestartPolicyAlways
				if _, err := w.Client.AppsV1().Deployments(n).Create(ctx, deployment,
					metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
				kit.Eventually(t, timeout, "both pods are bound", func() bool {
					pods, err := w.Client.CoreV1().Pods(n).List(ctx, metav1.ListOptions{LabelSelector: "app=web"})
					return err == nil && len(pods.Items) == 2 && pods.Items[0].Spec.NodeName != "" &&
						pods.Items[1].Spec.NodeName != ""
				})
			},
			"a released pod that does not fit": func(t *testing.T) { w.releasedIsFinal(t, n) },
			"a held Job that gets the annotation run-now": func(t *testing.T) {
				w.createJob(t, n, newJob("hurry", "1h", nil))
				kit.Eventually(t, timeout, "the Job has the annotation held-until", func() bool {
					return w.job(t, n, "hurry").Annotations[v1alpha1.AnnotationHeldUntil] != ""
				})
				patch := []byte(`{"metadata":{"annotations":{"kubenergy.io/run-now":"true"}}}`)
				if _, err := w.Client.BatchV1().Jobs(n).Patch(ctx, "hurry", types.MergePatchType, patch,
					metav1.PatchOptions{}); err != nil {
					t.Fatal(err)
				}
				d.startsWithin(t, "hurry", timeout)
				w.wantEvents(t, n, "hurry", "Held Released")
			},
			"a held pod that gets the annotation run-now": func(t *testing.T) {
				if _, err := w.Client.CoreV1().Pods(n).Create(ctx, newPod("hurry-pod", "1h", nil),
					metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
				kit.Eventually(t, timeout, "the pod has a condition for being held", func() bool {
					pod, err := w.Client.CoreV1().Pods(n).Get(ctx, "hurry-pod", metav1.GetOptions{})
					return err == nil && len(pod.Status.Conditions) == 1 &&
						pod.Status.Conditions[0].Reason == v1.PodReasonSchedulingGated &&
						strings.HasPrefix(pod.Status.Conditions[0].Message, "held until")
				})
				patch := []byte(`{"metadata":{"annotations":{"kubenergy.io/run-now":"true"}}}`)
				if _, err := w.Client.CoreV1().Pods(n).Patch(ctx, "hurry-pod", types.MergePatchType, patch,
					metav1.PatchOptions{}); err != nil {
					t.Fatal(err)
				}
				d.startsWithin(t, "hurry-pod", timeout)
				w.wantEvents(t, n, "hurry-pod", "Held Released")
			},
			"forbidden changes by the scheduler": func(t *testing.T) { w.guardHolds(t, n) },
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t)
			})
		}
	})
}

func (w *world) createJob(t *testing.T, namespace string, job *batchv1.Job) {
	t.Helper()
	if _, err := w.Client.BatchV1().Jobs(namespace).Create(t.Context(), job, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (w *world) job(t *testing.T, namespace, name string) *batchv1.Job {
	t.Helper()
	job, err := w.Client.BatchV1().Jobs(namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return job
}

func (w *world) runsAtOnce(t *testing.T, d *diary, namespace string, job *batchv1.Job) {
	t.Helper()
	w.createJob(t, namespace, job)
	d.startsWithin(t, job.Name, timeout)
}

func (d *diary) startsWithin(t *testing.T, name string, within time.Duration) {
	t.Helper()
	kit.Eventually(t, within, name+" has started", func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		_, ok := d.bound[name]
		return ok
	})
}

func (w *world) wantEvents(t *testing.T, namespace, name, want string) {
	t.Helper()
	var got string
	kit.Eventually(t, timeout, name+" has the events "+want, func() bool {
		list, err := w.Client.EventsV1().Events(namespace).List(t.Context(),
			metav1.ListOptions{FieldSelector: "regarding.name=" + name})
		if err != nil {
			t.Fatal(err)
		}
		var reasons []string
		for _, e := range list.Items {
			if e.ReportingController == "kubenergy-scheduler" {
				reasons = append(reasons, e.Reason)
			}
		}
		slices.Sort(reasons) // events are written concurrently and may be reordered
		got = strings.Join(reasons, " ")
		return got == want
	})
}

// everyRunHappens verifies for two ticks of a CronJob that a run with an allowed delay of one hour does not prevent
// the next run.
func (w *world) everyRunHappens(t *testing.T, namespace string, policy batchv1.ConcurrencyPolicy) {
	name := "cron-" + strings.ToLower(string(policy))
	keep := int32(10)
	_, err := w.Client.BatchV1().CronJobs(namespace).Create(t.Context(), &batchv1.CronJob{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: batchv1.CronJobSpec{
			Schedule: "* * * * *", ConcurrencyPolicy: policy, SuccessfulJobsHistoryLimit: &keep,
			JobTemplate: batchv1.JobTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Annotations: marks("1h")},
				Spec:       newJob("", "1h", nil).Spec,
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now().Truncate(time.Minute).Add(time.Minute)
	time.Sleep(time.Until(begin.Add(2*time.Minute + 15*time.Second)))
	jobs, err := w.Client.BatchV1().Jobs(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	runs := map[string]bool{}
	for _, job := range jobs.Items {
		owner := metav1.GetControllerOf(&job)
		if owner == nil || owner.Name != name {
			continue
		}
		tick := job.CreationTimestamp.Truncate(time.Minute)
		if !tick.Before(begin.Add(2 * time.Minute)) {
			continue // still held
		}
		runs[tick.String()] = job.Status.Succeeded == 1
		if job.Status.StartTime == nil || job.Annotations[v1alpha1.AnnotationReleasedAt] == "" {
			t.Errorf("run of %s was not held and released: %v", tick, job.Annotations)
			continue
		}
		t.Logf("run of %s started after %v", tick.Format(time.TimeOnly), job.Status.StartTime.Sub(tick))
	}
	if len(runs) != 2 {
		t.Errorf("got %d runs in two ticks, want 2: %v", len(runs), runs)
	}
	for tick, ok := range runs {
		if !ok {
			t.Errorf("run of %s did not succeed", tick)
		}
	}
}

// releasedIsFinal verifies that a pod that is released at its deadline but does not fit on any node is not held
// again.
func (w *world) releasedIsFinal(t *testing.T, namespace string) {
	pod := newPod("huge", "20s", func(p *v1.Pod) { // long enough to be planned and explained on a busy machine
		p.Spec.Containers[0].Resources.Requests[v1.ResourceCPU] = resource.MustParse("1000")
	})
	if _, err := w.Client.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	condition := func() v1.PodCondition {
		pod, err := w.Client.CoreV1().Pods(namespace).Get(t.Context(), "huge", metav1.GetOptions{})
		if err != nil || len(pod.Status.Conditions) != 1 {
			return v1.PodCondition{}
		}
		return pod.Status.Conditions[0]
	}
	kit.Eventually(t, timeout, "the pod is reported as unschedulable",
		func() bool { return condition().Reason == v1.PodReasonUnschedulable })
	// A longer delay would hold the pod again if it had not been released.
	patch := []byte(`{"metadata":{"annotations":{"kubenergy.io/allowed-delay":"1h"}}}`)
	if _, err := w.Client.CoreV1().Pods(namespace).Patch(t.Context(), "huge", types.MergePatchType, patch,
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(5 * time.Second) // the pod must not be held again
	if c := condition(); c.Reason != v1.PodReasonUnschedulable {
		t.Errorf("unexpected condition: %v", c)
	}
	w.wantEvents(t, namespace, "huge", "DeadlineForced Held")
}
