package sqlstore

import (
	"cmp"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/ledger"
)

// Durations in seconds.
const (
	anHour = int64(3600)
	aDay   = 24 * anHour
)

// Indexes of the fields of an amount, in the order of [ledger.Amount.Fields].
const (
	dynamic = iota
	idle
	cpu
	facility
	carbon
	cost
	estimated
	uncharted
	unpriced
	unmeasured
	gpu
	fields
)

// A sumTable is one of the four tables of sums.
type sumTable struct {
	name    string
	step    int64    // duration covered by a row, in seconds
	nodes   bool     // whether rows are by node instead of by account
	keys    []string // key columns
	columns []string // all columns
}

var (
	accountKeys   = []string{"start", "account"}
	nodeKeys      = []string{"start", "node", "host", "site", "signal", "currency"}
	accountValues = []string{
		"dynamic", "idle", "cpu", "facility", "carbon", "cost", "estimated", "uncharted", "unpriced", "first", "last",
		"gpu", "crc",
	}
	nodeValues = []string{
		"measured", "dynamic", "shared", "cpu", "idle", "platform", "unknown", "facility", "carbon", "cost",
		"estimated", "uncharted", "unpriced", "unmeasured", "first", "last", "gpu", "crc",
	}

	// sumTables contains the tables in the order in which they are written.
	sumTables = [...]*sumTable{
		{"account_hours", anHour, false, accountKeys, slices.Concat(accountKeys, accountValues)},
		{"node_hours", anHour, true, nodeKeys, slices.Concat(nodeKeys, nodeValues)},
		{"account_days", aDay, false, accountKeys, slices.Concat(accountKeys, accountValues)},
		{"node_days", aDay, true, nodeKeys, slices.Concat(nodeKeys, nodeValues)},
	}
)

func sumsOf(nodes, days bool) *sumTable {
	i := slices.IndexFunc(sumTables[:], func(t *sumTable) bool { return t.nodes == nodes && (t.step == aDay) == days })
	return sumTables[i]
}

// A sumKey is the key of a row of sums, which is an account, or a node in a place.
type sumKey struct {
	start, id int64
	place     // only for nodes
}

// A place is the location of a node.
type place struct{ host, site, signal, currency string }

func (k sumKey) compare(o sumKey) int {
	return cmp.Or(cmp.Compare(k.start, o.start), cmp.Compare(k.id, o.id), cmp.Compare(k.host, o.host),
		cmp.Compare(k.site, o.site), cmp.Compare(k.signal, o.signal), cmp.Compare(k.currency, o.currency))
}

// A sum contains the values of a row.
type sum struct {
	ledger.Amount                                 // for nodes: without transfers, and Idle is shared by consumers
	ownIdle, platform, unknown energy.Microjoules // for nodes: parts of Dynamic in the node's own accounts
	first, last                int64              // in Unix seconds
}

// empty reports whether all amounts are 0, because everything was revoked.
func (s *sum) empty() bool { return *s == sum{first: s.first, last: s.last} }

func (s *sum) extend(first, last int64) { s.first, s.last = min(s.first, first), max(s.last, last) }

func (s *sum) merge(o *sum) {
	s.Add(&o.Amount)
	s.ownIdle += o.ownIdle
	s.platform += o.platform
	s.unknown += o.unknown
	s.extend(o.first, o.last)
}

// post adds the amount of an account of the given kind to the sum of a node.
func (s *sum) post(kind ledger.Kind, a *ledger.Amount) {
	if kind == ledger.Transfer {
		return // transfers belong to the host
	}
	s.Add(a)
	switch kind {
	case ledger.Idle, ledger.Asleep, ledger.Booting:
		s.ownIdle += a.Energy()
	case ledger.Platform:
		s.platform += a.Energy()
	case ledger.Unknown:
		s.unknown += a.Energy()
	default:
		return
	}
	s.Dynamic, s.Idle = s.Dynamic+a.Idle, s.Idle-a.Idle
}

