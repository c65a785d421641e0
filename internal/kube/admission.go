package kube

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
)

// Admission says on which nodes a pod may run by the pod's and the node's own specs: selector, affinity to nodes,
// taints and cordons. Other pods and free resources are ignored.
type Admission struct {
	tolerations []v1.Toleration
	affinity    *nodeaffinity.RequiredNodeAffinity // nil: none
}

// AdmissionOf returns the admission of a pod.
func AdmissionOf(pod *v1.Pod) Admission {
	a := Admission{tolerations: pod.Spec.Tolerations}
	if Selective(pod) {
		required := nodeaffinity.GetRequiredNodeAffinity(pod)
		a.affinity = &required
	}
	return a
}

// Selective reports whether the pod says which nodes it wants.
func Selective(pod *v1.Pod) bool {
	a := pod.Spec.Affinity
	return len(pod.Spec.NodeSelector) > 0 || a != nil && a.NodeAffinity != nil &&
		a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil
}

var cordon = v1.Taint{Key: v1.TaintNodeUnschedulable, Effect: v1.TaintEffectNoSchedule}

// Refuses returns why the pod may not run on the node, and the taint if it is one; "" if it may. Tolerations by
// comparison, which few clusters know, count as none.
func (a *Admission) Refuses(node *v1.Node) (why string, taint v1.Taint) {
	if node.Spec.Unschedulable && !corev1.TolerationsTolerateTaint(klog.Background(), a.tolerations, &cordon, false) {
		return "cordoned", v1.Taint{}
	}
	if a.affinity != nil {
		if fits, err := a.affinity.Match(node); !fits || err != nil {
			return "node selector or affinity does not match", v1.Taint{}
		}
	}
	if taint, repels := Repels(node.Spec.Taints, a.tolerations); repels {
		return "taint", taint
	}
	return "", v1.Taint{}
}

// Repels returns the first of some taints, if any, that keeps off what has these tolerations.
func Repels(taints []v1.Taint, tolerations []v1.Toleration) (taint v1.Taint, repels bool) {
	return corev1.FindMatchingUntoleratedTaint(klog.Background(), taints, tolerations, func(t *v1.Taint) bool {
		return t.Effect == v1.TaintEffectNoSchedule || t.Effect == v1.TaintEffectNoExecute
	}, false)
}

// Admits reports whether the pod may run on the node.
func (a *Admission) Admits(node *v1.Node) bool {
	why, _ := a.Refuses(node)
	return why == ""
}
