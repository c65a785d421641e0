package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/kubenergy/kubenergy/ledger"
)

// A batch of an agent that is cut by hours or days is written in the windows in which these begin, one that is not
// cut at all in its last, and tells of all of the windows that these reach over: no estimate stands in any of them.
// How far they reach is in meta, as there are few.

// A reach is the time that an agent's booking tells of beyond the window that it is written in.
type reach struct{ start, last int64 }

const longPrefix = "long/"

// longKey is the key in meta of the end of a reach.
func longKey(node, start int64) string { return fmt.Sprintf("%s%d/%d", longPrefix, node, start) }

// reached reports whether an agent's booking that began earlier tells of a window.
func (f *folder) reached(k windowKey) bool {
	return slices.ContainsFunc(f.long[k.node], func(r reach) bool { return r.start <= k.start && k.start < r.last })
}

// loadLong finds which windows the new bookings of agents reach over, and reads the estimates in them.
func (f *folder) loadLong(ctx context.Context) error {
	estimates := false
	f.longer = map[int64][]reach{}
	for _, k := range f.keys() {
		estimates = estimates || f.windows[k].fresh[byEstimate] != nil
		w := f.windows[k].fresh[byAgent]
		if w == nil || w.First >= w.Start && w.Last <= w.Start+windowSeconds {
			continue
		}
		r := reach{floorTo(min(w.First, w.Start), windowSeconds), w.Last}
		all := f.longer[k.node]
		if i := slices.IndexFunc(all, func(o reach) bool { return o.start <= r.start && r.start <= o.last }); i >= 0 {
			all[i].last = max(all[i].last, r.last)
			continue
		}
		f.longer[k.node] = append(all, r)
	}
	if !estimates && len(f.longer) == 0 {
		return nil
	}
	var err error
	if f.long, err = longOf(ctx, f.s); err != nil {
		return err
	}
	for _, node := range slices.Sorted(maps.Keys(f.longer)) {
		if err := f.extend(ctx, node); err != nil {
			return err
		}
	}
	return nil
}

// extend adds the new reaches of a node to those that are known, and reads the estimates in them.
func (f *folder) extend(ctx context.Context, node int64) error {
	for i := range f.longer[node] {
		r := &f.longer[node][i]
		if err := f.loadEstimates(ctx, node, *r); err != nil {
			return err
		}
		for _, known := range f.long[node] {
			if known.start == r.start { // the same row
				r.last = max(r.last, known.last)
			}
		}
	}
	f.long[node] = append(f.long[node], f.longer[node]...)
	return nil
}

// longOf reads how far bookings reach, by node.
func longOf(ctx context.Context, s *session) (map[int64][]reach, error) {
	rows, err := s.query(ctx, "SELECT key, value FROM meta WHERE key LIKE '"+longPrefix+"%'")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	all := map[int64][]reach{}
	for rows.Next() {
		node, r, err := scanLong(rows)
		if err != nil {
			return nil, err
		}
		all[node] = append(all[node], r)
	}
	return all, errors.Join(rows.Err(), rows.Close())
}

func scanLong(rows *sql.Rows) (node int64, r reach, err error) {
	var key, value string
	if err := rows.Scan(&key, &value); err != nil {
		return 0, r, err
	}
	if _, err = fmt.Sscanf(key, longPrefix+"%d/%d", &node, &r.start); err == nil {
		r.last, err = strconv.ParseInt(value, 10, 64)
	}
	if err != nil {
		return 0, r, fmt.Errorf("%w: how far a booking reaches: %q is %q", ledger.ErrDamaged, key, value)
	}
	return node, r, nil
}

// loadEstimates reads the estimates that a booking reaches over.
func (f *folder) loadEstimates(ctx context.Context, node int64, r reach) error {
	rows,
		err := f.s.query(ctx,
		"SELECT start, payload FROM windows WHERE node = $1 AND start >= $2 AND start < $3 AND agentless = $4",
		node, r.start, r.last, int64(byEstimate))
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var start int64
		var payload []byte
		if err := rows.Scan(&start, &payload); err != nil {
			return err
		}
		k := windowKey{node, start}
		w, err := decodeWindow(start, node, true, payload)
		if err != nil {
			f.barred[k] = true
			f.d.log.Error("A window of the ledger is damaged: what belongs to it stays in the journal", "err", err)
			continue
		}
		if f.windows[k] == nil {
			f.windows[k] = &folding{}
		}
		f.windows[k].held[byEstimate] = w
	}
	return errors.Join(rows.Err(), rows.Close())
}

func (f *folder) writeLong(ctx context.Context) error {
	for _, node := range slices.Sorted(maps.Keys(f.longer)) {
		for _, r := range f.longer[node] {
			if err := setMeta(ctx, f.s, longKey(node, r.start), strconv.FormatInt(r.last, 10)); err != nil {
				return err
			}
		}
	}
	return nil
}

// long drops how far bookings reach whose windows are dropped.
func (k *keeper) long(before int64) error {
	return k.update(func(ctx context.Context, s *session) error {
		all, err := longOf(ctx, s)
		if err != nil {
			return err
		}
		for _, node := range slices.Sorted(maps.Keys(all)) {
			slices.SortFunc(all[node], func(a, b reach) int { return cmp.Compare(a.start, b.start) })
			for _, r := range all[node] {
				if r.last >= before {
					continue
				}
				if _, err := s.exec(ctx, "DELETE FROM meta WHERE key = $1", longKey(node, r.start)); err != nil {
					return err
				}
			}
		}
		return nil
	})
}
