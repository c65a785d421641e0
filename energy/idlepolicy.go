package energy

import (
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

// idleEqually gives each pod and each virtual machine that has a share with a weight the same; equal remainders go by
// ID. What a pod gets is booked on the pod itself, or if that is not among the shares on its containers alike. It
// returns the rest: all of it if no share has a weight, else nothing.
func idleEqually(idle Microjoules, weights []uint64, shares []Share) (rest Microjoules) {
	units := Microjoules(0)
	for i := 0; i < len(shares); {
		end, members := unit(weights, shares, i)
		if members > 0 {
			units++
		}
		i = end
	}
	if units == 0 {
		return idle
	}
	each, extra := idle/units, idle%units
	for i := 0; i < len(shares); {
		end, members := unit(weights, shares, i)
		if members > 0 {
			part := each
			if extra > 0 {
				part++
				extra--
			}
			spread(part, members, weights[i:end], shares[i:end])
		}
		i = end
	}
	return 0
}

// unit returns the index after the pod or the virtual machine that begins at i, and how many of its shares have a
// weight.
func unit(weights []uint64, shares []Share, i int) (end, members int) {
	pod, _, isPod := PodOf(shares[i].ID)
	for end = i; end < len(shares); end++ {
		if end > i {
			if next, _, ok := PodOf(shares[end].ID); !isPod || !ok || next != pod {
				break
			}
		}
		if weights[end] > 0 {
			members++
		}
	}
	return end, members
}

// spread books what a pod or a virtual machine gets on those of its shares that have a weight.
func spread(part Microjoules, members int, weights []uint64, shares []Share) {
	if _, container, _ := PodOf(shares[0].ID); container == "" && weights[0] > 0 {
		shares[0].Idle = part
		return
	}
	each, extra := part/Microjoules(members), part%Microjoules(members)
	for i := range shares {
		if weights[i] == 0 {
			continue
		}
		shares[i].Idle = each
		if extra > 0 {
			shares[i].Idle++
			extra--
		}
	}
}
