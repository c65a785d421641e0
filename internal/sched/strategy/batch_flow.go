package strategy

import (
	"cmp"
	"math"
	"slices"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/mincost"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/placement"
	"github.com/kubenergy/kubenergy/internal/sliceutil"
)

// matchByPrices places the whole queue in one step. Equivalent jobs form a class, nodes with equal costs form a
// group, and every resource of a group has a price (see package mincost). In this problem, the cost of a job on a
// node is its cost before any job is placed, on an awake node; the cost of waking an empty node is paid once. The
// resulting placement is one draft, and placing the jobs one by one is another. The draft that places more jobs is
// applied, or the one with the lower cost if both place the same number. The cost is computed while the placements
// are applied one after the other.
func matchByPrices(b *batch) {
	b.group()
	if len(b.open) == 0 {
		return
	}
	best := b.inOrder()
	b.byPrices(&best)
	b.carryOut(best)
	b.placeInOrder() // jobs omitted from the packing may fit after all
}

// byPrices replaces a draft by one computed with prices if that is better.
func (b *batch) byPrices(best *draft) {
	if b.stopped() {
		return
	}
	f := newFlowProblem(b)
	if len(b.kinds) > 1 && len(b.kinds)*len(f.members) > b.maxNodePairs {
		if d := b.inParts(); d.better(best) {
			*best = d
		}
		return
	}
	f.state()
	packed, err := mincost.Pack(f.packing, b.stopped)
	if err != nil { // the queue is too large to sum its costs, or its requests exceed any machine
		b.proof.Whole = false
		return
	}
	nodes := f.assign(packed)
	if d := b.try(func(k int) int { return nodes[k] }, nil); d.better(best) {
		*best = d
	}
	b.proof.Gap, b.proof.HasGap = f.gap(best, packed.Bound)
}

// inParts returns a draft for jobs and nodes that differ too much to be solved as one problem. It places a part of
// the jobs by prices, then the next part with the remaining capacity, and so on. There is no bound on the distance
// to the optimum.
func (b *batch) inParts() draft {
	work := newBatch(&b.snapshot, b.cost, b.stop)
	work.maxNodePairs = b.maxNodePairs
	for part := range slices.Chunk(b.byStake(), max(1, b.maxNodePairs/len(b.nodes))) {
		if b.stopped() {
			break
		}
		work.open = slices.Clone(part)
		matchByPrices(work)
		b.proof.Whole = work.proof.Whole
	}
	node := sliceutil.Places(b.nodes, func(n *sched.Node) string { return n.Name })
	return b.try(func(k int) int {
		if n, ok := node[work.plan[b.open[k]].Node]; ok {
			return n
		}
		return -1
	}, nil)
}

// byStake returns the open jobs ordered by the effect of their placement on the cost, relative to the capacity that
// they use, highest first. The last jobs get the remaining nodes, so they should be the jobs with the smallest
// loss.
func (b *batch) byStake() []int {
	var free [4]float64
	for k := range b.nodes {
		for d, amount := range b.nodes[k].Free.Vector() {
			free[d] += float64(max(amount, 0))
		}
	}
	stakes := make([]float64, len(b.kinds))
	for kind := range b.kinds {
		least, most, share := math.Inf(1), math.Inf(-1), 0.0
		for _, cost := range b.costs(kind) {
			if !math.IsNaN(cost) {
				least, most = min(least, cost), max(most, cost)
			}
		}
		for d, requested := range b.kinds[kind].Request.Vector() {
			if free[d] > 0 {
				share = max(share, float64(requested)/free[d])
			}
		}
		stakes[kind] = (most - least) / share
	}
	jobs := slices.Clone(b.open)
	slices.SortStableFunc(jobs, func(i, j int) int { return cmp.Compare(stakes[b.kindOf[j]], stakes[b.kindOf[i]]) })
	return jobs
}

// flowProblem is a queue represented as a packing problem.
type flowProblem struct {
	b       *batch
	packing mincost.Packing
	members [][]int // nodes by group
	groupOf []int   // by node
}

// nodeKind contains all properties of a node that the costs of a flow and feasibility depend on.
type nodeKind struct {
	site           *sched.Site
	profile        *energy.Profile
	capacity, free sched.Resources
	asleep         bool
	speed, pue     float64
	labels         string // selectors of the jobs that the node matches
}

// newFlowProblem groups equivalent nodes. Costs are computed later, in [flowProblem.state].
func newFlowProblem(b *batch) *flowProblem {
	f := &flowProblem{b: b, groupOf: make([]int, len(b.nodes))}
	groups := map[nodeKind]int{}
	selecting := b.selecting()
	for k := range b.nodes {
		n := &b.nodes[k]
		key := nodeKind{n.Site, n.Profile, n.Capacity, n.Free, n.Jobs == 0, n.Speed, n.PUE, n.Meets(selecting)}
		g, ok := groups[key]
		if !ok {
			g = len(f.members)
			groups[key] = g
			f.members = append(f.members, nil)
		}
		f.members[g] = append(f.members[g], k)
		f.groupOf[k] = g
	}
	return f
}

// selecting returns one kind of job per distinct selector.
func (b *batch) selecting() (jobs []*sched.Job) {
	known := map[string]bool{}
	for k := range b.kinds {
		if s := kindOf(&b.kinds[k]).selector; s != "" && !known[s] {
			known[s] = true
			jobs = append(jobs, &b.kinds[k])
		}
	}
	return jobs
}

