package mincost

import "slices"

// Classes is a transport in which rows that are alike have become one, and columns that are alike one: whatever
// solves it solves the original, at the same cost.
//
// Rows are alike that cost the same in every column and alone; their counts add up. Columns are alike in which every
// row costs the same; their rooms add up. Where a limit binds, the limits must be the same as well, and the counts or
// rooms: q such rows, or columns, share what the one in their place is given so that none gets more than the others
// by more than one unit, which keeps limits that are q times as wide.
//
// Where nothing is alike, nothing is copied: what Transport holds is then the original's.
type Classes struct {
	Transport *Transport

	original *Transport
	between  *Transport // rows aggregated, columns not
	rows     groups
	cols     groups
}

// Aggregate finds the classes of a transport. The transport must not be changed while they are used.
func Aggregate(t *Transport) (*Classes, error) {
	if err := t.checkSizes(); err != nil {
		return nil, err
	}
	if _, err := t.checkUnits(); err != nil {
		return nil, err
	}
	c := &Classes{original: t}
	c.rows = group(len(t.Count), t.glance, t.rowKey, t.sameRows)
	c.between = t.mergeRows(c.rows)
	span, err := c.between.check() // costs of rows that are alike need not be looked at again
	if err != nil {
		return nil, err
	}
	if t.Alone == nil {
		c.between.most = max(t.most, t.placingFirst(span)) // the certificate of the original has to know it
	}
	keys := c.between.colKeys()
	key := func(col int) uint64 { return keys[col] }
	c.cols = group(len(t.Room), key, key, c.between.sameCols)
	c.Transport = c.between.mergeCols(c.cols)
	return c, nil
}

// groups says which of several are alike.
type groups struct {
	of      []int   // by member: its group
	members [][]int // by group, ascending; groups are in the order of their first members
}

// crowded is how many groups may look alike at a glance before a closer look is taken.
const crowded = 4

// group puts together what is the same. What is the same has equal keys, both at a glance and on a closer look, which
// is only taken where many look alike at a glance.
func group(size int, glance, key func(i int) uint64, same func(i, j int) bool) groups {
	g := groups{of: make([]int, size), members: make([][]int, 0, size)}
	alone := make([]int, size)                           // the members of groups of one
	next := make([]int32, 0, size)                       // by group: the next of those that look alike
	glanced, looked := make(heads, size), make(heads, 0) // by key at a glance, and on a closer look
	closer := make(map[uint64]bool)                      // keys at a glance that say too little
	for i := range size {
		in, k := glanced, glance(i)
		doubtful := closer[k]
		if doubtful {
			in, k = looked, mix(k, int64(key(i)))
		}
		at, alike := in.of(k), 0
		for at >= 0 && !same(g.members[at][0], i) {
			at = next[at]
			alike++
		}
		if at >= 0 {
			g.of[i] = int(at)
			g.members[at] = append(g.members[at], i)
			continue
		}
		at = int32(len(g.members))
		g.of[i], alone[i] = int(at), i
		g.members = append(g.members, alone[i:i+1:i+1])
		next = append(next, in.of(k))
		in[k] = at
		if !doubtful && alike+1 == crowded {
			closer[k] = true
			for at >= 0 { // from now on they are looked for there
				closely, after := mix(k, int64(key(g.members[at][0]))), next[at]
				next[at], looked[closely] = looked.of(closely), at
				at = after
			}
		}
	}
	return g
}

// heads are the first groups of those that look alike, by key.
type heads map[uint64]int32

func (h heads) of(key uint64) int32 {
	if first, is := h[key]; is {
		return first
	}
	return none
}

// single reports whether nothing is alike: every group has one member, and its number.
func (g *groups) single() bool { return len(g.members) == len(g.of) }

// mix adds a number to a hash.
func mix(hash uint64, v int64) uint64 {
	hash = (hash ^ uint64(v)) * 0x9e3779b97f4a7c15
	return hash ^ hash>>29
}

// glances is how many costs of a row are looked at at a glance.
const glances = 16

