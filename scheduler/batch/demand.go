package batch

import (
	"encoding/json"
	"slices"

	v1 "k8s.io/api/core/v1"
	corev1 "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
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
	if selective(pod) && pod.Spec.Affinity != nil && pod.Spec.Affinity.NodeAffinity != nil {
		wanted.Affinity = pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	text, err := json.Marshal(wanted)
	if err != nil { // no such pod passes the API server
		return demand(pod.UID)
	}
	return demand(text)
}

// selective reports whether the pod says which nodes it wants.
func selective(pod *v1.Pod) bool {
	a := pod.Spec.Affinity
	return len(pod.Spec.NodeSelector) > 0 || a != nil && a.NodeAffinity != nil &&
		a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil
}

// Admission says on which nodes a pod may run as far as the two of them say so themselves: by selector, affinity to
// nodes, taints and cordons. Who runs beside it, and what is free, does not count.
type Admission struct {
	tolerations []v1.Toleration
	affinity    *nodeaffinity.RequiredNodeAffinity // nil: it does not mind
}

// AdmissionOf returns the admission of a pod.
func AdmissionOf(pod *v1.Pod) Admission {
	a := Admission{tolerations: pod.Spec.Tolerations}
	if selective(pod) {
		required := nodeaffinity.GetRequiredNodeAffinity(pod)
		a.affinity = &required
	}
	return a
}

var cordon = v1.Taint{Key: v1.TaintNodeUnschedulable, Effect: v1.TaintEffectNoSchedule}

// Admits reports whether the pod may run on the node. Tolerations by comparison, which few clusters know, count as
// none.
func (a *Admission) Admits(node *v1.Node) bool {
	logger := klog.Background()
	if node.Spec.Unschedulable && !corev1.TolerationsTolerateTaint(logger, a.tolerations, &cordon, false) {
		return false
	}
	repels := func(t *v1.Taint) bool {
		return t.Effect == v1.TaintEffectNoSchedule || t.Effect == v1.TaintEffectNoExecute
	}
	if _, repelled := corev1.FindMatchingUntoleratedTaint(logger, node.Spec.Taints, a.tolerations, repels,
		false); repelled {
		return false
	}
	if a.affinity == nil {
		return true
	}
	fits, err := a.affinity.Match(node)
	return fits && err == nil
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
	if a == nil {
		return false
	}
	return a.PodAffinity != nil && len(a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution) > 0 ||
		a.PodAntiAffinity != nil && len(a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution) > 0
}

func takesHostPort(c v1.Container) bool {
	return slices.ContainsFunc(c.Ports, func(p v1.ContainerPort) bool { return p.HostPort != 0 })
}
