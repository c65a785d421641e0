package standalone

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
)

// kind is a kind of objects that there are.
type kind struct {
	schema.GroupVersionResource
	name    string
	cluster bool                  // its objects are in no namespace
	kept    bool                  // over restarts
	read    func() runtime.Object // of files; nil: it comes from none
}

func (k *kind) apiVersion() string { return k.GroupVersion().String() }

func resource(group, version, resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: group, Version: version, Resource: resource}
}

func ours(name string) schema.GroupVersionResource { return v1alpha1.GroupVersion.WithResource(name) }

// kinds are all that are known; of others the answer is that there is no such resource, as on a small cluster.
var kinds = []*kind{
	{ours("gridzones"), "GridZone", true, true, func() runtime.Object { return new(v1alpha1.GridZone) }},
	{ours("powerprofiles"), "PowerProfile", true, true, func() runtime.Object { return new(v1alpha1.PowerProfile) }},
	{ours("energypolicies"), "EnergyPolicy", false, true, func() runtime.Object { return new(v1alpha1.EnergyPolicy) }},
	{ours("energybudgets"), "EnergyBudget", false, true, func() runtime.Object { return new(v1alpha1.EnergyBudget) }},
	{resource("", "v1", "namespaces"), "Namespace", true, false, func() runtime.Object { return new(v1.Namespace) }},
	{resource("", "v1", "configmaps"), "ConfigMap", false, true, nil},
	{resource("", "v1", "nodes"), "Node", true, false, nil},
	{resource("", "v1", "pods"), "Pod", false, false, nil},
	{resource("batch", "v1", "jobs"), "Job", false, false, nil},
	{resource("batch", "v1", "cronjobs"), "CronJob", false, false, nil},
	{resource("events.k8s.io", "v1", "events"), "Event", false, false, nil},
	{
		resource("admissionregistration.k8s.io", "v1", "mutatingadmissionpolicybindings"),
		"MutatingAdmissionPolicyBinding", true, false, nil,
	},
}

func kindOf(apiVersion, name string) *kind {
	for _, k := range kinds {
		if k.name == name && k.apiVersion() == apiVersion {
			return k
		}
	}
	return nil
}

// target is what a request is about.
type target struct {
	*kind
	namespace, name string
	status          bool
}

// targetOf reads a path: /api/v1 or /apis/GROUP/VERSION, then [namespaces/NAMESPACE/]RESOURCE[/NAME[/status]]. A
// namespace is itself the resource where nothing but its status follows its name.
func targetOf(path string) (t target, ok bool) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	gv := schema.GroupVersion{}
	switch {
	case len(parts) >= 3 && parts[0] == "api":
		gv.Version, parts = parts[1], parts[2:]
	case len(parts) >= 4 && parts[0] == "apis":
		gv.Group, gv.Version, parts = parts[1], parts[2], parts[3:]
	default:
		return t, false
	}
	if parts[0] == "namespaces" && len(parts) >= 3 && parts[2] != "status" {
		t.namespace, parts = parts[1], parts[2:]
	}
	for _, k := range kinds {
		if k.GroupVersionResource == gv.WithResource(parts[0]) {
			t.kind = k
		}
	}
	switch {
	case t.kind == nil, len(parts) > 3, len(parts) == 3 && parts[2] != "status":
		return t, false
	case len(parts) > 1:
		t.name, t.status = parts[1], len(parts) == 3
	}
	return t, true
}
