package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/kubenergy/kubenergy/ledger"
)

// mostProblems is how many an audit tells; the rest it counts.
const mostProblems = 1000

// Audit checks the sums of bytes of all names and of what was booked from an instant on, that accounts and nodes
// balance in every hour and day, that days are the sum of their hours, and hours that of their windows.
func (d *DB) Audit(ctx context.Context, from time.Time) (*ledger.Findings, error) {
	a := &auditor{d: d, ctx: ctx, found: &ledger.Findings{}, rows: map[dictionaryRow]bool{}}
	since := floorTo(from.Unix(), aDay)
	if from.Year() < 1 || from.IsZero() {
		since = -1 << 60 // from the beginning
	}
	if err := d.read(ctx, a.names); err != nil {
		return nil, fmt.Errorf("auditing names: %w", err)
	}
	days, err := a.days(since)
	if err != nil {
		return nil, fmt.Errorf("auditing: %w", err)
	}
	for _, day := range days {
		if err := d.read(ctx, func(r *reading) error { return a.day(r, day) }); err != nil {
			return nil, fmt.Errorf("auditing %s: %w", stamp(day), err)
		}
	}
	if err := d.read(ctx, func(r *reading) error { return a.records(r, from) }); err != nil {
		return nil, fmt.Errorf("auditing records: %w", err)
	}
	if a.more > 0 {
		a.found.Problems = append(a.found.Problems, fmt.Sprintf("and %d more", a.more))
	}
	return a.found, nil
}

type auditor struct {
	d     *DB
	ctx   context.Context // lives as long as one call
	found *ledger.Findings
	more  int
	rows  map[dictionaryRow]bool // of dictionaries, by table and number; false: looked for and not there
}

func (a *auditor) problem(format string, args ...any) {
	if len(a.found.Problems) >= mostProblems {
		a.more++
		return
	}
	a.found.Problems = append(a.found.Problems, fmt.Sprintf(format, args...))
}

// checked counts a row. What is damaged is a problem; other errors are returned.
func (a *auditor) checked(err error) error {
	a.found.Checked++
	if errors.Is(err, ledger.ErrDamaged) {
		a.problem("%v", err)
		return nil
	}
	return err
}

// sum compares a sum of bytes.
func (a *auditor) sum(have, want int64, format string, args ...any) {
	a.found.Checked++
	if have != want {
		a.problem("%s: its sum of bytes is wrong", fmt.Sprintf(format, args...))
	}
}

// days returns the days that have anything.
func (a *auditor) days(since int64) (days []int64, err error) {
	err = a.d.read(a.ctx, func(r *reading) error {
		return r.each(func(rows *sql.Rows) error {
			var at int64
			err := rows.Scan(&at)
			days = append(days, at)
			return err
		}, fmt.Sprintf(`SELECT DISTINCT day FROM (
			SELECT start AS day FROM account_days WHERE start >= %[1]d UNION SELECT start AS day FROM node_days WHERE start >= %[1]d
			UNION SELECT %[2]s AS day FROM account_hours WHERE start >= %[1]d UNION SELECT %[2]s AS day FROM node_hours WHERE start >= %[1]d
			UNION SELECT %[2]s AS day FROM windows WHERE start >= %[1]d) AS d ORDER BY day`,
			since, "start - ((start % 86400) + 86400) % 86400"))
	})
	return days, err
}

// books are the sums of some time, by account and by node.
type books struct {
	accounts map[int64]*ledger.Amount
	nodes    map[nodeKey]*nodeSum // without start
}

func newBooks() *books {
	return &books{accounts: map[int64]*ledger.Amount{}, nodes: map[nodeKey]*nodeSum{}}
}

func (b *books) account(id int64) *ledger.Amount {
	if b.accounts[id] == nil {
		b.accounts[id] = new(ledger.Amount)
	}
	return b.accounts[id]
}

func (b *books) node(k nodeKey) *nodeSum {
	k.start = 0
	if b.nodes[k] == nil {
		b.nodes[k] = new(nodeSum)
	}
	return b.nodes[k]
}

// include adds what others hold.
func (b *books) include(o *books) {
	for id, amount := range o.accounts {
		b.account(id).Add(amount)
	}
	for k, s := range o.nodes {
		b.node(k).merge(s)
	}
}

