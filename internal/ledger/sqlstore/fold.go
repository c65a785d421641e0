package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/kubenergy/kubenergy/internal/ledger"
)

// Limits of one fold transaction, which bound memory usage and the time that other transactions wait. With a single
// writer, bookings wait for the fold, so transactions are short. With several writers, few long transactions write
// the same sums less often.
const (
	foldAlone    = 1024 // maximum entries with a single writer
	foldBeside   = 8192
	foldPostings = 1_000_000

	foldAtOnce = 1 << 16 // maximum entries per call of Fold
)

// Fold implements [ledger.Store]. It processes entries in the order of nodes, because most of the rows that a
// transaction writes belong to a node and are then written once per transaction.
func (d *DB) Fold(ctx context.Context) (int, error) {
	b, err := d.backlog(ctx)
	if err != nil {
		return 0, fmt.Errorf("reading the size of the journal: %w", err)
	}
	d.stuck.Store(nil)
	most := foldAlone
	if d.dialect.Writers > 1 {
		most = foldBeside
	}
	moved := 0
	for part := range slices.Chunk(b.numbers, most) {
		taken, mine := 0, false
		if err := d.update(ctx, func(s *session) { taken, mine = d.fold(s, part) }); err != nil {
			return 0, fmt.Errorf("folding the journal: %w", err)
		}
		if !mine {
			return 0, nil
		}
		moved += taken
	}
	if moved == 0 && b.entries > 0 {
		d.stuck.Store(&b.size) // the next query does not retry
	}
	return int(b.entries) - moved, nil
}

// A backlog describes the journal. It contains the IDs of the oldest entries, sorted by node.
type backlog struct {
	size
	numbers []int64
}

type size struct{ entries, last int64 }

func (d *DB) backlog(ctx context.Context) (b backlog, err error) {
	err = d.read(ctx, func(r *reading) {
		var err error
		if b.size, err = sizeOf(ctx, r.tx); r.check(err) && b.entries > 0 {
			b.numbers = r.numbers("", "SELECT id FROM (SELECT id, node FROM journal ORDER BY id LIMIT $1) AS oldest "+
				"ORDER BY node, id", int64(foldAtOnce))
		}
	})
	return b, err
}

// sizeOf returns the number of entries in the journal and the highest ID.
func sizeOf(ctx context.Context, from querier) (s size, err error) {
	err = from.QueryRowContext(ctx, "SELECT COUNT(*), COALESCE(MAX(id), 0) FROM journal").Scan(&s.entries, &s.last)
	return s, err
}

// fold folds the given entries unless another process is folding, and returns the number of folded entries.
func (d *DB) fold(s *session, numbers []int64) (taken int, mine bool) {
	mine = true
	if d.dialect.TryFold != "" { // only one process folds at a time
		if s.one(d.dialect.TryFold, nil, &mine); !mine {
			return 0, false
		}
	}
	s.lockSums()
	r := &reading{operation: s.operation, d: d, tx: s.conn}
	entries := r.unfolded(numbers)
	var f *folder
	var done []int64
	for barred := map[windowKey]bool{}; ; {
		f = &folder{
			reading: r, s: s, windows: map[windowKey]*folding{}, barred: barred, reaches: map[int64][]reach{},
		}
		done = f.collect(entries)
		known := len(barred)
		if f.load(); len(barred) == known {
			break
		} // some windows are damaged; retry without their entries, which remain in the journal
	}
	f.write()
	s.forget("journal", done)
	return len(done), true
}

// unfolded reads entries. It skips damaged entries, and stops early if the entries expand to too many postings.
func (r *reading) unfolded(numbers []int64) (entries []*entry) {
	postings := 0
	for some := range slices.Chunk(numbers, listed) {
		r.each("", func(rows *sql.Rows) error {
			_, e, err := scanEntry(rows)
			if errors.Is(err, ledger.ErrDamaged) {
				r.d.log.Error("Skipped a damaged entry in the journal of the ledger", "err", err)
				return nil
			}
			if err != nil {
				return err
			}
			entries = append(entries, e)
			if postings += e.postings(); postings > foldPostings {
				return errEnough
			}
			return nil
		}, selectEntries+" WHERE id IN ("+ids(some)+")")
		if postings > foldPostings {
			break
		}
	}
	return entries
}

