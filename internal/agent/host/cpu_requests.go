package host

import (
	"math"
	"slices"
	"time"
)

// conversion is a conversion from cpu.shares to cpu.weight. Requested CPU is read from control groups, in which the
// kubelet writes it as cpu.shares (1,024 per CPU) or cpu.weight.
//
// Two conversions are in use, and a group does not indicate which one was used. Up to runc 1.3.1, weights are
//
//	1 + (shares − 2)·9999/262142
//
// rounded down. Since runc 1.3.2 and crun 1.23, they are, with l = log₂ shares,
//
//	10^((l² + 125·l)/612 − 7/34)
//
// rounded up. The kubelet writes the weights of pods and QoS classes, and the container runtime writes those of
// containers, so a node may use both. The conversion of the kubelet is detected by [Host.kubeletsRule]. For the
// containers of a pod, the conversion is used that yields a sum closer to the request of the pod. The inverse of
// the first conversion is accurate to ±13 millicores and undefined for requests below 26 millicores. The inverse of
// the second one is accurate to 17 % at 10 millicores, 5 % from 50 millicores and 1 % from one CPU. Shares of
// version 1 are accurate to one millicore.
type conversion uint8

const (
	linear conversion = iota
	quadratic
)

// milli converts a weight of version 2 to millicores, using the middle of the range that is rounded to the weight.
// It returns 0 for the minimum weight, which is that of pods without requests.
func (c conversion) milli(weight uint64) float64 { return c.within(weight, 0.5) }

// within is like milli, but returns any point of the range: below is 1 at its lower end and 0 at its upper end.
func (c conversion) within(weight uint64, below float64) float64 {
	if weight <= 1 {
		return 0
	}
	w := float64(min(weight, 10000)) - below
	var shares float64
	if c == linear {
		shares = 2 + w*262142/9999
	} else {
		e := math.Log10(w) + 7.0/34
		l := (math.Sqrt(125*125+4*612*e) - 125) / 2
		shares = math.Exp2(l)
	}
	return shares * 1000 / 1024
}

// sharesMilli converts shares of version 1 to millicores. The kubelet rounds shares down and writes at least 2.
func sharesMilli(shares uint64) uint64 {
	if shares <= 2 {
		return 0
	}
	return (min(shares, 262144)*1000 + 1023) / 1024
}

// weighing is the state of refreshing weights.
type weighing struct {
	young []*node // new nodes; their weight may not be set yet
	again []*node // nodes that were new in the previous tick
	next  time.Duration
	rule  conversion
	dead  []*node // nodes found to be removed while reading
}

// reweigh reads the weights of new nodes in this and the next tick, because container runtimes set weights shortly
// after they create a group. It reads the weights of all nodes once per minute.
func (h *Host) reweigh(now time.Duration) {
	w := &h.weigh
	refresh, due := now >= w.next, slices.Concat(w.again, w.young)
	w.again, w.young = w.young, nil
	if refresh {
		due = append(due, h.ordered...)
	}
	changed := false
	for _, n := range due {
		changed = h.readWeight(n) || changed
	}
	if refresh {
		w.next, h.cpus = now+refreshInterval, h.countCPUs()
		if rule := h.kubeletsRule(); rule != w.rule {
			w.rule, changed = rule, true
		}
	}
	if changed {
		h.spread()
	}
}

// readWeight reads the weight of a node and reports whether it has changed.
func (h *Host) readWeight(n *node) bool {
	if n.left || n.hier == nil || n.role != pod && n.role != container && n.role != vm && n.class == noClass {
		return false
	}
	changed := n.role == vm && n.countVCPUs()
	dir, name := n.dir, "/cpu.weight"
	if n.hier.version == 1 {
		if n.hier.shares == "" {
			return changed
		}
		dir, name = n.hier.shares+n.dir[len(n.hier.dir):], "/cpu.shares" // may be in another tree
	}
	text, err := h.io.slurp(dir, name, window)
	if err != nil {
		return changed // keep the previous weight
	}
	value, rest, ok := digits(text)
	if !ok || len(rest) == 0 || rest[0] != '\n' || value == n.weight {
		return changed
	}
	n.weight = value
	return true
}

// spread distributes the requests of pods to their containers, so that the consumers of a pod add up to its
// request.
func (h *Host) spread() {
	for _, n := range h.byID {
		switch n.role {
		case pod:
			h.spreadPod(n)
		case vm, process:
			n.share = n.machineShare()
		}
	}
}

func (h *Host) spreadPod(p *node) {
	if p.hier.version == 1 {
		p.share = sharesMilli(p.weight)
		for _, c := range p.children {
			c.share = sharesMilli(c.weight)
			p.share -= min(p.share, c.share)
		}
		return
	}
	whole := h.weigh.rule.milli(p.weight)
	var sums [2]float64
	for _, c := range p.children {
		sums[linear] += linear.milli(c.weight)
		sums[quadratic] += quadratic.milli(c.weight)
	}
	rule := linear
	if math.Abs(sums[quadratic]-whole) < math.Abs(sums[linear]-whole) {
		rule = quadratic
	}
	rest := uint64(math.Round(whole))
	for _, c := range p.children {
		c.share = uint64(math.Round(rule.milli(c.weight)))
		rest -= min(rest, c.share)
	}
	p.share = rest
}
