package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/sliceutil"
)

const windowSeconds = int64(ledger.WindowLength / time.Second)

// Limits of one query.
const (
	maxScanned = 3_000_000 // number of sums
	maxWindows = 200_000
	maxRows    = 500_000 // rows of an answer
	maxNamed   = 500_000 // number of consumers
	// Maximum number of transfers of a day, which suffices for 30,000 virtual machines.
	maxTransferred = 800_000
	foldedAtOnce   = 500 // maximum journal size that a query folds first
	foldPatience   = 2 * time.Second
)

// Query implements [ledger.Store]. It folds the journal first if the journal is small. Otherwise the result is
// incomplete, and AsOf contains the time up to which data is included.
func (d *DB) Query(ctx context.Context, q *ledger.Query) (*ledger.Answer, error) {
	plan, err := q.Plan()
	if err != nil {
		return nil, err
	}
	d.foldLittle(ctx)
	var a *ledger.Answer
	if err := d.read(ctx, func(r *reading) { a = r.answer(q, plan) }); err != nil {
		return nil, fmt.Errorf("querying the ledger: %w", err)
	}
	return a, nil
}

// foldLittle folds the journal if it is small. If that fails, the answer is older, as AsOf shows.
func (d *DB) foldLittle(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, foldPatience)
	defer cancel()
	now, err := sizeOf(ctx, d.reads)
	if stuck := d.stuck.Load(); stuck != nil && *stuck == now {
		return
	}
	if err == nil && now.entries > 0 && now.entries <= foldedAtOnce {
		_, err = d.Fold(ctx)
	}
	if err != nil {
		d.log.DebugContext(ctx, "Failed to fold the journal before a query", "err", err)
	}
}

// A reading is a consistent view of the ledger in one transaction.
type reading struct {
	*operation // the transaction

	d  *DB
	tx querier

	windowsFrom, hoursFrom int64 // older data was dropped
	scanned                int
	versions               map[int64]string // cached versions of days
	maxTransferred         int              // maximum rows per day; 0 means unlimited
}

// A querier is a transaction, or a connection with an open transaction.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

func (d *DB) read(ctx context.Context, do func(*reading)) error {
	tx, err := d.reads.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return fmt.Errorf("starting a read transaction: %w", err)
	}
	defer tx.Rollback() //nolint:errcheck // nothing was written
	r := &reading{
		operation: &operation{ctx: ctx}, d: d, tx: tx, versions: map[int64]string{}, maxTransferred: maxTransferred,
	}
	r.loadKept()
	do(r)
	return r.err
}

// Keys of the retention limits in meta.
const (
	windowsFrom = "windows_from"
	hoursFrom   = "hours_from"
)

// loadKept reads the retention limits.
func (r *reading) loadKept() {
	const always = int64(-1 << 62) // before any booking
	r.one("reading the retention limits", `SELECT
			COALESCE((SELECT CAST(value AS BIGINT) FROM meta WHERE key = $1), $2),
			COALESCE((SELECT CAST(value AS BIGINT) FROM meta WHERE key = $3), $4)`,
		[]any{windowsFrom, always, hoursFrom, always}, &r.windowsFrom, &r.hoursFrom)
}

// each calls do for every row of a query. what describes the query in errors and may be empty.
func (r *reading) each(what string, do func(*sql.Rows) error, query string, args ...any) {
	if r.err != nil {
		return
	}
	rows, err := r.tx.QueryContext(r.ctx, query, args...)
	if err = ForEach(rows, err, do); err != nil && what != "" {
		err = fmt.Errorf("%s: %w", what, err)
	}
	r.check(err)
}

// one reads the only row of a query.
func (r *reading) one(what, query string, args []any, into ...any) {
	r.each(what, func(rows *sql.Rows) error { return rows.Scan(into...) }, query, args...)
}

// numbers returns the values of a query with a single column.
func (r *reading) numbers(what, query string, args ...any) (all []int64) {
	r.each(what, func(rows *sql.Rows) error {
		var n int64
		err := rows.Scan(&n)
		all = append(all, n)
		return err
	}, query, args...)
	return all
}

func (r *reading) answer(q *ledger.Query, plan ledger.Plan) *ledger.Answer {
	plan = r.adjusted(q, plan)
	t := newTable(r, q, plan)
	if plan.Windows {
		r.sumWindows(t)
	} else {
		r.sumDays(t)
	}
	a := &ledger.Answer{From: plan.From, To: plan.To, AsOf: r.asOf(), Resolution: plan.Resolution, GroupBy: q.GroupBy}
	if r.err == nil {
		a.Rows, a.Total, r.err = t.rows()
	}
	r.check(a.Trim(q.Limit))
	return a
}

