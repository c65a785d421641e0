package strategy

import (
	"math"
	"time"

	"github.com/kubenergy/kubenergy/internal/sched/placement"
)

// The batch placements "min-min" and "max-min" are the classic heuristics for independent jobs on heterogeneous
// machines. For every job, they determine the minimum completion time over all nodes with sufficient capacity.
// min-min places the job with the smallest of these times first, max-min the job with the largest, and the
// procedure is repeated for the remaining jobs. Among nodes with equal completion times, the one with the lowest
// energy for the job is selected if power profiles are known, and then the first by name.
func minMin(b *batch) { matchByFinish(b, func(a, b time.Duration) bool { return a < b }) }

func maxMin(b *batch) { matchByFinish(b, func(a, b time.Duration) bool { return a > b }) }

// offer is the best node for a job.
type offer struct {
	node    int // -1 if the job fits on no node
	runtime time.Duration
	energy  float64
}

func (o *offer) worse(than *offer) bool {
	switch {
	case than.node < 0:
		return false
	case o.node < 0:
		return true
	case o.runtime != than.runtime:
		return o.runtime > than.runtime
	}
	return o.energy > than.energy
}

// replaces reports whether o is better than the offer of another node, or equally good with the lower position.
func (o *offer) replaces(than *offer) bool {
	return than.worse(o) || o.node >= 0 && !o.worse(than) && o.node < than.node
}

// matchByFinish places jobs one by one. After a placement only the selected node has changed, so the offers of
// other nodes remain valid. A job is compared with that node only, unless its own offer was for it.
func matchByFinish(b *batch, before func(a, b time.Duration) bool) {
	jobs := b.fitting(b.open)
	offers := make([]offer, len(jobs))
	costings := make([]placement.Costing, len(jobs))
	for k, i := range jobs {
		costings[k] = placement.NewCosting(&b.snapshot, b.job(i))
		offers[k] = b.bestOffer(&costings[k])
	}
	for !b.stopped() {
		next := -1
		for k := range jobs {
			if offers[k].node >= 0 && (next < 0 || before(offers[k].runtime, offers[next].runtime)) {
				next = k
			}
		}
		if next < 0 {
			break
		}
		taken := offers[next].node
		b.place(jobs[next], taken)
		offers[next].node = -1
		for k, i := range jobs {
			switch {
			case b.placed(i) || offers[k].node < 0:
			case offers[k].node == taken:
				offers[k] = b.bestOffer(&costings[k])
			default:
				if o := b.offer(&costings[k], taken); o.replaces(&offers[k]) {
					offers[k] = o
				}
			}
		}
	}
	b.close()
	if !b.proof.Whole {
		b.group()
		b.placeInOrder()
	}
}

func (b *batch) bestOffer(c *placement.Costing) offer {
	best := offer{node: -1}
	for node := range b.nodes {
		if o := b.offer(c, node); best.worse(&o) {
			best = o
		}
	}
	return best
}

// offer returns the offer of a node for a job.
func (b *batch) offer(c *placement.Costing, node int) offer {
	n := &b.nodes[node]
	if !c.Job.Fits(n) {
		return offer{node: -1}
	}
	o := offer{node: node, runtime: n.Runtime(c.Job), energy: math.Inf(1)}
	if n.Profile != nil {
		o.energy, _ = placement.LowestEnergy(c, n)
	}
	return o
}
