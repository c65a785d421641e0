package strategy

import (
	"cmp"
	"math"
	"slices"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/mincost"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/placement"
)

// matchByPrices places a whole queue at once: jobs that are alike as one class, nodes that cost the same as one
// group, and a price on every resource of a group (package mincost). In that problem a job costs on a node what it
// does before any is placed, once the node is awake; what waking an empty node costs is paid once. Its placement is
// one draft, and that of serving job by job is another: of the two the one that places more jobs is taken, or as many
// at less cost, when they are carried out one after the other and each costs what it does by then.
func matchByPrices(b *batch) {
	b.group()
	if len(b.open) == 0 {
		return
	}
	best := b.inOrder()
	b.byPrices(&best)
	b.carryOut(best)
	b.placeInOrder() // what the packing left out for another job, and found room for when it was carried out
}

// byPrices replaces a draft by one of prices, if that is better.
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
	if err != nil { // the queue is too large to add its costs up, or asks for more than any machine has
		b.proof.Whole = false
		return
	}
	nodes := f.assign(packed)
	if d := b.try(func(k int) int { return nodes[k] }, nil); d.better(best) {
		*best = d
	}
	b.proof.Gap, b.proof.HasGap = f.gap(best, packed.Bound)
}

// inParts is a draft for jobs and nodes that have too little in common for one problem: some jobs are placed by
// prices, then the next ones, on what is left. It has no bound on the distance from the optimum.
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
	node := make(map[string]int, len(b.nodes))
	for k := range b.nodes {
		node[b.nodes[k].Name] = k
	}
	return b.try(func(k int) int {
		if n, ok := node[work.plan[b.open[k]].Node]; ok {
			return n
		}
		return -1
	}, nil)
}

// byStake returns the open jobs, first those for which most depends on where they go, for the room that they take.
// The job that chooses last gets what is left, so it should be the one that loses least.
func (b *batch) byStake() []int {
	var free [3]float64
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

// flowProblem is a queue as a packing.
type flowProblem struct {
	b       *batch
	packing mincost.Packing
	members [][]int // nodes by group
	groupOf []int   // by node
}

// nodeKind is all of a node that the costs of a flow and feasibility depend on.
type nodeKind struct {
	site           *sched.Site
	profile        *energy.Profile
	capacity, free sched.Resources
	asleep         bool
	speed, pue     float64
	labels         string // which of the jobs' selectors it meets
}

// newFlowProblem finds out which nodes are alike. Nothing is priced before [flowProblem.state].
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

// selecting returns one kind of jobs for each selector.
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

// state writes the packing down.
func (f *flowProblem) state() {
	b, p := f.b, &f.packing
	p.Items = make([]mincost.Items, len(b.kinds))
	for _, i := range b.open {
		p.Items[b.kindOf[i]].Count++
	}
	costs, openings := f.costs()
	all := f.ask(costs)
	var known []float64
	for _, row := range costs {
		known = append(known, row...)
	}
	scale := scaleOf(append(known, openings...)) / flowShare
	p.Cost = mincost.NewMatrix(len(b.kinds), len(f.members))
	for g, nodes := range f.members {
		bins := mincost.Bins{Count: int64(len(nodes)), Opening: scale.integer(openings[g])}
		for d, free := range b.nodes[nodes[0]].Free.Vector() {
			bins.Capacity = append(bins.Capacity, min(max(free, 0), all[d])) // more than all jobs ask for is no more
		}
		p.Bins = append(p.Bins, bins)
	}
	f.leaveOut(costs, scale)
}

// ask fills in what jobs ask for, and returns what they do all together. Jobs that fit nowhere are no part of the
// problem: they might ask for more than can be added up.
func (f *flowProblem) ask(costs [][]float64) (all [3]int64) {
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

// plusTimes returns sum + amount·count, and what an int64 can hold where that is more.
func plusTimes(sum, amount, count int64) int64 {
	if amount > 0 && count > (math.MaxInt64-sum)/amount {
		return math.MaxInt64
	}
	return sum + amount*count
}

// flowShare is how much smaller integers of a flow are than they may be, so that sums over many jobs are integers as
// well.
const flowShare = 1 << 10

// costs returns, by kind of job and group of nodes, what a job costs on a node that is awake, and by group what it
// costs on average to wake one. NaN where it does not fit.
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

// leaveOut fills in the costs, and makes it dearer to leave a job out than any exchange of two could save.
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

// assign gives every open job one of the nodes that its kind has been given, in order; -1 where they are used up.
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

// gap returns how far a draft may be from the optimum of the packing.
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
