package sqlstore

import (
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
	"github.com/kubenergy/kubenergy/internal/sliceutil"
)

// A sumRow is the usage of an account or a node in an hour or a day. Rows of nodes do not include transfers.
type sumRow struct {
	start, id   int64
	at          unique.Handle[place] // only for nodes
	first, last int64
	ledger.Amount
}

// A block contains all rows of one table with the same start.
type block struct {
	version string // version of the day, or empty
	rows    []sumRow
	hosts   map[string]hours // for transfers: hours with bookings of the hosts
}

// hours is a bit set of the hours of a day, with an additional bit for the whole day.
type hours uint32

const dayBit = aDay / anHour

func (h hours) has(at int64) bool { return h>>((at-floorTo(at, aDay))/anHour)&1 != 0 }

// maxCached is the maximum number of cached rows, about 70 MB. It suffices for 20,000 accounts for a month.
const maxCached = 600_000

// blockCost is the overhead of a cached block, expressed in rows.
const blockCost = 4

// A blockCache caches blocks until their day changes. Each change of a day assigns a new version to it in meta.
type blockCache struct {
	mu     sync.Mutex
	blocks map[blockKey]*block
	rows   int
}

type blockKey struct {
	from  *sumTable // nil for transfers
	start int64
	late  bool // for transfers: hours are no longer retained
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

// put caches a block and evicts random blocks until the size limit is met.
func (c *blockCache) put(key blockKey, b *block) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.blocks == nil {
		c.blocks = map[blockKey]*block{}
	}
	c.forget(key)
	for other := range c.blocks { // the iteration order of maps is random
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

// dayKey returns the key in meta of the version of a day's sums. Transactions that modify these sums change the
// version.
func dayKey(day int64) string { return "day/" + strconv.FormatInt(day, 10) }

// touch assigns a new version to a day.
func (s *session) touch(day int64) { s.setMeta(dayKey(day), rand.Text()) }

// version returns the version of a day, or "" if the day has no sums. Because queries usually read many days,
// versions are read and cached for a month at a time. The transaction provides a consistent view.
func (r *reading) version(day int64) string {
	if v, ok := r.versions[day]; ok {
		return v
	}
	const ahead = 40 // more than a month
	keys := make([]string, ahead)
	versions := make(map[int64]string, ahead)
	for i := range keys {
		keys[i] = "'" + dayKey(day+int64(i)*aDay) + "'"
		versions[day+int64(i)*aDay] = ""
	}
	r.each("reading the versions of days", func(rows *sql.Rows) error {
		var key, value string
		if err := rows.Scan(&key, &value); err != nil {
			return err
		}
		at, err := strconv.ParseInt(strings.TrimPrefix(key, "day/"), 10, 64)
		versions[at] = value
		return err
	}, "SELECT key, value FROM meta WHERE key IN ("+strings.Join(keys, ", ")+")")
	if r.versions != nil { // nil if the transaction changes versions
		maps.Copy(r.versions, versions)
	}
	return versions[day]
}

// cached returns a block from the cache or loads it. The block must not be modified.
func (r *reading) cached(key blockKey, load func(*block)) *block {
	version := r.version(floorTo(key.start, aDay))
	if b := r.d.cache.get(key, version); b != nil && version != "" {
		return b
	}
	b := &block{version: version}
	if load(b); version != "" && r.err == nil {
		r.d.cache.put(key, b)
	}
	return b
}

// block returns the rows of a table with the given start.
func (r *reading) block(from *sumTable, start int64) *block {
	return r.cached(blockKey{from: from, start: start}, func(b *block) {
		where := "start = " + strconv.FormatInt(start, 10)
		if !from.nodes {
			where += " AND account NOT IN (" + transferAccounts + ")"
		}
		r.load(b, from, where)
	})
}

const transferAccounts = "SELECT id FROM accounts WHERE kind = 8" // ledger.Transfer

// load adds the rows of sums that match a condition to a block.
func (r *reading) load(b *block, from *sumTable, where string) {
	r.each("reading "+from.name, func(rows *sql.Rows) error {
		k, s, err := from.scan(rows)
		if err != nil {
			return err
		}
		if r.maxTransferred > 0 && !from.nodes && len(b.rows) >= maxScanned {
			return fmt.Errorf("%w: %w: more than %d sums with the same start: select a shorter interval",
				ledger.ErrQuery, ledger.ErrTooLarge, maxScanned)
		}
		row := sumRow{start: k.start, id: k.id, first: s.first, last: s.last, Amount: s.Amount}
		if from.nodes {
			row.at = unique.Make(k.place)
		}
		b.rows = append(b.rows, row)
		return nil
	}, from.selected()+" WHERE "+where)
}

func stamp(at int64) string { return time.Unix(at, 0).UTC().Format(time.RFC3339) }

// ids returns a comma-separated list of IDs.
func ids(all []int64) string {
	return strings.Join(sliceutil.Map(all, func(id int64) string { return strconv.FormatInt(id, 10) }), ",")
}

// listed is the maximum number of IDs in a statement.
const listed = 500

// beside is the number of rows to read at once, because adjacent rows are likely to be used as well.
const beside = 256

// account returns the account with the given row ID.
func (r *reading) account(id int64) (*ledger.Account, error) {
	return rowOf(r, &r.d.names.accountOf, id, "accounts", accountColumns, scanAccount)
}

// node returns the name of the node with the given row ID.
func (r *reading) node(id int64) (string, error) {
	return rowOf(r, &r.d.names.nodeOf, id, "nodes", "name", scanNode)
}

// rowOf returns the value of a row and caches it together with the adjacent rows. An error, which may concern only
// this row, does not fail the operation.
func rowOf[V any](r *reading, known *generations[int64, V], id int64, table, columns string,
	scan func(*sql.Rows) (int64, V, error),
) (V, error) {
	r.d.names.mu.Lock()
	v, ok := known.get(id)
	r.d.names.mu.Unlock()
	if ok || r.err != nil {
		return v, r.err
	}
	rows, err := r.tx.QueryContext(r.ctx, "SELECT id, "+columns+", crc FROM "+table+" WHERE id >= $1 AND id < $2", id,
		id+beside)
	err = ForEach(rows, err, func(rows *sql.Rows) error {
		of, one, err := scan(rows)
		if err != nil {
			if of != id && errors.Is(err, ledger.ErrDamaged) {
				return nil // another row is damaged, which is irrelevant here
			}
			return err
		}
		if of == id { // the cache may be cleared at any time
			v, ok = one, true
		}
		r.d.names.mu.Lock()
		defer r.d.names.mu.Unlock()
		known.put(of, one)
		return nil
	})
	if err != nil {
		return v, fmt.Errorf("reading %s: %w", table, err)
	}
	if !ok {
		return v, fmt.Errorf("%w: row %d of %s does not exist", ledger.ErrDamaged, id, table)
	}
	return v, nil
}

func scanNode(rows *sql.Rows) (id int64, name string, err error) {
	var crc int64
	err = rows.Scan(&id, &name, &crc)
	if err == nil && crc != rowCRC(name) {
		err = fmt.Errorf("%w: row of node %d", ledger.ErrDamaged, id)
	}
	return id, name, err
}

func scanAccount(rows *sql.Rows) (id int64, a *ledger.Account, err error) {
	a = new(ledger.Account)
	var crc int64
	err = rows.Scan(&id, &a.Kind, &a.Namespace, &a.OwnerKind, &a.Owner, &a.Parent, &a.Team, &a.Strategy, &a.Host,
		&a.Site, &a.Signal, &a.Currency, &crc)
	if err == nil && crc != rowCRC(accountRow(a)...) {
		err = fmt.Errorf("%w: row of account %d", ledger.ErrDamaged, id)
	}
	return id, a, err
}

// nodeIDs returns the row IDs of the nodes that exist, by name.
func (r *reading) nodeIDs(names []string) map[string]int64 {
	out := map[string]int64{}
	for _, name := range names {
		for _, id := range r.numbers("looking up node "+name, "SELECT id FROM nodes WHERE name = $1", name) {
			out[name] = id
		}
	}
	return out
}
