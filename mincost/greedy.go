package mincost

import "container/heap"

// Greedy places units row by row, each where it is cheapest of what is left. It is always feasible and takes little
// longer than reading the costs, which makes it what is left when there is no time.
func Greedy(t *Transport) (*Shipment, error) {
	span, err := t.check()
	if err != nil {
		return nil, err
	}
	return t.greedy(t.penalties(span)), nil
}

func (t *Transport) greedy(alone []int64) *Shipment {
	shipment := newShipment(t, alone)
	room := append([]int64(nil), t.Room...)
	var cells cheapest
	for row := range t.Count {
		if t.Count[row] == 0 {
			continue
		}
		cells.cost, cells.cell = t.Cost, cells.cell[:0]
		for col := range room {
			cell := row*len(room) + col
			if cost := t.Cost[cell]; cost != Missing && cost <= alone[row] && room[col] > 0 {
				cells.cell = append(cells.cell, cell)
			}
		}
		heap.Init(&cells)
		for shipment.Left[row] > 0 && cells.Len() > 0 {
			cell := cells.cell[0]
			heap.Pop(&cells)
			col := cell % len(room)
			if units := min(shipment.Left[row], room[col], t.limit(cell)); units > 0 {
				shipment.add(t, cell, units)
				room[col] -= units
			}
		}
	}
	shipment.sort()
	return shipment
}

// cheapest is a heap of cells, those of lower cost first, and of equal ones those of lower columns.
type cheapest struct {
	cost []int64
	cell []int
}

func (c *cheapest) Len() int { return len(c.cell) }

func (c *cheapest) Less(i, j int) bool {
	a, b := c.cell[i], c.cell[j]
	return c.cost[a] < c.cost[b] || c.cost[a] == c.cost[b] && a < b
}

func (c *cheapest) Swap(i, j int) { c.cell[i], c.cell[j] = c.cell[j], c.cell[i] }

func (c *cheapest) Push(cell any) { c.cell = append(c.cell, cell.(int)) }

func (c *cheapest) Pop() any {
	last := len(c.cell) - 1
	cell := c.cell[last]
	c.cell = c.cell[:last]
	return cell
}