// state fills in the packing problem.
func (f *flowProblem) state() {
	b, p := f.b, &f.packing
	p.Items = make([]mincost.Items, len(b.kinds))
	for _, i := range b.open {
		p.Items[b.kindOf[i]].Count++
	}
	costs, openings := f.costs()
	all := f.ask(costs)
	scale := scaleOf(append(slices.Concat(costs...), openings...)) / flowShare
	p.Cost = mincost.NewMatrix(len(b.kinds), len(f.members))
	for g, nodes := range f.members {
		bins := mincost.Bins{Count: int64(len(nodes)), Opening: scale.integer(openings[g])}
		for d, free := range b.nodes[nodes[0]].Free.Vector() {
			bins.Capacity = append(bins.Capacity, min(max(free, 0), all[d])) // more has no effect
		}
		p.Bins = append(p.Bins, bins)
	}
	f.leaveOut(costs, scale)
}

// ask fills in the requests of the jobs and returns their sum. Jobs that fit on no node are excluded, because their
// requests might overflow the sum.
func (f *flowProblem) ask(costs [][]float64) (all [4]int64) {
	for k, row := range costs {
		items := &f.packing.Items[k]
		items.Demand = make([]int64, len(all))
		if !slices.ContainsFunc(row, isNumber) {
			items.Count = 0
			continue
		}
		for d, requested := range f.b.kinds[k].Request.Vector() {
			items.Demand[d] = requested
			all[d] = plusTimes(all[d], requested, items.Count)
		}
	}
	return all
}

func isNumber(v float64) bool { return !math.IsNaN(v) }

// plusTimes returns sum + amount·count, saturated at math.MaxInt64.
func plusTimes(sum, amount, count int64) int64 {
	if amount > 0 && count > (math.MaxInt64-sum)/amount {
		return math.MaxInt64
	}
	return sum + amount*count
}

// flowShare reduces the integer costs of a flow, so that sums over many jobs fit into an integer.
const flowShare = 1 << 10

// costs returns the cost of each kind of job on an awake node of each group, and the mean cost of waking a node of
// each group. A cost is NaN if the job does not fit.
func (f *flowProblem) costs() (costs [][]float64, openings []float64) {
	b := f.b
	openings = make([]float64, len(f.members))
	weight := make([]float64, len(f.members))
	for k := range b.kinds {
		row := make([]float64, len(f.members))
		c, awake := placement.NewCosting(&b.snapshot, &b.kinds[k]), placement.NewCosting(&b.snapshot, &b.kinds[k])
		for g, nodes := range f.members {
			row[g] = b.price(&c, nodes[0])
			n := b.nodes[nodes[0]]
			if math.IsNaN(row[g]) || n.Jobs > 0 {
				continue
			}
			n.Jobs = 1
			if cost, known := b.cost(&awake, &n); known && !math.IsNaN(cost) && cost < row[g] {
				count := float64(f.packing.Items[k].Count)
				openings[g] += count * (row[g] - cost)
				weight[g] += count
				row[g] = cost
			}
		}
		costs = append(costs, row)
	}
	for g, w := range weight {
		if w > 0 {
			openings[g] /= w
		}
	}
	return costs, openings
}

// leaveOut fills in the costs, and sets the cost of omitting a job higher than the maximum saving of exchanging two
// jobs.
func (f *flowProblem) leaveOut(costs [][]float64, scale costScale) {
	p := &f.packing
	least, most, opening := int64(0), int64(0), int64(0)
	for _, bins := range p.Bins {
		opening = max(opening, bins.Opening)
	}
	for k, row := range costs {
		for g, cost := range row {
			if math.IsNaN(cost) {
				continue
			}
			whole := scale.integer(cost)
			p.Cost.Set(k, g, whole)
			least, most = min(least, whole), max(most, whole)
		}
	}
	for k := range p.Items {
		p.Items[k].LeftOut = most + 4*(most-least+opening) + 1
	}
}

// assign assigns to every open job one of the nodes that the packing contains for its kind, in order, or -1 if none
// is left.
func (f *flowProblem) assign(packed *mincost.Packed) []int {
	given := make([][]int, len(f.b.kinds))
	bin := 0
	for _, nodes := range f.members {
		for _, node := range nodes {
			for _, h := range packed.Bins[bin] {
				for range h.Count {
					given[h.Class] = append(given[h.Class], node)
				}
			}
			bin++
		}
	}
	nodes := make([]int, len(f.b.open))
	for k, i := range f.b.open {
		nodes[k] = -1
		if some := given[f.b.kindOf[i]]; len(some) > 0 {
			nodes[k], given[f.b.kindOf[i]] = some[0], some[1:]
		}
	}
	return nodes
}

// gap returns the maximum distance of a draft from the optimum of the packing.
func (f *flowProblem) gap(d *draft, bound int64) (gap float64, ok bool) {
	cost := int64(0)
	opened := map[int]bool{}
	for k, i := range f.b.open {
		kind, node := f.b.kindOf[i], d.node[k]
		switch {
		case f.packing.Items[kind].Count == 0:
		case node < 0:
			cost += f.packing.Items[kind].LeftOut
		default:
			g := f.groupOf[node]
			cost += f.packing.Cost.Cost[kind*len(f.members)+g]
			if !opened[node] {
				opened[node] = true
				cost += f.packing.Bins[g].Opening
			}
		}
	}
	gap = (&mincost.Packed{Cost: cost, Bound: bound}).Gap()
	return gap, !math.IsInf(gap, 0)
}
