package chart

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubenergy/kubenergy/internal/controller/access"
)

// rendered converts the object with the given kind and name into into. It returns false if there is no such object.
func rendered(t *testing.T, documents []Document, kind, name string, into any) bool {
	t.Helper()
	i := slices.IndexFunc(documents, func(d Document) bool {
		return d.Object.GetKind() == kind && d.Object.GetName() == name
	})
	if i < 0 {
		return false
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(documents[i].Object.Object, into); err != nil {
		t.Fatal(err)
	}
	return true
}

func template(t *testing.T, args ...string) []Document {
	t.Helper()
	documents, err := Template(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return documents
}

// TestMembersMayBookForThemselves verifies that each member has exactly one permission, restricted to its own name,
// and that the controller can read the members file of the chart.
func TestMembersMayBookForThemselves(t *testing.T) {
	documents := template(t, "--set", "federation.cluster=home", "--set-json",
		`federation.members=[{"name":"alpha","zone":"de","pue":1.3,"maxNodes":7,"nodeMaxWatts":900,"bookingsPerMinute":700},{"name":"beta"}]`)
	for _, name := range []string{"alpha", "beta"} {
		var role rbacv1.ClusterRole
		var binding rbacv1.ClusterRoleBinding
		var account v1.ServiceAccount
		member := "kubenergy-member-" + name
		if !rendered(t, documents, "ClusterRole", member, &role) ||
			!rendered(t, documents, "ClusterRoleBinding", member, &binding) ||
			!rendered(t, documents, "ServiceAccount", member, &account) {
			t.Fatalf("member %s has no service account, role or role binding", name)
		}
		if len(role.Rules) != 1 || !slices.Equal(role.Rules[0].Resources, []string{"clusters/bookings"}) ||
			!slices.Equal(role.Rules[0].ResourceNames, []string{name}) ||
			!slices.Equal(role.Rules[0].Verbs, []string{"create"}) {
			t.Errorf("unexpected rules for member %s: %+v", name, role.Rules)
		}
		if binding.RoleRef.Name != member || len(binding.Subjects) != 1 || binding.Subjects[0].Name != member {
			t.Errorf("unexpected role binding for member %s: %+v %+v", name, binding.RoleRef, binding.Subjects)
		}
	}
	var file v1.ConfigMap
	if !rendered(t, documents, "ConfigMap", "kubenergy-members", &file) {
		t.Fatal("no ConfigMap with the members file rendered")
	}
	path := filepath.Join(t.TempDir(), "members.yaml")
	if err := os.WriteFile(path, []byte(file.Data["members.yaml"]), 0o600); err != nil {
		t.Fatal(err)
	}
	members, err := access.LoadMembers(path, "home")
	want := access.Member{Name: "alpha", Zone: "de", PUE: 1.3, Nodes: 7, MaxPower: 900, Bookings: 700}
	if err != nil || len(members) != 2 || members["alpha"] != want || members["beta"].Nodes == 0 {
		t.Errorf("%+v, %v", members, err)
	}
}

// TestForwarding checks the flags and files of a member and verifies that its network policy allows forwarding.
func TestForwarding(t *testing.T) {
	documents := template(t, "--set", "federation.cluster=alpha,federation.forward.url=https://home.example.org:9443,"+
		"federation.forward.tokenSecret=federation,federation.forward.caSecret=ca")
	var controller appsv1.Deployment
	if !rendered(t, documents, "Deployment", "kubenergy-controller", &controller) {
		t.Fatal("no controller")
	}
	pod := &controller.Spec.Template.Spec
	for _, arg := range []string{
		"--cluster=alpha", "--forward-to=https://home.example.org:9443", "--forward-keep=1000000",
		"--forward-token-file=/etc/kubenergy/federation/token", "--forward-ca-file=/etc/kubenergy/federation-ca/ca.crt",
	} {
		if !slices.Contains(pod.Containers[0].Args, arg) {
			t.Errorf("missing argument %s in %q", arg, pod.Containers[0].Args)
		}
	}
	for _, secret := range []string{"federation", "ca"} {
		if !slices.ContainsFunc(pod.Volumes, func(v v1.Volume) bool {
			return v.Secret != nil && v.Secret.SecretName == secret
		}) {
			t.Errorf("Secret %s is not mounted", secret)
		}
	}
	var policy networkingv1.NetworkPolicy
	if !rendered(t, documents, "NetworkPolicy", "kubenergy-controller", &policy) {
		t.Fatal("no network policy")
	}
	if !slices.ContainsFunc(policy.Spec.Egress, func(r networkingv1.NetworkPolicyEgressRule) bool {
		return len(r.To) == 0 && r.Ports[0].Port.IntValue() == 9443
	}) {
		t.Error("network policy does not allow forwarding")
	}
}

// TestExpose renders each way to expose the HTTP API and verifies that it is not exposed by default.
func TestExpose(t *testing.T) {
	gateway := []string{"--set", "api.expose.gateway.name=edge,api.expose.gateway.namespace=net"}
	for kind, c := range map[string]struct {
		args    []string
		service v1.ServiceType
		has     string // text that the exposing object contains
	}{
		"":             {nil, "", ""},
		"LoadBalancer": {nil, v1.ServiceTypeLoadBalancer, ""},
		"Ingress":      {[]string{"--set", "api.expose.className=nginx"}, v1.ServiceTypeClusterIP, "ingressClassName: nginx"},
		"Gateway":      {gateway, v1.ServiceTypeClusterIP, "{name: edge, namespace: net}"},
		"Gateway v1": {
			append([]string{"--api-versions", "gateway.networking.k8s.io/v1/TLSRoute"}, gateway...),
			v1.ServiceTypeClusterIP, "apiVersion: gateway.networking.k8s.io/v1\n",
		},
	} {
		way, _, _ := strings.Cut(kind, " ")
		args := append([]string{"--set", "api.expose.type=" + way}, c.args...)
		if way != "" {
			args = append(args, "--set", "api.expose.host=kubenergy.example.org")
		}
		documents := template(t, args...)
		var service v1.Service
		if got := rendered(t, documents, "Service", "kubenergy-api", &service); got != (way != "") ||
			service.Spec.Type != c.service {
			t.Errorf("expose type %q: unexpected Service: exists %t, type %q", kind, got, service.Spec.Type)
		}
		if c.has != "" && !slices.ContainsFunc(documents, func(d Document) bool {
			return d.Object.GetName() == "kubenergy-api" && strings.Contains(d.Text, c.has)
		}) {
			t.Errorf("expose type %s: no object contains %q", kind, c.has)
		}
		var controller appsv1.Deployment
		rendered(t, documents, "Deployment", "kubenergy-controller", &controller)
		if got := slices.Contains(controller.Spec.Template.Spec.Containers[0].Args, "--api-name=kubenergy.example.org"); got != (way != "") {
			t.Errorf("expose type %q: certificate contains the name: %t", kind, got)
		}
	}
}
