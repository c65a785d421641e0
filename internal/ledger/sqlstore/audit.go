package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/internal/ledger"
)

// maxProblems is the maximum number of problems that an audit lists. Additional problems are only counted.
const maxProblems = 1000

// Audit verifies the checksums of all names and of all data recorded since from. It also verifies that accounts and
// nodes balance in every hour and day, that days equal the sum of their hours, and that hours equal the sum of
// their windows.
func (d *DB) Audit(ctx context.Context, from time.Time) (*ledger.Findings, error) {
	a := &auditor{found: &ledger.Findings{}, rows: map[dictionaryRow]bool{}}
	since := floorTo(from.Unix(), aDay)
	if from.Year() < 1 || from.IsZero() {
		since = -1 << 60 // before all data
	}
	var days []int64
	all := &operation{ctx: ctx}
	audit := func(what string, do func()) {
		all.within("auditing "+what, func() {
			all.check(d.read(ctx, func(r *reading) {
				a.reading = r
				do()
			}))
		})
	}
	audit("names, the journal and records", func() {
		days = a.days(since)
		a.names()
		a.journal()
		a.records(from)
	})
	for _, day := range days { // one transaction per day, because an audit may take long
		audit(stamp(day), func() { a.day(day) })
	}
	if all.err != nil {
		return nil, all.err
	}
	if a.more > 0 {
		a.found.Problems = append(a.found.Problems, fmt.Sprintf("and %d more", a.more))
	}
	return a.found, nil
}

type auditor struct {
	*reading

	found *ledger.Findings
	more  int
	rows  map[dictionaryRow]bool // existing (true) and missing (false) rows of dictionaries seen so far
}

func (a *auditor) problem(format string, args ...any) {
	if len(a.found.Problems) >= maxProblems {
		a.more++
		return
	}
	a.found.Problems = append(a.found.Problems, fmt.Sprintf(format, args...))
}

// checked counts a row. It records damage as a problem and returns other errors.
func (a *auditor) checked(err error) error {
	a.found.Checked++
	if errors.Is(err, ledger.ErrDamaged) {
		a.problem("%v", err)
		return nil
	}
	return err
}

// A dictionaryRow identifies a row of nodes, accounts or consumers.
type dictionaryRow struct {
	table string
	id    int64
}

// names verifies the checksums of dictionaries, streams and spans.
func (a *auditor) names() {
	for _, t := range []struct {
		table, what, columns string
		own                  int // number of leading columns that the checksum does not cover
	}{
		{"nodes", "node", "id, name", 1},
		{"accounts", "account", "id, " + accountColumns, 1},
		{"consumers", "consumer", "id, node, key, pod, namespace", 1},
		{"streams", "stream of node", "node, boot, epoch, acked, gaps, seen", 0},
		{"spans", "span of a boot of node", "node, boot, first, last, seen", 0},
	} {
		values := make([]any, strings.Count(t.columns, ",")+1)
		var crc int64
		into := []any{}
		for i := range values {
			into = append(into, &values[i])
		}
		a.each("", func(rows *sql.Rows) error {
			err := rows.Scan(append(into, &crc)...)
			if id, ok := values[0].(int64); ok && t.own > 0 {
				a.rows[dictionaryRow{t.table, id}] = true
			}
			if err == nil && crc != rowCRC(values[t.own:]...) {
				err = fmt.Errorf("%w: %s %v: checksum mismatch", ledger.ErrDamaged, t.what, values[0])
			}
			return a.checked(err)
		}, "SELECT "+t.columns+", crc FROM "+t.table)
	}
}

// journal verifies the entries that are not folded yet, in chunks.
func (a *auditor) journal() {
	const atOnce = 1000
	for after := int64(-1 << 62); ; { // less than all IDs
		var entries []*entry
		n := 0
		a.each("", func(rows *sql.Rows) error {
			id, e, err := scanEntry(rows)
			n, after = n+1, id
			if err == nil {
				entries = append(entries, e)
			}
			return a.checked(err)
		}, fmt.Sprintf("%s WHERE id > $1 ORDER BY id LIMIT %d", selectEntries, atOnce), after)
		for _, e := range entries {
			names := []dictionaryRow{{"nodes", e.Node}, {"accounts", e.Base}}
			for _, p := range append(e.Postings, e.Guest) {
				if p.Account != 0 { // the node is a guest
					names = append(names, dictionaryRow{"accounts", p.Account}, dictionaryRow{"consumers", p.Consumer})
				}
			}
			a.there(fmt.Sprintf("booking %d", e.ID), names...)
		}
		if n < atOnce || a.err != nil {
			return
		}
	}
}

// there verifies that referenced rows exist. It reports each missing row once.
func (a *auditor) there(what string, names ...dictionaryRow) {
	for _, name := range names {
		if _, known := a.rows[name]; known {
			continue
		}
		found := a.numbers("", "SELECT id FROM "+name.table+" WHERE id = $1", name.id)
		a.rows[name] = len(found) > 0
		if len(found) == 0 {
			a.problem("%s references missing row %d of %s", what, name.id, name.table)
		}
	}
}

func (a *auditor) records(from time.Time) {
	var since int64
	if !from.IsZero() {
		since = from.UnixMilli()
	}
	a.each("", func(rows *sql.Rows) error {
		_, err := scanRecord(rows)
		return a.checked(err)
	}, "SELECT "+strings.Join(recordColumns, ", ")+" FROM records WHERE at >= $1", since)
}

