package host

import (
	"bytes"
	"fmt"
	"math"
)

const (
	// impossible is an error larger than any sum of errors that are merely unlikely.
	impossible = 1e6
	// maxReserved is the maximum fraction of a node's CPUs that is usually reserved.
	maxReserved = 0.21
	// askedPods is the maximum number of pods with a limit to check.
	askedPods = 8
)

// kubeletsRule detects the conversion that the kubelet uses, based on these facts:
//
//   - The weight of the group of all pods corresponds to the allocatable CPU, which never exceeds the node's CPUs and
//     is rarely below four fifths of them.
//   - The requests in the group of all pods do not exceed the allocatable CPU.
//   - The request of a guaranteed pod equals its limit, which the kernel stores exactly.
//   - The request of the burstable class equals the sum of its pods.
//
// On large nodes without guaranteed pods that have a limit, the result may be ambiguous: 64 CPUs with 20 % reserved
// have the same weight by the new conversion as without reservation by the old one. In this case, the new
// conversion is assumed.
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

// burstableError returns the difference between the weight of a QoS class and the sum of its pods, as a logarithm.
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

// allocatableError returns how much the weight of all pods, by this conversion, deviates from the possible range.
func (c conversion) allocatableError(all *node, capacity float64) float64 {
	const rounding = 1 // the kubelet first rounds to shares
	inside := 0.0
	for _, p := range all.children {
		inside += c.within(p.weight, 1)
	}
	err := 0.0
	if inside > c.within(all.weight, 0)+rounding {
		err += impossible
	}
	if c.within(all.weight, 1) > capacity+rounding {
		err += impossible
	}
	return err + max(0, math.Log((1-maxReserved)*capacity/c.milli(all.weight)))
}

// compareLimits adds the differences between requests and limits of guaranteed pods to errs.
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

// parseLimit parses cpu.max and returns the limit in millicores. It returns ok = false if there is no limit.
func parseLimit(text []byte) (milli float64, ok bool) {
	var quota, period uint64
	if n, _ := fmt.Sscanf(string(text), "%d %d\n", &quota, &period); n < 2 || quota == 0 || period == 0 ||
		!bytes.HasSuffix(text, []byte("\n")) {
		return 0, false
	}
	return float64(quota) / float64(period) * 1000, true
}
