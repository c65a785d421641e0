package place

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/sched"
)

// machinesOf returns a function that lists the nodes of the cluster with their running pods and the expected end of
// these. It uses the informers of the scheduler, so it does not send requests to the API server.
func machinesOf(handle fwk.Handle) func(view *kube.View, now time.Time) []sched.Node {
	factory := handle.SharedInformerFactory()
	allNodes, allPods := factory.Core().V1().Nodes().Lister(), factory.Core().V1().Pods().Lister()
	return func(view *kube.View, now time.Time) (nodes []sched.Node) {
		objects, _ := allNodes.List(labels.Everything()) // the lister of a cache never returns an error
		at := make(map[string]int, len(objects))
		for _, n := range objects {
			if unavailable(n) {
				continue
			}
			capacity := policy.ResourcesOf(n.Status.Allocatable)
			node, _ := view.Node(n, capacity, capacity, 0)
			at[n.Name] = len(nodes)
			nodes = append(nodes, node)
		}
		pods, _ := allPods.List(labels.Everything())
		for _, pod := range pods {
			ended := pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed
			if i, on := at[pod.Spec.NodeName]; on && !ended {
				run(&nodes[i], pod, view, now)
			}
		}
		return nodes
	}
}

// unavailable reports whether pods cannot be scheduled on a node even when it is awake.
func unavailable(n *v1.Node) bool {
	return n.Spec.Unschedulable || slices.ContainsFunc(v1alpha1.WithoutSleep(n.Spec.Taints), keepsOff)
}

// keepsOff reports whether a taint prevents pods that do not tolerate it from being scheduled. Tolerations of
// individual pods are ignored.
func keepsOff(t v1.Taint) bool { return t.Effect != v1.TaintEffectPreferNoSchedule }

// run adds a running pod to its node until its expected end.
func run(n *sched.Node, pod *v1.Pod, view *kube.View, now time.Time) {
	request := policy.PodRequest(pod)
	if !policy.KeepsAwake(pod) { // such pods do not prevent the node from sleeping
		n.Free = n.Free.Sub(request)
		return
	}
	*n = n.Place(request)
	if e, ok := expectRun(pod, view, now); ok {
		n.Ends = append(n.Ends, e.end(now))
	}
}
