package policy

import (
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/sched"
)

// Work is what a pod or a Job says of itself. It is read once, and settled under every [View] that comes.
type Work struct {
	Namespace string
	Type      string // workload type
	Scheduler string // spec.schedulerName
	Class     string // of benchmarks
	Marks     Marks
	Owners    Owners // whose budgets count

	job sched.Job // what no setting changes
}

// The workload types, as EnergyPolicies and Compute Gardener name them.
const (
	TypeBatch    = "batch"
	TypeService  = "service"
	TypeStateful = "stateful"
	TypeSystem   = "system"
	TypeGeneric  = "generic"
)

var workloadTypes = []string{TypeBatch, TypeService, TypeStateful, TypeSystem, TypeGeneric}

// ReadPod reads a pod. Where its annotations make no sense there is an error, and the Work is that of a pod that nobody
// marked.
func ReadPod(pod *v1.Pod) (Work, error) {
	marks, err := ReadMarks(pod.Annotations)
	return Work{
		Namespace: pod.Namespace, Type: podType(pod), Scheduler: pod.Spec.SchedulerName,
		Class: lookUpLabel(pod.Labels, v1alpha1.LabelWorkloadClass), Marks: marks, Owners: PodOwners(pod),
		job: sched.Job{
			ID: pod.Namespace + "/" + pod.Name, Submitted: pod.CreationTimestamp.Time,
			Request: PodRequest(pod), Selector: pod.Spec.NodeSelector,
		},
	}, err
}

// ReadJob reads a Job: one job whose request is that of all pods that it runs at once. Annotations are read from the
// Job, and where it has none from its pod template.
func ReadJob(j *batchv1.Job) (Work, error) {
	marks, err := ReadMarks(j.Annotations, j.Spec.Template.Annotations)
	template := &v1.Pod{Spec: j.Spec.Template.Spec}
	w := Work{
		Namespace: j.Namespace, Type: TypeBatch, Scheduler: template.Spec.SchedulerName,
		Class: lookUpLabel(j.Spec.Template.Labels, v1alpha1.LabelWorkloadClass), Marks: marks, Owners: JobOwners(j),
		job: sched.Job{
			ID: j.Namespace + "/" + j.Name, Submitted: j.CreationTimestamp.Time,
			Request: times(PodRequest(template), podsAtOnce(j)), Selector: template.Spec.NodeSelector,
		},
	}
	for _, labels := range [2]map[string]string{j.Labels, j.Spec.Template.Labels} {
		if t, ok := labelledType(labels); ok {
			w.Type = t
			break
		}
	}
	return w, err
}

// Submitted returns when the object was created.
func (w *Work) Submitted() time.Time { return w.job.Submitted }

// mayWait reports whether the object itself says something about waiting.
func (w *Work) mayWait() bool { return w.Marks.said&(termDelay|termRule) != 0 || w.Marks.Gardener }

// placed reports whether it says something about its node.
func (w *Work) placed() bool { return w.Marks.said&(termStrategy|termMaxPower|termMinEfficiency) != 0 }

func labelledType(labels map[string]string) (string, bool) {
	label := lookUpLabel(labels, v1alpha1.LabelWorkloadType)
	for _, t := range workloadTypes {
		if t == label {
			return t, true
		}
	}
	return "", false
}

// podType is what the pod's label says, else what follows from its owner.
func podType(pod *v1.Pod) string {
	if t, ok := labelledType(pod.Labels); ok {
		return t
	}
	owner := metav1.GetControllerOfNoCopy(pod)
	if owner == nil {
		return TypeGeneric
	}
	switch owner.Kind {
	case "Job", "CronJob":
		return TypeBatch
	case "ReplicaSet", "Deployment":
		return TypeService
	case "StatefulSet":
		return TypeStateful
	case "DaemonSet", "Node":
		return TypeSystem
	}
	return TypeGeneric
}

func podsAtOnce(j *batchv1.Job) int64 {
	n := int64(1)
	if p := j.Spec.Parallelism; p != nil {
		n = int64(*p)
	}
	if c := j.Spec.Completions; c != nil {
		n = min(n, int64(*c))
	}
	return max(n, 1)
}
