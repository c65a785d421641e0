package sqlstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/kubenergy/kubenergy/ledger"
)

const (
	hour = 3600
	day  = 24 * hour
)

type accountKey struct{ start, account int64 }

// A summing collects by how much sums change, by hour; days follow from hours.
type summing struct {
	*folder
	accounts map[accountKey]*accountSum
	nodes    map[nodeKey]*nodeSum
	taken    map[int64]bool // nodes of which something was taken back: their sums may have become empty
}

func floorTo(t, step int64) int64 {
	rest := t % step
	if rest < 0 {
		rest += step
	}
	return t - rest
}

// add books what a window changes.
func (s *summing) add(ctx context.Context, w *window) error {
	start := floorTo(w.Start, hour)
	for _, b := range w.Bases {
		a, err := s.d.accountOf(ctx, s.s, b.Account)
		if err != nil {
			return err
		}
		n := s.node(w, start, a)
		n.unmeasured += int64(b.Unmeasured)
	}
	for i := range w.Postings {
		p := &w.Postings[i]
		a, err := s.d.accountOf(ctx, s.s, p.Account)
		if err != nil {
			return err
		}
		k := accountKey{start, p.Account}
		sum := s.accounts[k]
		if sum == nil {
			sum = &accountSum{start: start, account: p.Account, first: w.First, last: w.Last}
			s.accounts[k] = sum
		}
		sum.Add(&p.Amount)
		sum.first, sum.last = min(sum.first, w.First), max(sum.last, w.Last)
		s.node(w, start, a).add(a.Kind, &p.Amount)
	}
	return nil
}

func (s *summing) node(w *window, start int64, a *ledger.Account) *nodeSum {
	k := nodeKey{start, w.Node, a.Host, a.Site, a.Signal, a.Currency}
	sum := s.nodes[k]
	if sum == nil {
		sum = &nodeSum{first: w.First, last: w.Last}
		s.nodes[k] = sum
	}
	sum.first, sum.last = min(sum.first, w.First), max(sum.last, w.Last)
	return sum
}

// write adds what was collected to hours and days.
func (s *summing) write(ctx context.Context) error {
	for _, to := range [...]struct {
		name string
		step int64
	}{{"hours", hour}, {"days", day}} {
		if err := s.writeAccounts(ctx, "account_"+to.name, to.step); err != nil {
			return err
		}
		if err := s.writeNodes(ctx, "node_"+to.name, to.step); err != nil {
			return err
		}
	}
	return s.mark(ctx)
}

// mark tells those who remember sums which days have changed.
func (s *summing) mark(ctx context.Context) error {
	days := map[int64]bool{}
	for k := range s.nodes { // each window changes a sum by node
		days[floorTo(k.start, day)] = true
	}
	for _, start := range slices.Sorted(maps.Keys(days)) {
		if err := s.d.touch(ctx, s.s, start); err != nil {
			return err
		}
	}
	return nil
}

var accountSumColumns = []string{
	"start", "account", "dynamic", "idle", "cpu", "facility", "carbon", "cost", "estimated", "uncharted", "unpriced",
	"first", "last", "crc",
}

const accountSumSet = `ON CONFLICT (start, account) DO UPDATE SET dynamic = excluded.dynamic, idle = excluded.idle, cpu = excluded.cpu,
	facility = excluded.facility, carbon = excluded.carbon, cost = excluded.cost, estimated = excluded.estimated,
	uncharted = excluded.uncharted, unpriced = excluded.unpriced, first = excluded.first, last = excluded.last, crc = excluded.crc`

// damaged is what the sum of a row differs by that was found damaged and is added to: it stays damaged.
const damaged = 1