func (a *auditor) day(r *reading, day int64) error {
	sum := newBooks()
	for at := day; at < day+aDay; at += anHour {
		hour, err := a.read(r, "hours", at)
		if err != nil {
			return err
		}
		if err := a.balance(r, hour, "hour", at); err != nil {
			return err
		}
		if at >= r.windowsFrom {
			windows, err := a.windows(r, at)
			if err != nil {
				return err
			}
			if err := a.compare(r, windows, hour, "the windows of the hour", "the hour", at); err != nil {
				return err
			}
		}
		sum.include(hour)
	}
	days, err := a.read(r, "days", day)
	if err != nil {
		return err
	}
	if err := a.balance(r, days, "day", day); err != nil {
		return err
	}
	if day < r.hoursFrom {
		return nil
	}
	return a.compare(r, sum, days, "the hours of the day", "the day", day)
}

// read reads the sums of an hour or a day.
func (a *auditor) read(r *reading, of string, start int64) (*books, error) {
	b := newBooks()
	err := r.each(func(rows *sql.Rows) error {
		s, err := scanAccountSum(rows)
		if err == nil || errors.Is(err, ledger.ErrDamaged) {
			b.account(s.account).Add(&s.Amount)
		}
		return a.checked(err)
	}, "SELECT "+columnList(accountSumColumns)+" FROM account_"+of+" WHERE start = $1", start)
	if err != nil {
		return nil, err
	}
	err = r.each(func(rows *sql.Rows) error {
		k, s, err := scanNodeSum(rows)
		if err == nil || errors.Is(err, ledger.ErrDamaged) {
			if s.measured != s.dynamic+s.shared+s.idle+s.platform+s.unknown {
				a.problem("node %d at %s: %d µJ were measured, and %d µJ are booked", k.node, stamp(start), s.measured,
					s.dynamic+s.shared+s.idle+s.platform+s.unknown)
			}
			b.node(*k).merge(s)
		}
		return a.checked(err)
	}, "SELECT "+columnList(nodeSumColumns)+" FROM node_"+of+" WHERE start = $1", start)
	return b, err
}

// balance compares the sum of all accounts, but for what is transferred, with that of all nodes.
func (a *auditor) balance(r *reading, b *books, what string, at int64) error {
	var accounts, nodes ledger.Amount
	for id, amount := range b.accounts {
		of, err := r.account(id)
		if err != nil {
			if err := a.checked(err); err != nil {
				return err
			}
			continue
		}
		if of.Kind != ledger.Transfer {
			saturated(&accounts, amount)
		}
	}
	for _, s := range b.nodes {
		amount := s.amount()
		saturated(&nodes, &amount)
	}
	nodes.Unmeasured = 0
	a.found.Checked++
	for _, d := range differences(&accounts, &nodes) {
		a.problem("%s %s: accounts hold %d %s, nodes %d", what, stamp(at), d.a, d.what, d.b)
	}
	return nil
}

func saturated(to, a *ledger.Amount) {
	to.Dynamic = plus(to.Dynamic, a.Dynamic)
	to.Idle = plus(to.Idle, a.Idle)
	to.CPU = plus(to.CPU, a.CPU)
	to.Facility = plus(to.Facility, a.Facility)
	to.Carbon = plus(to.Carbon, a.Carbon)
	to.Cost = plus(to.Cost, a.Cost)
	to.Estimated = plus(to.Estimated, a.Estimated)
	to.Uncharted = plus(to.Uncharted, a.Uncharted)
	to.Unpriced = plus(to.Unpriced, a.Unpriced)
}

type difference struct {
	what string
	a, b int64
}

func differences(a, b *ledger.Amount) (out []difference) {
	for _, d := range []difference{
		{"µJ of energy", int64(a.Energy()), int64(b.Energy())},
		{"µJ of idle shares", int64(a.Idle), int64(b.Idle)},
		{"ns of CPU time", int64(a.CPU), int64(b.CPU)},
		{"µJ at the site", int64(a.Facility), int64(b.Facility)},
		{"µgCO2e", int64(a.Carbon), int64(b.Carbon)},
		{"thousand-millionths of cost", int64(a.Cost), int64(b.Cost)},
		{"µJ estimated", int64(a.Estimated), int64(b.Estimated)},
		{"µJ without carbon intensity", int64(a.Uncharted), int64(b.Uncharted)},
		{"µJ without price", int64(a.Unpriced), int64(b.Unpriced)},
		{"ns unmeasured", int64(a.Unmeasured), int64(b.Unmeasured)},
	} {
		if d.a != d.b {
			out = append(out, d)
		}
	}
	return out
}

