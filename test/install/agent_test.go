package install

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/test/chart"
	"github.com/kubenergy/kubenergy/test/kit/cluster"
)

// testAgentHasNoRights verifies that the service account of the agent has no more permissions in any namespace than
// an account without role bindings.
func (w *world) testAgentHasNoRights(t *testing.T) {
	ctx := t.Context()
	if _, err := w.Client.CoreV1().ServiceAccounts(v1alpha1.SystemNamespace).Create(ctx,
		&v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "powerless"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	clients := map[string]kubernetes.Interface{}
	for _, name := range []string{"kubenergy-agent", "powerless"} {
		_, config := w.Account(t, name)
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		clients[name] = client
	}
	namespaces, err := w.Client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range namespaces.Items {
		if diff := cmp.Diff(rightsIn(t, clients["powerless"], n.Name),
			rightsIn(t, clients["kubenergy-agent"], n.Name)); diff != "" {
			t.Errorf("permissions of the agent in %s exceed those without role bindings (-want,+got):\n%s",
				n.Name, diff)
		}
	}
	agent := clients["kubenergy-agent"].CoreV1()
	_, pods := agent.Pods("").List(ctx, metav1.ListOptions{})
	_, nodes := agent.Nodes().List(ctx, metav1.ListOptions{})
	_, secrets := agent.Secrets(cluster.AgentNamespace).List(ctx, metav1.ListOptions{})
	_, itself := agent.ServiceAccounts(cluster.AgentNamespace).Get(ctx, "kubenergy-agent", metav1.GetOptions{})
	for what, err := range map[string]error{
		"pods": pods, "nodes": nodes, "secrets": secrets, "its own account": itself,
	} {
		if !apierrors.IsForbidden(err) {
			t.Errorf("agent reads %s: got error %v, want forbidden", what, err)
		}
	}
}

// testAgentAndPodSecurity checks the documented Pod Security violations. Host directories are the only violation of
// the level baseline, and the pods are admitted at the level privileged.
func (w *world) testAgentAndPodSecurity(t *testing.T) {
	ctx := t.Context()
	set, err := w.Client.AppsV1().DaemonSets(cluster.AgentNamespace).Get(ctx, "kubenergy-agent", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.startPod(t, cluster.AgentNamespace, &set.Spec.Template.Spec); err != nil {
		t.Errorf("pod was rejected in the agent's namespace: %v", err)
	}
	for level, want := range map[string][]string{
		"privileged": nil,
		"baseline":   {"hostPath volumes"},
		"restricted": {"restricted volume types", "runAsNonRoot != true", "runAsUser=0"},
	} {
		namespace := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: "agents-" + level, Labels: map[string]string{"pod-security.kubernetes.io/enforce": level},
		}}
		if _, err := w.Client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		account := &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "kubenergy-agent"}}
		if _, err := w.Client.CoreV1().ServiceAccounts(namespace.Name).Create(ctx, account,
			metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		got := violations(w.startPod(t, namespace.Name, &set.Spec.Template.Spec))
		if !slices.Equal(got, want) {
			t.Errorf("level %s: violations = %q, want %q", level, got, want)
		}
	}
}

// testPodsAreRestricted verifies that kubenergy-system can use the Pod Security level restricted. All pods of the
// chart except the agent's must be admitted.
func (w *world) testPodsAreRestricted(t *testing.T) {
	restricted := []byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`)
	if _, err := w.Client.CoreV1().Namespaces().Patch(t.Context(), v1alpha1.SystemNamespace, types.MergePatchType,
		restricted, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	documents, err := chart.Template(t.Context(), "--set", "stress.enabled=true,stress.jobs=1,agent.enabled=true",
		"--set", "signals.keysSecret=keys,meterKeysSecret=meters,hostTokensSecret=hosts,metrics.tlsSecret=tls")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for i := range documents {
		o := documents[i].Object
		template, found, err := unstructured.NestedMap(o.Object, "spec", "template", "spec")
		if err != nil || !found {
			continue
		}
		var spec v1.PodSpec
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(template, &spec); err != nil {
			t.Fatal(err)
		}
		spec.ServiceAccountName = "" // the account of the hook does not exist
		name := o.GetLabels()["app.kubernetes.io/name"]
		err = w.startPod(t, v1alpha1.SystemNamespace, &spec)
		seen[name] = err == nil
		if err != nil && name != "kubenergy-agent" {
			t.Errorf("%s: %v", documents[i].Name(), err)
		}
	}
	if diff := cmp.Diff(map[string]bool{
		"kubenergy-scheduler": true, "kubenergy-controller": true, "kubenergy-release": true, "kubenergy-stress": true,
		"kubenergy-agent": false,
	}, seen); diff != "" {
		t.Errorf("unexpected admissions in %s at the level restricted (-want,+got):\n%s",
			v1alpha1.SystemNamespace, diff)
	}
}

// startPod returns the error of a dry-run creation of a pod.
func (w *world) startPod(t *testing.T, namespace string, spec *v1.PodSpec) error {
	t.Helper()
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pod"}, Spec: *spec.DeepCopy()}
	_, err := w.Client.CoreV1().Pods(namespace).Create(t.Context(), pod,
		metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict})
	return err
}

// violations returns the violated checks from an error of Pod Security, which lists them as "name (details), name
// (details)".
func violations(err error) []string {
	if err == nil {
		return nil
	}
	_, list, found := strings.Cut(err.Error(), `:latest": `)
	if !found {
		return []string{err.Error()}
	}
	names := strings.Split(regexp.MustCompile(` \([^)]*\)`).ReplaceAllString(list, ""), ", ")
	slices.Sort(names)
	return names
}