// row returns the columns of a row except its checksum.
func (t *sumTable) row(k *sumKey, s *sum) []any {
	if !t.nodes {
		return []any{
			k.start, k.id, int64(s.Dynamic), int64(s.Idle), int64(s.CPU), int64(s.Facility), int64(s.Carbon),
			int64(s.Cost), int64(s.Estimated), int64(s.Uncharted), int64(s.Unpriced), s.first, s.last, int64(s.GPU),
		}
	}
	return []any{
		k.start, k.id, k.host, k.site, k.signal, k.currency, int64(s.Energy()),
		int64(s.Dynamic - s.ownIdle - s.platform - s.unknown), int64(s.Idle), int64(s.CPU), int64(s.ownIdle),
		int64(s.platform), int64(s.unknown), int64(s.Facility), int64(s.Carbon), int64(s.Cost), int64(s.Estimated),
		int64(s.Uncharted), int64(s.Unpriced), int64(s.Unmeasured), s.first, s.last, int64(s.GPU),
	}
}

// selected returns a SELECT statement without a condition.
func (t *sumTable) selected() string {
	return "SELECT " + strings.Join(t.columns, ", ") + " FROM " + t.name
}

// scan reads a row. If the row is damaged, it returns both its content and [ledger.ErrDamaged].
func (t *sumTable) scan(rows *sql.Rows) (k sumKey, s sum, err error) {
	var measured, crc int64
	f := s.Fields()
	own := [...]*int64{(*int64)(&s.ownIdle), (*int64)(&s.platform), (*int64)(&s.unknown)}
	if t.nodes {
		err = rows.Scan(&k.start, &k.id, &k.host, &k.site, &k.signal, &k.currency, &measured, f[dynamic], f[idle],
			f[cpu], own[0], own[1], own[2], f[facility], f[carbon], f[cost], f[estimated], f[uncharted], f[unpriced],
			f[unmeasured], &s.first, &s.last, f[gpu], &crc)
		s.Dynamic += s.ownIdle + s.platform + s.unknown
	} else {
		err = rows.Scan(&k.start, &k.id, f[dynamic], f[idle], f[cpu], f[facility], f[carbon], f[cost], f[estimated],
			f[uncharted], f[unpriced], &s.first, &s.last, f[gpu], &crc)
	}
	switch {
	case err != nil:
	case t.nodes && measured != int64(s.Energy()):
		err = fmt.Errorf("%w: node %d at %s in %s: measured energy is %d µJ, recorded energy is %d µJ",
			ledger.ErrDamaged, k.id, stamp(k.start), t.name, measured, int64(s.Energy()))
	case crc != sumCRC(t.row(&k, &s)):
		err = fmt.Errorf("%w: sum of %s %d at %s in %s", ledger.ErrDamaged, t.keys[1], k.id, stamp(k.start), t.name)
	}
	return k, s, err
}

// sumCRC returns the checksum of a row. The last column, GPU energy, is omitted if it is 0, because rows written
// before GPUs were metered do not have it.
func sumCRC(row []any) int64 {
	if last := len(row) - 1; row[last] == int64(0) {
		row = row[:last]
	}
	return rowCRC(row...)
}

// sumsByKey contains sums by account and by node.
type sumsByKey struct{ accounts, nodes map[sumKey]*sum }

func newBooks() sumsByKey { return sumsByKey{map[sumKey]*sum{}, map[sumKey]*sum{}} }

func (b sumsByKey) of(t *sumTable) map[sumKey]*sum {
	if t.nodes {
		return b.nodes
	}
	return b.accounts
}

// at returns the sum of a key and creates it if necessary.
func at(sums map[sumKey]*sum, k sumKey) *sum {
	s := sums[k]
	if s == nil {
		s = &sum{first: math.MaxInt64, last: math.MinInt64}
		sums[k] = s
	}
	return s
}

