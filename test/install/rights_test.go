package install

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/test/kit"
	"github.com/kubenergy/kubenergy/test/kit/cluster"
)

var rewrite = flag.Bool("rewrite", false, "replace the expected permissions by the permissions that the API server reports")

const rightsFile = "testdata/rights.txt"

// testRights compares the permissions of all KubEnergy service accounts in all relevant namespaces with a reviewed
// list. The permissions are reported by kubectl auth can-i --list.
func (w *world) testRights(t *testing.T) {
	var text strings.Builder
	for _, account := range []string{"kubenergy-scheduler", "kubenergy-controller", "kubenergy-agent", "kubenergy-power"} {
		_, config := w.Account(t, account)
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		everywhere := rightsIn(t, client, metav1.NamespaceDefault)
		fmt.Fprintf(&text, "%s, everywhere\n", account)
		for _, line := range everywhere {
			fmt.Fprintf(&text, "  %s\n", line)
		}
		for _, namespace := range []string{metav1.NamespaceSystem, v1alpha1.SystemNamespace, cluster.AgentNamespace} {
			fmt.Fprintf(&text, "%s, in %s\n", account, namespace)
			for _, line := range rightsIn(t, client, namespace) {
				if !slices.Contains(everywhere, line) {
					fmt.Fprintf(&text, "  %s\n", line)
				}
			}
		}
	}
	kit.Golden(t, rightsFile, []byte(text.String()), *rewrite)
	for line := range strings.Lines(text.String()) {
		if strings.Contains(line, "secrets") || strings.Contains(line, "*") && !strings.Contains(line, "/*") {
			t.Errorf("permission that no KubEnergy account may have: %s", strings.TrimSpace(line))
		}
	}
}

// rightsIn returns the permissions of a client in a namespace, one per line.
func rightsIn(t *testing.T, client kubernetes.Interface, namespace string) []string {
	t.Helper()
	review, err := client.AuthorizationV1().SelfSubjectRulesReviews().Create(t.Context(),
		&authorizationv1.SelfSubjectRulesReview{
			Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace},
		}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if review.Status.Incomplete {
		t.Fatalf("API server returned an incomplete list of permissions: %s", review.Status.EvaluationError)
	}
	var lines []string
	for _, rule := range review.Status.ResourceRules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				if group != "" {
					resource += "." + group
				}
				line := resource + ": " + strings.Join(slices.Sorted(slices.Values(rule.Verbs)), " ")
				if len(rule.ResourceNames) > 0 {
					line += ", only " + strings.Join(slices.Sorted(slices.Values(rule.ResourceNames)), " ")
				}
				lines = append(lines, line)
			}
		}
	}
	for _, rule := range review.Status.NonResourceRules {
		for _, url := range rule.NonResourceURLs {
			lines = append(lines, url+": "+strings.Join(slices.Sorted(slices.Values(rule.Verbs)), " "))
		}
	}
	slices.Sort(lines)
	return slices.Compact(lines)
}

// testGuard uses the KubEnergy service accounts to try operations that RBAC alone would allow or cannot express.
func (w *world) testGuard(t *testing.T) {
	ctx := t.Context()
	_, config := w.Account(t, "kubenergy-controller")
	controller, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	ours, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	_, config = w.Account(t, "kubenergy-scheduler")
	scheduler, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	dryPatch := metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}
	lease := func(client kubernetes.Interface, namespace, name string) error {
		_, err := client.CoordinationV1().Leases(namespace).Create(ctx,
			&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}}, dry)
		return err
	}
	configMap := func(namespace, name string) error {
		_, err := controller.CoreV1().ConfigMaps(namespace).Create(ctx,
			&v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, dry)
		return err
	}
	authority := func() error {
		all := controller.CoreV1().ConfigMaps(cluster.AgentNamespace)
		m, err := all.Get(ctx, "kubenergy-ca", metav1.GetOptions{})
		if err == nil {
			_, err = all.Update(ctx, m, metav1.UpdateOptions{DryRun: dry.DryRun})
		}
		return err
	}
	policy := func(patch, subresource string) error {
		_, err := ours.Resource(energyPolicies).Namespace(v1alpha1.SystemNamespace).Patch(ctx, "default",
			types.MergePatchType,
			[]byte(patch), dryPatch, subresource)
		return err
	}
	profile := func(name, spec string) error {
		o := &unstructured.Unstructured{}
		if err := o.UnmarshalJSON([]byte(`{"apiVersion":"kubenergy.io/v1alpha1","kind":"JobProfile","metadata":{"name":"` +
			name + `"},"spec":` + spec + `}`)); err != nil {
			t.Fatal(err)
		}
		profiles := ours.Resource(v1alpha1.GroupVersion.WithResource("jobprofiles"))
		_, err := profiles.Namespace(metav1.NamespaceDefault).Create(ctx, o, dry)
		return err
	}
	for what, c := range map[string]struct {
		err     error
		allowed bool
	}{
		"the controller's Lease":          {lease(controller, v1alpha1.SystemNamespace, "kubenergy-controller"), true},
		"another Lease of the controller": {lease(controller, v1alpha1.SystemNamespace, "mine"), false},
		"the scheduler's Lease":           {lease(scheduler, v1alpha1.SystemNamespace, "kubenergy-scheduler"), true},
		"the hold loop's Lease":           {lease(scheduler, v1alpha1.SystemNamespace, "kubenergy-hold"), true},
		"kube-scheduler's Lease":          {lease(scheduler, metav1.NamespaceSystem, "kube-scheduler"), false},
		"the scheduler's Lease in another namespace": {
			lease(scheduler, metav1.NamespaceDefault, "kubenergy-scheduler"),
			false,
		},
		"the count of calls":                           {configMap(v1alpha1.SystemNamespace, "kubenergy-calls"), true},
		"another ConfigMap":                            {configMap(v1alpha1.SystemNamespace, "kubenergy-scheduler-2"), false},
		"the ConfigMap with the certificate authority": {authority(), true},
		"another ConfigMap in the agents' namespace":   {configMap(cluster.AgentNamespace, "kubenergy-calls"), false},
		"the status of a policy":                       {policy(`{"status":{"held":3}}`, "status"), true},
		"the spec of a policy":                         {policy(`{"spec":{"mode":"off"}}`, ""), false},
		"learnt run times":                             {profile(v1alpha1.PolicyName, `{}`), true},
		"other learnt run times":                       {profile("mine", `{}`), false},
		"run times to forget":                          {profile(v1alpha1.PolicyName, `{"forgetBefore":"2026-06-01T00:00:00Z"}`), false},
		// The request succeeds but has no effect on the spec.
		"the spec of a policy through its status": {policy(`{"spec":{"mode":"off"}}`, "status"), true},
	} {
		if allowed := c.err == nil; allowed != c.allowed {
			t.Errorf("%s: allowed is %v, want %v (%v)", what, allowed, c.allowed, c.err)
		}
	}
}
