package mincost

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
)

var (
	// ErrInfeasible says that a network cannot carry all that is supplied to where it is demanded.
	ErrInfeasible = errors.New("the supplies cannot reach the demands")
	// ErrUnbounded says that a network has a cycle of negative cost and unlimited capacity.
	ErrUnbounded = errors.New("a cycle of negative cost has no limit")
	// ErrStopped says that a solve was told to stop before it was done.
	ErrStopped = errors.New("stopped before the optimum was found")
)

// Flow is a flow of least cost, with the dual solution that proves it.
type Flow struct {
	Units []int64 // by arc
	Price []int64 // by node: a unit is worth as much more there as it costs to bring it there
	Cost  int64

	Pivots int // steps that were taken to find it
}

// Certify checks that f is a flow of the network that no other can better: it carries what is supplied to where it is
// demanded within all capacities, and by complementary slackness its prices prove that no arc could save anything. It
// takes one pass over the arcs and shares no code with the solver.
func (f *Flow) Certify(n *Network) error {
	if len(f.Units) != len(n.tail) || len(f.Price) != len(n.supply) {
		return errors.New("certifying a flow: it is one of another network")
	}
	for node, price := range f.Price {
		if price < -2*maxPath || price > 2*maxPath {
			return fmt.Errorf("certifying a flow: node %d has a price of %d", node, price)
		}
	}
	left := slices.Clone(n.supply)
	var used []int32
	for arc, units := range f.Units {
		if err := f.slack(n, arc, units); err != nil {
			return fmt.Errorf("certifying a flow: %w", err)
		}
		if units != 0 {
			left[n.tail[arc]] -= units
			left[n.head[arc]] += units
			used = append(used, int32(arc))
			// No step is longer than maxFlow, so what would wrap is seen here before it does.
			if most := int64(4 * maxFlow); absolute(left[n.tail[arc]]) > most || absolute(left[n.head[arc]]) > most {
				return fmt.Errorf("certifying a flow: more meets at the ends of arc %d than 64 bits hold", arc)
			}
		}
	}
	for node, units := range left {
		if units != 0 {
			return fmt.Errorf("certifying a flow: %d units are left at node %d", units, node)
		}
	}
	if cost, err := costOf(n, f.Units, used); err != nil || cost != f.Cost {
		return fmt.Errorf("certifying a flow: it costs %d, said to be %d", cost, f.Cost)
	}
	return nil
}

// slack checks that an arc carries what it can, and as its reduced cost wants.
func (f *Flow) slack(n *Network, arc int, units int64) error {
	capacity, reduced := n.capacity[arc], n.cost[arc]+f.Price[n.tail[arc]]-f.Price[n.head[arc]]
	switch {
	case units < 0 || units > min(capacity, maxFlow):
		return fmt.Errorf("arc %d carries %d of %d", arc, units, capacity)
	case n.cost[arc] < -maxPath || n.cost[arc] > maxPath:
		return fmt.Errorf("arc %d costs %d, which could wrap", arc, n.cost[arc])
	case reduced < 0 && units < capacity:
		return fmt.Errorf("arc %d carries %d of %d, and more would save %d", arc, units, capacity, -reduced)
	case reduced > 0 && units > 0:
		return fmt.Errorf("arc %d carries %d, and less would save %d", arc, units, reduced)
	}
	return nil
}

// costOf adds up exactly what a flow costs on the arcs that it uses.
func costOf(n *Network, flow []int64, used []int32) (int64, error) {
	var gain, loss sum128
	for _, arc := range used {
		units := flow[arc]
		switch cost := n.cost[arc]; {
		case cost > 0:
			loss.add(uint64(cost), uint64(units))
		default:
			gain.add(uint64(-cost), uint64(units))
		}
	}
	low, borrow := bits.Sub64(loss.low, gain.low, 0)
	high, _ := bits.Sub64(loss.high, gain.high, borrow)
	if high != uint64(int64(low)>>63) {
		return 0, errors.New("adding up the cost of a flow: it is more than 64 bits hold: scale costs down")
	}
	return int64(low), nil
}

// sum128 is a sum of products that would overflow 64 bits.
type sum128 struct{ high, low uint64 }

func (s *sum128) add(a, b uint64) {
	high, low := bits.Mul64(a, b)
	var carry uint64
	s.low, carry = bits.Add64(s.low, low, 0)
	s.high += high + carry
}
