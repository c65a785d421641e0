package sqlstore

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"
	"time"
	"unique"

	"github.com/kubenergy/kubenergy/internal/ledger"
)

// A sumRow is what an account or a node used in an hour or a day. A node's lacks what is transferred from it.
type sumRow struct {
	start, id   int64
	at          unique.Handle[place] // of nodes
	first, last int64
	ledger.Amount
}

// A block is all rows of one table and beginning.
type block struct {
	version string // of the day; "": there is none
	rows    []sumRow
	hosts   map[string]hours // of transfers: when the hosts were booked
}

// hours are those of a day, one bit each, and one for the day as a whole.
type hours uint32

const dayBit = aDay / anHour

func (h hours) has(at int64) bool { return h>>((at-floorTo(at, aDay))/anHour)&1 != 0 }

// maxCached is how many rows of sums are kept in memory, about 70 MB: a month of 20,000 accounts.
const maxCached = 600_000

// blockCost is what a block costs besides its rows, in rows.
const blockCost = 4

// A blockCache keeps blocks as long as the days that they are of do not change: each change of a day gives it a new
// version in meta.
type blockCache struct {
	mu     sync.Mutex
	blocks map[blockKey]*block
	rows   int
}

type blockKey struct {
	from  *sumTable // nil: of transfers
	start int64
	late  bool // of transfers: hours are no longer kept
}

func (c *blockCache) get(key blockKey, version string) *block {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.blocks[key]
	if b == nil || b.version != version {
		return nil
	}
	return b
}

// put keeps a block, and forgets any others until all have room.
func (c *blockCache) put(key blockKey, b *block) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.blocks == nil {
		c.blocks = map[blockKey]*block{}
	}
	c.forget(key)
	for other := range c.blocks { // Go's maps are walked in random order
		if c.rows+len(b.rows)+blockCost <= maxCached {
			break
		}
		c.forget(other)
	}
	c.blocks[key] = b
	c.rows += len(b.rows) + blockCost
}

func (c *blockCache) forget(key blockKey) {
	if b := c.blocks[key]; b != nil {
		c.rows -= len(b.rows) + blockCost
		delete(c.blocks, key)
	}
}

// dayKey is the key in meta of the version of a day's sums. A transaction that changes any of them changes the version.
func dayKey(day int64) string { return "day/" + strconv.FormatInt(day, 10) }

// touch gives a day a new version, as its sums are changed.
func (d *DB) touch(ctx context.Context, s *session, day int64) error {
	return s.setMeta(ctx, dayKey(day), rand.Text())
}

// version returns that of a day; "" if it never had sums. A query asks for many days, so it asks for a month at a
// time and remembers them: its transaction sees one state of the store.
func (r *reading) version(day int64) (string, error) {
	if v, ok := r.versions[day]; ok {
		return v, nil
	}
	const ahead = 40 // a month takes one statement
	keys := make([]string, ahead)
	versions := make(map[int64]string, ahead)
	for i := range keys {
		keys[i] = "'" + dayKey(day+int64(i)*aDay) + "'"
		versions[day+int64(i)*aDay] = ""
	}
	err := r.each(func(rows *sql.Rows) error {
		var key, value string
		if err := rows.Scan(&key, &value); err != nil {
			return err
		}
		at, err := strconv.ParseInt(strings.TrimPrefix(key, "day/"), 10, 64)
		versions[at] = value
		return err
	}, "SELECT key, value FROM meta WHERE key IN ("+strings.Join(keys, ", ")+")")
	if err != nil {
		return "", fmt.Errorf("reading the versions of days: %w", err)
	}
	if r.versions != nil { // nil: the transaction changes them
		maps.Copy(r.versions, versions)
	}
	return versions[day], nil
}

// cached returns a block from memory, or loads it. It must not be changed.
func (r *reading) cached(key blockKey, load func(*block) error) (*block, error) {
	version, err := r.version(floorTo(key.start, aDay))
	if err != nil {
		return nil, err
	}
	if b := r.d.cache.get(key, version); b != nil && version != "" {
		return b, nil
	}
	b := &block{version: version}
	if err := load(b); err != nil {
		return nil, err
	}
	if version != "" {
		r.d.cache.put(key, b)
	}
	return b, nil
}

// block returns the rows of a table that begin at an instant.
func (r *reading) block(from *sumTable, start int64) (*block, error) {
	return r.cached(blockKey{from: from, start: start}, func(b *block) error {
		where := "start = " + strconv.FormatInt(start, 10)
		if !from.nodes {
			where += " AND account NOT IN (" + transferAccounts + ")"
		}
		return r.load(b, from, where)
	})
}

