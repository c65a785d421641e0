package policy

import (
	"cmp"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	quantities "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/component-helpers/resource"

	"github.com/kubenergy/kubenergy/internal/sched"
)

// NvidiaGPU is the extended resource of whole GPUs of NVIDIA's device plugin.
const NvidiaGPU v1.ResourceName = "nvidia.com/gpu"

// wholeGPUs are the extended resources that count as devices. Devices shared in time are devices of a node with a
// correspondingly lower power per device, see package hardware.
var wholeGPUs = []v1.ResourceName{NvidiaGPU, "nvidia.com/gpu.shared", "amd.com/gpu", "habana.ai/gaudi"}

// Partitions of GPUs. The name of a MIG instance has its number of compute slices (g), e.g. nvidia.com/mig-3g.20gb and
// nvidia.com/mig-1g.10gb.me, or the number of those in use (c), e.g. nvidia.com/mig-1c.3g.20gb. AMD's compute modes
// divide a device into 1 to 8 partitions.
var (
	migInstance  = regexp.MustCompile(`^nvidia\.com/mig-(?:([1-7])c\.)?(([1-7])g\.\d+gb)(?:[.-](?:me|gfx|all))*$`)
	amdPartition = regexp.MustCompile(`^amd\.com/([sdtqc]px)_nps\d$`)
	amdParts     = map[string]int64{"spx": 1, "dpx": 2, "tpx": 3, "qpx": 4, "cpx": 8}
	// quarters are the instances of devices with four compute slices. All other devices with MIG have seven.
	quarters = []string{"1g.6gb", "2g.12gb", "4g.24gb", "2g.48gb", "4g.96gb"}
	// otherGPU matches resources of accelerators without a known share of a device, such as instances that are also
	// shared in time, and Intel GPUs, which may be integrated into a CPU.
	otherGPU = regexp.MustCompile(`^(gpu\.intel\.com/(i915|xe)|nvidia\.com/(mig-|pgpu|[A-Z]).*|amd\.com/.px_.*|` +
		`aliyun\.com/gpu-mem|tencent\.com/vcuda-core|volcano\.sh/vgpu-number|k8s\.amazonaws\.com/vgpu|` +
		`google\.com/tpu|aws\.amazon\.com/neuron.*|huawei\.com/Ascend.*)$`)
)

// GPUsOf returns the GPUs that a resource of the given name counts per unit: a device, or thousandths of a device,
// rounded down so that the partitions of a device never exceed it.
func GPUsOf(name v1.ResourceName) sched.Resources {
	if !strings.Contains(string(name), "/") {
		return sched.Resources{} // all resources of vendors have a domain
	}
	if slices.Contains(wholeGPUs, name) {
		return sched.Resources{GPU: 1}
	}
	if m := migInstance.FindStringSubmatch(string(name)); m != nil {
		used, _ := strconv.ParseInt(cmp.Or(m[1], m[3]), 10, 64)
		if slices.Contains(quarters, m[2]) {
			return sched.Resources{MilliGPU: 1000 * used / 4}
		}
		return sched.Resources{MilliGPU: 1000 * used / 7}
	}
	if m := amdPartition.FindStringSubmatch(string(name)); m != nil {
		return sched.Resources{MilliGPU: 1000 / amdParts[m[1]]}
	}
	return sched.Resources{}
}

// UnknownGPUs returns the resource claim or the resource by which a pod requests devices that [PodRequest] does not
// count, or "" if there is none. The devices of a claim may be GPUs.
func UnknownGPUs(pod *v1.Pod) string {
	if len(pod.Spec.ResourceClaims) > 0 {
		return "resource claim " + pod.Spec.ResourceClaims[0].Name
	}
	for i := range pod.Spec.Containers {
		for name := range pod.Spec.Containers[i].Resources.Requests {
			if GPUsOf(name) == (sched.Resources{}) && otherGPU.MatchString(string(name)) {
				return "resource " + string(name)
			}
		}
	}
	return ""
}

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
	r := sched.Resources{MilliCPU: amount(list.Cpu(), quantities.Milli), Memory: amount(list.Memory(), 0)}
	for name, q := range list {
		if each := GPUsOf(name); each != (sched.Resources{}) {
			r = r.Add(Times(each, min(amount(&q, 0), most/1000)))
		}
	}
	return r
}

// ListOf converts resources to a ResourceList, without partitions of GPUs.
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

// ScalarGPUs returns the GPUs in the scalar resources of a scheduler's NodeInfo.
func ScalarGPUs(scalars map[v1.ResourceName]int64) (r sched.Resources) {
	for name, n := range scalars {
		r = r.Add(Times(GPUsOf(name), n))
	}
	return r
}

// CountGPUs returns the number of devices of a node, where partitions are combined.
func CountGPUs(capacity v1.ResourceList) int64 {
	return int64(math.Ceil(ResourcesOf(capacity).Devices()))
}

// Times returns resources multiplied by n. The result is limited to the max value of an int64.
func Times(r sched.Resources, n int64) sched.Resources {
	return sched.Resources{
		MilliCPU: saturate(r.MilliCPU, n), Memory: saturate(r.Memory, n), GPU: saturate(r.GPU, n),
		MilliGPU: saturate(r.MilliGPU, n),
	}
}

func saturate(a, n int64) int64 {
	if n > 0 && a > math.MaxInt64/n {
		return math.MaxInt64
	}
	return a * n
}
