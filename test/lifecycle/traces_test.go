package lifecycle

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
)

// traces returns a description of each KubEnergy remnant among all objects that the API server can list.
func (w *world) traces(t *testing.T) []string {
	t.Helper()
	lists, err := w.client.Discovery().ServerPreferredResources()
	if err != nil {
		t.Fatal(err)
	}
	lists = discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list"}}, lists)
	var found []string
	seen := 0
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for i := range list.APIResources {
			objects, err := w.objects.Resource(version.WithResource(list.APIResources[i].Name)).List(t.Context(),
				metav1.ListOptions{})
			if err != nil {
				t.Fatalf("listing %s: %v", list.APIResources[i].Name, err)
			}
			seen += len(objects.Items)
			for j := range objects.Items {
				if why := trace(&objects.Items[j]); why != "" {
					o := &objects.Items[j]
					found = append(found, fmt.Sprintf("%s %s/%s: %s", o.GetKind(), o.GetNamespace(), o.GetName(), why))
				}
			}
		}
	}
	if seen < 100 {
		t.Errorf("only %d objects were checked, want at least 100", seen)
	}
	return found
}

// trace returns a description of the KubEnergy remnant in an object, or "". Objects that remain intentionally or
// belong to the user are ignored: the namespace and its Leases, CRDs (which Helm does not delete), the opt-in label
// of namespaces, and events.
func trace(object *unstructured.Unstructured) string {
	kind := object.GetKind()
	for _, f := range object.GetFinalizers() {
		if strings.Contains(f, "kubenergy") {
			return "finalizer " + f
		}
	}
	switch {
	case kind == "Event" || kind == "Lease" || kind == "CustomResourceDefinition" || kind == "APIService":
		return ""
	case kind == "ConfigMap" && object.GetName() == "grid": // created by the test
		return ""
	}
	for key, value := range object.GetLabels() {
		if strings.HasPrefix(key, "kubenergy.io/") && (kind != "Namespace" || key != "kubenergy.io/mode") {
			return "label " + key
		}
		if strings.HasPrefix(value, "kubenergy") && kind != "Namespace" {
			return "label " + key + "=" + value
		}
	}
	if kind != "Namespace" && strings.HasPrefix(object.GetName(), "kubenergy") {
		return "its name"
	}
	return ""
}
