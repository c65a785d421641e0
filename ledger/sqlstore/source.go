package sqlstore

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/kubenergy/kubenergy/energy"
	"github.com/kubenergy/kubenergy/ledger"
)

// sums are a table of sums.
type sums struct {
	nodes, days, transfers bool
}

func sumsOf(nodes, days bool) sums { return sums{nodes: nodes, days: days} }

func (s sums) table() string {
	switch {
	case s.nodes && s.days:
		return "node_days"
	case s.nodes:
		return "node_hours"
	case s.days:
		return "account_days"
	}
	return "account_hours"
}

// A sumRow is what an account or a node used in an hour or a day. A node's lacks what is transferred from it.
type sumRow struct {
	start, id   int64
	at          *place // of nodes
	first, last int64
	ledger.Amount
}

// A place is where a node was; equal ones are the same.
type place struct{ host, site, signal, currency string }

// A block is all rows of one table and beginning.
type block struct {
	rows  []sumRow
	hosts map[string]hours // of transfers: when the hosts were booked
}

// hours are those of a day, one bit each.
type hours uint32

func (h hours) has(at int64) bool { return h>>(floorMod(at, aDay)/anHour)&1 != 0 }

func floorMod(a, b int64) int64 { return a - floorTo(a, b) }

// mostCached is how many rows of sums are kept in memory, about 70 MB: a month of 20,000 accounts.
const mostCached = 600_000

// blockCost is what a block costs besides its rows, in rows.
const blockCost = 4

// A blockCache keeps blocks as long as the days that they are of do not change: each change of a day gives it a new
// version in meta.
type blockCache struct {
	mu     sync.Mutex
	blocks map[blockKey]*cached
	rows   int
	clock  uint64
	nodes  map[int64]string
	places map[place]*place
}

type blockKey struct {
	from  sums
	start int64
}

type cached struct {
	version string
	block   *block
	used    uint64
}

func (c *blockCache) get(key blockKey, version string) *block {
	c.mu.Lock()
	defer c.mu.Unlock()
	have := c.blocks[key]
	if have == nil || have.version != version {
		return nil
	}
	c.clock++
	have.used = c.clock
	return have.block
}

func (c *blockCache) put(key blockKey, version string, b *block) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.blocks == nil {
		c.blocks = map[blockKey]*cached{}
	}
	if old := c.blocks[key]; old != nil {
		c.rows -= len(old.block.rows) + blockCost
	}
	c.clock++
	c.blocks[key] = &cached{version, b, c.clock}
	if c.rows += len(b.rows) + blockCost; c.rows <= mostCached {
		return
	}
	keys := make([]blockKey, 0, len(c.blocks))
	for k := range c.blocks {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b blockKey) int { return int(int64(c.blocks[a].used - c.blocks[b].used)) })
	for _, k := range keys {
		if c.rows <= mostCached-mostCached/8 { // so that it is not sorted each time
			return
		}
		c.rows -= len(c.blocks[k].block.rows) + blockCost
		delete(c.blocks, k)
	}
}

// place returns the one place that is equal to p.
func (c *blockCache) place(p place) *place {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.places[p]; known != nil {
		return known
	}
	const most = 100_000
	if c.places == nil || len(c.places) > most {
		c.places = map[place]*place{}
	}
	c.places[p] = &p
	return &p
}

// dayKey is the key in meta of the version of a day's sums. Whoever changes any of them changes it, in the same
// transaction.
func dayKey(day int64) string { return "day/" + strconv.FormatInt(day, 10) }

// touch gives a day a new version, as its sums are changed.
func (d *DB) touch(ctx context.Context, s *session, day int64) error {
	return setMeta(ctx, s, dayKey(day), rand.Text())
}

// version returns that of a day; "" if it never had sums.
func (r *reading) version(day int64) (string, error) {
	if v, ok := r.versions[day]; ok {
		return v, nil
	}
	const ahead = 40 // a month takes one statement
	keys := make([]string, ahead)
	for i := range keys {
		at := day + int64(i)*aDay
		keys[i] = "'" + dayKey(at) + "'"
		r.versions[at] = ""
	}
	err := r.each(func(rows *sql.Rows) error {
		var key, value string
		if err := rows.Scan(&key, &value); err != nil {
			return err
		}
		at, err := strconv.ParseInt(strings.TrimPrefix(key, "day/"), 10, 64)
		r.versions[at] = value
		return err
	}, "SELECT key, value FROM meta WHERE key IN ("+strings.Join(keys, ", ")+")")
	if err != nil {
		return "", fmt.Errorf("reading versions of days: %w", err)
	}
	return r.versions[day], nil
}

