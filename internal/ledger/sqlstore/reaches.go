package sqlstore

import (
	"maps"
	"slices"
)

// A batch of an agent may span several windows. It is recorded in its last window, or, if it is split by hours or days,
// in the windows in which the hours or days start. In all other windows of its interval, estimates are ignored as well.
// Such intervals are rare and stored in a separate table.

// A reach is the interval that an agent's booking covers in addition to the window in which it is recorded, from
// the start of a window to the last second.
type reach struct{ start, last int64 }

// loadReaches determines the reaches of new agent bookings and reads the estimates of the windows they cover.
func (f *folder) loadReaches() {
	for _, k := range f.keys() {
		w := f.windows[k].fresh[byAgent]
		if w == nil || w.First >= w.Start && w.Last <= w.Start+windowSeconds {
			continue
		}
		r := reach{floorTo(min(w.First, w.Start), windowSeconds), w.Last}
		f.reaches[k.node] = append(f.reaches[k.node], r)
		f.loadRows("node = $1 AND start >= $2 AND start < $3 AND agentless = $4", k.node, r.start, r.last, byEstimate)
	}
}

func (f *folder) writeReaches() {
	var rows [][]any
	for _, node := range slices.Sorted(maps.Keys(f.reaches)) {
		for _, r := range f.reaches[node] {
			rows = append(rows, []any{node, r.start, r.last})
		}
	}
	f.s.insert("reaches", []string{"node", "start", "last"}, rows, "ON CONFLICT DO NOTHING")
}

// reached reports whether an agent's booking that is recorded elsewhere covers the window.
func (f *folder) reached(k windowKey) bool {
	return f.s.one("SELECT 1 FROM reaches WHERE node = $1 AND start <= $2 AND last > $3",
		[]any{k.node, k.start, k.start}, new(int))
}
