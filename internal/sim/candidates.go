package sim

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
	"github.com/kubenergy/kubenergy/internal/sliceutil"
)

// candidates determines the nodes to offer to a strategy. Among nodes that the strategy cannot distinguish, only
// the node that it would choose is offered; see [strategy.Symmetry].
type candidates struct {
	symmetry strategy.Symmetry
	nodes    []sched.Node
	byRank   []int32 // node indexes in order of names
	rank     []int32 // the inverse of byRank
	free     []sched.Resources

	class  []int32 // per node: number of its class of constant properties
	groups []group // groups of nodes that differ only in their names
	byKey  map[groupKey]int32
	unused [][]int32
}

type groupKey struct {
	class int32
	empty bool
	free  sched.Resources
}

type group struct {
	groupKey
	ranks []int32 // sorted; the first one is the first by name
}

// symmetric is implemented by strategies that cannot distinguish some nodes.
type symmetric interface {
	Symmetry(*sched.Policy) strategy.Symmetry
}

// newCandidates returns the candidates among nodes for a strategy. It does not narrow them if all is set.
func newCandidates(nodes []sched.Node, s strategy.Strategy, policy *sched.Policy, all bool) *candidates {
	c := &candidates{nodes: nodes}
	if s, ok := s.(symmetric); ok && !all {
		c.symmetry = s.Symmetry(policy)
	}
	if c.symmetry == strategy.Asymmetric {
		return c
	}
	c.rank = make([]int32, len(nodes))
	c.byRank = sliceutil.Order(len(nodes), func(a, b int32) int { return cmp.Compare(nodes[a].Name, nodes[b].Name) })
	for rank, i := range c.byRank {
		c.rank[i] = int32(rank)
	}
	if c.symmetry == strategy.InTurn {
		c.free = make([]sched.Resources, len(nodes))
		for rank, i := range c.byRank {
			c.free[rank] = nodes[i].Free
		}
		return c
	}
	c.class, c.byKey = classes(nodes), map[groupKey]int32{}
	for _, i := range c.byRank {
		c.join(i)
	}
	return c
}

// classes assigns a number to each combination of the constant properties of a node, except its name.
func classes(nodes []sched.Node) []int32 {
	type kind struct {
		site       *sched.Site
		profile    *energy.Profile
		capacity   sched.Resources
		speed, pue float64
		labels     string
		benchmarks string
	}
	numbers := map[kind]int32{}
	class := make([]int32, len(nodes))
	for i := range nodes {
		n := &nodes[i]
		k := kind{n.Site, n.Profile, n.Capacity, n.Speed, n.PUE, "", ""}
		if len(n.Labels) > 0 {
			k.labels = fmt.Sprint(n.Labels) // fmt sorts maps by key
		}
		if len(n.Benchmarks) > 0 {
			k.benchmarks = fmt.Sprintf("%#v", n.Benchmarks)
		}
		if _, ok := numbers[k]; !ok {
			numbers[k] = int32(len(numbers))
		}
		class[i] = numbers[k]
	}
	return class
}

func (c *candidates) key(i int32) groupKey {
	return groupKey{class: c.class[i], empty: c.nodes[i].Jobs == 0, free: c.nodes[i].Free}
}

func (c *candidates) join(i int32) {
	key := c.key(i)
	g, ok := c.byKey[key]
	if !ok {
		g = int32(len(c.groups))
		c.byKey[key] = g
		c.groups = append(c.groups, group{groupKey: key})
		if n := len(c.unused); n > 0 {
			c.groups[g].ranks, c.unused = c.unused[n-1], c.unused[:n-1]
		}
	}
	ranks := c.groups[g].ranks
	at, _ := slices.BinarySearch(ranks, c.rank[i])
	c.groups[g].ranks = slices.Insert(ranks, at, c.rank[i])
}

func (c *candidates) leave(i int32) {
	g := c.byKey[c.key(i)]
	ranks := c.groups[g].ranks
	at, _ := slices.BinarySearch(ranks, c.rank[i])
	if c.groups[g].ranks = slices.Delete(ranks, at, at+1); len(ranks) > 1 {
		return
	}
	delete(c.byKey, c.groups[g].groupKey)
	c.unused = append(c.unused, ranks[:0])
	if last := int32(len(c.groups) - 1); g != last {
		c.groups[g] = c.groups[last]
		c.byKey[c.groups[g].groupKey] = g
	}
	c.groups = c.groups[:len(c.groups)-1]
}

// change applies a change to node i.
func (c *candidates) change(i int, to func(*sched.Node)) {
	switch c.symmetry {
	case strategy.Interchangeable:
		c.leave(int32(i))
		to(&c.nodes[i])
		c.join(int32(i))
	case strategy.InTurn:
		to(&c.nodes[i])
		c.free[c.rank[i]] = c.nodes[i].Free
	default:
		to(&c.nodes[i])
	}
}

// offer adds the nodes on which j fits to the candidates of a decision.
func (e *engine) offer(now time.Time, j *sched.Job) {
	c := e.candidates
	switch {
	case c.symmetry == strategy.Interchangeable && len(e.snapshot.Ahead) == 0:
		for g := range c.groups {
			if !j.Request.Within(c.groups[g].free) {
				continue
			}
			if n := &c.nodes[c.byRank[c.groups[g].ranks[0]]]; j.Fits(n) {
				e.feasible = append(e.feasible, n)
			}
		}
	case c.symmetry == strategy.InTurn:
		after := sort.Search(len(c.byRank), func(r int) bool { return c.nodes[c.byRank[r]].Name > e.snapshot.Last })
		if !e.offerFirst(j, after, len(c.byRank)) {
			e.offerFirst(j, 0, after)
		}
	default:
		for i := range c.nodes {
			if j.Fits(&c.nodes[i]) {
				e.consider(now, i)
			}
		}
	}
}

// offerFirst offers the first node that fits between two ranks.
func (e *engine) offerFirst(j *sched.Job, from, to int) bool {
	c := e.candidates
	for r := from; r < to; r++ {
		if !j.Request.Within(c.free[r]) {
			continue
		}
		if n := &c.nodes[c.byRank[r]]; j.Fits(n) {
			e.feasible = append(e.feasible, n)
			return true
		}
	}
	return false
}
