package install

import (
	"bytes"
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/cli"
	"github.com/kubenergy/kubenergy/policy"
	"github.com/kubenergy/kubenergy/test/chart"
	"github.com/kubenergy/kubenergy/test/kit"
)

// testUninstall does what helm uninstall does: it creates the objects of the pre-delete hook, runs what the hook's Job
// runs, as its account, and then removes the release. The Job itself cannot run, since the cluster has no nodes.
func (w *world) testUninstall(t *testing.T) {
	ctx := t.Context()
	kit.Eventually(t, 20*time.Second, "Jobs are held", func() bool {
		job := newJob(func(j *batchv1.Job) { j.Annotations = map[string]string{v1alpha1.AnnotationAllowedDelay: "6h"} })
		job.Name, job.GenerateName = "", "held-"
		created, err := w.Client.BatchV1().Jobs("default").Create(ctx, job, metav1.CreateOptions{})
		return err == nil && created.Labels[v1alpha1.LabelHeld] == "true"
	})

	stopped := newJob(func(j *batchv1.Job) {
		j.Spec.Suspend, j.Labels = new(true), map[string]string{v1alpha1.LabelBudgetSuspended: "month"}
	})
	stopped.Name = "stopped-by-a-budget"
	if _, err := w.Client.BatchV1().Jobs("default").Create(ctx, stopped, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	left := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "left-behind"}}
	left.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}}
	left.Spec.Template.Labels, left.Spec.Template.Spec = left.Spec.Selector.MatchLabels, corev1.PodSpec{
		SchedulerName: policy.SchedulerName, Containers: []corev1.Container{{Name: "a", Image: "example.org/a"}},
	}
	if _, err := w.Client.AppsV1().Deployments("default").Create(ctx, left, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	documents, err := chart.Template(ctx, "--set", "agent.enabled=true")
	if err != nil {
		t.Fatal(err)
	}
	var args []string
	for i := range documents {
		d := &documents[i]
		if d.HookOf() != "pre-delete" {
			continue
		}
		if d.Object.GetKind() != "Job" {
			if err := w.put(ctx, d.Object); err != nil {
				t.Fatal(err)
			}
			continue
		}
		var job batchv1.Job
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(d.Object.Object, &job); err != nil {
			t.Fatal(err)
		}
		args = job.Spec.Template.Spec.Containers[0].Args
	}
	if len(args) == 0 {
		t.Fatal("the chart has no pre-delete Job")
	}
	kubeconfig, _ := w.Account(t, "kubenergy-release")
	var stdout, stderr bytes.Buffer
	code := 0
	kit.Eventually(t, 20*time.Second, "the API server knows the rights that were just made", func() bool {
		stdout.Reset()
		stderr.Reset()
		code = cli.Run(ctx, append(slices.Clone(args), "--kubeconfig", kubeconfig), os.Environ(), &stdout, &stderr)
		return !strings.Contains(stderr.String(), "forbidden")
	})
	if code != 0 {
		t.Fatalf("kubenergy %s: exit code %d\n%s%s", strings.Join(args, " "), code, &stdout, &stderr)
	}
	t.Logf("kubenergy %s: %s%s", strings.Join(args, " "), &stdout, &stderr)
	if !strings.Contains(stderr.String(), "1 Deployment names the scheduler kubenergy") {
		t.Error("it does not tell of the Deployment that it leaves pending")
	}
	w.wantNothingHeld(ctx, t)
	for i := range documents {
		if d := &documents[i]; d.HookOf() == "pre-delete" && d.Object.GetKind() != "Job" {
			client, err := w.resource(d.Object)
			if err == nil {
				err = client.Delete(ctx, d.Object.GetName(), metav1.DeleteOptions{})
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	w.helm(t, "uninstall", "kubenergy", "--no-hooks", "--wait")
	for i := range documents {
		// What was booked cannot be measured again, and the namespace of agents holds Secrets of the user's.
		stays := slices.Contains([]string{"PersistentVolumeClaim", "Namespace"}, documents[i].Object.GetKind())
		if gone, err := w.gone(ctx, documents[i].Object); gone == stays || err != nil {
			t.Errorf("%s: gone is %v (%v)", documents[i].Name(), gone, err)
		}
	}
}

func (w *world) wantNothingHeld(ctx context.Context, t *testing.T) {
	jobs, err := w.Client.BatchV1().Jobs("").List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	released := 0
	for i := range jobs.Items {
		j := &jobs.Items[i]
		if j.Labels[v1alpha1.LabelHeld] != "" || j.Labels[v1alpha1.LabelBudgetSuspended] != "" ||
			j.Spec.Suspend != nil && *j.Spec.Suspend || len(j.Finalizers) > 0 {
			t.Errorf("Job %s/%s: suspend %v, labels %v, finalizers %v", j.Namespace, j.Name, j.Spec.Suspend, j.Labels,
				j.Finalizers)
		}
		if j.Annotations[v1alpha1.AnnotationReleasedAt] != "" {
			released++
		}
	}
	if released == 0 {
		t.Error("no Job was held and released")
	}
}
