package intake

import (
	"maps"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubenergy/kubenergy/internal/controller/access"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/policy"
)

// Limits are the physical limits of a node, from the settings of administrators and from hardware tables.
type Limits struct {
	MaxPower energy.Watts // defaults to DefaultMaxPower
	Idle     energy.Watts // 0 if unknown
	Cores    float64      // defaults to DefaultCores
	// Modelled is set if MaxPower and Idle come from a model of the hardware. Only then is measured power compared
	// with them.
	Modelled bool
	// Since is the creation time of the Node object; zero if the node does not belong to the cluster.
	Since time.Time
	// Says is the hardware in the status of the Node object.
	Says ledger.Seen
}

// Limits of nodes with unknown hardware.
const (
	DefaultMaxPower energy.Watts = 2000
	DefaultCores    float64      = 1024
	// DefaultGPUPower is the limit of each GPU that Kubernetes counts if its power is unknown.
	DefaultGPUPower energy.Watts = 1500
)

// Nodes returns a function that returns the limits of a node. The limit in the file of host tokens takes
// precedence. Nodes of the cluster have limits by their hardware profile in the view. All other nodes have the
// limit most, which an administrator sets.
func Nodes(view func() *kube.View, node func(name string) *v1.Node, hosts *access.HostTokens,
	most energy.Watts,
) func(name string, seen ledger.Seen) Limits {
	return func(name string, seen ledger.Seen) Limits {
		l := Limits{MaxPower: most}
		n := node(name)
		if h, ok := hosts.Host(name); ok && h.MaxPower > 0 {
			return Limits{MaxPower: h.MaxPower}
		} else if n == nil {
			return l
		}
		l.Since = n.CreationTimestamp.Time
		l.Says = ledger.Seen{
			Made: n.CreationTimestamp.Unix(), Cores: n.Status.Capacity.Cpu().Value(),
			GPUs: policy.CountGPUs(n.Status.Capacity), Bytes: n.Status.Capacity.Memory().Value(),
		}
		seen = seen.Add(l.Says)
		n = clipped(n, l.Says, seen)
		l.Cores = n.Status.Capacity.Cpu().AsApproximateFloat64()
		profile := view().Trusted(n)
		boards := energy.Watts(policy.CountGPUs(n.Status.Capacity))
		switch {
		case profile == nil && boards > 0 && most == 0:
			l.MaxPower = DefaultMaxPower + boards*DefaultGPUPower
		case profile == nil:
		case boards > 0 && profile.GPUMax == 0:
			l.MaxPower = profile.Power(1) + boards*DefaultGPUPower
		default:
			if power := profile.Power(1) + boards*profile.GPUMax; power > 0 {
				l.MaxPower, l.Idle, l.Modelled = power, profile.Power(0)+boards*profile.GPUIdle, true
			}
		}
		return l
	}
}

// clipped returns a Node with at most the cores, memory and GPUs of seen, which hardware recognition depends on.
func clipped(n *v1.Node, claimed, seen ledger.Seen) *v1.Node {
	if claimed.Cores <= seen.Cores && claimed.GPUs <= seen.GPUs && claimed.Bytes <= seen.Bytes {
		return n
	}
	own := maps.Clone(n.Status.Capacity)
	own[v1.ResourceCPU] = *resource.NewQuantity(min(claimed.Cores, seen.Cores), resource.DecimalSI)
	own[v1.ResourceMemory] = *resource.NewQuantity(min(claimed.Bytes, seen.Bytes), resource.BinarySI)
	if claimed.GPUs > seen.GPUs {
		maps.DeleteFunc(own, func(name v1.ResourceName, q resource.Quantity) bool {
			return policy.CountGPUs(v1.ResourceList{name: q}) > 0
		})
		own[policy.NvidiaGPU] = *resource.NewQuantity(seen.GPUs, resource.DecimalSI)
	}
	clip := *n
	clip.Status.Capacity = own
	return &clip
}
