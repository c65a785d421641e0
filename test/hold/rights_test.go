package hold

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/test/kit"
)

// TestWithoutRightsOnJobs runs the scheduler with the permissions and Leases of kube-scheduler, without permissions
// on Jobs and without CRDs. It must start, schedule pods and release held pods at their deadlines.
func TestWithoutRightsOnJobs(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a control plane")
	}
	w, ctx, machine := shared, t.Context(), kit.WatchMachine(t)
	const poor = "poor-scheduler"
	if _, err := w.Client.CoreV1().ServiceAccounts(v1alpha1.SystemNamespace).Create(ctx,
		&v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: poor}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	subjects := []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: v1alpha1.SystemNamespace, Name: poor}}
	for _, role := range []string{"system:kube-scheduler", "system:volume-scheduler"} {
		binding := &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: poor + "-" + role}, Subjects: subjects,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		}
		if _, err := w.Client.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	leases := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: poor, Namespace: v1alpha1.SystemNamespace}, Subjects: subjects,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "kubenergy-scheduler-leases"},
	}
	if _, err := w.Client.RbacV1().RoleBindings(v1alpha1.SystemNamespace).Create(ctx, leases,
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	w.forgetLeases(t)
	p := w.schedulerAs(t, poor, poor, w.declining(t))
	namespace := w.Namespace(t, "poor", nil)
	d := w.watch(t, namespace)
	const delay = 8 * time.Second
	unmarked := newPod("unmarked", "", func(p *v1.Pod) { delete(p.Annotations, v1alpha1.AnnotationAllowedDelay) })
	for _, pod := range []*v1.Pod{unmarked, newPod("held", delay.String(), nil)} {
		if _, err := w.Client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	d.awaitStarts(machine, []string{"unmarked"}, 0)
	kit.Eventually(t, delay, "the other pod is held", func() bool {
		held, _ := p.Metric(t, "kubenergy_held", `kind="pod"`)
		return held == 1
	})
	if gated, found := p.Metric(t, "scheduler_pending_pods", `queue="gated"`); gated != 0 || !found {
		t.Errorf("%v pods are gated in the scheduling queue, want none", gated)
	}
	d.awaitStarts(machine, []string{"held"}, delay)
	late, missing := d.late(d.bound, delay, []string{"held"})
	report(t, machine, "held pod bound", late, missing, -podLead, 2*time.Second)
}