func (s *summing) writeAccounts(ctx context.Context, table string, step int64) error {
	sums := map[accountKey]*accountSum{}
	for k, sum := range s.accounts {
		k.start = floorTo(k.start, step)
		if have := sums[k]; have != nil {
			have.Add(&sum.Amount)
			have.first, have.last = min(have.first, sum.first), max(have.last, sum.last)
			continue
		}
		c := *sum
		c.start = k.start
		sums[k] = &c
	}
	keys := make([]accountKey, 0, len(sums))
	for k := range sums {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b accountKey) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.account, b.account))
	})
	wrong, err := s.heldAccounts(ctx, table, keys, sums)
	if err != nil {
		return err
	}
	rows := make([][]any, 0, len(keys))
	for _, k := range keys {
		sum := sums[k]
		if len(s.taken) > 0 && sum.empty() && !wrong[k] {
			if _, err := s.s.exec(ctx, "DELETE FROM "+table+" WHERE start = $1 AND account = $2", k.start,
				k.account); err != nil {
				return err
			}
			continue
		}
		crc := sum.crc()
		if wrong[k] {
			crc ^= damaged
		}
		rows = append(rows, []any{
			k.start, k.account, int64(sum.Dynamic), int64(sum.Idle), int64(sum.CPU), int64(sum.Facility),
			int64(sum.Carbon), int64(sum.Cost),
			int64(sum.Estimated), int64(sum.Uncharted), int64(sum.Unpriced), sum.first, sum.last, crc,
		})
	}
	return s.s.insert(ctx, table, accountSumColumns, rows, accountSumSet)
}

// few rows of a time are read one by one, many at once.
const few = 32

// heldAccounts adds to sums what rows hold, and returns which of them are damaged. Keys are sorted.
func (s *summing) heldAccounts(ctx context.Context, table string, keys []accountKey,
	sums map[accountKey]*accountSum,
) (map[accountKey]bool, error) {
	wrong := map[accountKey]bool{}
	query := `SELECT start, account, dynamic, idle, cpu, facility, carbon, cost, estimated, uncharted, unpriced, first, last, crc FROM ` +
		table + " WHERE start = $1"
	read := func(query string, args ...any) error {
		rows, err := s.s.query(ctx, query, args...)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var h accountSum
			var crc int64
			if err := rows.Scan(&h.start, &h.account, &h.Dynamic, &h.Idle, &h.CPU, &h.Facility, &h.Carbon, &h.Cost,
				&h.Estimated,
				&h.Uncharted, &h.Unpriced, &h.first, &h.last, &crc); err != nil {
				return err
			}
			k := accountKey{h.start, h.account}
			if sum := sums[k]; sum != nil {
				sum.Add(&h.Amount)
				sum.first, sum.last = min(sum.first, h.first), max(sum.last, h.last)
				wrong[k] = crc != h.crc()
			}
		}
		return errors.Join(rows.Err(), rows.Close())
	}
	for of := range chunks(keys, func(k accountKey) int64 { return k.start }) {
		if len(of) > few {
			if err := read(query, of[0].start); err != nil {
				return nil, err
			}
			continue
		}
		for _, k := range of {
			if err := read(query+" AND account = $2", k.start, k.account); err != nil {
				return nil, err
			}
		}
	}
	s.tell(table, len(wrong), anyTrue(wrong))
	return wrong, nil
}

func anyTrue[K comparable](m map[K]bool) bool {
	for _, v := range m {
		if v {
			return true
		}
	}
	return false
}

func (s *summing) tell(table string, rows int, wrong bool) {
	if wrong {
		s.d.log.Error("Sums of the ledger are damaged; an audit says which", "table", table, "rows", rows)
	}
}

// chunks yields runs of sorted keys that are of the same time.
func chunks[K any](keys []K, start func(K) int64) func(func([]K) bool) {
	return func(yield func([]K) bool) {
		for len(keys) > 0 {
			n := 1
			for n < len(keys) && start(keys[n]) == start(keys[0]) {
				n++
			}
			if !yield(keys[:n]) {
				return
			}
			keys = keys[n:]
		}
	}
}

var nodeSumColumns = []string{
	"start", "node", "host", "site", "signal", "currency", "measured", "dynamic", "shared", "cpu", "idle", "platform",
	"unknown", "facility", "carbon", "cost",
	"estimated", "uncharted", "unpriced", "unmeasured", "first", "last", "crc",
}

