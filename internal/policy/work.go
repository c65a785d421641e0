package policy

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/sched"
)

// Work contains the properties of a pod or a Job. It is read once and evaluated under different [Rules]. It is
// comparable.
type Work struct {
	Namespace, Name string
	Submitted       time.Time // creation time of the object
	Type            string    // workload type
	Scheduler       string    // spec.schedulerName
	Class           string    // benchmark class
	Marks           Marks
	Owners          Owners // charged owners, which determine the budgets that apply
	Interruptible   bool   // may be paused while it runs, if it is a Job
	pod             bool
	unscalable      string // reason why its number of replicas cannot change; empty if it can

	request  sched.Resources
	selector string // node selector as a sorted list of key=value
}

// Workload types, as in EnergyPolicies and Compute Gardener.
const (
	typeBatch    = "batch"
	typeService  = "service"
	typeStateful = "stateful"
	typeSystem   = "system"
	typeGeneric  = "generic"
)

var workloadTypes = []string{typeBatch, typeService, typeStateful, typeSystem, typeGeneric}

// Read converts a Job or a pod.
func Read(o metav1.Object) (Work, error) {
	if job, ok := o.(*batchv1.Job); ok {
		return ReadJob(job)
	}
	return ReadPod(o.(*v1.Pod))
}

// ReadPod converts a pod. If its annotations are invalid, ReadPod returns an error and the Work of a pod without
// annotations.
func ReadPod(pod *v1.Pod) (Work, error) {
	marks, err := ReadMarks(pod.Annotations)
	marks.forgetPauses()
	return Work{
		Namespace: pod.Namespace, Name: pod.Name, Submitted: pod.CreationTimestamp.Time,
		Type: podType(pod), Scheduler: pod.Spec.SchedulerName,
		Class: lookUpLabel(pod.Labels, v1alpha1.LabelWorkloadClass), Marks: marks, Owners: PodOwners(pod),
		request: PodRequest(pod), selector: labels.Set(pod.Spec.NodeSelector).String(),
		Interruptible: interruptible(pod), pod: true,
	}, err
}

// ReadJob converts a Job. The request is that of all pods that the Job runs in parallel, or of the minimum number of
// replicas of an elastic Job. Annotations of the Job take precedence over those of its pod template.
func ReadJob(j *batchv1.Job) (Work, error) {
	marks, err := ReadMarks(j.Annotations, j.Spec.Template.Annotations)
	template := &v1.Pod{Spec: j.Spec.Template.Spec}
	w := Work{
		Namespace: j.Namespace, Name: j.Name, Submitted: j.CreationTimestamp.Time,
		Type: typeBatch, Scheduler: template.Spec.SchedulerName,
		Class: lookUpLabel(j.Spec.Template.Labels, v1alpha1.LabelWorkloadClass), Marks: marks, Owners: JobOwners(j),
		request:       Times(PodRequest(template), podsAtOnce(j)),
		selector:      labels.Set(template.Spec.NodeSelector).String(),
		Interruptible: interruptible(j),
	}
	w.unscalable = w.Marks.Replicas.unscalable(j)
	if w.Elastic() {
		w.request = Times(PodRequest(template), int64(w.Marks.Replicas.Least))
	}
	if j.Annotations[v1alpha1.AnnotationPaused] != string(j.UID) {
		w.Marks.forgetPauses()
	}
	for _, of := range [2]map[string]string{j.Labels, j.Spec.Template.Labels} {
		if t, ok := labelledType(of); ok {
			w.Type = t
			break
		}
	}
	return w, err
}

// interruptible reports whether an object may be paused. In a federation, the label allows moving it.
func interruptible(o metav1.Object) bool {
	return o.GetLabels()[v1alpha1.LabelInterruptible] == "true" && !propagated(o.GetLabels(), o.GetAnnotations())
}

// ReadBatch converts a job of another batch system such as Slurm with the given request and annotations. w contains
// its other properties.
func ReadBatch(w Work, request sched.Resources, annotations map[string]string) (Work, error) {
	var err error
	w.Type, w.request = typeBatch, request
	w.Marks, err = ReadMarks(annotations)
	w.Marks.forgetPauses()
	return w, err
}

// job returns the parts of the core's job that do not depend on settings.
func (w *Work) job() sched.Job {
	j := sched.Job{ID: w.Namespace + "/" + w.Name, Submitted: w.Submitted, Request: w.request}
	if w.selector == "" {
		return j
	}
	j.Selector = map[string]string{}
	for label := range strings.SplitSeq(w.selector, ",") {
		key, value, _ := strings.Cut(label, "=")
		j.Selector[key] = value
	}
	return j
}

// OfGardener reports whether the defaults of Compute Gardener's scheduler apply to the workload.
func (w *Work) OfGardener() bool { return w.scheduler() == GardenerSchedulerName }

// HasDelay reports whether the object itself sets its allowed delay.
func (m *Marks) HasDelay() bool { return m.said&termDelay != 0 }

// mayWait reports whether the object itself has annotations for waiting.
func (w *Work) mayWait() bool { return w.Marks.said&(termDelay|termRule) != 0 || w.Marks.Gardener }

// placed reports whether the object itself has annotations for its placement.
func (w *Work) placed() bool { return w.Marks.said&(termStrategy|termMaxPower|termMinEfficiency) != 0 }

func labelledType(of map[string]string) (string, bool) {
	label := lookUpLabel(of, v1alpha1.LabelWorkloadType)
	return label, slices.Contains(workloadTypes, label)
}

// podType returns the workload type in the label of the pod, or otherwise the type implied by its owner.
func podType(pod *v1.Pod) string {
	if t, ok := labelledType(pod.Labels); ok {
		return t
	}
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
		return cmp.Or(typeOfOwned[owner.Kind], typeGeneric)
	}
	return typeGeneric
}

// typeOfOwned maps kinds of owners to the workload types of their pods.
var typeOfOwned = map[string]string{
	"Job": typeBatch, "CronJob": typeBatch, "ReplicaSet": typeService, "Deployment": typeService,
	"StatefulSet": typeStateful, "DaemonSet": typeSystem, "Node": typeSystem,
}

func podsAtOnce(j *batchv1.Job) int64 {
	return int64(max(1, min(Parallelism(j), int(*cmp.Or(j.Spec.Completions, new(int32(math.MaxInt32)))))))
}
