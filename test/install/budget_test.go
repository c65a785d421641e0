package install

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/test/kit"
)

// testBudgetGuard uses the KubEnergy service accounts to try the operations that the controller performs for
// budgets and operations that must be denied. The accounts are granted broad RBAC permissions on Jobs and pods so
// that only the guard decides.
func (w *world) testBudgetGuard(t *testing.T) {
	ctx := t.Context()
	const namespace, name = "budgets", "test-budgets"
	if _, err := w.Client.CoreV1().Namespaces().Create(ctx,
		&v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.mayPatch(t, name)
	t.Cleanup(func() { // must not interfere with the uninstallation
		err := w.Client.BatchV1().Jobs(namespace).DeleteCollection(context.WithoutCancel(t.Context()),
			metav1.DeleteOptions{}, metav1.ListOptions{})
		if err != nil {
			t.Error(err)
		}
	})
	clients := map[string]kubernetes.Interface{}
	for _, account := range []string{"kubenergy-controller", "kubenergy-scheduler", "kubenergy-agent"} {
		_, config := w.Account(t, account)
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		clients[account] = client
	}
	cron := &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Spec: batchv1.CronJobSpec{
		Schedule: "0 0 1 1 *", Suspend: new(true), JobTemplate: batchv1.JobTemplateSpec{Spec: newJob(nil).Spec},
	}}
	cron, err := w.Client.BatchV1().CronJobs(namespace).Create(ctx, cron, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*batchv1.Job){
		"runs": nil,
		"held": func(j *batchv1.Job) {
			j.Spec.Suspend, j.Labels = new(true), map[string]string{v1alpha1.LabelHeld: "true"}
		},
		"paused": func(j *batchv1.Job) { j.Spec.Suspend = new(true) },
		"suspended": func(j *batchv1.Job) {
			j.Spec.Suspend, j.Labels = new(true), map[string]string{v1alpha1.LabelBudgetSuspended: "month"}
		},
		"queued":  func(j *batchv1.Job) { j.Labels = map[string]string{policy.LabelKueueQueue: "q"} },
		"managed": func(j *batchv1.Job) { j.Spec.ManagedBy = new("example.com/other-controller") },
		"workflow": func(j *batchv1.Job) {
			j.OwnerReferences = []metav1.OwnerReference{{
				APIVersion: "argoproj.io/v1alpha1", Kind: "Workflow", Name: "w", UID: "w",
			}}
		},
		"cron": func(j *batchv1.Job) {
			j.OwnerReferences = []metav1.OwnerReference{{
				APIVersion: "batch/v1", Kind: "CronJob", Name: "c", UID: cron.UID,
			}}
		},
	} {
		job := newJob(change)
		job.Name = name
		if _, err := w.Client.BatchV1().Jobs(namespace).Create(ctx, job, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	seen := func(name string) *batchv1.Job { // the Job controller also updates Jobs
		job, err := w.Client.BatchV1().Jobs(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return job
	}
	_, err = w.Client.CoreV1().Pods(namespace).Create(ctx, &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{"app": "shop"}},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "c", Image: "none"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}

	dry := metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}
	onJob := func(account, job string, kind types.PatchType, patch []byte) error {
		_, err := clients[account].BatchV1().Jobs(namespace).Patch(ctx, job, kind, patch, dry)
		return err
	}
	onPod := func(account, patch string) error {
		_, err := clients[account].CoreV1().Pods(namespace).Patch(ctx, "shop", types.MergePatchType, []byte(patch), dry)
		return err
	}
	const controller, scheduler = "kubenergy-controller", "kubenergy-scheduler"
	// onSeen patches the current state of a Job and retries if the Job controller has updated the Job in the
	// meantime.
	onSeen := func(account, job string, patch func(*batchv1.Job) []byte) (err error) {
		kit.Eventually(t, time.Minute, "the Job "+job+" can be patched without a conflict", func() bool {
			err = onJob(account, job, types.JSONPatchType, patch(seen(job)))
			return err == nil || !strings.Contains(err.Error(), "due to an error in our request")
		})
		return err
	}
	suspend := func(account, job string) error {
		return onSeen(account, job, func(j *batchv1.Job) []byte {
			return kube.BudgetSuspendPatch(j, "month", time.Now().Add(time.Hour))
		})
	}
	resume := func(account, job string) error {
		return onSeen(account, job, func(j *batchv1.Job) []byte { return kube.BudgetResumePatch(j, true) })
	}
	merge := func(account, job, patch string) error {
		return onJob(account, job, types.MergePatchType, []byte(patch))
	}
	mark := `{"metadata":{"annotations":{"` + v1alpha1.AnnotationBudgetExceeded + `":"true","` +
		policy.GardenerBudgetExceededBy + `":"0.5"},"labels":{"` +
		policy.GardenerBudgetExceeded + `":"true"}}}`
	var refused error
	defer func() {
		if t.Failed() {
			t.Log("last error:", refused)
		}
	}()
	kit.Eventually(t, 20*time.Second, "the permissions are effective", func() bool {
		refused = errors.Join(suspend(controller, "runs"), onPod(controller, mark))
		return refused == nil
	})
	kit.Eventually(t, 20*time.Second, "the guard is effective", func() bool {
		return merge(controller, "runs", `{"spec":{"suspend":true}}`) != nil && onPod(scheduler, mark) != nil
	})
	for what, c := range map[string]struct {
		err     error
		allowed bool
	}{
		"the controller suspends a Job for a budget": {suspend(controller, "runs"), true},
		"and one of a CronJob":                       {suspend(controller, "cron"), true},
		"and resumes it":                             {resume(controller, "suspended"), true},
		"suspends a Job of Kueue":                    {suspend(controller, "queued"), false},
		"suspends a Job of another controller":       {suspend(controller, "managed"), false},
		"suspends a Job of a workflow":               {suspend(controller, "workflow"), false},
		"suspends without the label":                 {merge(controller, "runs", `{"spec":{"suspend":true}}`), false},
		"sets the label without suspending": {merge(controller, "runs",
			`{"metadata":{"labels":{"kubenergy.io/budget-suspended":"x"}}}`), false},
		"takes over a Job suspended by its user": {merge(controller, "paused",
			`{"metadata":{"labels":{"kubenergy.io/budget-suspended":"x"}}}`), false},
		"resumes a Job suspended by its user": {
			merge(controller, "paused", `{"spec":{"suspend":false}}`),
			false,
		},
		"sets another budget": {merge(controller, "suspended",
			`{"metadata":{"labels":{"kubenergy.io/budget-suspended":"x"}}}`), false},
		"marks a Job as held": {merge(controller, "runs",
			`{"metadata":{"labels":{"kubenergy.io/held":"true"}}}`), false},
		"releases a held Job": {merge(controller, "held",
			`{"metadata":{"labels":{"kubenergy.io/held":null}},"spec":{"suspend":false}}`), true},
		"marks a Job as exceeding a budget": {onJob(controller, "runs", types.MergePatchType,
			kube.MarkPatch(seen("runs"), map[string]string{
				policy.GardenerBudgetExceeded: "true", v1alpha1.AnnotationBudgetActions: "x:d",
			}, nil, false)), true},
		"marks and suspends a Job in one patch": {
			onJob(controller, "runs", types.MergePatchType,
				kube.MarkPatch(seen("runs"), nil, map[string]string{v1alpha1.LabelBudgetSuspended: policy.OwnBudget},
					true)),
			true,
		},
		"writes another annotation": {merge(controller, "runs",
			`{"metadata":{"annotations":{"compute-gardener-scheduler.kubernetes.io/skip":"true"}}}`), false},
		"changes the parallelism in the same patch": {
			merge(controller, "runs",
				`{"metadata":{"labels":{"kubenergy.io/budget-suspended":"x"}},"spec":{"suspend":true,"parallelism":9}}`),
			false,
		},
		"the scheduler suspends a Job":         {suspend(scheduler, "runs"), false},
		"the scheduler resumes a budget's Job": {resume(scheduler, "suspended"), false},
		"the controller marks a pod":           {onPod(controller, mark), true},
		"the scheduler marks a pod":            {onPod(scheduler, mark), false},
		"the controller sets another label": {
			onPod(controller, `{"metadata":{"labels":{"app":"other"}}}`),
			false,
		},
		"the controller sets an annotation of the user": {onPod(controller,
			`{"metadata":{"annotations":{"kubenergy.io/run-now":"true"}}}`), false},
		"the controller removes a label": {
			onPod(controller, `{"metadata":{"labels":{"app":null}}}`),
			false,
		},
		"the controller changes an image": {onPod(controller,
			`{"spec":{"containers":[{"name":"c","image":"evil"}]}}`), false},
		"the controller adds a finalizer": {
			onPod(controller, `{"metadata":{"finalizers":["a.b/c"]}}`),
			false,
		},
		"the controller changes the owner of a pod": {onPod(controller,
			`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"x","uid":"x"}]}}`), false},
	} {
		if allowed := c.err == nil; allowed != c.allowed {
			t.Errorf("%s: allowed is %v, want %v (%v)", what, allowed, c.allowed, c.err)
		}
	}
}

// mayPatch grants the KubEnergy service accounts permission to get and patch Jobs and pods until the test ends.
func (w *world) mayPatch(t *testing.T, name string) {
	t.Helper()
	roles := w.Client.RbacV1()
	_, err := roles.ClusterRoles().Create(t.Context(),
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"", "batch"}, Resources: []string{"pods", "jobs"}, Verbs: []string{"get", "patch"}},
		}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
	}
	for _, account := range []string{"kubenergy-controller", "kubenergy-scheduler"} {
		binding.Subjects = append(binding.Subjects,
			rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: v1alpha1.SystemNamespace, Name: account})
	}
	if _, err := roles.ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		_ = roles.ClusterRoleBindings().Delete(ctx, name, metav1.DeleteOptions{})
		_ = roles.ClusterRoles().Delete(ctx, name, metav1.DeleteOptions{})
	})
}
