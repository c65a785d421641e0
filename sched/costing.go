package sched

import "time"

// costing is one job priced on one node after the other. It remembers the rates of the last site, since neighbours
// mostly share them.
type costing struct {
	snapshot *Snapshot
	job      *Job
	weights  Weights

	site    *Site
	runtime time.Duration
	rates   rates
	fresh   bool // the signals of site that have a weight
}

func newCosting(s *Snapshot, j *Job) costing {
	return costing{snapshot: s, job: j, weights: s.Policy.Weights.orDefault()}
}

// visit makes c ready for n.
func (c *costing) visit(n *Node) {
	runtime := n.Runtime(c.job)
	if n.Site == c.site && runtime == c.runtime {
		return
	}
	c.site, c.runtime = n.Site, runtime
	c.rates = n.Site.rates(Window{c.snapshot.Now, c.snapshot.Now.Add(runtime)})
	now, age := c.snapshot.Now, c.snapshot.Policy.MaxSignalAge
	c.fresh = n.Site.Carbon.Fresh(now, age) && (c.weights.Price == 0 || n.Site.Price.Fresh(now, age))
}
