package placement

import (
	"time"

	"github.com/kubenergy/kubenergy/internal/sched"
)

// Costing evaluates the cost of one job on one node after another.
type Costing struct {
	Snapshot *sched.Snapshot
	Job      *sched.Job
	weights  sched.Weights
	Why      sched.ReasonKind // reason for having no opinion

	priced          // rates for the node visited last
	others []priced // rates for the nodes visited before, if different

	best    sched.BenchmarkScale
	metered meteredNodes
	peak    peakScale

	cluster          string // result of the [ClusterRule], valid if sent is true
	hasCluster, sent bool

	largest    sched.Resources // maximum capacity of all candidates
	hasLargest bool
}

// NewCosting returns the costing of j in s with the weights that apply to j. No node has been visited yet.
func NewCosting(s *sched.Snapshot, j *sched.Job) Costing {
	return Costing{Snapshot: s, Job: j, weights: s.Weights(j)}
}

// priced contains the properties that nodes with the same cost per watt have in common. Most nodes of a site share
// them.
type priced struct {
	site    *sched.Site
	runtime time.Duration
	pue     float64
	rates   sched.Rates
	fresh   bool // whether the weighted signals of the site are fresh
}

// maxPriced limits the number of cached rates. It exceeds the number of sites of most clusters, and is small enough
// for a linear search.
const maxPriced = 8

// visit prepares c for computing the cost on n.
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
	if c.pue != 0 && len(c.others) < maxPriced { // another node was visited before
		c.others = append(c.others, c.priced)
	}
	c.site, c.runtime, c.pue = n.Site, runtime, pue
	c.rates = n.Site.Rates(sched.Window{Start: c.Snapshot.Now, End: c.Snapshot.Now.Add(runtime)}, pue)
	now, age := c.Snapshot.Now, c.Snapshot.Policy.MaxSignalAge
	c.fresh = n.Site != nil && (!c.weights.CountCarbon() || n.Site.Carbon.Fresh(now, age)) &&
		(!c.weights.CountPrice() || n.Site.Price.Fresh(now, age))
}

// NodeCost returns the cost of running c.Job on n now. The node with the lowest cost is selected, and ties are
// resolved by name. A node with an infinite cost is never selected; the job waits instead. It returns false if the
// snapshot lacks data that the cost depends on. The strategy then has no opinion, and c.Why may contain the reason.
type NodeCost func(c *Costing, n *sched.Node) (cost float64, ok bool)
