package sqlstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/kubenergy/kubenergy/ledger"
)

// What one call of Fold takes from the journal, at most: so much is in memory at once, and so long others wait.
const (
	foldEntries  = 8192
	foldBytes    = 32 << 20
	foldPostings = 1_000_000
)

// Fold implements [ledger.Store].
func (d *DB) Fold(ctx context.Context) (int, error) {
	left := 0
	err := d.update(ctx, func(ctx context.Context, s *session) error {
		var err error
		left, err = d.fold(ctx, s)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("folding the journal: %w", err)
	}
	return left, nil
}

func (d *DB) fold(ctx context.Context, s *session) (int, error) {
	if d.dialect.TryFold != "" { // one folds at a time
		var mine bool
		if _, err := s.one(ctx, d.dialect.TryFold, nil, &mine); err != nil || !mine {
			return 0, err
		}
	}
	if d.dialect.ForUpdate != "" { // and none while what is old is dropped
		var one string
		if _, err := s.one(ctx, "SELECT value FROM meta WHERE key = 'schema'"+d.dialect.ForUpdate, nil, &one); err != nil {
			return 0, err
		}
	}
	entries, whole, err := d.unfolded(ctx, s)
	if err != nil {
		return 0, err
	}
	var f *folder
	var taken []int64
	for barred := map[windowKey]bool{}; ; {
		f = &folder{d: d, s: s, windows: map[windowKey]*folding{}, barred: barred}
		taken = f.collect(entries)
		known := len(barred)
		if err := f.load(ctx); err != nil {
			return 0, err
		}
		if len(barred) == known {
			break
		} // the rows of some windows are damaged: nothing is added to them, so what would be stays in the journal
	}
	if err := f.write(ctx); err != nil {
		return 0, err
	}
	if err := forget(ctx, s, taken); err != nil {
		return 0, err
	}
	if whole {
		left := len(entries) - len(taken)
		return left, d.stays(ctx, s, len(taken))
	}
	left := 0
	_, err = s.one(ctx, "SELECT count(*) FROM journal", nil, &left)
	return left, err
}

// stays remembers what a fold could not move: the next query need not try again.
func (d *DB) stays(ctx context.Context, s *session, moved int) error {
	d.stuck.Store(nil)
	if moved > 0 {
		return nil
	}
	var b backlog
	_, err := s.one(ctx, "SELECT COUNT(*), COALESCE(MAX(id), 0) FROM journal", nil, &b.entries, &b.last)
	if err == nil && b.entries > 0 {
		d.stuck.Store(&b)
	}
	return err
}

// unfolded reads the oldest entries; whole says that there are no others. Entries that are damaged stay where they are.
func (d *DB) unfolded(ctx context.Context, s *session) (entries []*entry, whole bool, err error) {
	rows, err := s.query(ctx, "SELECT id, node, start, finish, payload FROM journal ORDER BY id LIMIT $1", int64(foldEntries))
	if err != nil {
		return nil, false, err
	}
	defer rows.Close()
	bytes, postings, read := 0, 0, 0
	for rows.Next() {
		var id, node, start, finish int64
		var payload []byte
		if err := rows.Scan(&id, &node, &start, &finish, &payload); err != nil {
			return nil, false, err
		}
		read++
		e, err := decodeEntry(id, node, start, finish, payload)
		if err != nil {
			d.log.Error("An entry of the ledger's journal is damaged: it is left out", "err", err)
			continue
		}
		entries = append(entries, e)
		bytes += len(payload)
		postings += e.postings()
		if bytes > foldBytes || postings > foldPostings {
			break
		}
	}
	return entries, read < foldEntries && bytes <= foldBytes && postings <= foldPostings, errors.Join(rows.Err(), rows.Close())
}

// forget deletes entries, in runs of numbers that follow each other.
func forget(ctx context.Context, s *session, ids []int64) error {
	for len(ids) > 0 {
		n := 1
		for n < len(ids) && ids[n] == ids[n-1]+1 {
			n++
		}
		if _, err := s.exec(ctx, "DELETE FROM journal WHERE id >= $1 AND id <= $2", ids[0], ids[n-1]); err != nil {
			return err
		}
		ids = ids[n:]
	}
	return nil
}

type windowKey struct{ node, start int64 }

// A folding is a window that something is added to: what it held, and what is new, both by agents and by estimates without one.
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
	rows, err := f.s.query(ctx, "SELECT agentless, payload FROM windows WHERE node = $1 AND start = $2", k.node, k.start)
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
	slices.SortFunc(keys, func(a, b windowKey) int { return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.node, b.node)) })
	return keys
}

var windowColumns = []string{"start", "node", "agentless", "payload"}

// write decides which of agents' and estimates' windows stands, writes it and changes the sums by the difference.
func (f *folder) write(ctx context.Context) error {
	sums := &summing{folder: f, accounts: map[accountKey]*accountSum{}, nodes: map[nodeKey]*nodeSum{}, taken: map[int64]bool{}}
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
	_, err := f.s.exec(ctx, "DELETE FROM windows WHERE node = $1 AND start = $2 AND agentless = $3", w.Node, w.Start, int64(byEstimate))
	return err
}
