package sched

import "time"

// costing is one job priced on one node after the other.
type costing struct {
	snapshot *Snapshot
	job      *Job
	weights  Weights
	why      ReasonKind // why there is no opinion, once there is none

	priced          // what the node that was visited last is priced with
	others []priced // and those before it, where they differ

	best    benchmarkScale
	metered meteredNodes
	peak    peakScale

	cluster          string // what a [clusterRule] has said, once it was asked
	hasCluster, sent bool

	largest    Resources // capacity of any candidate
	hasLargest bool
}

func newCosting(s *Snapshot, j *Job) costing {
	return costing{snapshot: s, job: j, weights: s.weights(j)}
}

// priced is what nodes have in common that cost the same per watt. Those of a site mostly do.
type priced struct {
	site    *Site
	runtime time.Duration
	pue     float64
	rates   rates
	fresh   bool // the signals of site that have a weight
}

// maxPriced is how many of them are remembered: more sites than a cluster lies in, and few enough to look through.
const maxPriced = 8

// visit makes c ready for n.
func (c *costing) visit(n *Node) {
	runtime, pue := n.Runtime(c.job), n.pue(c.job)
	if n.Site == c.site && runtime == c.runtime && pue == c.pue {
		return
	}
	for i := range c.others {
		if o := &c.others[i]; o.site == n.Site && o.runtime == runtime && o.pue == pue {
			c.priced, *o = *o, c.priced
			return
		}
	}
	if c.pue != 0 && len(c.others) < maxPriced { // there was a node before
		c.others = append(c.others, c.priced)
	}
	c.site, c.runtime, c.pue = n.Site, runtime, pue
	c.rates = n.Site.rates(Window{Start: c.snapshot.Now, End: c.snapshot.Now.Add(runtime)}, pue)
	now, age := c.snapshot.Now, c.snapshot.Policy.MaxSignalAge
	c.fresh = n.Site != nil && (!c.weights.countCarbon() || n.Site.Carbon.Fresh(now, age)) &&
		(!c.weights.countPrice() || n.Site.Price.Fresh(now, age))
}
