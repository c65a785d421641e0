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

// machinesOf returns what tells of the cluster's machines, what runs on them, and until when: from the scheduler's own
// informers, so nothing is asked of the API server.
func machinesOf(handle fwk.Handle) func(view *kube.View, now time.Time) []sched.Node {
	factory := handle.SharedInformerFactory()
	allNodes, allPods := factory.Core().V1().Nodes().Lister(), factory.Core().V1().Pods().Lister()
	return func(view *kube.View, now time.Time) (nodes []sched.Node) {
		objects, _ := allNodes.List(labels.Everything()) // a lister of a cache has no errors
		at := make(map[string]int, len(objects))
		for _, n := range objects {
			if n.Spec.Unschedulable || slices.ContainsFunc(v1alpha1.WithoutSleep(n.Spec.Taints), keepsOff) {
				continue // not even once it is awake
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

// keepsOff reports whether a taint keeps pods off a node that do not tolerate it. Which ones do is not looked at.
func keepsOff(t v1.Taint) bool { return t.Effect != v1.TaintEffectPreferNoSchedule }

// run puts a pod on its node, until it is expected to end: pods of Jobs in an hour where nothing else is known, as if
// they were held. What has outlived that is taken to run for as long again.
func run(n *sched.Node, pod *v1.Pod, view *kube.View, now time.Time) {
	request := policy.PodRequest(pod)
	if !policy.KeepsAwake(pod) { // the node sleeps with it
		n.Free = n.Free.Sub(request)
		return
	}
	*n = n.Place(request)
	work, err := policy.ReadPod(pod)
	if err != nil {
		return
	}
	kind, _ := policy.OwnerOf(pod)
	if _, settings := view.Settle(&work); settings.ExpectedDuration > 0 || kind == "Job" {
		began := now // it was bound a moment ago
		if pod.Status.StartTime != nil {
			began = pod.Status.StartTime.Time
		}
		ends := began.Add(settings.Duration())
		if !ends.After(now) {
			ends = now.Add(now.Sub(began))
		}
		n.Ends = append(n.Ends, sched.End{At: ends, Request: request})
	}
}
