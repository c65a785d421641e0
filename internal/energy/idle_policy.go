package energy

import (
	"slices"
	"strings"
)

// IdlePolicy says who pays for what a node draws anyway.
type IdlePolicy uint8

// The policies. Only pods and virtual machines take part: the system and other control groups never do.
const (
	IdleApart IdlePolicy = iota // idle energy is charged to no consumer
	// who asked for CPUs, for the part of the node that was asked for; the rest stays idle
	IdleByRequests
	IdleEqually // each pod and each virtual machine alike, no matter how many containers it has
)

var idlePolicyNames = []string{"apart", "requests", "equal"}

// String returns the name used in flags, labels and JSON.
func (p IdlePolicy) String() string { return nameOf("idlepolicy", idlePolicyNames, p) }

// MarshalText lets an IdlePolicy appear by name in flags and JSON.
func (p IdlePolicy) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText reads the name of an IdlePolicy.
func (p *IdlePolicy) UnmarshalText(text []byte) error {
	return named("idle policy", idlePolicyNames, text, p)
}

// sharesIdle says if a consumer is one that idle energy is shared by.
func sharesIdle(consumer string) bool {
	return strings.HasPrefix(consumer, podPrefix) || strings.HasPrefix(consumer, vmPrefix)
}

// idleByRequests gives each share the part of idle that its weight is of the node's CPUs, or of all weights if those
// are more, and returns the part that no weight claims. weights has an element for each share and one more, which is
// overwritten.
func (s *Split) idleByRequests(
	idle Microjoules, cpus float64, weights []uint64, parts []Microjoules, shares []Share,
) (rest Microjoules) {
	capacity := uint64(0)
	if cpus > 0 && cpus < million {
		capacity = uint64(cpus*1000 + 0.5)
	}
	asked, shift := sumOf(weights[:len(shares)])
	if capacity == 0 || asked == 0 {
		return idle // a request is no part of an unknown whole
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

// idleEqually gives each pod and each virtual machine that has a share with a weight the same; what cannot be divided
// goes to the first by ID. What a pod gets is booked on the pod itself, or if that is not among the shares on its
// containers alike. Weights are 1 or 0. It returns the rest: all of it if no share has a weight, else nothing.
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

// unitEnd returns the index after the pod or the virtual machine that begins at i.
func unitEnd(shares []Share, i int) int {
	pod, _, isPod := PodOf(shares[i].ID)
	for i++; i < len(shares); i++ {
		if next, _, ok := PodOf(shares[i].ID); !isPod || !ok || next != pod {
			break
		}
	}
	return i
}
