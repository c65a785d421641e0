package intake

import (
	"math"

	v1 "k8s.io/api/core/v1"

	"github.com/kubenergy/kubenergy/controller/access"
	"github.com/kubenergy/kubenergy/energy"
	"github.com/kubenergy/kubenergy/kube"
)

// Limits are what a node can possibly do, by what administrators and hardware tables say of it.
type Limits struct {
	MaxPower energy.Watts // 0: DefaultMaxPower
	Idle     energy.Watts // 0: not known
	Cores    float64      // 0: DefaultCores
	// Modelled says that MaxPower and Idle are those of a model of the hardware, with which measured power can be
	// compared.
	Modelled bool
}

// What nodes of which nothing is known can do at most.
const (
	DefaultMaxPower energy.Watts = 2000
	DefaultCores    float64      = 1024
)

// Nodes tells the limits of nodes: of the cluster's by a view, of others by the file of their tokens, and else by
// what an administrator says of all.
func Nodes(view func() *kube.View, node func(name string) *v1.Node, hosts *access.HostTokens,
	most energy.Watts,
) func(name string) Limits {
	return func(name string) Limits {
		l := Limits{MaxPower: most}
		n := node(name)
		if h, ok := hosts.Host(name); ok && h.MaxPower > 0 {
			return Limits{MaxPower: h.MaxPower}
		} else if n == nil {
			return l
		}
		l.Cores = n.Status.Capacity.Cpu().AsApproximateFloat64()
		profile, _ := view().Hardware(n)
		if profile == nil {
			return l
		}
		gpus := 0.0
		for _, resource := range []v1.ResourceName{"nvidia.com/gpu", "amd.com/gpu"} {
			q := n.Status.Capacity[resource]
			gpus += q.AsApproximateFloat64()
		}
		power := profile.Power(1) + energy.Watts(gpus)*profile.GPUMax
		if !(power > 0) || math.IsInf(float64(power), 0) {
			return l
		}
		l.MaxPower, l.Idle, l.Modelled = power, profile.Power(0)+energy.Watts(gpus)*profile.GPUIdle, true
		return l
	}
}