// block returns the rows of a table that begin at an instant. They must not be changed.
func (r *reading) block(from sums, start int64) (*block, error) {
	version, err := r.version(floorTo(start, aDay))
	if err != nil {
		return nil, err
	}
	key := blockKey{from, start}
	if b := r.d.cache.get(key, version); b != nil && version != "" {
		return b, nil
	}
	b := &block{}
	if from.nodes {
		err = r.loadNodes(b, from, start)
	} else {
		err = r.loadAccounts(b, from.table(), "start = "+strconv.FormatInt(start,
			10)+" AND account NOT IN ("+transferAccounts+")")
	}
	if err != nil {
		return nil, err
	}
	if version != "" {
		r.d.cache.put(key, version, b)
	}
	return b, nil
}

const transferAccounts = "SELECT id FROM accounts WHERE kind = 8" // ledger.Transfer

// loadAccounts adds rows of sums by account to a block.
func (r *reading) loadAccounts(b *block, table, where string) error {
	err := r.each(func(rows *sql.Rows) error {
		s, err := scanAccountSum(rows)
		if err != nil {
			return err
		}
		if r.mostTransferred > 0 && len(b.rows) >= mostScanned {
			return fmt.Errorf("%w: %w: more than %d sums of one time: ask for less time", ledger.ErrQuery,
				ledger.ErrTooLarge, mostScanned)
		}
		b.rows = append(b.rows, sumRow{start: s.start, id: s.account, first: s.first, last: s.last, Amount: s.Amount})
		return nil
	}, "SELECT "+columnList(accountSumColumns)+" FROM "+table+" WHERE "+where)
	if err != nil {
		return fmt.Errorf("reading %s: %w", table, err)
	}
	return nil
}

func scanAccountSum(rows *sql.Rows) (*accountSum, error) {
	var s accountSum
	var crc int64
	err := rows.Scan(&s.start, &s.account, (*int64)(&s.Dynamic), (*int64)(&s.Idle), (*int64)(&s.CPU),
		(*int64)(&s.Facility),
		(*int64)(&s.Carbon), (*int64)(&s.Cost), (*int64)(&s.Estimated), (*int64)(&s.Uncharted), (*int64)(&s.Unpriced),
		&s.first, &s.last, &crc)
	if err == nil && crc != s.crc() {
		err = fmt.Errorf("%w: the sum of account %d at %s", ledger.ErrDamaged, s.account, stamp(s.start))
	}
	return &s, err
}

func stamp(at int64) string { return time.Unix(at, 0).UTC().Format(time.RFC3339) }

func (r *reading) loadNodes(b *block, from sums, start int64) error {
	err := r.each(func(rows *sql.Rows) error {
		k, s, err := scanNodeSum(rows)
		if err != nil {
			return err
		}
		b.rows = append(b.rows, sumRow{
			start: k.start, id: k.node, first: s.first, last: s.last, Amount: s.amount(),
			at: r.d.cache.place(place{k.host, k.site, k.signal, k.currency}),
		})
		return nil
	}, "SELECT "+columnList(nodeSumColumns)+" FROM "+from.table()+" WHERE start = $1", start)
	if err != nil {
		return fmt.Errorf("reading %s: %w", from.table(), err)
	}
	return nil
}

func scanNodeSum(rows *sql.Rows) (*nodeKey, *nodeSum, error) {
	var k nodeKey
	var s nodeSum
	var crc int64
	err := rows.Scan(&k.start, &k.node, &k.host, &k.site, &k.signal, &k.currency, &s.measured, &s.dynamic, &s.shared,
		&s.cpu, &s.idle, &s.platform,
		&s.unknown, &s.facility, &s.carbon, &s.cost, &s.estimated, &s.uncharted, &s.unpriced, &s.unmeasured, &s.first,
		&s.last, &crc)
	if err == nil && crc != s.crc(&k) {
		err = fmt.Errorf("%w: the sum of node %d at %s", ledger.ErrDamaged, k.node, stamp(k.start))
	}
	return &k, &s, err
}

func columnList(columns []string) string { return strings.Join(columns, ", ") }

// ids writes numbers as a list.
func ids(all []int64) string {
	var b strings.Builder
	for i, id := range all {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.FormatInt(id, 10))
	}
	return b.String()
}

