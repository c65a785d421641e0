package intake

import (
	"cmp"
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

func (l Limits) filled() Limits {
	l.MaxPower = cmp.Or(l.MaxPower, DefaultMaxPower)
	l.Cores = cmp.Or(l.Cores, DefaultCores)
	return l
}

// Nodes tells the limits of nodes: of the cluster's by a view, of others by the file of their tokens, and else by
// what an administrator says of all.
func Nodes(view func() *kube.View, node func(name string) *v1.Node, hosts *access.HostTokens,
	most energy.Watts,
) func(name string) Limits {
	of := limits(view, node, hosts)
	return func(name string) Limits {
		l := of(name)
		l.MaxPower = cmp.Or(l.MaxPower, most)
		return l
	}
}

func limits(view func() *kube.View, node func(name string) *v1.Node,
	hosts *access.HostTokens,
) func(name string) Limits {
	return func(name string) Limits {
		if h, ok := hosts.Host(name); ok && h.MaxPower > 0 {
			return Limits{MaxPower: h.MaxPower}
		}
		n := node(name)
		if n == nil {
			return Limits{}
		}
		l := Limits{Cores: n.Status.Capacity.Cpu().AsApproximateFloat64()}
		profile, _ := view().Hardware(n)
		if profile == nil {
			return l
		}
		const gpus = "nvidia.com/gpu"
		l.MaxPower, l.Idle, l.Modelled = profile.Power(1), profile.Power(0), true
		for _, resource := range []v1.ResourceName{gpus, "amd.com/gpu"} {
			if q, ok := n.Status.Capacity[resource]; ok {
				l.MaxPower += energy.Watts(q.AsApproximateFloat64()) * profile.GPUMax
				l.Idle += energy.Watts(q.AsApproximateFloat64()) * profile.GPUIdle
			}
		}
		if most := float64(l.MaxPower); !(most > 0) || math.IsInf(most, 0) {
			return Limits{Cores: l.Cores}
		}
		return l
	}
}
