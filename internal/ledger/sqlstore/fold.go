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

// What one transaction takes from the journal, at most: so much is in memory at once, and so long others wait. Where
// only one transaction writes at a time, bookings wait for it, so it is short; where not, few long ones write the
// same sums less often.
const (
	foldAlone    = 1024 // entries, where one transaction writes at a time
	foldBeside   = 8192
	foldPostings = 1_000_000

	foldAtOnce = 1 << 16 // entries that one call of Fold looks at
)

// Fold implements [ledger.Store]. Its transactions take entries by node: most of what a transaction writes is a node's,
// and is then written once for each transaction that has entries of the node.
func (d *DB) Fold(ctx context.Context) (int, error) {
	b, err := d.backlog(ctx)
	if err != nil {
		return 0, fmt.Errorf("reading what is to be folded: %w", err)
	}
	d.stuck.Store(nil)
	most := foldAlone
	if d.dialect.Writers > 1 {
		most = foldBeside
	}
	moved := 0
	for part := range slices.Chunk(b.numbers, most) {
		taken, mine := 0, false
		err := d.update(ctx, func(ctx context.Context, s *session) error {
			var err error
			taken, mine, err = d.fold(ctx, s, part)
			return err
		})
		if err != nil {
			return 0, fmt.Errorf("folding the journal: %w", err)
		}
		if !mine {
			return 0, nil
		}
		moved += taken
	}
	if moved == 0 && b.entries > 0 {
		d.stuck.Store(&b.size) // the next query need not try again
	}
	return int(b.entries) - moved, nil
}

// A backlog is what the journal holds: the numbers of its entries, the oldest if they are too many, by node.
type backlog struct {
	size
	numbers []int64
}

type size struct{ entries, last int64 }

func (d *DB) backlog(ctx context.Context) (b backlog, err error) {
	err = d.read(ctx, func(r *reading) (err error) {
		if b.size, err = sizeOf(ctx, r.tx); err != nil || b.entries == 0 {
			return err
		}
		b.numbers, err = r.numbers("SELECT id FROM (SELECT id, node FROM journal ORDER BY id LIMIT $1) AS oldest "+
			"ORDER BY node, id", int64(foldAtOnce))
		return err
	})
	return b, err
}

// sizeOf tells how much the journal holds.
func sizeOf(ctx context.Context, from querier) (s size, err error) {
	err = from.QueryRowContext(ctx, "SELECT COUNT(*), COALESCE(MAX(id), 0) FROM journal").Scan(&s.entries, &s.last)
	return s, err
}

// fold folds some entries, if this process is the one that folds, and returns how many it could.
func (d *DB) fold(ctx context.Context, s *session, numbers []int64) (taken int, mine bool, err error) {
	mine = true
	if d.dialect.TryFold != "" { // one folds at a time
		if _, err := s.one(ctx, d.dialect.TryFold, nil, &mine); err != nil || !mine {
			return 0, false, err
		}
	}
	if err := s.lockSums(ctx); err != nil {
		return 0, false, err
	}
	entries, err := d.unfolded(ctx, s, numbers)
	if err != nil {
		return 0, false, err
	}
	var f *folder
	var done []int64
	for barred := map[windowKey]bool{}; ; {
		f = &folder{
			reading: &reading{d: d, ctx: ctx, tx: s.conn}, s: s, windows: map[windowKey]*folding{}, barred: barred,
			reaches: map[int64][]reach{},
		}
		done = f.collect(entries)
		known := len(barred)
		if err := f.load(ctx); err != nil {
			return 0, false, err
		}
		if len(barred) == known {
			break
		} // the rows of some windows are damaged: nothing is added to them, so what would be stays in the journal
	}
	if err := f.write(ctx); err != nil {
		return 0, false, err
	}
	return len(done), true, s.forget(ctx, "journal", done)
}

