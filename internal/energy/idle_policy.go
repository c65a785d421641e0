package energy

import (
	"slices"
	"strings"
)

// IdlePolicy determines how the idle energy of a node is charged.
type IdlePolicy uint8

// The policies. Only pods and virtual machines are charged; the system and other control groups never are.
const (
	IdleApart IdlePolicy = iota // idle energy is not charged to any consumer
	// IdleByRequests charges consumers for the requested part of the node's CPUs; the rest remains idle.
	IdleByRequests
	IdleEqually // every pod and virtual machine alike, regardless of its number of containers
)

var idlePolicyNames = []string{"apart", "requests", "equal"}

// String returns the name used in flags, labels and JSON.
func (p IdlePolicy) String() string { return nameOf("idlepolicy", idlePolicyNames, p) }

// MarshalText encodes p as its name in flags and JSON.
func (p IdlePolicy) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText parses the name of an IdlePolicy.
func (p *IdlePolicy) UnmarshalText(text []byte) error {
	return named("idle policy", idlePolicyNames, text, p)
}

// sharesIdle reports whether a consumer is charged for idle energy.
func sharesIdle(consumer string) bool {
	return strings.HasPrefix(consumer, podPrefix) || strings.HasPrefix(consumer, vmPrefix)
}

// idleByRequests sets the idle energy of each share to the fraction of its weight in the node's CPUs, or in the sum
// of weights if that is larger. It returns the part that no weight claims. weights has one element more than
// shares, which is overwritten.
func (s *Split) idleByRequests(
	idle Microjoules, cpus float64, weights []uint64, parts []Microjoules, shares []Share,
) (rest Microjoules) {
	capacity := uint64(0)
	if cpus > 0 && cpus < million {
		capacity = uint64(cpus*1000 + 0.5)
	}
	asked, shift := sumOf(weights[:len(shares)])
	if capacity == 0 || asked == 0 {
		return idle // the fraction is undefined without a capacity
	}
	weights[len(shares)] = 0
	if shift == 0 && asked < capacity {
		weights[len(shares)] = capacity - asked
	}
	s.Parts(idle, weights[:len(shares)+1], parts)
	for i := range shares {
		shares[i].Idle = parts[i]
	}
	return parts[len(shares)]
}

// idleEqually divides idle energy equally among the pods and virtual machines that have a share with a weight. The
// remainder goes to the first ones by ID. The part of a pod is assigned to the pod's own share, or equally to its
// containers if there is no such share. Weights are 1 or 0. It returns the undistributed energy, which is all of it
// if no share has a weight and 0 otherwise.
func (s *Split) idleEqually(
	idle Microjoules, weights []uint64, parts []Microjoules, shares []Share,
) (rest Microjoules) {
	units := Microjoules(0)
	for i, end := 0, 0; i < len(shares); i = end {
		if end = unitEnd(shares, i); slices.Max(weights[i:end]) > 0 {
			units++
		}
	}
	for i, end := 0, 0; units > 0 && i < len(shares); i = end {
		if end = unitEnd(shares, i); slices.Max(weights[i:end]) == 0 {
			continue
		}
		part := idle / units
		if idle%units > 0 {
			part++
		}
		idle, units = idle-part, units-1
		if _, container, _ := PodOf(shares[i].ID); container == "" && weights[i] > 0 {
			shares[i].Idle = part
			continue
		}
		s.Parts(part, weights[i:end], parts[i:end])
		for k := i; k < end; k++ {
			shares[k].Idle = parts[k]
		}
	}
	return idle
}

// unitEnd returns the index after the last share of the pod or virtual machine that starts at i.
func unitEnd(shares []Share, i int) int {
	pod, _, isPod := PodOf(shares[i].ID)
	for i++; i < len(shares); i++ {
		if next, _, ok := PodOf(shares[i].ID); !isPod || !ok || next != pod {
			break
		}
	}
	return i
}
