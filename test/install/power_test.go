package install

import (
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// testPowerGuard uses the service account of kubenergy-power to try operations that RBAC alone would allow. More
// cases of the policy are evaluated in test/chart.
func (w *world) testPowerGuard(t *testing.T) {
	_, config := w.Account(t, "kubenergy-power")
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, dry := t.Context(), []string{metav1.DryRunAll}
	sleeper := w.sleeper(t)
	const other = "never-sleeps"
	if _, err := w.Client.CoreV1().Nodes().Create(ctx, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: other}},
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := w.Client.CoreV1().Nodes().Delete(ctx, other, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}()
	patch := func(node, text string, subresources ...string) error {
		_, err := client.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, []byte(text),
			metav1.PatchOptions{DryRun: dry}, subresources...)
		return err
	}
	lease := func(namespace, name string) error {
		_, err := client.CoordinationV1().Leases(namespace).Create(ctx,
			&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{DryRun: dry})
		return err
	}
	const asleep = `{"metadata":{"labels":{"kubenergy.io/power-state":"asleep"}},` +
		`"spec":{"taints":[{"key":"kubenergy.io/asleep","effect":"NoSchedule"}]}}`
	for what, c := range map[string]struct {
		err     error
		allowed bool
	}{
		"a node that may sleep":       {patch(sleeper, `{"metadata":{"labels":{"kubenergy.io/power-state":"booting"}}}`), true},
		"a node that woke up":         {patch(sleeper, `{"metadata":{"labels":{"kubenergy.io/power-state":null}},"spec":{"taints":[]}}`), true},
		"a node that must not sleep":  {patch(other, asleep), false},
		"setting the label may-sleep": {patch(other, `{"metadata":{"labels":{"kubenergy.io/may-sleep":"true"}}}`), false},
		"a cordon":                    {patch(sleeper, `{"spec":{"unschedulable":true}}`), false},
		"a taint that evicts":         {patch(sleeper, `{"spec":{"taints":[{"key":"kubenergy.io/asleep","effect":"NoExecute"}]}}`), false},
		"another site":                {patch(sleeper, `{"metadata":{"labels":{"kubenergy.io/site":"hydro"}}}`), false},
		"a status":                    {patch(sleeper, `{"status":{"phase":"Running"}}`, "status"), false},
		"its Lease":                   {lease("kubenergy-system", "kubenergy-power"), true},
		"another Lease":               {lease("kubenergy-system", "mine"), false},
		"its Lease somewhere else":    {lease("kube-system", "kubenergy-power"), false},
		"a Secret with its own keys":  {secret(t, client), false},
	} {
		if allowed := c.err == nil; allowed != c.allowed {
			t.Errorf("%s: allowed is %v, want %v (%v)", what, allowed, c.allowed, c.err)
		}
	}
}

func secret(t *testing.T, client kubernetes.Interface) error {
	_, err := client.CoreV1().Secrets("kubenergy-system").List(t.Context(), metav1.ListOptions{})
	return err
}
