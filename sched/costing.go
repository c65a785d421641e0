package sched

import "time"

// costing is one job priced on one node after the other. It remembers the rates of the last site, since neighbours
// mostly share them.
type costing struct {
	snapshot *Snapshot
	job      *Job
	weights  Weights
	why      ReasonKind // why there is no opinion, once there is none

	site    *Site
	runtime time.Duration
	pue     float64
	rates   rates
	fresh   bool // the signals of site that have a weight

	best    benchmarkScale
	metered meteredNodes
	peak    peakScale

	largest    Resources // capacity of any candidate
	hasLargest bool
}

func newCosting(s *Snapshot, j *Job) costing {
	return costing{snapshot: s, job: j, weights: s.weights(j)}
}

// visit makes c ready for n.
func (c *costing) visit(n *Node) {
	runtime, pue := n.Runtime(c.job), n.pue(c.job)
	if n.Site == c.site && runtime == c.runtime && pue == c.pue {
		return
	}
	c.site, c.runtime, c.pue = n.Site, runtime, pue
	c.rates = n.Site.rates(Window{c.snapshot.Now, c.snapshot.Now.Add(runtime)}, pue)
	now, age := c.snapshot.Now, c.snapshot.Policy.MaxSignalAge
	c.fresh = n.Site != nil && (!c.weights.countCarbon() || n.Site.Carbon.Fresh(now, age)) && (!c.weights.countPrice() || n.Site.Price.Fresh(now, age))
}
