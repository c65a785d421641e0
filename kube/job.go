package kube

import (
	"math"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"

	"github.com/kubenergy/kubenergy/sched"
)

// Defaults holds for whoever says nothing else.
type Defaults struct {
	AllowedDelay     time.Duration // 0: nothing is held unless it says so itself
	MaxDelay         time.Duration // clamps every allowed delay, also the default; 0: no limit
	ExpectedDuration time.Duration // 0 reads as an hour
}

// The devices that count as GPUs, as their vendors' device plugins name them.
const (
	nvidiaGPU v1.ResourceName = "nvidia.com/gpu"
	amdGPU    v1.ResourceName = "amd.com/gpu"
)

// Marked reports whether somebody asked us to deal with the pod. What it says may still turn out to be nonsense.
func Marked(pod *v1.Pod) bool {
	if len(pod.Annotations) == 0 {
		return false
	}
	if _, ok := pod.Annotations[AnnotationStrategy]; ok {
		return true
	}
	_, ok := pod.Annotations[AnnotationAllowedDelay]
	return ok
}

// PodJob returns the pod as the core sees it.
func PodJob(pod *v1.Pod, d Defaults) (sched.Job, error) {
	marks, err := ReadMarks(pod.Annotations)
	if err != nil {
		return sched.Job{}, err
	}
	return MarkedPodJob(pod, marks, d), nil
}

// MarkedPodJob is [PodJob] for a pod whose annotations were read before; empty marks make it a pod that nobody marked.
func MarkedPodJob(pod *v1.Pod, marks Marks, d Defaults) sched.Job {
	job := d.job(marks)
	job.ID = pod.Namespace + "/" + pod.Name
	job.Submitted = pod.CreationTimestamp.Time
	job.Request = PodRequest(pod)
	job.Selector = pod.Spec.NodeSelector
	return job
}

// BatchJob returns the Job as the core sees it: one job whose request is that of all pods that it runs at once.
// Annotations are read from the Job, and where it has none from its pod template.
func BatchJob(j *batchv1.Job, d Defaults) (sched.Job, error) {
	marks, err := ReadMarks(j.Annotations, j.Spec.Template.Annotations)
	if err != nil {
		return sched.Job{}, err
	}
	template := &v1.Pod{Spec: j.Spec.Template.Spec}
	job := d.job(marks)
	job.ID = j.Namespace + "/" + j.Name
	job.Submitted = j.CreationTimestamp.Time
	job.Request = times(PodRequest(template), podsAtOnce(j))
	job.Selector = template.Spec.NodeSelector
	return job, nil
}

func (d Defaults) job(m Marks) sched.Job {
	job := sched.Job{
		Duration:     m.ExpectedDuration,
		AllowedDelay: d.AllowedDelay,
		FinishBy:     m.FinishBy,
		Released:     m.RunNow || m.ReleasedBefore || strings.HasSuffix(m.Strategy, "+now"),
	}
	if job.Duration == 0 {
		job.Duration = d.ExpectedDuration
	}
	if job.Duration <= 0 {
		job.Duration = time.Hour
	}
	if m.HasAllowedDelay {
		job.AllowedDelay = m.AllowedDelay
	}
	if d.MaxDelay > 0 {
		job.AllowedDelay = min(job.AllowedDelay, d.MaxDelay)
	}
	return job
}

// PodRequest returns the effective request of a pod that does not run yet, as the scheduler computes it: the larger of
// its init containers and the sum of its containers, with sidecars and overhead, unless the pod itself has a request.
func PodRequest(pod *v1.Pod) sched.Resources {
	return listed(resource.PodRequests(pod, resource.PodResourcesOptions{}))
}

// Allocatable returns what a node offers to pods.
func Allocatable(n *v1.Node) sched.Resources { return listed(n.Status.Allocatable) }

func listed(list v1.ResourceList) sched.Resources {
	return sched.Resources{
		MilliCPU: list.Cpu().MilliValue(),
		Memory:   list.Memory().Value(),
		GPU:      quantity(list, nvidiaGPU) + quantity(list, amdGPU),
	}
}

func quantity(list v1.ResourceList, name v1.ResourceName) int64 {
	q := list[name]
	return q.Value()
}

// ScalarGPUs returns the number of GPUs in the extended resources of a scheduler's node.
func ScalarGPUs(scalars map[v1.ResourceName]int64) int64 {
	if len(scalars) == 0 {
		return 0
	}
	return scalars[nvidiaGPU] + scalars[amdGPU]
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

func times(r sched.Resources, n int64) sched.Resources {
	return sched.Resources{MilliCPU: saturate(r.MilliCPU, n), Memory: saturate(r.Memory, n), GPU: saturate(r.GPU, n)}
}

func saturate(a, n int64) int64 {
	if a > math.MaxInt64/n {
		return math.MaxInt64
	}
	return a * n
}