// adjusted adjusts the interval of a query to the retained data.
func (r *reading) adjusted(q *ledger.Query, plan ledger.Plan) ledger.Plan {
	if plan.Windows {
		if plan.From.Unix() < r.windowsFrom {
			r.check(fmt.Errorf("%w: pods, windows, and nodes by account are only available since %s: select a later "+
				"start, or fewer dimensions and filters", ledger.ErrQuery, stamp(r.windowsFrom)))
		}
		return plan
	}
	if plan.ByHour && plan.From.Unix() < r.hoursFrom {
		r.check(fmt.Errorf("%w: hours are only available since %s: select a later start, or days", ledger.ErrQuery,
			stamp(r.hoursFrom)))
	}
	const day = 24 * time.Hour
	if plan.Resolution == time.Hour {
		if plan.From.Unix() < r.hoursFrom {
			plan.From = plan.From.Truncate(day)
		}
		if plan.To.Unix() < r.hoursFrom {
			plan.To = plan.To.Add(day - 1).Truncate(day)
		}
		if plan.From.Truncate(day).Equal(plan.From) && plan.To.Truncate(day).Equal(plan.To) && !plan.ByHour {
			plan.Resolution = day
		}
	}
	return plan
}

// lastBooked returns the end of the folded data in Unix seconds, or false if there is none.
func (r *reading) lastBooked() (last int64, booked bool) {
	var of sql.NullInt64
	r.one("looking up the newest booking",
		"SELECT MAX(last) FROM node_days WHERE start >= (SELECT MAX(start) FROM node_days)", nil, &of)
	return of.Int64, of.Valid
}

// asOf returns the end of the folded data, or the start of the unfolded data if that is earlier.
func (r *reading) asOf() (asOf time.Time) {
	last, booked := r.lastBooked()
	if booked {
		asOf = time.Unix(last, 0).UTC()
	}
	var oldest sql.NullInt64
	r.one("reading the journal", "SELECT MIN(start) FROM journal", nil, &oldest)
	if at := time.UnixMilli(oldest.Int64).UTC().Truncate(time.Second); oldest.Valid && (!booked || at.Before(asOf)) {
		return at
	}
	return asOf
}

// firstSummed returns the start of the first sum, or to if there is none. Budgets with an unlimited period query
// all days since 1970.
func (r *reading) firstSummed(to int64) (first int64) {
	each := sliceutil.Map(sumTables[:], func(t *sumTable) string { return "SELECT MIN(start) AS start FROM " + t.name })
	r.one("looking up the first sum", "SELECT COALESCE(MIN(start), $1) FROM ("+strings.Join(each, " UNION ALL ")+
		") AS firsts", []any{to}, &first)
	return first
}

// sumDays adds up days. It uses hours if the query covers a part of a day only or groups by hour.
func (r *reading) sumDays(t *table) {
	from, to := t.plan.From.Unix(), t.plan.To.Unix()
	for day := floorTo(max(from, r.firstSummed(to)), aDay); day < to && r.check(r.ctx.Err()); day += aDay {
		lo, hi := max(from, day), min(to, day+aDay)
		if r.whole(t, day, lo, hi) {
			lo, hi = day, day+aDay
			r.sumBlock(t, sumsOf(t.plan.Nodes, true), day)
		} else {
			for hour := lo; hour < hi; hour += anHour {
				r.sumBlock(t, sumsOf(t.plan.Nodes, false), hour)
			}
		}
		r.sumTransfers(t, day, lo, hi)
	}
}

// whole reports whether the sum of a day can be used for the interval [lo, hi) of that day.
func (r *reading) whole(t *table, day, lo, hi int64) bool {
	switch {
	case t.plan.ByHour:
		return false
	case lo == day && hi == day+aDay:
		return true
	}
	outside := r.numbers("looking up hours", "SELECT start FROM node_hours WHERE start >= $1 AND start < $2 "+
		"UNION ALL SELECT start FROM node_hours WHERE start >= $3 AND start < $4 LIMIT 1", day, lo, hi, day+aDay)
	return len(outside) == 0
}

func (r *reading) sumBlock(t *table, from *sumTable, start int64) {
	b := r.block(from, start)
	if r.scanned += len(b.rows); r.scanned > maxScanned {
		r.check(fmt.Errorf("%w: %w: more than %d sums: select a shorter interval, or days instead of hours",
			ledger.ErrQuery, ledger.ErrTooLarge, maxScanned))
		return
	}
	t.begin(start)
	for i := range b.rows {
		row := &b.rows[i]
		if from.nodes {
			t.ofNode(row).add(&row.Amount, row.first, row.last)
		} else {
			t.ofAccount(row, false).add(&row.Amount, row.first, row.last)
		}
	}
}

// sumTransfers deducts from hosts the energy that guests report in more detail.
func (r *reading) sumTransfers(t *table, day, lo, hi int64) {
	counting := r.transfers(day)
	for i := range counting.rows {
		row := &counting.rows[i]
		if row.start < lo || row.start >= hi {
			continue
		}
		t.begin(row.start)
		t.ofAccount(row, true).add(&row.Amount, 0, 0)
	}
}
