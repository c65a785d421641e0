package policy

import (
	"math"
	"sync"

	v1 "k8s.io/api/core/v1"
	quantities "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/component-helpers/resource"

	"github.com/kubenergy/kubenergy/internal/sched"
)

// The devices that count as GPUs, as their vendors' device plugins name them.
const (
	NvidiaGPU v1.ResourceName = "nvidia.com/gpu"
	amdGPU    v1.ResourceName = "amd.com/gpu"
)

// PodRequest returns the effective request of a pod that does not run yet, as the scheduler computes it: the larger of
// its init containers and the sum of its containers, with sidecars and overhead, unless the pod itself has a request.
func PodRequest(pod *v1.Pod) sched.Resources {
	list := lists.Get().(v1.ResourceList)
	defer lists.Put(list)
	return ResourcesOf(resource.PodRequests(pod, resource.PodResourcesOptions{Reuse: list}))
}

// lists are those that pods' requests are summed up in. One is as large as all else that is read from a pod.
var lists = sync.Pool{New: func() any { return v1.ResourceList{} }}

// most is more than any node has, and small enough that sums of a hundred such requests still are numbers.
const most = math.MaxInt64 / 128

// ResourcesOf returns a list of Kubernetes as the core takes it.
func ResourcesOf(list v1.ResourceList) sched.Resources {
	nvidia, amd := list[NvidiaGPU], list[amdGPU]
	return sched.Resources{
		MilliCPU: amount(list.Cpu(), quantities.Milli), Memory: amount(list.Memory(), 0),
		GPU: amount(&nvidia, 0) + amount(&amd, 0),
	}
}

// ListOf returns resources as Kubernetes lists them.
func ListOf(r sched.Resources) v1.ResourceList {
	list := v1.ResourceList{
		v1.ResourceCPU:    *quantities.NewMilliQuantity(r.MilliCPU, quantities.DecimalSI),
		v1.ResourceMemory: *quantities.NewQuantity(r.Memory, quantities.BinarySI),
	}
	if r.GPU > 0 {
		list[NvidiaGPU] = *quantities.NewQuantity(r.GPU, quantities.DecimalSI)
	}
	return list
}

// amount returns a quantity in units of a power of ten. Pods may ask for more than an int64 holds, from which
// Kubernetes' own conversion makes any number, also a negative one, with which a pod would fit everywhere.
func amount(q *quantities.Quantity, scale quantities.Scale) int64 {
	if q.AsApproximateFloat64()*math.Pow10(-int(scale)) >= most {
		return most
	}
	return q.ScaledValue(scale)
}

// ScalarGPUs returns the number of GPUs in the extended resources of a scheduler's node.
func ScalarGPUs(scalars map[v1.ResourceName]int64) int64 {
	if len(scalars) == 0 {
		return 0
	}
	return scalars[NvidiaGPU] + scalars[amdGPU]
}

// Times returns what so many of the same ask for together, or as much as a number can say.
func Times(r sched.Resources, n int64) sched.Resources {
	return sched.Resources{MilliCPU: saturate(r.MilliCPU, n), Memory: saturate(r.Memory, n), GPU: saturate(r.GPU, n)}
}

func saturate(a, n int64) int64 {
	if a > math.MaxInt64/n {
		return math.MaxInt64
	}
	return a * n
}
