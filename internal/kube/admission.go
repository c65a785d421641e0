package kube

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
)

// Admission determines on which nodes a pod may run according to its node selector, node affinity, tolerations, and
// the taints and cordons of the nodes. Other pods and free resources are not considered.
type Admission struct {
	tolerations []v1.Toleration
	affinity    *nodeaffinity.RequiredNodeAffinity // nil if there is none
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

// Selective reports whether the pod has a node selector or a required node affinity.
func Selective(pod *v1.Pod) bool {
	a := pod.Spec.Affinity
	return len(pod.Spec.NodeSelector) > 0 || a != nil && a.NodeAffinity != nil &&
		a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil
}

var cordon = v1.Taint{Key: v1.TaintNodeUnschedulable, Effect: v1.TaintEffectNoSchedule}

// Refuses returns the reason why the pod may not run on the node, and the taint if the reason is one. It returns ""
// if the pod may run there. Tolerations with comparison operators, which few clusters support, are ignored.
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

// Repels returns the first taint that is not tolerated and prevents scheduling or execution, if there is one.
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