// unfolded reads entries. Those that are damaged stay where they are, and so do some if they are in very many windows.
func (d *DB) unfolded(ctx context.Context, s *session, numbers []int64) (entries []*entry, err error) {
	postings := 0
	r := &reading{d: d, ctx: ctx, tx: s.conn}
	for some := range slices.Chunk(numbers, listed) {
		err := r.each(func(rows *sql.Rows) error {
			_, e, err := scanEntry(rows)
			if errors.Is(err, ledger.ErrDamaged) {
				d.log.Error("An entry of the ledger's journal is damaged: it is left out", "err", err)
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
		if err != nil || postings > foldPostings {
			return entries, err
		}
	}
	return entries, nil
}

type windowKey struct{ node, start int64 }

// A folding is a window that something is added to: what it held, and what is new, both by agents and by estimates
// without one.
type folding struct {
	held  [2]*window // nil: there is no row
	fresh [2]*window
}

const (
	byAgent    = int64(0)
	byEstimate = int64(1)
)

type folder struct {
	*reading // in the transaction that folds

	s       *session
	windows map[windowKey]*folding
	barred  map[windowKey]bool // of which a row is damaged: nothing is added to them
	reaches map[int64][]reach  // that the new bookings of agents have, by node: see reaches.go
}

// collect adds entries to windows, and returns the numbers of those that it took.
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

// load reads the rows of the windows. Those that are damaged are barred.
func (f *folder) load(ctx context.Context) error {
	for _, k := range f.keys() {
		if err := f.loadRows(ctx, "node = $1 AND start = $2", k.node, k.start); err != nil {
			return err
		}
	}
	return f.loadReaches(ctx)
}

// loadRows reads rows of windows.
func (f *folder) loadRows(ctx context.Context, where string, args ...any) error {
	return f.s.each(ctx, func(rows *sql.Rows) error {
		k, by, w, err := scanWindow(rows)
		if errors.Is(err, ledger.ErrDamaged) {
			f.barred[k] = true
			f.d.log.Error("A window of the ledger is damaged: what belongs to it stays in the journal", "err", err)
			return nil
		}
		f.folding(k).held[by] = w
		return err
	}, selectWindows+" WHERE "+where, args...)
}

// folding returns a window that something is added to.
func (f *folder) folding(k windowKey) *folding {
	w := f.windows[k]
	if w == nil {
		w = &folding{}
		f.windows[k] = w
	}
	return w
}

// keys are sorted, so that rows are read and written in the order that they lie in.
func (f *folder) keys() []windowKey {
	return slices.SortedFunc(maps.Keys(f.windows), func(a, b windowKey) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.node, b.node))
	})
}

// standing returns whose window stands: an estimate only where no agent's booking tells of the window.
func (f *folder) standing(ctx context.Context, k windowKey, w *folding) (by int64, err error) {
	if w.fresh[byAgent] != nil || w.held[byAgent] != nil {
		return byAgent, nil
	}
	reached, err := f.reached(ctx, k)
	if err != nil || reached {
		return byAgent, err
	}
	return byEstimate, nil
}

// write decides which of agents' and estimates' windows stands, writes it and changes the sums by the difference.
func (f *folder) write(ctx context.Context) error {
	if err := f.writeReaches(ctx); err != nil {
		return err
	}
	sums := &summing{folder: f, sumsByKey: newBooks(), taken: map[int64]bool{}}
	var rows [][]any
	for _, k := range f.keys() {
		w := f.windows[k]
		by, err := f.standing(ctx, k, w)
		if err != nil {
			return err
		}
		if by == byAgent && w.held[byEstimate] != nil {
			if err := f.takeBack(ctx, w.held[byEstimate], sums); err != nil {
				return err
			}
		}
		fresh := w.fresh[by]
		if fresh == nil {
			continue // only an estimate for a window that an agent told of
		}
		if err := sums.add(fresh, f.account); err != nil {
			return err
		}
		now := w.held[by].plus(fresh)
		rows = append(rows, []any{now.Start, now.Node, by, now.encode()})
	}
	if err := f.s.upsert(ctx, "windows", []string{"start", "node", "agentless", "payload"}, 3, rows...); err != nil {
		return err
	}
	return sums.write(ctx)
}

// takeBack removes an estimate from everywhere.
func (f *folder) takeBack(ctx context.Context, w *window, sums *summing) error {
	if err := sums.add(w.negative(), f.account); err != nil {
		return err
	}
	sums.taken[w.Node] = true
	_, err := f.s.exec(ctx, "DELETE FROM windows WHERE node = $1 AND start = $2 AND agentless = $3", w.Node, w.Start,
		byEstimate)
	return err
}
