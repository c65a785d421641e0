package mincost

import (
	"fmt"
	"math"
)

// Unlimited is the capacity of an arc that takes whatever comes.
const Unlimited = math.MaxInt64

// What keeps sums within int64: of supplies and limited capacities, and of costs along a path that visits no node
// twice.
const (
	maxFlow = 1 << 60
	maxPath = 1 << 60

	maxNodes = 1 << 26
	maxArcs  = 1 << 30
)

// Network is a directed graph whose nodes supply or demand units of one commodity, and whose arcs carry them at a cost
// per unit. It may have parallel arcs, arcs from a node to itself, and negative costs.
type Network struct {
	supply   []int64 // by node; demand is negative supply
	tail     []int32 // by arc, as all below
	head     []int32
	cost     []int64
	capacity []int64

	// What check would otherwise have to look at every arc for.
	out, in []int64 // by node: the dearest arc that leaves it, and that enters it, or more
	limited float64 // capacities that are not unlimited, added up roughly
	units   int     // counts changes of supplies, capacities and arcs
}

// NewNetwork returns a network of nodes 0 to nodes−1 without supplies and without arcs. It panics if there are fewer
// than none or more than 67 million.
func NewNetwork(nodes int) *Network {
	if nodes < 0 || nodes > maxNodes {
		panic(fmt.Sprintf("mincost: a network of %d nodes", nodes))
	}
	return &Network{supply: make([]int64, nodes), out: make([]int64, nodes), in: make([]int64, nodes)}
}

// Grow makes room for so many arcs more, which spares copies.
func (n *Network) Grow(arcs int) {
	grow := func(s []int32) []int32 { return append(make([]int32, 0, len(s)+arcs), s...) }
	grow64 := func(s []int64) []int64 { return append(make([]int64, 0, len(s)+arcs), s...) }
	n.tail, n.head, n.cost, n.capacity = grow(n.tail), grow(n.head), grow64(n.cost), grow64(n.capacity)
}

// Nodes returns how many nodes there are.
func (n *Network) Nodes() int { return len(n.supply) }

// Arcs returns how many arcs there are.
func (n *Network) Arcs() int { return len(n.tail) }

// AddArc adds an arc and returns its number: they count from 0. It panics if there is no such node. What costs and
// capacities may be is checked by Solve.
func (n *Network) AddArc(from, to int, capacity, cost int64) int {
	if uint(from) >= uint(len(n.supply)) || uint(to) >= uint(len(n.supply)) || len(n.tail) == maxArcs {
		panic(fmt.Sprintf("mincost: an arc from node %d to node %d of %d, after %d arcs", from, to, len(n.supply),
			len(n.tail)))
	}
	n.tail = append(n.tail, int32(from))
	n.head = append(n.head, int32(to))
	n.cost = append(n.cost, cost)
	n.capacity = append(n.capacity, capacity)
	n.dearer(len(n.tail)-1, cost)
	n.limited += weight(capacity)
	n.units++
	return len(n.tail) - 1
}

// SetSupply says how many units enter the network at a node; those that leave it are negative.
func (n *Network) SetSupply(node int, units int64) {
	if n.supply[node] != units {
		n.supply[node] = units
		n.units++
	}
}

// SetCost changes what an arc costs per unit.
func (n *Network) SetCost(arc int, cost int64) {
	if n.cost[arc] != cost {
		n.cost[arc] = cost
		n.dearer(arc, cost)
	}
}

// SetCapacity changes how many units an arc can carry; an arc of capacity 0 is as good as removed.
func (n *Network) SetCapacity(arc int, units int64) {
	if n.capacity[arc] != units {
		n.limited += weight(units) - weight(n.capacity[arc])
		n.capacity[arc] = units
		n.units++
	}
}

// dearer notes the cost of an arc at its ends.
func (n *Network) dearer(arc int, cost int64) {
	tail, head := n.tail[arc], n.head[arc]
	cost = absolute(cost)
	n.out[tail], n.in[head] = max(n.out[tail], cost), max(n.in[head], cost)
}

func absolute(cost int64) int64 {
	if cost < 0 {
		return max(-cost, -(cost + 1)) // −MinInt64 is none
	}
	return cost
}

// weight is what a capacity adds to those that are limited: much, if it makes no sense.
func weight(capacity int64) float64 {
	switch {
	case capacity == Unlimited:
		return 0
	case capacity < 0 || capacity > maxFlow:
		return maxFlow
	default:
		return float64(capacity)
	}
}

// check refuses what makes no sense or could overflow, and returns a bound of what any path costs that visits no node
// twice. It looks at all arcs only where what has been noted of them does not rule that out.
func (n *Network) check() (longest int64, err error) {
	total, balance := int64(0), int64(0)
	for node, units := range n.supply {
		if units < -maxFlow || units > maxFlow || total > maxFlow {
			return 0, fmt.Errorf("checking a network: the supply of node %d is %d: want at most %d of all together",
				node, units, int64(maxFlow))
		}
		balance += units
		total += max(units, -units)
	}
	if balance != 0 {
		return 0, fmt.Errorf("checking a network: %w: supplies add up to %d, not to 0", ErrInfeasible, balance)
	}
	if float64(total)+n.limited > maxFlow/2 {
		if err := n.checkCapacities(total); err != nil {
			return 0, err
		}
	}
	longest = n.longest()
	if longest >= maxPath {
		n.noteCosts()
		longest = n.longest()
	}
	if longest >= maxPath {
		return 0, fmt.Errorf("checking a network: a path may cost %d or more: scale costs down", int64(maxPath))
	}
	return longest, nil
}

// checkCapacities adds up all capacities exactly, and notes them anew.
func (n *Network) checkCapacities(total int64) error {
	n.limited = 0
	for _, units := range n.capacity {
		n.limited += weight(units)
	}
	for arc, units := range n.capacity {
		if units == Unlimited {
			continue
		}
		if units < 0 || units > maxFlow {
			return fmt.Errorf("checking a network: arc %d has a capacity of %d: want 0 to %d, or Unlimited", arc, units,
				int64(maxFlow))
		}
		if total += units; total > maxFlow {
			return fmt.Errorf("checking a network: supplies and capacities add up to more than %d", int64(maxFlow))
		}
	}
	return nil
}

// noteCosts notes the dearest arcs of each node as they are now.
func (n *Network) noteCosts() {
	clear(n.out)
	clear(n.in)
	for arc, cost := range n.cost {
		n.dearer(arc, cost)
	}
}

// longest bounds the cost of a path that visits no node twice. It touches a node with two arcs at most, so it costs
// at most twice the sum over nodes of the dearest arc that leaves each; and twice that of the dearest that enters.
func (n *Network) longest() int64 {
	return 2 * min(sumUpTo(n.out, maxPath/2), sumUpTo(n.in, maxPath/2))
}

// sumUpTo adds up what is not negative, and stops where a limit is reached.
func sumUpTo(values []int64, limit int64) (sum int64) {
	for _, v := range values {
		if sum += min(v, limit); sum >= limit {
			return limit
		}
	}
	return sum
}
