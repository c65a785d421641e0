package batch

import (
	"encoding/json"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/kubenergy/kubenergy/internal/kube"
)

// demand is what a pod says about nodes themselves, apart from their room. Pods of equal demand may run on the same
// ones.
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
	if err != nil { // no such pod passes the API server
		return demand(pod.UID)
	}
	return demand(text)
}

// Plain reports whether nothing but the node itself and its room decides whether the pod can run there, as far as the
// pod says: its neighbours, ports, volumes and devices do not count. What its neighbours demand of the pod is not
// known.
func Plain(pod *v1.Pod) bool {
	spec := &pod.Spec
	if len(spec.ResourceClaims) > 0 || spec.SchedulingGroup != nil || needsNeighbours(spec.Affinity) {
		return false
	}
	spread := func(c v1.TopologySpreadConstraint) bool { return c.WhenUnsatisfiable == v1.DoNotSchedule }
	bound := func(v v1.Volume) bool { // else it is to be had on every node
		return v.EmptyDir == nil && v.ConfigMap == nil && v.Secret == nil && v.DownwardAPI == nil &&
			v.Projected == nil &&
			v.HostPath == nil
	}
	return !slices.ContainsFunc(spec.TopologySpreadConstraints, spread) && !slices.ContainsFunc(spec.Volumes, bound) &&
		!slices.ContainsFunc(spec.InitContainers, takesHostPort) && !slices.ContainsFunc(spec.Containers, takesHostPort)
}

// needsNeighbours reports whether others decide where a pod may run.
func needsNeighbours(a *v1.Affinity) bool {
	return a != nil &&
		(a.PodAffinity != nil && len(a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution) > 0 ||
			a.PodAntiAffinity != nil && len(a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution) > 0)
}

func takesHostPort(c v1.Container) bool {
	return slices.ContainsFunc(c.Ports, func(p v1.ContainerPort) bool { return p.HostPort != 0 })
}
