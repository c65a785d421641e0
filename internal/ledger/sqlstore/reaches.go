package sqlstore

import (
	"context"
	"maps"
	"slices"
)

// An agent's batch that is split by hours or days is recorded in the windows in which these start, and a batch that
// is not split in its last window. It nevertheless covers all windows of its interval, and estimates do not count
// in any of them. These intervals are rare and stored in a separate table.

// A reach is the interval that an agent's booking covers in addition to the window in which it is recorded, from
// the start of a window to the last second.
type reach struct{ start, last int64 }

// loadReaches determines the reaches of new agent bookings and reads the estimates of the windows they cover.
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

// reached reports whether an agent's booking that is recorded elsewhere covers the window.
func (f *folder) reached(ctx context.Context, k windowKey) (bool, error) {
	var one int
	return f.s.one(ctx, "SELECT 1 FROM reaches WHERE node = $1 AND start <= $2 AND last > $3",
		[]any{k.node, k.start, k.start}, &one)
}