type windowKey struct{ node, start int64 }

// A folding is a window that is updated. Both the stored and the new content are indexed by byAgent and byEstimate.
type folding struct {
	held  [2]*window // nil if there is no row
	fresh [2]*window
}

const (
	byAgent    = int64(0)
	byEstimate = int64(1)
)

type folder struct {
	*reading // in the fold transaction

	s       *session
	windows map[windowKey]*folding
	barred  map[windowKey]bool // windows with a damaged row, which are not updated
	reaches map[int64][]reach  // reaches of new agent bookings by node, see reaches.go
}

// collect adds entries to windows and returns the IDs of the entries that it added.
func (f *folder) collect(entries []*entry) []int64 {
	taken := make([]int64, 0, len(entries))
	for _, e := range entries {
		if e.touches(f.barred) {
			continue
		}
		taken = append(taken, e.ID)
		e.expand(func(w *window) {
			to := f.folding(windowKey{w.Node, w.Start})
			to.fresh[w.By] = to.fresh[w.By].plus(w)
		})
	}
	return taken
}

// load reads the stored rows of the windows. Damaged windows are added to barred.
func (f *folder) load() {
	for _, k := range f.keys() {
		f.loadRows("node = $1 AND start = $2", k.node, k.start)
	}
	f.loadReaches()
}

// loadRows reads the rows of windows that match a condition.
func (f *folder) loadRows(where string, args ...any) {
	f.s.each(func(rows *sql.Rows) error {
		k, by, w, err := scanWindow(rows)
		if errors.Is(err, ledger.ErrDamaged) {
			f.barred[k] = true
			f.d.log.Error("Skipped a damaged window of the ledger, its bookings remain in the journal", "err", err)
			return nil
		}
		f.folding(k).held[by] = w
		return err
	}, selectWindows+" WHERE "+where, args...)
}

// folding returns the window with key k and creates it if necessary.
func (f *folder) folding(k windowKey) *folding {
	w := f.windows[k]
	if w == nil {
		w = &folding{}
		f.windows[k] = w
	}
	return w
}

// keys returns the sorted keys of all windows, so that rows are accessed in storage order.
func (f *folder) keys() []windowKey {
	return slices.SortedFunc(maps.Keys(f.windows), func(a, b windowKey) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.node, b.node))
	})
}

// standing returns whether the data of the agent or the estimate counts for a window. Estimates only count if no
// agent's booking covers the window.
func (f *folder) standing(k windowKey, w *folding) (by int64) {
	if w.fresh[byAgent] != nil || w.held[byAgent] != nil || f.reached(k) {
		return byAgent
	}
	return byEstimate
}

// write selects the data that counts for each window, writes it, and updates the sums by the difference.
func (f *folder) write() {
	f.writeReaches()
	sums := &summing{folder: f, sumsByKey: newBooks(), taken: map[int64]bool{}}
	var rows [][]any
	for _, k := range f.keys() {
		w := f.windows[k]
		by := f.standing(k, w)
		if by == byAgent && w.held[byEstimate] != nil {
			f.takeBack(w.held[byEstimate], sums)
		}
		fresh := w.fresh[by]
		if fresh == nil {
			continue // only an estimate for a window that an agent covers
		}
		f.check(sums.add(fresh, f.account))
		now := w.held[by].plus(fresh)
		rows = append(rows, []any{now.Start, now.Node, by, now.encode()})
	}
	f.s.upsert("windows", []string{"start", "node", "agentless", "payload"}, 3, rows...)
	sums.write()
}

// takeBack removes an estimate from windows and sums.
func (f *folder) takeBack(w *window, sums *summing) {
	f.check(sums.add(w.negative(), f.account))
	sums.taken[w.Node] = true
	f.s.exec("DELETE FROM windows WHERE node = $1 AND start = $2 AND agentless = $3", w.Node, w.Start, byEstimate)
}