// listed is how many numbers a statement lists.
const listed = 500

// account returns the account of a row.
func (r *reading) account(id int64) (*ledger.Account, error) {
	n := &r.d.names
	n.mu.Lock()
	a, ok := n.byID.get(id)
	n.mu.Unlock()
	if ok {
		return a, nil
	}
	// Whoever asks for one asks for those beside it.
	const beside = 256
	found, err := r.loadNames("id >= $1 AND id < $2", id, id+beside)
	if err != nil {
		return nil, err
	}
	if a = found[id]; a == nil { // what is remembered may be forgotten at any time
		return nil, fmt.Errorf("%w: account %d is not there", ledger.ErrDamaged, id)
	}
	return a, nil
}

// loadNames reads accounts by their rows, and remembers them.
func (r *reading) loadNames(where string, args ...any) (found map[int64]*ledger.Account, err error) {
	found = map[int64]*ledger.Account{}
	err = r.each(func(rows *sql.Rows) error {
		id, a, err := scanAccount(rows)
		if err != nil {
			return err
		}
		found[id] = a
		r.d.names.mu.Lock()
		r.d.names.byID.put(id, a)
		r.d.names.mu.Unlock()
		return nil
	}, "SELECT id, "+accountColumns+", crc FROM accounts WHERE "+where, args...)
	if err != nil {
		return nil, fmt.Errorf("reading accounts: %w", err)
	}
	return found, nil
}

func scanAccount(rows *sql.Rows) (id int64, a *ledger.Account, err error) {
	a = new(ledger.Account)
	var crc int64
	err = rows.Scan(&id, &a.Kind, &a.Namespace, &a.OwnerKind, &a.Owner, &a.Parent, &a.Team, &a.Strategy, &a.Host,
		&a.Site, &a.Signal, &a.Currency, &crc)
	if err == nil && crc != accountCRC(a) {
		err = fmt.Errorf("%w: the row of account %d", ledger.ErrDamaged, id)
	}
	return id, a, err
}

// node returns the name of a node.
func (r *reading) node(id int64) (string, error) {
	c := &r.d.cache
	c.mu.Lock()
	name, ok := c.nodes[id]
	c.mu.Unlock()
	if ok {
		return name, nil
	}
	const beside = 1024
	found := map[int64]string{}
	err := r.each(func(rows *sql.Rows) error {
		var at, crc int64
		var name string
		if err := rows.Scan(&at, &name, &crc); err != nil {
			return err
		}
		if crc != nodeCRC(name) {
			return fmt.Errorf("%w: the row of node %d", ledger.ErrDamaged, at)
		}
		found[at] = name
		return nil
	}, "SELECT id, name, crc FROM nodes WHERE id >= $1 AND id < $2", id, id+beside)
	if err != nil {
		return "", fmt.Errorf("reading nodes: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.nodes == nil || len(c.nodes) > mostAccounts {
		c.nodes = map[int64]string{}
	}
	maps.Copy(c.nodes, found)
	if name, ok = found[id]; !ok {
		return "", fmt.Errorf("%w: node %d is not there", ledger.ErrDamaged, id)
	}
	return name, nil
}

// nodeIDs returns the rows of nodes, by name; of those that are there.
func (r *reading) nodeIDs(names []string) (map[string]int64, error) {
	out := map[string]int64{}
	for _, name := range names {
		var id int64
		err := r.tx.QueryRowContext(r.ctx, "SELECT id FROM nodes WHERE name = $1", name).Scan(&id)
		if errors.Is(err, sql.ErrNoRows) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("looking for node %s: %w", name, err)
		}
		out[name] = id
	}
	return out, nil
}

// amount is what a node used, by all accounts but what is transferred.
func (s *nodeSum) amount() ledger.Amount {
	return ledger.Amount{
		Dynamic: energy.Microjoules(s.dynamic + s.idle + s.platform + s.unknown), Idle: energy.Microjoules(s.shared),
		CPU:      time.Duration(s.cpu),
		Facility: energy.Microjoules(s.facility), Carbon: ledger.Micrograms(s.carbon), Cost: ledger.Nanos(s.cost),
		Estimated: energy.Microjoules(s.estimated), Uncharted: energy.Microjoules(s.uncharted),
		Unpriced:   energy.Microjoules(s.unpriced),
		Unmeasured: time.Duration(s.unmeasured),
	}
}
