package placement

import (
	"time"

	"github.com/kubenergy/kubenergy/internal/sched"
)

// Costing is one job priced on one node after the other.
type Costing struct {
	Snapshot *sched.Snapshot
	Job      *sched.Job
	weights  sched.Weights
	Why      sched.ReasonKind // why there is no opinion, once there is none

	priced          // what the node that was visited last is priced with
	others []priced // and those before it, where they differ

	best    sched.BenchmarkScale
	metered meteredNodes
	peak    peakScale

	cluster          string // what a [ClusterRule] has said, once it was asked
	hasCluster, sent bool

	largest    sched.Resources // capacity of any candidate
	hasLargest bool
}

// NewCosting returns the costing of j in s, by the weights that hold for j, before any node is visited.
func NewCosting(s *sched.Snapshot, j *sched.Job) Costing {
	return Costing{Snapshot: s, Job: j, weights: s.Weights(j)}
}

// priced is what nodes have in common that cost the same per watt. Those of a site mostly do.
type priced struct {
	site    *sched.Site
	runtime time.Duration
	pue     float64
	rates   sched.Rates
	fresh   bool // the signals of site that have a weight
}

// maxPriced is how many of them are remembered: more sites than a cluster lies in, and few enough to look through.
const maxPriced = 8

// visit makes c ready for n.
func (c *Costing) visit(n *sched.Node) {
	runtime, pue := n.Runtime(c.Job), n.PUEFor(c.Job)
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
	c.rates = n.Site.Rates(sched.Window{Start: c.Snapshot.Now, End: c.Snapshot.Now.Add(runtime)}, pue)
	now, age := c.Snapshot.Now, c.Snapshot.Policy.MaxSignalAge
	c.fresh = n.Site != nil && (!c.weights.CountCarbon() || n.Site.Carbon.Fresh(now, age)) &&
		(!c.weights.CountPrice() || n.Site.Price.Fresh(now, age))
}

// NodeCost returns the cost of running c.Job on n now; the node of least cost is chosen, ties go by name, and none
// whose cost is infinite: the job waits rather than run there. ok is false where the snapshot lacks what the cost
// depends on: then the strategy has no opinion, and c.Why may say what is missing.
type NodeCost func(c *Costing, n *sched.Node) (cost float64, ok bool)
