package policy

import (
	"math"
	"sync"

	v1 "k8s.io/api/core/v1"
	quantities "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/component-helpers/resource"

	"github.com/kubenergy/kubenergy/internal/sched"
)

// Extended resources that count as GPUs, named by the device plugins of their vendors.
const (
	NvidiaGPU v1.ResourceName = "nvidia.com/gpu"
	amdGPU    v1.ResourceName = "amd.com/gpu"
)

// PodRequest returns the effective request of a pod before it runs, as computed by the scheduler. It is the maximum
// of the requests of its init containers and the sum of those of its containers, including sidecars and overhead,
// unless the pod has a pod-level request.
func PodRequest(pod *v1.Pod) sched.Resources {
	list := lists.Get().(v1.ResourceList)
	defer lists.Put(list)
	return ResourcesOf(resource.PodRequests(pod, resource.PodResourcesOptions{Reuse: list}))
}

// lists is a pool of ResourceLists for summing up requests, because a list needs as much memory as all other data
// read from a pod.
var lists = sync.Pool{New: func() any { return v1.ResourceList{} }}

// most is larger than the capacity of any node, but small enough that a sum of a hundred requests does not
// overflow.
const most = math.MaxInt64 / 128

// ResourcesOf converts a ResourceList.
func ResourcesOf(list v1.ResourceList) sched.Resources {
	nvidia, amd := list[NvidiaGPU], list[amdGPU]
	return sched.Resources{
		MilliCPU: amount(list.Cpu(), quantities.Milli), Memory: amount(list.Memory(), 0),
		GPU: amount(&nvidia, 0) + amount(&amd, 0),
	}
}

// ListOf converts resources to a ResourceList.
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

// amount returns a quantity in units of a power of ten, limited to most. A quantity may exceed an int64, and then
// the conversion of Kubernetes returns an arbitrary number. If it were negative, the pod would fit on every node.
func amount(q *quantities.Quantity, scale quantities.Scale) int64 {
	if q.AsApproximateFloat64()*math.Pow10(-int(scale)) >= most {
		return most
	}
	return q.ScaledValue(scale)
}

// ScalarGPUs returns the number of GPUs in the scalar resources of a scheduler's NodeInfo.
func ScalarGPUs(scalars map[v1.ResourceName]int64) int64 {
	if len(scalars) == 0 {
		return 0
	}
	return scalars[NvidiaGPU] + scalars[amdGPU]
}

// Times returns resources multiplied by n. The result is limited to the max value of an int64.
func Times(r sched.Resources, n int64) sched.Resources {
	return sched.Resources{MilliCPU: saturate(r.MilliCPU, n), Memory: saturate(r.Memory, n), GPU: saturate(r.GPU, n)}
}

func saturate(a, n int64) int64 {
	if a > math.MaxInt64/n {
		return math.MaxInt64
	}
	return a * n
}
