package sqlstore

import (
	"context"
	"maps"
	"slices"
)

// A batch of an agent that is cut by hours or days is written in the windows in which these begin, one that is not
// cut at all in its last, and tells of all of the windows that these reach over: no estimate stands in any of them.
// Reaches are few, and have a table of their own.

// A reach is the time that an agent's booking tells of beyond the window that it is written in: from the beginning of a
// window to some second.
type reach struct{ start, last int64 }

// loadReaches finds which windows the new bookings of agents reach over, and reads the estimates in them.
func (f *folder) loadReaches(ctx context.Context) error {
	for _, k := range f.keys() {
		w := f.windows[k].fresh[byAgent]
		if w == nil || w.First >= w.Start && w.Last <= w.Start+windowSeconds {
			continue
		}
		r := reach{floorTo(min(w.First, w.Start), windowSeconds), w.Last}
		f.reaches[k.node] = append(f.reaches[k.node], r)
		err := f.loadRows(ctx, "node = $1 AND start >= $2 AND start < $3 AND agentless = $4", k.node, r.start, r.last,
			byEstimate)
		if err != nil {
			return err
		}
	}
	return nil
}

func (f *folder) writeReaches(ctx context.Context) error {
	var rows [][]any
	for _, node := range slices.Sorted(maps.Keys(f.reaches)) {
		for _, r := range f.reaches[node] {
			rows = append(rows, []any{node, r.start, r.last})
		}
	}
	return f.s.insert(ctx, "reaches", []string{"node", "start", "last"}, rows, "ON CONFLICT DO NOTHING")
}

// reached reports whether an agent's booking that is written elsewhere tells of a window.
func (f *folder) reached(ctx context.Context, k windowKey) (bool, error) {
	var one int
	return f.s.one(ctx, "SELECT 1 FROM reaches WHERE node = $1 AND start <= $2 AND last > $3",
		[]any{k.node, k.start, k.start}, &one)
}
