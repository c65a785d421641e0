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

// Work is what a pod or a Job says of itself. It is read once, and settled under all [Rules] that come. It is
// comparable.
type Work struct {
	Namespace, Name string
	Submitted       time.Time // when the object was created
	Type            string    // workload type
	Scheduler       string    // spec.schedulerName
	Class           string    // of benchmarks
	Marks           Marks
	Owners          Owners // whose budgets count

	request  sched.Resources
	selector string // of nodes, as labels are written: key=value, sorted
}

// The workload types, as EnergyPolicies and Compute Gardener name them.
const (
	typeBatch    = "batch"
	typeService  = "service"
	typeStateful = "stateful"
	typeSystem   = "system"
	typeGeneric  = "generic"
)

var workloadTypes = []string{typeBatch, typeService, typeStateful, typeSystem, typeGeneric}

// Read reads a Job, or a pod.
func Read(o metav1.Object) (Work, error) {
	if job, ok := o.(*batchv1.Job); ok {
		return ReadJob(job)
	}
	return ReadPod(o.(*v1.Pod))
}

// ReadPod reads a pod. Where its annotations make no sense there is an error, and the Work is that of a pod without
// marks.
func ReadPod(pod *v1.Pod) (Work, error) {
	marks, err := ReadMarks(pod.Annotations)
	return Work{
		Namespace: pod.Namespace, Name: pod.Name, Submitted: pod.CreationTimestamp.Time,
		Type: podType(pod), Scheduler: pod.Spec.SchedulerName,
		Class: lookUpLabel(pod.Labels, v1alpha1.LabelWorkloadClass), Marks: marks, Owners: PodOwners(pod),
		request: PodRequest(pod), selector: labels.Set(pod.Spec.NodeSelector).String(),
	}, err
}

// ReadJob reads a Job: one job whose request is that of all pods that it runs at once. Annotations are read from the
// Job, and where it has none from its pod template.
func ReadJob(j *batchv1.Job) (Work, error) {
	marks, err := ReadMarks(j.Annotations, j.Spec.Template.Annotations)
	template := &v1.Pod{Spec: j.Spec.Template.Spec}
	w := Work{
		Namespace: j.Namespace, Name: j.Name, Submitted: j.CreationTimestamp.Time,
		Type: typeBatch, Scheduler: template.Spec.SchedulerName,
		Class: lookUpLabel(j.Spec.Template.Labels, v1alpha1.LabelWorkloadClass), Marks: marks, Owners: JobOwners(j),
		request:  Times(PodRequest(template), podsAtOnce(j)),
		selector: labels.Set(template.Spec.NodeSelector).String(),
	}
	for _, of := range [2]map[string]string{j.Labels, j.Spec.Template.Labels} {
		if t, ok := labelledType(of); ok {
			w.Type = t
			break
		}
	}
	return w, err
}

// ReadBatch reads a job of another batch system, as Slurm's, whose marks are written as ours are on a Job. w has what
// is known of it besides.
func ReadBatch(w Work, request sched.Resources, annotations map[string]string) (Work, error) {
	var err error
	w.Type, w.request = typeBatch, request
	w.Marks, err = ReadMarks(annotations)
	return w, err
}

// job returns what no setting changes of the job that the core sees.
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

// OfGardener reports whether the defaults of Compute Gardener's scheduler hold for the workload.
func (w *Work) OfGardener() bool { return w.scheduler() == GardenerSchedulerName }

// HasDelay reports whether the object itself sets its allowed delay.
func (m *Marks) HasDelay() bool { return m.said&termDelay != 0 }

// mayWait reports whether the object itself says something about waiting.
func (w *Work) mayWait() bool { return w.Marks.said&(termDelay|termRule) != 0 || w.Marks.Gardener }

// placed reports whether it says something about its node.
func (w *Work) placed() bool { return w.Marks.said&(termStrategy|termMaxPower|termMinEfficiency) != 0 }

func labelledType(of map[string]string) (string, bool) {
	label := lookUpLabel(of, v1alpha1.LabelWorkloadType)
	return label, slices.Contains(workloadTypes, label)
}

// podType is what the pod's label says, else what follows from its owner.
func podType(pod *v1.Pod) string {
	if t, ok := labelledType(pod.Labels); ok {
		return t
	}
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
		return cmp.Or(typeOfOwned[owner.Kind], typeGeneric)
	}
	return typeGeneric
}

// typeOfOwned is the workload type of pods by the kind of their owner.
var typeOfOwned = map[string]string{
	"Job": typeBatch, "CronJob": typeBatch, "ReplicaSet": typeService, "Deployment": typeService,
	"StatefulSet": typeStateful, "DaemonSet": typeSystem, "Node": typeSystem,
}

func podsAtOnce(j *batchv1.Job) int64 {
	n := min(*cmp.Or(j.Spec.Parallelism, new(int32(1))), *cmp.Or(j.Spec.Completions, new(int32(math.MaxInt32))))
	return int64(max(n, 1))
}
