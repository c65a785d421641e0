package batch

import (
	"encoding/json"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/kubenergy/kubenergy/internal/kube"
)

// demand represents the requirements of a pod on nodes other than capacity. Pods with equal demands are admitted by
// the same nodes.
type demand string

func demandOf(pod *v1.Pod) demand {
	wanted := struct {
		Selector    map[string]string `json:",omitempty"`
		Affinity    *v1.NodeSelector  `json:",omitempty"`
		Tolerations []v1.Toleration   `json:",omitempty"`
	}{Selector: pod.Spec.NodeSelector, Tolerations: pod.Spec.Tolerations}
	if kube.Selective(pod) && pod.Spec.Affinity != nil && pod.Spec.Affinity.NodeAffinity != nil {
		wanted.Affinity = pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	text, err := json.Marshal(wanted)
	if err != nil { // the API server does not accept such a pod
		return demand(pod.UID)
	}
	return demand(text)
}

// Plain reports whether the pod can run on any node that admits it and has capacity. This is not the case if it
// depends on other pods, host ports, volumes or devices. Anti-affinity of other pods to this one is not considered.
func Plain(pod *v1.Pod) bool {
	spec := &pod.Spec
	if len(spec.ResourceClaims) > 0 || spec.SchedulingGroup != nil || needsNeighbours(spec.Affinity) {
		return false
	}
	spread := func(c v1.TopologySpreadConstraint) bool { return c.WhenUnsatisfiable == v1.DoNotSchedule }
	bound := func(v v1.Volume) bool { // other volumes are available on every node
		return v.EmptyDir == nil && v.ConfigMap == nil && v.Secret == nil && v.DownwardAPI == nil &&
			v.Projected == nil && v.HostPath == nil
	}
	return !slices.ContainsFunc(spec.TopologySpreadConstraints, spread) && !slices.ContainsFunc(spec.Volumes, bound) &&
		!slices.ContainsFunc(spec.InitContainers, takesHostPort) && !slices.ContainsFunc(spec.Containers, takesHostPort)
}

// needsNeighbours reports whether the pod requires affinity or anti-affinity to other pods.
func needsNeighbours(a *v1.Affinity) bool {
	return a != nil &&
		(a.PodAffinity != nil && len(a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution) > 0 ||
			a.PodAntiAffinity != nil && len(a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution) > 0)
}

func takesHostPort(c v1.Container) bool {
	return slices.ContainsFunc(c.Ports, func(p v1.ContainerPort) bool { return p.HostPort != 0 })
}
