package policy

import (
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
)

// LabelKueueQueue is the label of Jobs that are admitted, and thus resumed, by Kueue.
const LabelKueueQueue = "kueue.x-k8s.io/queue-name"

// otherSystems lists the keys of labels and annotations by which other systems mark the objects that they start. If
// two systems hold the same object, they may wait for each other forever. A hook that waits blocks a deployment. A
// key that ends in a slash is a prefix. The admission policies of the chart are generated from this list and from
// the rules below, see TestAdmissionPolicies.
var otherSystems = [...]struct{ key, why string }{
	// Kueue with manageJobsWithoutQueueName also manages Jobs without the label of a queue.
	{"kueue.x-k8s.io/", "Kueue decides when the Job runs"},
	{"workflows.argoproj.io/", "the object is a step of an Argo workflow"},
	{"helm.sh/hook", "the object is a Helm hook"},
	{"argocd.argoproj.io/hook", "the object is an Argo CD hook"},
	{"karmada.io/managed", "propagated by Karmada, so it may only be held in the federation"}, // in member clusters
}

// systemNamespaces are the namespaces without held objects.
var systemNamespaces = []string{metav1.NamespaceSystem, v1alpha1.SystemNamespace}

// NeverHeld reports whether a Job or a bare pod must not be held, and the reason.
func NeverHeld(o metav1.Object) (why string, never bool) {
	if job, ok := o.(*batchv1.Job); ok {
		return NeverHeldJob(job)
	}
	return NeverHeldPod(o.(*v1.Pod))
}

// NeverHeldPod reports whether a bare pod must not be held, and the reason.
func NeverHeldPod(pod *v1.Pod) (why string, never bool) {
	if why, never := neverHeldObject(pod, pod.Spec.PriorityClassName); never {
		return why, true
	}
	// The pod of a Job was either held as part of the Job or must not be held. Pods of other controllers, such as
	// Deployments and DaemonSets, serve users.
	if owner := metav1.GetControllerOf(pod); owner != nil {
		return "controlled by " + owner.Kind + " " + owner.Name, true
	}
	// A release is final, and the pod has this condition if it was released and the scheduler found no capacity.
	// The condition also survives a restart.
	if c := Scheduled(pod); c.Status == v1.ConditionFalse && c.Reason == v1.PodReasonUnschedulable {
		return "the scheduler has already found no capacity for the pod", true
	}
	return "", false
}

// NeverHeldJob reports whether a Job must not be held, or must no longer be held, and the reason.
func NeverHeldJob(job *batchv1.Job) (why string, never bool) {
	if why, never := neverHeldObject(job, job.Spec.Template.Spec.PriorityClassName); never {
		return why, true
	}
	if suspended := job.Spec.Suspend != nil && *job.Spec.Suspend; suspended &&
		job.Labels[v1alpha1.LabelHeld] != "true" {
		return "suspended by its user", true
	}
	return "", false
}

func neverHeldObject(o metav1.Object, priorityClass string) (why string, never bool) {
	if ns := o.GetNamespace(); slices.Contains(systemNamespaces, ns) {
		return "objects are never held in namespace " + ns, true
	}
	if strings.HasPrefix(priorityClass, "system-") && strings.HasSuffix(priorityClass, "-critical") {
		return "the priority class is " + priorityClass, true
	}
	return startedByOthers(o)
}

// startedByOthers reports whether another system decides when an object runs, and the reason.
func startedByOthers(o metav1.Object) (why string, others bool) {
	for _, keys := range [...]map[string]string{o.GetLabels(), o.GetAnnotations()} {
		for _, system := range otherSystems {
			for key := range keys {
				if key == system.key || strings.HasSuffix(system.key, "/") && strings.HasPrefix(key, system.key) {
					return system.why, true
				}
			}
		}
	}
	job, ok := o.(*batchv1.Job)
	if !ok {
		return "", false
	}
	if by := job.Spec.ManagedBy; by != nil && *by != batchv1.JobControllerName {
		return *by + " decides when it runs", true
	}
	for i := range job.OwnerReferences {
		owner := &job.OwnerReferences[i]
		if owner.Kind != "CronJob" || !strings.HasPrefix(owner.APIVersion, batchv1.GroupName+"/") {
			return "owned by " + owner.Kind + " " + owner.Name, true
		}
	}
	return "", false
}
