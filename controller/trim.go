package controller

import (
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// cacheOptions keep of what is watched what somebody here reads.
func cacheOptions() cache.Options {
	return cache.Options{
		DefaultTransform: transform(func(metav1.Object) {}),
		ByObject: map[client.Object]cache.ByObject{
			&v1.Pod{}:       {Transform: transform(trimPod)},
			&v1.Node{}:      {Transform: transform(trimNode)},
			&v1.Namespace{}: {Transform: transform(func(n *v1.Namespace) { n.Spec, n.Status.Conditions = v1.NamespaceSpec{}, nil })},
			&batchv1.Job{}:  {Transform: transform(trimJob)},
		},
	}
}

// transform trims an object, of which nobody else has a copy yet.
func transform[T metav1.Object](trim func(T)) func(any) (any, error) {
	return func(obj any) (any, error) {
		if o, ok := obj.(metav1.Object); ok {
			o.SetManagedFields(nil)
			shorten(o.GetAnnotations())
		}
		if t, ok := obj.(T); ok {
			trim(t)
		}
		return obj, nil
	}
}

// shorten empties annotations that are longer than any that has a meaning here, as kubectl's copy of the whole object is.
// Their keys stay: whether an object has annotations matters to patches.
func shorten(annotations map[string]string) {
	const longest = 1024
	for key, value := range annotations {
		if len(value) > longest {
			annotations[key] = ""
		}
	}
}

func trimPod(p *v1.Pod) {
	p.Finalizers = nil
	p.Spec = trimPodSpec(&p.Spec)
	status := v1.PodStatus{Phase: p.Status.Phase, StartTime: p.Status.StartTime}
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == v1.PodScheduled {
			status.Conditions = []v1.PodCondition{{Type: c.Type, Status: c.Status, Reason: c.Reason, LastTransitionTime: c.LastTransitionTime}}
		}
	}
	for i := range p.Status.ContainerStatuses {
		is := &p.Status.ContainerStatuses[i]
		kept := v1.ContainerStatus{Name: is.Name, ContainerID: is.ContainerID} // by which agents know it
		if t := is.State.Terminated; t != nil {
			kept.RestartCount = is.RestartCount
			kept.State.Terminated = &v1.ContainerStateTerminated{StartedAt: t.StartedAt, FinishedAt: t.FinishedAt}
		}
		status.ContainerStatuses = append(status.ContainerStatuses, kept)
	}
	for i := range p.Status.InitContainerStatuses { // sidecars are among them
		is := &p.Status.InitContainerStatuses[i]
		status.InitContainerStatuses = append(status.InitContainerStatuses, v1.ContainerStatus{Name: is.Name, ContainerID: is.ContainerID})
	}
	p.Status = status
}

// trimPodSpec keeps what requests, marks and the list of what is never held depend on.
func trimPodSpec(s *v1.PodSpec) v1.PodSpec {
	return v1.PodSpec{
		NodeName: s.NodeName, SchedulerName: s.SchedulerName, PriorityClassName: s.PriorityClassName, NodeSelector: s.NodeSelector,
		Containers: trimContainers(s.Containers), InitContainers: trimContainers(s.InitContainers),
		Overhead: s.Overhead, Resources: s.Resources,
	}
}

func trimContainers(all []v1.Container) []v1.Container {
	trimmed := make([]v1.Container, len(all))
	for i := range all {
		c := &all[i]
		trimmed[i] = v1.Container{RestartPolicy: c.RestartPolicy, Resources: v1.ResourceRequirements{Requests: c.Resources.Requests}}
	}
	return trimmed
}

func trimJob(j *batchv1.Job) {
	j.Finalizers = nil
	template := v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: j.Spec.Template.Labels, Annotations: j.Spec.Template.Annotations}}
	shorten(template.Annotations)
	template.Spec = trimPodSpec(&j.Spec.Template.Spec)
	j.Spec = batchv1.JobSpec{Suspend: j.Spec.Suspend, Parallelism: j.Spec.Parallelism, Completions: j.Spec.Completions, Template: template}
	var ended []batchv1.JobCondition
	for i := range j.Status.Conditions {
		if c := &j.Status.Conditions[i]; c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed {
			ended = append(ended, batchv1.JobCondition{Type: c.Type, Status: c.Status})
		}
	}
	j.Status = batchv1.JobStatus{Conditions: ended}
}

func trimNode(n *v1.Node) {
	n.Spec = v1.NodeSpec{ProviderID: n.Spec.ProviderID, Unschedulable: n.Spec.Unschedulable, Taints: n.Spec.Taints}
	status := v1.NodeStatus{Capacity: n.Status.Capacity, Allocatable: n.Status.Allocatable}
	for _, c := range n.Status.Conditions {
		if c.Type == v1.NodeReady { // one that is not is not estimated
			status.Conditions = []v1.NodeCondition{{Type: c.Type, Status: c.Status}}
		}
	}
	n.Status = status
}
