package sqlstore

import (
	"slices"
	"testing"
)

// A part is short where bookings wait for it, and holds all of a node unless that is too much for one transaction.
func TestPartsOfABacklog(t *testing.T) {
	backlogOf := func(nodes, each int, bytes int64) *backlog {
		b := &backlog{}
		for n := range nodes {
			for k := range each {
				b.waiting = append(b.waiting, waiting{id: int64(k*nodes + n + 1), node: int64(n), bytes: bytes})
			}
		}
		b.entries = int64(len(b.waiting))
		return b
	}
	for _, c := range []struct {
		name           string
		nodes, each    int
		bytes          int64
		beside         bool
		parts, longest int
	}{
		{"nothing", 0, 0, 0, false, 0, 0},
		{"little", 3, 2, 2500, false, 1, 6},
		{"two of each node", 5000, 2, 2500, false, 10, 1024},
		{"three of each node", 2000, 3, 2500, false, 6, 1026},
		{"others write at the same time", 5000, 2, 2500, true, 2, 6712},
		{"a node that was away", 1, 20_000, 2500, false, 3, 8192},
		{"large ones", 40, 1, 1 << 20, false, 3, 16},
		{"a node of large ones", 1, 100, 1 << 20, false, 4, 32},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := backlogOf(c.nodes, c.each, c.bytes)
			nodeOf := map[int64]int64{}
			for _, w := range b.waiting {
				nodeOf[w.id] = w.node
			}
			var all []int64
			in := map[int64]int{} // parts that a node is in
			parts, longest := 0, 0
			for part := range b.parts(c.beside) {
				all = append(all, part...)
				parts, longest = parts+1, max(longest, len(part))
				nodes := map[int64]bool{}
				for _, id := range part {
					nodes[nodeOf[id]] = true
				}
				for node := range nodes {
					in[node]++
				}
			}
			if parts != c.parts || longest != c.longest {
				t.Errorf("%d parts of up to %d entries, want %d of up to %d", parts, longest, c.parts, c.longest)
			}
			slices.Sort(all)
			if len(all) != c.nodes*c.each || len(slices.Compact(all)) != len(nodeOf) {
				t.Errorf("%d entries are in parts, of %d", len(all), len(nodeOf))
			}
			for node, n := range in {
				if n > 1 && c.nodes > 1 {
					t.Errorf("node %d is in %d parts", node, n)
				}
			}
		})
	}
}
