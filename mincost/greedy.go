package mincost

import (
	"cmp"
	"slices"
)

// Greedy places units row by row, each where it is cheapest of what is left. It is always feasible and takes little
// longer than sorting the costs, which makes it what is left when there is no time.
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
	var cells []int
	for row := range t.Count {
		if t.Count[row] == 0 {
			continue
		}
		cells = cells[:0]
		for col := range room {
			cell := row*len(room) + col
			if cost := t.Cost[cell]; cost != Missing && cost <= alone[row] && room[col] > 0 {
				cells = append(cells, cell)
			}
		}
		slices.SortFunc(cells, func(a, b int) int {
			return cmp.Or(cmp.Compare(t.Cost[a], t.Cost[b]), cmp.Compare(a, b))
		})
		for _, cell := range cells {
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
