package mincost

import "math"

// A candidate is an arc that pivots may take into the tree, turned the way in which it would be used: an arc at
// capacity the other way round. It saves something if its reduced cost is negative; that of an arc in the tree is 0.
type candidate struct {
	cost       int64
	tail, head int32
}

// perNode is how many arcs of a run become candidates in one pass over the network. Runs are cut to a length of about
// shortRun at least, and otherwise so that there are about as many as nodes: a pass then finds arcs for all parts of
// the tree.
const (
	perNode  = 4
	shortRun = 16
)

// mostMissed is one in how many nodes that arcs lead to may be without a candidate before all arcs are candidates.
const mostMissed = 12

// leastBlock is the least number of candidates that are compared before the best of them is taken.
const leastBlock = 32

// candidates are the arcs that pivots choose from. Most arcs of a large network never carry anything, so pivots look
// at the few that are promising; only when those have nothing left to save does a pass over all arcs find more, or
// the proof that there are none.
type candidates struct {
	list   []candidate
	arc    []int32 // by number in the list
	scan   int     // where the next search begins
	runs   []run
	ranked [perNode][]int32 // scratch: arcs by rank
}

// A run is a range of arcs that leave one node and stand one after the other.
type run struct{ from, end int32 }

// search returns the number of the candidate that saves most per unit of the first block that has any, or none.
func (s *Solver) search() int32 {
	c := &s.candidates
	for {
		if at := c.search(s.price); at >= 0 {
			return at
		}
		if !s.collect(s.saving) {
			return none
		}
	}
}

func (c *candidates) search(price []int64) int32 {
	size := len(c.list)
	block := max(int(math.Sqrt(float64(size))), leastBlock)
	for seen := 0; seen < size; {
		if c.scan >= size {
			c.scan = 0
		}
		from, end := c.scan, min(c.scan+block, size)
		best, least := none, int64(0)
		list := c.list[from:end]
		for i := range list {
			e := &list[i]
			if reduced := e.cost + price[e.tail] - price[e.head]; reduced < least {
				best, least = from+i, reduced
			}
		}
		seen += end - from
		c.scan = end
		if best >= 0 {
			return int32(best)
		}
	}
	return none
}

// begin makes the first candidates: of each run those that cost least. That is all that most networks need, if these
// arcs lead everywhere. Where all nodes have the same favourites they do not, and what is best on them says little
// about the whole: then all arcs are candidates from the start.
func (s *Solver) begin() {
	n := s.network
	s.collect(s.cheapest)
	reached := make([]bool, n.Nodes())
	for _, e := range s.candidates.list {
		reached[e.head] = true
	}
	missed, entered := 0, 0
	for node, dearest := range n.in {
		if dearest > 0 {
			entered++
			if !reached[node] {
				missed++
			}
		}
	}
	if missed*mostMissed > entered {
		s.takeAll()
	}
}

// takeAll makes candidates of all arcs, those next to each other of nodes that are far apart.
func (s *Solver) takeAll() {
	c, arcs := &s.candidates, len(s.state)
	for i := range s.tree.place {
		s.tree.place[i].entry = none
	}
	if cap(c.list) < arcs {
		c.list, c.arc = make([]candidate, 0, arcs), make([]int32, 0, arcs)
	}
	c.list, c.arc, c.scan = c.list[:0], c.arc[:0], 0
	stride := max(1, min(s.network.Nodes(), arcs/3))
	for first := range stride {
		for arc := first; arc < arcs; arc += stride {
			if s.state[arc] != inTree {
				c.list = append(c.list, s.candidate(int32(arc)))
				c.arc = append(c.arc, int32(arc))
			}
		}
	}
}