// windows adds up the windows that begin in an hour.
func (a *auditor) windows(r *reading, hour int64) (*books, error) {
	b := newBooks()
	var held []*window
	for start := hour; start < hour+anHour; start += windowSeconds {
		held = held[:0]
		err := r.each(func(rows *sql.Rows) error {
			var node, agentless int64
			var payload []byte
			if err := rows.Scan(&node, &agentless, &payload); err != nil {
				return err
			}
			w, err := decodeWindow(start, node, agentless != 0, payload)
			if err == nil {
				held = append(held, w)
			}
			return a.checked(err)
		}, "SELECT node, agentless, payload FROM windows WHERE start = $1", start)
		if err != nil {
			return nil, err
		}
		for _, w := range held {
			if err := a.include(r, b, w); err != nil {
				return nil, err
			}
		}
	}
	return b, nil
}

func (a *auditor) include(r *reading, b *books, w *window) error {
	at := func(of *ledger.Account) *nodeSum {
		return b.node(nodeKey{node: w.Node, host: of.Host, site: of.Site, signal: of.Signal, currency: of.Currency})
	}
	what := fmt.Sprintf("window %s of node %d", stamp(w.Start), w.Node)
	if err := a.there(r, dictionaryRow{"nodes", w.Node}, what); err != nil {
		return err
	}
	for _, base := range w.Bases {
		if err := a.there(r, dictionaryRow{"accounts", base.Account}, what); err != nil {
			return err
		}
		of, err := r.account(base.Account)
		if err != nil {
			return a.checked(err)
		}
		at(of).unmeasured += int64(base.Unmeasured)
	}
	for i := range w.Postings {
		p := &w.Postings[i]
		for _, name := range []dictionaryRow{{"accounts", p.Account}, {"consumers", p.Consumer}} {
			if err := a.there(r, name, what); err != nil {
				return err
			}
		}
		of, err := r.account(p.Account)
		if err != nil {
			return a.checked(err)
		}
		b.account(p.Account).Add(&p.Amount)
		at(of).add(of.Kind, &p.Amount)
	}
	return nil
}

// compare compares sums, account by account and node by node.
func (a *auditor) compare(r *reading, fine, coarse *books, ofFine, ofCoarse string, at int64) error {
	var none ledger.Amount
	each(fine.accounts, coarse.accounts, func(id int64, x, y *ledger.Amount) {
		a.found.Checked++
		for _, d := range differences(orNone(x, &none), orNone(y, &none)) {
			a.problem("account %s at %s: %s hold %d %s, %s %d", a.accountName(r, id), stamp(at), ofFine, d.a, d.what,
				ofCoarse, d.b)
		}
	})
	each(fine.nodes, coarse.nodes, func(k nodeKey, x, y *nodeSum) {
		a.found.Checked++
		p, q := orNone(x, &nodeSum{}), orNone(y, &nodeSum{})
		pa, qa := p.amount(), q.amount()
		for _, d := range differences(&pa, &qa) {
			a.problem("node %s at %s: %s hold %d %s, %s %d", a.nodeName(r, k.node), stamp(at), ofFine, d.a, d.what,
				ofCoarse, d.b)
		}
		for _, d := range []difference{
			{"idle", p.idle, q.idle},
			{"platform", p.platform, q.platform},
			{"unknown", p.unknown, q.unknown},
			{"measured", p.measured, q.measured},
		} {
			if d.a != d.b {
				a.problem("node %s at %s: %s hold %d µJ %s, %s %d", a.nodeName(r, k.node), stamp(at), ofFine, d.a,
					d.what, ofCoarse, d.b)
			}
		}
	})
	return a.ctx.Err()
}

func orNone[T any](p, none *T) *T {
	if p == nil {
		return none
	}
	return p
}

// each calls do for all keys of two maps.
func each[K comparable, V any](x, y map[K]*V, do func(K, *V, *V)) {
	for k, v := range x {
		do(k, v, y[k])
	}
	for k, v := range y {
		if x[k] == nil {
			do(k, nil, v)
		}
	}
}

func (a *auditor) accountName(r *reading, id int64) string {
	of, err := r.account(id)
	if err != nil {
		return strconv.FormatInt(id, 10)
	}
	return fmt.Sprintf("%d (%s %s/%s)", id, of.Kind, of.Namespace, of.OwnerName())
}

func (a *auditor) nodeName(r *reading, id int64) string {
	name, err := r.node(id)
	if err != nil {
		return strconv.FormatInt(id, 10)
	}
	return name
}

func (a *auditor) records(r *reading, from time.Time) error {
	var since int64
	if !from.IsZero() {
		since = from.UnixMilli()
	}
	return r.each(func(rows *sql.Rows) error {
		_, err := scanRecord(rows)
		return a.checked(err)
	}, "SELECT "+columnList(recordColumns)+" FROM records WHERE at >= $1", since)
}
