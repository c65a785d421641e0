package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"

	"github.com/kubenergy/kubenergy/ledger"
)

// What one transaction takes from the journal, at most: so much is in memory at once, and so long others wait. Where
// only one transaction writes at a time, bookings wait for it, so it is short; where not, few long ones write the
// same sums less often.
const (
	foldAlone    = 1024 // entries, where nobody else writes
	foldBeside   = 8192
	foldBytes    = 32 << 20
	foldPostings = 1_000_000

	foldAtOnce = 1 << 16 // entries that one call of Fold looks at
)

// Fold implements [ledger.Store]. Each of its transactions folds what the journal holds of some nodes: most of what a
// transaction writes is a node's, and is then written once.
func (d *DB) Fold(ctx context.Context) (int, error) {
	b, err := d.backlog(ctx)
	if err != nil {
		return 0, fmt.Errorf("reading what is to be folded: %w", err)
	}
	d.stuck.Store(nil)
	moved := 0
	for part := range b.parts(d.dialect.Writers > 1) {
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

// A backlog is what the journal holds: of each entry its node, in the order of the nodes.
type backlog struct {
	size
	waiting []waiting
}

type size struct{ entries, last int64 }

type waiting struct{ id, node, bytes int64 }

// backlog reads what the journal holds, the oldest entries if they are too many.
func (d *DB) backlog(ctx context.Context) (*backlog, error) {
	tx, err := d.reads.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return nil, err
	}
	defer tx.Rollback() //nolint:errcheck // nothing was written
	b := &backlog{}
	if b.size, err = sizeOf(ctx, tx); err != nil || b.entries == 0 {
		return b, err
	}
	rows, err := tx.QueryContext(ctx, "SELECT id, node, LENGTH(payload) FROM journal ORDER BY id LIMIT $1",
		int64(foldAtOnce))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	b.waiting = make([]waiting, 0, min(b.entries, foldAtOnce))
	for rows.Next() {
		var w waiting
		if err := rows.Scan(&w.id, &w.node, &w.bytes); err != nil {
			return nil, err
		}
		b.waiting = append(b.waiting, w)
	}
	slices.SortFunc(b.waiting, func(a, b waiting) int {
		return cmp.Or(cmp.Compare(a.node, b.node), cmp.Compare(a.id, b.id))
	})
	return b, errors.Join(rows.Err(), rows.Close())
}

// sizeOf tells how much the journal holds.
func sizeOf(ctx context.Context, from querier) (s size, err error) {
	err = from.QueryRowContext(ctx, "SELECT COUNT(*), COALESCE(MAX(id), 0) FROM journal").Scan(&s.entries, &s.last)
	return s, err
}

// parts yields the numbers of the entries that one transaction folds. beside says that others write at the same time.
func (b *backlog) parts(beside bool) iter.Seq[[]int64] {
	most := foldAlone
	if beside {
		most = foldBeside
	}
	return func(yield func([]int64) bool) {
		var part []int64
		bytes := int64(0)
		for i, w := range b.waiting {
			// A node stays in one part, but for one that fills several.
			another := i > 0 && w.node != b.waiting[i-1].node
			if len(part) >= foldBeside || bytes >= foldBytes || another && (len(part) >= most || bytes >= foldBytes/2) {
				if !yield(part) {
					return
				}
				part, bytes = nil, 0
			}
			part = append(part, w.id)
			bytes += w.bytes
		}
		if len(part) > 0 {
			yield(part)
		}
	}
}

// fold folds some entries, if this process is the one that folds, and returns how many it could.
func (d *DB) fold(ctx context.Context, s *session, ids []int64) (taken int, mine bool, err error) {
	mine = true
	if d.dialect.TryFold != "" { // one folds at a time
		if _, err := s.one(ctx, d.dialect.TryFold, nil, &mine); err != nil || !mine {
			return 0, false, err
		}
	}
	if d.dialect.ForUpdate != "" { // and none while what is old is dropped
		var one string
		if _, err := s.one(ctx, "SELECT value FROM meta WHERE key = 'schema'"+d.dialect.ForUpdate, nil,
			&one); err != nil {
			return 0, false, err
		}
	}
	entries, err := d.unfolded(ctx, s, ids)
	if err != nil {
		return 0, false, err
	}
	var f *folder
	var done []int64
	for barred := map[windowKey]bool{}; ; {
		f = &folder{d: d, s: s, windows: map[windowKey]*folding{}, barred: barred}
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
	return len(done), true, forget(ctx, s, done)
}

// unfolded reads entries. Those that are damaged stay where they are, and so do some if they are in very many windows.
func (d *DB) unfolded(ctx context.Context, s *session, ids []int64) (entries []*entry, err error) {
	postings := 0
	for some := range fewAtOnce(ids) {
		rows, err := s.query(ctx, "SELECT id, node, start, finish, payload FROM journal WHERE id IN "+list(len(some)),
			some...)
		if err != nil {
			return nil, err
		}
		if entries, err = d.decoded(rows, entries, &postings); err != nil {
			return nil, err
		}
		if postings > foldPostings {
			break
		}
	}
	return entries, nil
}

// decoded appends what rows hold.
func (d *DB) decoded(rows *sql.Rows, entries []*entry, postings *int) ([]*entry, error) {
	defer rows.Close()
	for rows.Next() && *postings <= foldPostings {
		var id, node, start, finish int64
		var payload []byte
		if err := rows.Scan(&id, &node, &start, &finish, &payload); err != nil {
			return nil, err
		}
		e, err := decodeEntry(id, node, start, finish, payload)
		if err != nil {
			d.log.Error("An entry of the ledger's journal is damaged: it is left out", "err", err)
			continue
		}
		entries = append(entries, e)
		*postings += e.postings()
	}
	return entries, errors.Join(rows.Err(), rows.Close())
}

// forget deletes entries.
func forget(ctx context.Context, s *session, ids []int64) error {
	for some := range fewAtOnce(ids) {
		if _, err := s.exec(ctx, "DELETE FROM journal WHERE id IN "+list(len(some)), some...); err != nil {
			return err
		}
	}
	return nil
}

// fewAtOnce yields numbers as parameters of a statement: as many as are inserted at once, and then one by one, so
// that there are two texts of the statement, not many.
func fewAtOnce(ids []int64) iter.Seq[[]any] {
	return func(yield func([]any) bool) {
		for len(ids) > 0 {
			n := rowsAtOnce
			if len(ids) < n {
				n = 1
			}
			some := make([]any, n)
			for i, id := range ids[:n] {
				some[i] = id
			}
			if !yield(some) {
				return
			}
			ids = ids[n:]
		}
	}
}

// list returns the text of so many parameters, ($1, $2, …).
func list(n int) string {
	b := []byte("($1")
	for i := 2; i <= n; i++ {
		b = strconv.AppendInt(append(b, ", $"...), int64(i), 10)
	}
	return string(append(b, ')'))
}

type windowKey struct{ node, start int64 }

// A folding is a window that something is added to: what it held, and what is new, both by agents and by estimates
// without one.
type folding struct {
	held  [2]*window // nil: there is no row
	fresh [2]*window
}

const (
	byAgent    = 0
	byEstimate = 1
)

type folder struct {
	d       *DB
	s       *session
	windows map[windowKey]*folding
	barred  map[windowKey]bool
	long    map[int64][]reach // of nodes: see long.go
	longer  map[int64][]reach // of them, what is new
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
			k := windowKey{w.Node, w.Start}
			to := f.windows[k]
			if to == nil {
				to = &folding{}
				f.windows[k] = to
			}
			by := byAgent
			if w.Agentless {
				by = byEstimate
			}
			to.fresh[by] = to.fresh[by].plus(w)
		})
	}
	return taken
}

