package install

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
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
	"github.com/kubenergy/kubenergy/internal/cli"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/test/chart"
	"github.com/kubenergy/kubenergy/test/kit"
)

// testUninstall performs the steps of helm uninstall. It creates the objects of the pre-delete hooks, runs the
// commands of the hook Jobs with the permissions of their accounts and then uninstalls the release. The Jobs
// themselves cannot run because no node has a kubelet.
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

	sleeper := w.sleeper(t)
	documents, err := chart.Template(ctx, "--set", installed)
	if err != nil {
		t.Fatal(err)
	}
	jobs := map[string][]string{} // arguments by service account
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
		jobs[job.Spec.Template.Spec.ServiceAccountName] = job.Spec.Template.Spec.Containers[0].Args
	}
	if _, reported := w.runAs(t, "kubenergy-wake", jobs["kubenergy-wake"]); !strings.Contains(reported, "node sleeper: woken") {
		t.Errorf("output of the wake-up Job does not mention the node:\n%s", reported)
	}
	n, err := w.Client.CoreV1().Nodes().Get(ctx, sleeper, metav1.GetOptions{})
	if err != nil || len(v1alpha1.WithoutSleep(n.Spec.Taints)) != len(n.Spec.Taints) || n.Labels[v1alpha1.LabelPowerState] != "" {
		t.Errorf("unexpected node after wake-up: taints %v, labels %v (error %v)", n.Spec.Taints, n.Labels, err)
	}
	if warned, _ := w.runAs(t, "kubenergy-release", jobs["kubenergy-release"]); !strings.Contains(warned,
		"1 Deployment uses the scheduler kubenergy") {
		t.Error("release Job does not warn about the Deployment that remains pending")
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
		// Recorded usage cannot be measured again, and the namespace of the agents contains Secrets of the user.
		stays := slices.Contains([]string{"PersistentVolumeClaim", "Namespace"}, documents[i].Object.GetKind())
		if gone, err := w.gone(ctx, documents[i].Object); gone == stays || err != nil {
			t.Errorf("%s: deleted is %v, error %v", documents[i].Name(), gone, err)
		}
	}
}

// runAs runs the command of a hook Job with the permissions of its service account.
func (w *world) runAs(t *testing.T, account string, args []string) (warned, reported string) {
	t.Helper()
	if len(args) == 0 {
		t.Fatalf("no pre-delete Job uses the service account %s", account)
	}
	ctx := t.Context()
	machines, err := w.Client.CoreV1().ConfigMaps(v1alpha1.SystemNamespace).Get(ctx, "kubenergy-power", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	const mounted = "/etc/kubenergy/power/machines.yaml"
	file := kit.Write(t, filepath.Join(t.TempDir(), "machines.yaml"), []byte(machines.Data["machines.yaml"]))
	kubeconfig, _ := w.Account(t, account)
	args = append(slices.Clone(args), "--kubeconfig", kubeconfig)
	for i := range args {
		args[i] = strings.Replace(args[i], mounted, file, 1)
	}
	var stdout, stderr bytes.Buffer
	code := 0
	kit.Eventually(t, 20*time.Second, "the new permissions are effective", func() bool {
		stdout.Reset()
		stderr.Reset()
		code = cli.Run(ctx, args, os.Environ(), &stdout, &stderr)
		return !strings.Contains(stderr.String(), "forbidden")
	})
	if code != 0 {
		t.Fatalf("kubenergy %s: exit code %d\n%s%s", strings.Join(args, " "), code, &stdout, &stderr)
	}
	t.Logf("kubenergy %s: %s%s", strings.Join(args, " "), &stdout, &stderr)
	return stderr.String(), stdout.String()
}

// sleeper adds a node that is marked as sleeping although it is Ready, as if its machine had been started manually.
func (w *world) sleeper(t *testing.T) (name string) {
	t.Helper()
	ctx, nodes := t.Context(), w.Client.CoreV1().Nodes()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "sleeper", Labels: map[string]string{
		v1alpha1.LabelMaySleep: "true", v1alpha1.LabelPowerState: v1alpha1.PowerAsleep,
	}}}
	n.Spec.Taints = []corev1.Taint{{Key: v1alpha1.TaintAsleep, Effect: corev1.TaintEffectNoSchedule}}
	_, err := nodes.Create(ctx, n, metav1.CreateOptions{})
	if err == nil { // other clients also update the node
		_, err = nodes.PatchStatus(ctx, n.Name, []byte(`{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`))
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := nodes.Delete(context.WithoutCancel(ctx), n.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	return n.Name
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
			t.Errorf("Job %s/%s was not released: suspend %v, labels %v, finalizers %v",
				j.Namespace, j.Name, j.Spec.Suspend, j.Labels,
				j.Finalizers)
		}
		if j.Annotations[v1alpha1.AnnotationReleasedAt] != "" {
			released++
		}
	}
	if released == 0 {
		t.Error("expected at least one released Job")
	}
}