const nodeSumSet = `ON CONFLICT (start, node, host, site, signal, currency) DO UPDATE SET measured = excluded.measured, dynamic = excluded.dynamic,
	shared = excluded.shared, cpu = excluded.cpu, idle = excluded.idle, platform = excluded.platform, unknown = excluded.unknown, facility = excluded.facility, carbon = excluded.carbon,
	cost = excluded.cost, estimated = excluded.estimated, uncharted = excluded.uncharted, unpriced = excluded.unpriced,
	unmeasured = excluded.unmeasured, first = excluded.first, last = excluded.last, crc = excluded.crc`

func (s *summing) writeNodes(ctx context.Context, table string, step int64) error {
	sums := map[nodeKey]*nodeSum{}
	for k, sum := range s.nodes {
		k.start = floorTo(k.start, step)
		if have := sums[k]; have != nil {
			have.merge(sum)
			continue
		}
		sums[k] = new(*sum)
	}
	keys := make([]nodeKey, 0, len(sums))
	for k := range sums {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, compareNodeKeys)
	wrong, err := s.heldNodes(ctx, table, keys, sums)
	if err != nil {
		return err
	}
	rows := make([][]any, 0, len(keys))
	for _, k := range keys {
		sum := sums[k]
		if s.taken[k.node] && sum.empty() && !wrong[k] {
			if _, err := s.s.exec(ctx, "DELETE FROM "+table+
				" WHERE start = $1 AND node = $2 AND host = $3 AND site = $4 AND signal = $5 AND currency = $6",
				k.start, k.node, k.host, k.site, k.signal, k.currency); err != nil {
				return err
			}
			continue
		}
		crc := sum.crc(&k)
		if wrong[k] {
			crc ^= damaged
		}
		rows = append(rows, []any{
			k.start, k.node, k.host, k.site, k.signal, k.currency, sum.measured, sum.dynamic, sum.shared, sum.cpu,
			sum.idle, sum.platform, sum.unknown,
			sum.facility, sum.carbon, sum.cost, sum.estimated, sum.uncharted, sum.unpriced, sum.unmeasured, sum.first,
			sum.last, crc,
		})
	}
	return s.s.insert(ctx, table, nodeSumColumns, rows, nodeSumSet)
}

func compareNodeKeys(a, b nodeKey) int {
	return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.node, b.node), cmp.Compare(a.host, b.host),
		cmp.Compare(a.site, b.site), cmp.Compare(a.signal, b.signal), cmp.Compare(a.currency, b.currency))
}

// heldNodes is like heldAccounts.
func (s *summing) heldNodes(ctx context.Context, table string, keys []nodeKey,
	sums map[nodeKey]*nodeSum,
) (map[nodeKey]bool, error) {
	wrong := map[nodeKey]bool{}
	query := `SELECT start, node, host, site, signal, currency, measured, dynamic, shared, cpu, idle, platform, unknown,
		facility, carbon, cost, estimated, uncharted, unpriced, unmeasured, first, last, crc FROM ` + table + " WHERE start = $1"
	read := func(query string, args ...any) error {
		rows, err := s.s.query(ctx, query, args...)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var k nodeKey
			var h nodeSum
			var crc int64
			if err := rows.Scan(&k.start, &k.node, &k.host, &k.site, &k.signal, &k.currency, &h.measured, &h.dynamic,
				&h.shared, &h.cpu, &h.idle, &h.platform,
				&h.unknown, &h.facility, &h.carbon, &h.cost, &h.estimated, &h.uncharted, &h.unpriced, &h.unmeasured,
				&h.first, &h.last,
				&crc); err != nil {
				return err
			}
			if sum := sums[k]; sum != nil && !wrong[k] {
				wrong[k] = crc != h.crc(&k)
				sum.merge(&h)
			}
		}
		return errors.Join(rows.Err(), rows.Close())
	}
	for of := range chunks(keys, func(k nodeKey) int64 { return k.start }) {
		if len(of) > few {
			if err := read(query, of[0].start); err != nil {
				return nil, fmt.Errorf("reading %s: %w", table, err)
			}
			continue
		}
		var last int64 = -1
		for _, k := range of {
			if k.node == last {
				continue // its rows were read together
			}
			last = k.node
			if err := read(query+" AND node = $2", k.start, k.node); err != nil {
				return nil, fmt.Errorf("reading %s: %w", table, err)
			}
		}
	}
	s.tell(table, len(wrong), anyTrue(wrong))
	return wrong, nil
}