// days returns the days that contain data.
func (a *auditor) days(since int64) []int64 {
	const dayOf = "start - ((start % 86400) + 86400) % 86400"
	var of []string
	for _, table := range []string{"account_days", "node_days", "account_hours", "node_hours", "windows"} {
		of = append(of, fmt.Sprintf("SELECT %s AS day FROM %s WHERE start >= %d", dayOf, table, since))
	}
	return a.numbers("", "SELECT DISTINCT day FROM ("+strings.Join(of, " UNION ")+") AS d ORDER BY day")
}

func (a *auditor) day(day int64) {
	all := newBooks()
	for at := day; at < day+aDay; at += anHour {
		hour := a.held("hour", false, at)
		if at >= a.windowsFrom {
			a.compare(a.windows(at), hour, "the windows of the hour", "the hour")
		}
		include(all.accounts, hour.accounts, aDay)
		include(all.nodes, hour.nodes, aDay)
	}
	if days := a.held("day", true, day); day >= a.hoursFrom {
		a.compare(all, days, "the hours of the day", "the day")
	}
}

// held reads the sums of an hour or a day and compares the total of all accounts, except transfers, with the total
// of all nodes.
func (a *auditor) held(what string, days bool, start int64) sumsByKey {
	b := newBooks()
	for _, t := range []*sumTable{sumsOf(false, days), sumsOf(true, days)} {
		a.each("", func(rows *sql.Rows) error {
			k, s, err := t.scan(rows)
			if err == nil || errors.Is(err, ledger.ErrDamaged) {
				at(b.of(t), k).merge(&s)
			}
			return a.checked(err)
		}, t.selected()+" WHERE start = $1", start)
	}
	var accounts, nodes sum
	for k, s := range b.accounts {
		of, err := a.account(k.id)
		if err != nil {
			a.check(a.checked(err))
		} else if of.Kind != ledger.Transfer {
			accounts.Saturate(&s.Amount)
		}
	}
	for _, s := range b.nodes {
		nodes.Saturate(&s.Amount)
	}
	nodes.Unmeasured = 0
	a.found.Checked++
	for i, of := range nodes.figures() {
		if held := accounts.figures()[i]; held != of {
			a.problem("%s %s: accounts contain %d %s, nodes contain %d", what, stamp(start), held, figureNames[i], of)
		}
	}
	return b
}

// figureNames are the names of the fields of an amount and of the additional fields of a sum, as used in problems.
var figureNames = [...]string{
	"µJ of energy", "µJ of shared idle energy", "ns of CPU time", "µJ at the site", "µgCO2e",
	"billionths of a currency unit", "µJ estimated", "µJ without carbon intensity", "µJ without price", "ns unmeasured",
	"µJ of GPU energy", "µJ of own idle energy", "µJ of the platform", "µJ unknown",
}

// figures returns the values that audits compare, in the order of figureNames.
func (s *sum) figures() (all [len(figureNames)]int64) {
	for i, field := range s.Fields() {
		all[i] = *field
	}
	all[dynamic] = int64(s.Energy())
	all[fields], all[fields+1], all[fields+2] = int64(s.ownIdle), int64(s.platform), int64(s.unknown)
	return all
}

// windows returns the sums of all windows that start in the given hour.
func (a *auditor) windows(hour int64) sumsByKey {
	b := newBooks()
	for start := hour; start < hour+anHour; start += windowSeconds {
		var all []*window
		a.each("", func(rows *sql.Rows) error {
			_, _, w, err := scanWindow(rows)
			if err == nil {
				all = append(all, w)
			}
			return a.checked(err)
		}, selectWindows+" WHERE start = $1", start)
		for _, w := range all {
			names := []dictionaryRow{{"nodes", w.Node}}
			for _, base := range w.Bases {
				names = append(names, dictionaryRow{"accounts", base.Account})
			}
			for i := range w.Postings {
				p := &w.Postings[i]
				names = append(names, dictionaryRow{"accounts", p.Account}, dictionaryRow{"consumers", p.Consumer})
			}
			a.there(fmt.Sprintf("window %s of node %d", stamp(w.Start), w.Node), names...)
			if err := b.add(w, a.account); err != nil {
				a.check(a.checked(err))
			}
		}
	}
	return b
}

// compare compares sums by account and by node.
func (a *auditor) compare(fine, coarse sumsByKey, ofFine, ofCoarse string) {
	for _, t := range sumTables[:2] {
		x, y := fine.of(t), coarse.of(t)
		all := maps.Clone(x)
		maps.Copy(all, y)
		for _, k := range slices.SortedFunc(maps.Keys(all), sumKey.compare) {
			a.found.Checked++
			held, of := at(x, k).figures(), at(y, k).figures()
			for i := range held {
				if held[i] != of[i] {
					a.problem("%s at %s: %s contain %d %s, %s contains %d", a.name(t, k.id), stamp(k.start), ofFine,
						held[i], figureNames[i], ofCoarse, of[i])
				}
			}
		}
	}
	a.check(a.ctx.Err())
}

// name returns the description of an account or a node for problems.
func (a *auditor) name(t *sumTable, id int64) string {
	if t.nodes {
		if name, err := a.node(id); err == nil {
			return "node " + name
		}
	} else if of, err := a.account(id); err == nil {
		return fmt.Sprintf("account %d (%s %s/%s)", id, of.Kind, of.Namespace, of.OwnerName())
	}
	return fmt.Sprintf("%s %d", t.keys[1], id)
}