const transferAccounts = "SELECT id FROM accounts WHERE kind = 8" // ledger.Transfer

// load adds rows of sums to a block.
func (r *reading) load(b *block, from *sumTable, where string) error {
	err := r.each(func(rows *sql.Rows) error {
		k, s, err := from.scan(rows)
		if err != nil {
			return err
		}
		if r.maxTransferred > 0 && !from.nodes && len(b.rows) >= maxScanned {
			return fmt.Errorf("%w: %w: more than %d sums of one time: ask for less time", ledger.ErrQuery,
				ledger.ErrTooLarge, maxScanned)
		}
		row := sumRow{start: k.start, id: k.id, first: s.first, last: s.last, Amount: s.Amount}
		if from.nodes {
			row.at = unique.Make(k.place)
		}
		b.rows = append(b.rows, row)
		return nil
	}, from.selected()+" WHERE "+where)
	if err != nil {
		return fmt.Errorf("reading %s: %w", from.name, err)
	}
	return nil
}

func stamp(at int64) string { return time.Unix(at, 0).UTC().Format(time.RFC3339) }

// ids writes numbers as a list.
func ids(all []int64) string {
	texts := make([]string, len(all))
	for i, id := range all {
		texts[i] = strconv.FormatInt(id, 10)
	}
	return strings.Join(texts, ",")
}

// listed is how many numbers a statement lists.
const listed = 500

// beside is how many rows are read at once: who asks for one asks for those beside it.
const beside = 256

// account returns the account of a row.
func (r *reading) account(id int64) (*ledger.Account, error) {
	return rowOf(r, &r.d.names.accountOf, id, "accounts", accountColumns, scanAccount)
}

// node returns the name of a node.
func (r *reading) node(id int64) (string, error) {
	return rowOf(r, &r.d.names.nodeOf, id, "nodes", "name", scanNode)
}

// rowOf returns what a row of a table says, and remembers it and the rows beside it.
func rowOf[V any](r *reading, known *generations[int64, V], id int64, table, columns string,
	scan func(*sql.Rows) (int64, V, error),
) (V, error) {
	r.d.names.mu.Lock()
	v, ok := known.get(id)
	r.d.names.mu.Unlock()
	if ok {
		return v, nil
	}
	err := r.each(func(rows *sql.Rows) error {
		of, one, err := scan(rows)
		if err != nil {
			if of != id && errors.Is(err, ledger.ErrDamaged) {
				return nil // nothing depends on it here
			}
			return err
		}
		if of == id { // what is remembered may be forgotten at any time
			v, ok = one, true
		}
		r.d.names.mu.Lock()
		defer r.d.names.mu.Unlock()
		known.put(of, one)
		return nil
	}, "SELECT id, "+columns+", crc FROM "+table+" WHERE id >= $1 AND id < $2", id, id+beside)
	if err != nil {
		return v, fmt.Errorf("reading %s: %w", table, err)
	}
	if !ok {
		return v, fmt.Errorf("%w: row %d of %s is not there", ledger.ErrDamaged, id, table)
	}
	return v, nil
}

func scanNode(rows *sql.Rows) (id int64, name string, err error) {
	var crc int64
	err = rows.Scan(&id, &name, &crc)
	if err == nil && crc != rowCRC(name) {
		err = fmt.Errorf("%w: the row of node %d", ledger.ErrDamaged, id)
	}
	return id, name, err
}

func scanAccount(rows *sql.Rows) (id int64, a *ledger.Account, err error) {
	a = new(ledger.Account)
	var crc int64
	err = rows.Scan(&id, &a.Kind, &a.Namespace, &a.OwnerKind, &a.Owner, &a.Parent, &a.Team, &a.Strategy, &a.Host,
		&a.Site, &a.Signal, &a.Currency, &crc)
	if err == nil && crc != rowCRC(accountRow(a)...) {
		err = fmt.Errorf("%w: the row of account %d", ledger.ErrDamaged, id)
	}
	return id, a, err
}

// nodeIDs returns the rows of nodes, by name; of those that are there.
func (r *reading) nodeIDs(names []string) (map[string]int64, error) {
	out := map[string]int64{}
	for _, name := range names {
		found, err := r.numbers("SELECT id FROM nodes WHERE name = $1", name)
		if err != nil {
			return nil, fmt.Errorf("looking for node %s: %w", name, err)
		}
		for _, id := range found {
			out[name] = id
		}
	}
	return out, nil
}
