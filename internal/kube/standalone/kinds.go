package standalone

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
)

// scheme contains all supported kinds, and kinds maps the resources in request paths to them.
var scheme, kinds = func() (*runtime.Scheme, map[schema.GroupVersionResource]schema.GroupVersionKind) {
	s, byPath := runtime.NewScheme(), map[schema.GroupVersionResource]schema.GroupVersionKind{}
	utilruntime.Must(clientgoscheme.AddToScheme(s))
	utilruntime.Must(v1alpha1.AddToScheme(s))
	for kind := range s.AllKnownTypes() {
		resource, _ := meta.UnsafeGuessKindToResource(kind)
		byPath[resource] = kind
	}
	return s, byPath
}()

// ofFiles reports whether objects of a kind are read from files. All other objects are written by programs.
func ofFiles(k schema.GroupVersionKind) bool {
	return k.GroupVersion() == v1alpha1.GroupVersion && k.Kind != "JobProfile"
}

func kept(k schema.GroupVersionKind) bool {
	return ofFiles(k) || k.Kind == "ConfigMap" || k.Kind == "Job" || k.Kind == "JobProfile"
}

// ofCluster contains the cluster-scoped kinds that are read from files.
var ofCluster = map[string]bool{"GridZone": true, "PowerProfile": true}

// target is the resource or object that a request refers to.
type target struct {
	resource        schema.GroupVersionResource
	kind            schema.GroupVersionKind
	namespace, name string
	status          bool
}

func (t *target) key() string { return t.namespace + "/" + t.name }

// targetOf parses a path, which is /api/v1 or /apis/GROUP/VERSION followed by
// [namespaces/NAMESPACE/]RESOURCE[/NAME[/status]]. A namespace is the resource itself if its name is followed by
// nothing or by status.
func targetOf(path string) (t target, ok bool) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case len(parts) >= 3 && parts[0] == "api":
		t.resource.Version, parts = parts[1], parts[2:]
	case len(parts) >= 4 && parts[0] == "apis":
		t.resource.Group, t.resource.Version, parts = parts[1], parts[2], parts[3:]
	default:
		return t, false
	}
	if parts[0] == "namespaces" && len(parts) >= 3 && parts[2] != "status" {
		t.namespace, parts = parts[1], parts[2:]
	}
	t.resource.Resource = parts[0]
	if len(parts) > 1 {
		t.name = parts[1]
	}
	t.status = len(parts) == 3 && parts[2] == "status"
	t.kind, ok = kinds[t.resource]
	return t, ok && (len(parts) < 3 || t.status)
}
