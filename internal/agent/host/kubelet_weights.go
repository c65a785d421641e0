package host

import (
	"bytes"
	"fmt"
	"math"
)

const (
	// impossible outweighs all that is only unlikely; where both conversions are impossible, neither is.
	impossible = 1e6
	// maxReserved is the part of a node's CPUs that is usually kept from pods at most.
	maxReserved = 0.21
	// askedPods is of how many pods with a limit the weight is compared with it.
	askedPods = 8
)

// kubeletsRule finds out which conversion the kubelet uses. What it knows of weights:
//
//   - All pods together get what is allocatable, which never exceeds the node's CPUs, and seldom is less than four
//     fifths.
//   - What is inside the group of all pods requests no more than what is allocatable.
//   - A guaranteed pod requests its limit, which the kernel has exactly.
//   - The class burstable requests as much as its pods together.
//
// Without guaranteed pods that have a limit, large nodes may leave it open: 64 CPUs with 20 % reserved have by the
// new conversion the weight that they have by the old one with nothing reserved. Then it is the new one.
func (h *Host) kubeletsRule() conversion {
	var errs [2]float64
	for _, n := range h.byDir {
		if n.class != kubepods && n.class != burstable || n.hier.version != 2 {
			continue
		}
		h.readWeight(n)
		for c := linear; c <= quadratic && n.weight > 1; c++ {
			if n.class == burstable {
				errs[c] += c.burstableError(n)
			} else {
				errs[c] += c.allocatableError(n, 1000*h.cpus)
			}
		}
		if n.class == kubepods {
			h.compareLimits(n, &errs)
		}
	}
	const nothing = 1e-9
	if errs[linear] < errs[quadratic]-nothing {
		return linear
	}
	return quadratic
}

// burstableError compares the weight of a class with those of its pods.
func (c conversion) burstableError(class *node) float64 {
	sum := 0.0
	for _, p := range class.children {
		sum += c.milli(p.weight)
	}
	if len(class.children) < 2 || sum <= 0 {
		return 0
	}
	return math.Abs(math.Log(sum / c.milli(class.weight)))
}

// allocatableError tells how far a conversion's reading of the weight of all pods is from what it can be.
func (c conversion) allocatableError(all *node, capacity float64) float64 {
	const rounding = 1 // the kubelet rounds to shares first
	inside := 0.0
	for _, p := range all.children {
		inside += c.within(p.weight, 1)
	}
	err := 0.0
	if inside > c.within(all.weight, 0)+rounding {
		err += impossible
	}
	if capacity <= 0 {
		return err
	}
	if c.within(all.weight, 1) > capacity+rounding {
		err += impossible
	}
	return err + max(0, math.Log((1-maxReserved)*capacity/c.milli(all.weight)))
}

// compareLimits compares what guaranteed pods request with their limits.
func (h *Host) compareLimits(all *node, errs *[2]float64) {
	asked := 0
	for _, p := range all.children {
		if p.role != pod || p.weight <= 1 || asked == askedPods {
			continue
		}
		text, err := h.io.slurp(p.dir, "/cpu.max", window)
		if err != nil {
			continue
		}
		if limit, ok := parseLimit(text); ok {
			asked++
			for c := linear; c <= quadratic; c++ {
				errs[c] += math.Abs(math.Log(c.milli(p.weight) / limit))
			}
		}
	}
}

// parseLimit reads cpu.max, in thousandths of a CPU. It is not ok where there is no limit.
func parseLimit(text []byte) (milli float64, ok bool) {
	var quota, period uint64
	if n, _ := fmt.Sscanf(string(text), "%d %d\n", &quota, &period); n < 2 || quota == 0 || period == 0 ||
		!bytes.HasSuffix(text, []byte("\n")) {
		return 0, false
	}
	return float64(quota) / float64(period) * 1000, true
}