// load reads the rows of the windows. Those that are damaged are barred.
func (f *folder) load(ctx context.Context) error {
	for _, k := range f.keys() {
		if err := f.loadWindow(ctx, k, f.windows[k]); errors.Is(err, ledger.ErrDamaged) {
			f.barred[k] = true
			f.d.log.Error("A window of the ledger is damaged: what belongs to it stays in the journal", "err", err)
		} else if err != nil {
			return err
		}
	}
	return f.loadLong(ctx)
}

func (f *folder) loadWindow(ctx context.Context, k windowKey, into *folding) error {
	rows, err := f.s.query(ctx, "SELECT agentless, payload FROM windows WHERE node = $1 AND start = $2", k.node,
		k.start)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var by int64
		var payload []byte
		if err := rows.Scan(&by, &payload); err != nil {
			return err
		}
		w, err := decodeWindow(k.start, k.node, by == byEstimate, payload)
		if err != nil {
			return err
		}
		into.held[by&byEstimate] = w
	}
	return errors.Join(rows.Err(), rows.Close())
}

// keys are sorted, so that rows are read and written in the order that they lie in.
func (f *folder) keys() []windowKey {
	keys := make([]windowKey, 0, len(f.windows))
	for k := range f.windows {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b windowKey) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.node, b.node))
	})
	return keys
}

var windowColumns = []string{"start", "node", "agentless", "payload"}

// write decides which of agents' and estimates' windows stands, writes it and changes the sums by the difference.
func (f *folder) write(ctx context.Context) error {
	sums := &summing{
		folder: f, accounts: map[accountKey]*accountSum{}, nodes: map[nodeKey]*nodeSum{}, taken: map[int64]bool{},
	}
	var rows [][]any
	for _, k := range f.keys() {
		w := f.windows[k]
		by := byAgent
		if w.fresh[byAgent] == nil && w.held[byAgent] == nil && !f.reached(k) {
			by = byEstimate
		} else if w.held[byEstimate] != nil {
			if err := f.takeBack(ctx, w.held[byEstimate], sums); err != nil {
				return err
			}
		}
		fresh := w.fresh[by]
		if fresh == nil {
			continue // only an estimate for a window that an agent told of
		}
		if err := sums.add(ctx, fresh); err != nil {
			return err
		}
		now := w.held[by].plus(fresh)
		rows = append(rows, []any{now.Start, now.Node, int64(by), now.encode()})
	}
	const replace = "ON CONFLICT (node, start, agentless) DO UPDATE SET payload = excluded.payload"
	if err := f.s.insert(ctx, "windows", windowColumns, rows, replace); err != nil {
		return err
	}
	if err := f.writeLong(ctx); err != nil {
		return err
	}
	return sums.write(ctx)
}

// takeBack removes an estimate from everywhere.
func (f *folder) takeBack(ctx context.Context, w *window, sums *summing) error {
	if err := sums.add(ctx, w.negative()); err != nil {
		return err
	}
	sums.taken[w.Node] = true
	_, err := f.s.exec(ctx, "DELETE FROM windows WHERE node = $1 AND start = $2 AND agentless = $3", w.Node, w.Start,
		int64(byEstimate))
	return err
}