// add adds a window to the sums of its hour.
func (b sumsByKey) add(w *window, account func(id int64) (*ledger.Account, error)) error {
	start := floorTo(w.Start, anHour)
	var n *sum
	var where place
	node := func(a *ledger.Account) *sum { // usually the same as before
		if p := (place{a.Host, a.Site, a.Signal, a.Currency}); n == nil || p != where {
			n, where = at(b.nodes, sumKey{start, w.Node, p}), p
			n.extend(w.First, w.Last)
		}
		return n
	}
	for _, base := range w.Bases {
		a, err := account(base.Account)
		if err != nil {
			return err
		}
		node(a).Unmeasured += base.Unmeasured
	}
	for i := range w.Postings {
		p := &w.Postings[i]
		a, err := account(p.Account)
		if err != nil {
			return err
		}
		s := at(b.accounts, sumKey{start: start, id: p.Account})
		s.Add(&p.Amount)
		s.extend(w.First, w.Last)
		node(a).post(a.Kind, &p.Amount)
	}
	return nil
}

// include adds sums to sums of longer steps.
func include(to, from map[sumKey]*sum, step int64) {
	for k, s := range from {
		k.start = floorTo(k.start, step)
		at(to, k).merge(s)
	}
}

// A summing collects the changes of a fold to the tables of sums.
type summing struct {
	*folder
	sumsByKey
	taken map[int64]bool // nodes with revoked estimates; their sums may have become empty
}

// write adds the collected sums to hours and days and assigns new versions to the days.
func (s *summing) write() {
	for _, t := range sumTables {
		s.writeTo(t)
	}
	days := map[int64]bool{}
	for k := range s.nodes { // each window changes a sum of a node
		days[floorTo(k.start, aDay)] = true
	}
	for _, start := range slices.Sorted(maps.Keys(days)) {
		s.s.touch(start)
	}
}

// damaged is XORed into the checksum of a damaged row that is written again, so that its damage stays detectable.
const damaged = 1

func (s *summing) writeTo(t *sumTable) {
	sums := map[sumKey]*sum{}
	include(sums, s.of(t), t.step)
	keys := slices.SortedFunc(maps.Keys(sums), sumKey.compare)
	wrong := s.addHeld(t, keys, sums)
	if len(wrong) > 0 {
		s.d.log.Error("Found damaged sums in the ledger, run an audit for details", "table", t.name, "rows", len(wrong))
	}
	rows := make([][]any, 0, len(keys))
	for _, k := range keys {
		row := t.row(&k, sums[k])
		if taken := s.taken[k.id] || !t.nodes && len(s.taken) > 0; taken && sums[k].empty() && !wrong[k] {
			s.s.exec("DELETE FROM "+t.name+whereAll(t.keys), row[:len(t.keys)]...)
			continue
		}
		crc := sumCRC(row)
		if wrong[k] {
			crc ^= damaged
		}
		rows = append(rows, append(row, crc))
	}
	s.s.upsert(t.name, t.columns, len(t.keys), rows...)
}

// addHeld adds the stored rows to sums and returns the keys of damaged rows. Keys must be sorted.
func (s *summing) addHeld(t *sumTable, keys []sumKey, sums map[sumKey]*sum) (wrong map[sumKey]bool) {
	wrong = map[sumKey]bool{}
	for len(keys) > 0 {
		start := keys[0].start
		var of []int64
		for len(keys) > 0 && keys[0].start == start {
			of, keys = append(of, keys[0].id), keys[1:]
		}
		for some := range slices.Chunk(slices.Compact(of), listed) { // the rows of a node are read together
			s.each("reading "+t.name, func(rows *sql.Rows) error {
				k, held, err := t.scan(rows)
				if err != nil && !errors.Is(err, ledger.ErrDamaged) {
					return err
				}
				if sum := sums[k]; sum != nil {
					sum.merge(&held)
					if err != nil {
						wrong[k] = true
					}
				}
				return nil
			}, t.selected()+" WHERE start = $1 AND "+t.keys[1]+" IN ("+ids(some)+")", start)
		}
	}
	return wrong
}

func floorTo(t, step int64) int64 { return t - (t%step+step)%step }
