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

// Limits are what a node can possibly do, by what administrators and hardware tables say of it.
type Limits struct {
	MaxPower energy.Watts // 0: DefaultMaxPower
	Idle     energy.Watts // 0: not known
	Cores    float64      // 0: DefaultCores
	// Modelled says that MaxPower and Idle are those of a model of the hardware, with which measured power can be
	// compared.
	Modelled bool
	// Since is when the node came to be, as the API server says; zero: it is no node of the cluster.
	Since time.Time
	// Says is what its Node says that it has.
	Says ledger.Seen
}

// What nodes of which nothing is known can do at most.
const (
	DefaultMaxPower energy.Watts = 2000
	DefaultCores    float64      = 1024
	// of each GPU that Kubernetes counts, where its power is not known
	DefaultGPUPower energy.Watts = 1500
)

// Nodes tells the limits of nodes: of the cluster's by a view, of others by the file of their tokens, and else by
// what an administrator says of all.
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
			GPUs: policy.ResourcesOf(n.Status.Capacity).GPU, Bytes: n.Status.Capacity.Memory().Value(),
		}
		seen = seen.Add(l.Says)
		n = clipped(n, l.Says, seen)
		l.Cores = n.Status.Capacity.Cpu().AsApproximateFloat64()
		profile := view().Trusted(n)
		boards := energy.Watts(policy.ResourcesOf(n.Status.Capacity).GPU)
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

// clipped returns a Node with no more than it said at first: what recognises hardware reads cores, memory and GPUs.
func clipped(n *v1.Node, claimed, seen ledger.Seen) *v1.Node {
	if claimed.Cores <= seen.Cores && claimed.GPUs <= seen.GPUs && claimed.Bytes <= seen.Bytes {
		return n
	}
	own := maps.Clone(n.Status.Capacity)
	own[v1.ResourceCPU] = *resource.NewQuantity(min(claimed.Cores, seen.Cores), resource.DecimalSI)
	own[v1.ResourceMemory] = *resource.NewQuantity(min(claimed.Bytes, seen.Bytes), resource.BinarySI)
	if claimed.GPUs > seen.GPUs {
		maps.DeleteFunc(own, func(name v1.ResourceName, q resource.Quantity) bool {
			return policy.ResourcesOf(v1.ResourceList{name: q}).GPU > 0
		})
		own[policy.NvidiaGPU] = *resource.NewQuantity(seen.GPUs, resource.DecimalSI)
	}
	clip := *n
	clip.Status.Capacity = own
	return &clip
}
