package strategy

import (
	"fmt"
	"maps"
	"math"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/placement"
)

// jobKind contains all properties of a job that batch costs and feasibility depend on. The waiting time of a job is
// not included, because its cost is the same on every node.
type jobKind struct {
	request  sched.Resources
	selector string
	sites    string
	left     time.Duration
	gpuClass string
	pue      float64
	noCarbon bool
}

func kindOf(j *sched.Job) jobKind {
	k := jobKind{request: j.Request, left: j.Remaining(), gpuClass: j.GPUClass, pue: j.PUE, noCarbon: j.Limits.NoCarbon}
	if len(j.Sites) > 0 {
		k.sites = fmt.Sprintf("%q", j.Sites)
	}
	if len(j.Selector) > 0 {
		var b strings.Builder
		for _, key := range slices.Sorted(maps.Keys(j.Selector)) {
			fmt.Fprintf(&b, "%q=%q,", key, j.Selector[key])
		}
		k.selector = b.String()
	}
	return k
}

// maxKinds is the number of kinds above which run times are rounded to reduce it.
const maxKinds = 256

// rounded returns a run time rounded down to a multiple of one eighth to one quarter of it.
func rounded(d time.Duration) time.Duration {
	unit := max(bits.Len64(uint64(max(d, 0)))-3, 0)
	return d >> unit << unit
}

// group groups equivalent open jobs. Jobs are no longer open if some node that they fit on has an unknown cost, or
// if there is no time to check this. The strategy has no opinion on them.
func (b *batch) group() {
	if b.sort(func(d time.Duration) time.Duration { return d }); len(b.kinds) > maxKinds {
		b.sort(rounded)
	}
	why := make([]sched.ReasonKind, len(b.kinds))
	for k := range b.kinds {
		if !b.hurried() {
			why[k] = b.unknown(&b.kinds[k])
		}
	}
	b.open = slices.DeleteFunc(b.open, func(i int) bool {
		missing := why[b.kindOf[i]]
		if missing != sched.Cheapest {
			b.plan[i].Reason = sched.Reason{Kind: missing}
		}
		return missing != sched.Cheapest
	})
}

// sort determines the kinds of the open jobs, with run times transformed by the given function. The first job of a
// kind represents all of them.
func (b *batch) sort(runtime func(time.Duration) time.Duration) {
	known := map[jobKind]int{}
	b.kinds, b.kindOf = b.kinds[:0], make([]int, len(b.snapshot.Queue))
	for _, i := range b.open {
		kind := kindOf(b.job(i))
		kind.left = runtime(kind.left)
		k, ok := known[kind]
		if !ok {
			k = len(b.kinds)
			known[kind] = k
			like := *b.job(i)
			like.Submitted = b.snapshot.Now
			b.kinds = append(b.kinds, like)
		}
		b.kindOf[i] = k
	}
}

// unknown returns the reason for having no opinion on a job, or [sched.Cheapest] if there is an opinion.
func (b *batch) unknown(j *sched.Job) sched.ReasonKind {
	costing := placement.NewCosting(&b.snapshot, j)
	for k := range b.nodes {
		if !j.Fits(&b.nodes[k]) {
			continue
		}
		if _, known := b.cost(&costing, &b.nodes[k]); !known {
			return costing.Why
		}
	}
	return sched.Cheapest
}

// costs returns the cost of a kind of job on each node, or NaN if it does not fit.
func (b *batch) costs(kind int) []float64 {
	costs := make([]float64, len(b.nodes))
	costing := placement.NewCosting(&b.snapshot, &b.kinds[kind])
	for k := range b.nodes {
		costs[k] = b.price(&costing, k)
	}
	return costs
}

// price returns the cost of a job on a node, or NaN if it does not fit.
func (b *batch) price(c *placement.Costing, node int) float64 {
	if n := &b.nodes[node]; c.Job.Fits(n) {
		if cost, known := b.cost(c, n); known {
			return cost
		}
	}
	return math.NaN()
}
