package mincost

// Expand gives a solution of the classes back to rows and columns: optimal if it is. Where nothing is alike that is
// the solution itself.
func (c *Classes) Expand(s *Shipment) *Shipment {
	return c.expandRows(c.expandCols(s))
}

// expandCols gives what is in a group's column to its members.
func (c *Classes) expandCols(s *Shipment) *Shipment {
	if c.cols.single() {
		return s
	}
	t := c.between
	wide := newShipment(t, s.alone)
	byCol := make([][]Lot, len(c.cols.members))
	for _, lot := range s.Lots {
		byCol[lot.Col] = append(byCol[lot.Col], lot)
	}
	for group, lots := range byCol {
		members := c.cols.members[group]
		room := make([]int64, len(members))
		for i, col := range members {
			room[i] = t.Room[col]
		}
		share(lots, room, t.boundCol(members[0]), func(lot Lot, member int, units int64) {
			wide.add(t, lot.Row*len(t.Room)+members[member], units)
		})
	}
	wide.prices(s, nil, c.cols.of)
	wide.sort()
	return wide
}

// boundCol says whether a limit binds in a column.
func (t *Transport) boundCol(col int) bool {
	for row := range t.Count {
		if t.limit(row*len(t.Room)+col) != Unlimited {
			return true
		}
	}
	return false
}

// boundRow says whether a limit binds a row.
func (t *Transport) boundRow(row int) bool {
	for col := range t.Room {
		if t.limit(row*len(t.Room)+col) != Unlimited {
			return true
		}
	}
	return false
}

// expandRows gives what a group's row has to its members.
func (c *Classes) expandRows(s *Shipment) *Shipment {
	if c.rows.single() {
		return s
	}
	t := c.original
	alone := make([]int64, len(t.Count))
	for row := range alone {
		alone[row] = s.alone[c.rows.of[row]]
	}
	wide := newShipment(t, alone)
	for from := 0; from < len(s.Lots); {
		group := s.Lots[from].Row
		end := from
		for end < len(s.Lots) && s.Lots[end].Row == group {
			end++
		}
		members := c.rows.members[group]
		count := make([]int64, len(members))
		for i, row := range members {
			count[i] = t.Count[row]
		}
		share(s.Lots[from:end], count, t.boundRow(members[0]), func(lot Lot, member int, units int64) {
			wide.add(t, members[member]*len(t.Room)+lot.Col, units)
		})
		from = end
	}
	wide.prices(s, c.rows.of, nil)
	wide.sort()
	return wide
}

// share deals lots out to members that hold so much each. Where a limit binds they are all equal, and each gets as many
// of every lot as the others, give or take one, and in all as well: units are dealt in turn, and the next lot goes on
// where the last ended. Otherwise the members are filled up one after the other.
func share(lots []Lot, holds []int64, even bool, give func(lot Lot, member int, units int64)) {
	at, members := 0, int64(len(holds))
	for _, lot := range lots {
		if even {
			each, extra := lot.Units/members, int(lot.Units%members)
			for i := range holds {
				units := each
				if turn := (i - at + len(holds)) % len(holds); turn < extra {
					units++
				}
				if units > 0 {
					give(lot, i, units)
				}
			}
			at = (at + extra) % len(holds)
			continue
		}
		for units := lot.Units; units > 0; {
			taken := min(units, holds[at])
			if taken > 0 {
				give(lot, at, taken)
			}
			holds[at] -= taken
			units -= taken
			if units > 0 {
				at++
			}
		}
	}
}

// prices copies a solution's dual values to the members of groups; nil: a row or column is its own group.
func (s *Shipment) prices(from *Shipment, rows, cols []int) {
	s.Optimal = from.Optimal
	if !s.Optimal {
		return
	}
	spread := func(values []int64, of []int) []int64 {
		if of == nil {
			return values
		}
		wide := make([]int64, len(of))
		for i, group := range of {
			wide[i] = values[group]
		}
		return wide
	}
	s.row, s.col = spread(from.row, rows), spread(from.col, cols)
}
