package host

import (
	"math"
	"time"
)

// Requested CPU, as control groups know it: the kubelet writes it as cpu.shares, 1,024 for one CPU, or as cpu.weight.
//
// Two conversions from shares to weights are in use, and nothing in a group says which. Up to runc 1.3.1 weights are
//
//	1 + (shares − 2)·9999/262142
//
// rounded down; since runc 1.3.2, and in crun since 1.23, with l = log₂ shares,
//
//	10^((l² + 125·l)/612 − 7/34)
//
// rounded up. The kubelet writes those of pods and classes, the runtime those of containers, so a node may use both.
// The kubelet's is found out by [Host.kubeletsRule]. Of a pod's containers, the conversion counts by which they come
// closer to their pod. Undoing the first one is right to ±13 thousandths of a CPU, whatever the request; of less than
// 26 thousandths it says nothing. Undoing the second is right to 5 % from 50 thousandths on, 1 % from one CPU on, and
// 17 % at 10 thousandths. Version 1's shares are exact to one thousandth.
type conversion uint8

const (
	linear conversion = iota
	quadratic
)

// milli returns what a weight of version 2 means in thousandths of a CPU, in the middle of what is rounded to it. The
// least weight is what those get that request nothing.
func (c conversion) milli(weight uint64) float64 { return c.within(weight, 0.5) }

// within is the same anywhere in what is rounded to a weight: below is 1 at its lower end and 0 at its upper one.
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

// sharesMilli is the same for version 1. The kubelet rounds down and writes at least 2.
func sharesMilli(shares uint64) uint64 {
	if shares <= 2 {
		return 0
	}
	return (min(shares, 262144)*1000 + 1023) / 1024
}

// weighing refreshes weights a few at a time.
type weighing struct {
	young  []*node // whose weight may not have been written yet when they were found
	again  []*node
	cursor int
	last   time.Duration
	owed   float64 // of nodes to be refreshed
	next   time.Duration
	rule   conversion
	dead   []*node // found gone while reading
}

// reweigh reads the weights of what is new, now and in the next tick, as runtimes write them just after they make a
// group; and those of all others once a minute, a few at each tick.
func (h *Host) reweigh(now time.Duration) {
	w := &h.weigh
	changed := false
	for _, n := range w.again {
		changed = h.readWeight(n) || changed
	}
	clear(w.again)
	w.again = w.again[:0]
	for _, n := range w.young {
		changed = h.readWeight(n) || changed
	}
	w.young, w.again = w.again, w.young

	w.owed += float64(len(h.ordered)) * (now - w.last).Seconds() / refreshInterval.Seconds()
	w.last = now
	for w.owed = min(w.owed, float64(len(h.ordered))); w.owed >= 1; w.owed-- {
		if w.cursor++; w.cursor >= len(h.ordered) {
			w.cursor = 0
		}
		changed = h.readWeight(h.ordered[w.cursor]) || changed
	}
	if now >= w.next {
		w.next = now + refreshInterval
		h.cpus = h.countCPUs()
		if rule := h.kubeletsRule(); rule != w.rule {
			w.rule, changed = rule, true
		}
	}
	if changed {
		h.spread()
	}
}

// readWeight reads the weight of one node, and reports if it is another one.
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
		dir, name = n.hier.shares+n.dir[len(n.hier.dir):], "/cpu.shares" // perhaps in another tree, with the same paths
	}
	text, err := h.io.slurp(dir, name, window)
	if err != nil {
		return changed // it keeps what it had
	}
	value, rest, ok := digits(text)
	if !ok || len(rest) == 0 || rest[0] != '\n' || value == n.weight {
		return changed
	}
	n.weight = value
	return true
}

// spread divides what pods request over their containers, so that the sum over consumers is what the pod requests.
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