// glance hashes a few costs of a row.
func (t *Transport) glance(row int) (hash uint64) {
	costs := t.Cost[row*len(t.Room) : (row+1)*len(t.Room)]
	for i := 0; i < len(costs); i += 1 + len(costs)/glances {
		hash = mix(hash, costs[i])
	}
	return hash
}

// rowKey hashes the costs of a row.
func (t *Transport) rowKey(row int) (hash uint64) {
	for _, cost := range t.Cost[row*len(t.Room) : (row+1)*len(t.Room)] {
		hash = mix(hash, cost)
	}
	return hash
}

// colKeys hashes all columns, in one pass in the order of the costs.
func (t *Transport) colKeys() []uint64 {
	hashes := make([]uint64, len(t.Room))
	for row := range t.Count {
		for col, cost := range t.Cost[row*len(t.Room) : (row+1)*len(t.Room)] {
			hashes[col] = mix(hashes[col], cost)
		}
	}
	return hashes
}

func (t *Transport) sameRows(a, b int) bool {
	cols := len(t.Room)
	if t.Alone != nil && t.Alone[a] != t.Alone[b] ||
		!slices.Equal(t.Cost[a*cols:(a+1)*cols], t.Cost[b*cols:(b+1)*cols]) {
		return false
	}
	if t.Limit == nil {
		return true
	}
	for col := range cols {
		if limit := t.limit(a*cols + col); limit != t.limit(b*cols+col) ||
			limit != Unlimited && t.Count[a] != t.Count[b] {
			return false
		}
	}
	return true
}

func (t *Transport) sameCols(a, b int) bool {
	cols := len(t.Room)
	for row := range t.Count {
		i, j := row*cols+a, row*cols+b
		if t.Cost[i] != t.Cost[j] {
			return false
		}
		if limit := t.limit(i); limit != t.limit(j) || limit != Unlimited && t.Room[a] != t.Room[b] {
			return false
		}
	}
	return true
}

// mergeRows returns a transport with a row for each group.
func (t *Transport) mergeRows(g groups) *Transport {
	cols := len(t.Room)
	if g.single() {
		return &Transport{Count: t.Count, Room: t.Room, Cost: t.Cost, Limit: t.Limit, Alone: t.Alone}
	}
	merged := &Transport{
		Count: make([]int64, len(g.members)), Room: t.Room, Cost: make([]int64, 0, len(g.members)*cols),
	}
	for i, rows := range g.members {
		first := rows[0]
		merged.Cost = append(merged.Cost, t.Cost[first*cols:(first+1)*cols]...)
		for _, row := range rows {
			merged.Count[i] += t.Count[row]
		}
		if t.Alone != nil {
			merged.Alone = append(merged.Alone, t.Alone[first])
		}
		if t.Limit != nil {
			for col := range cols {
				merged.Limit = append(merged.Limit, times(t.limit(first*cols+col), len(rows)))
			}
		}
	}
	return merged
}

// mergeCols returns a transport with a column for each group.
func (t *Transport) mergeCols(g groups) *Transport {
	if g.single() {
		return t
	}
	rows, cols := len(t.Count), len(t.Room)
	merged := &Transport{
		Count: t.Count, Room: make([]int64, len(g.members)), Cost: make([]int64, 0, rows*len(g.members)),
		Alone: t.Alone, most: t.most,
	}
	for i, members := range g.members {
		for _, col := range members {
			merged.Room[i] = plus(merged.Room[i], t.Room[col])
		}
	}
	for row := range rows {
		for _, members := range g.members {
			cell := row*cols + members[0]
			merged.Cost = append(merged.Cost, t.Cost[cell])
			if t.Limit != nil {
				merged.Limit = append(merged.Limit, times(t.limit(cell), len(members)))
			}
		}
	}
	return merged
}

// times multiplies a limit. One that binds is below the number of units, so it cannot overflow.
func times(limit int64, by int) int64 {
	if limit == Unlimited {
		return Unlimited
	}
	return limit * int64(by)
}

// plus adds rooms, which may be unlimited.
func plus(a, b int64) int64 {
	if a > Unlimited-b {
		return Unlimited
	}
	return a + b
}