// collect makes candidates of arcs outside the tree, of each run those that rank first, and says whether there are any.
func (s *Solver) collect(rank func(r run)) bool {
	c := &s.candidates
	for i := range c.ranked {
		c.ranked[i] = c.ranked[i][:0]
	}
	for _, r := range c.runs {
		rank(r)
	}
	before := len(c.arc)
	for _, arcs := range c.ranked {
		c.arc = append(c.arc, arcs...)
	}
	shuffle(c.arc[before:])
	for _, arc := range c.arc[before:] {
		c.list = append(c.list, s.candidate(arc))
	}
	c.scan = before
	return len(c.arc) > before
}

// cut divides the arcs into runs, those that are new since the last time.
func (c *candidates) cut(n *Network) {
	from := 0
	if len(c.runs) > 0 {
		from = int(c.runs[len(c.runs)-1].end)
	}
	length := max(shortRun, n.Arcs()/(n.Nodes()+1))
	for from < n.Arcs() {
		end := from + 1
		for end < n.Arcs() && n.tail[end] == n.tail[from] {
			end++
		}
		parts := max(1, (end-from+length/2)/length)
		for part := range parts {
			c.runs = append(c.runs, run{int32(from + part*(end-from)/parts), int32(from + (part+1)*(end-from)/parts)})
		}
		from = end
	}
}

// saving ranks the arcs of a run by what they would save.
func (s *Solver) saving(r run) {
	n, price := s.network, s.price
	state := s.state[r.from:r.end]
	cost, heads := n.cost[r.from:r.end][:len(state)], n.head[r.from:r.end][:len(state)]
	here := price[n.tail[r.from]]
	var best ranking
	for i, st := range state {
		if reduced := int64(st) * (cost[i] + here - price[heads[i]]); reduced < best.bar {
			best.enter(r.from+int32(i), reduced)
		}
	}
	s.candidates.rank(&best)
}

// cheapest ranks the empty arcs of a run by what they cost.
func (s *Solver) cheapest(r run) {
	best := ranking{bar: math.MaxInt64}
	for arc := r.from; arc < r.end; arc++ {
		if s.state[arc] == empty && s.network.cost[arc] < best.bar {
			best.enter(arc, s.network.cost[arc])
		}
	}
	s.candidates.rank(&best)
}

// rank lists arcs with those of other nodes that have the same rank.
func (c *candidates) rank(r *ranking) {
	for i, arc := range r.arc[:r.size] {
		c.ranked[i] = append(c.ranked[i], arc)
	}
}

// A ranking holds the arcs of least value, in order.
type ranking struct {
	bar   int64 // what a value has to be below to enter
	size  int
	value [perNode]int64
	arc   [perNode]int32
}

func (r *ranking) enter(arc int32, value int64) {
	at := min(r.size, perNode-1)
	r.size = at + 1
	for ; at > 0 && r.value[at-1] > value; at-- {
		r.value[at], r.arc[at] = r.value[at-1], r.arc[at-1]
	}
	r.value[at], r.arc[at] = value, arc
	if r.size == perNode {
		r.bar = r.value[perNode-1]
	}
}

// candidate turns an arc as its state wants.
func (s *Solver) candidate(arc int32) candidate {
	n := s.network
	if s.state[arc] == atCapacity {
		return candidate{cost: -n.cost[arc], tail: n.head[arc], head: n.tail[arc]}
	}
	return candidate{cost: n.cost[arc], tail: n.tail[arc], head: n.head[arc]}
}

// refresh turns all candidates as their arcs are now.
func (s *Solver) refresh() {
	c := &s.candidates
	for i, arc := range c.arc {
		c.list[i] = s.candidate(arc)
	}
}

// shuffle puts arcs in an order without a pattern, always the same for as many. Pivots from blocks of neighbours
// crowd a few nodes and take several times as many steps.
func shuffle(arcs []int32) {
	state := uint64(len(arcs))
	for i := len(arcs) - 1; i > 0; i-- {
		state = state*6364136223846793005 + 1442695040888963407
		j := int((state >> 33) % uint64(i+1))
		arcs[i], arcs[j] = arcs[j], arcs[i]
	}
}
