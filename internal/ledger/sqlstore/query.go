package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/internal/ledger"
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
	err = d.read(ctx, func(r *reading) error {
		a, err = r.answer(q, plan)
		return err
	})
	if err != nil {
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
	d   *DB
	ctx context.Context // context of the call
	tx  querier

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

func (d *DB) read(ctx context.Context, do func(*reading) error) error {
	tx, err := d.reads.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return fmt.Errorf("starting a read transaction: %w", err)
	}
	defer tx.Rollback() //nolint:errcheck // nothing was written
	r := &reading{d: d, ctx: ctx, tx: tx, versions: map[int64]string{}, maxTransferred: maxTransferred}
	if err := r.loadKept(); err != nil {
		return err
	}
	return do(r)
}

// Keys of the retention limits in meta.
const (
	windowsFrom = "windows_from"
	hoursFrom   = "hours_from"
)

// loadKept reads the retention limits.
func (r *reading) loadKept() error {
	const always = -1 << 62 // before any booking
	err := r.tx.QueryRowContext(r.ctx, `SELECT
			COALESCE((SELECT CAST(value AS BIGINT) FROM meta WHERE key = $1), $2),
			COALESCE((SELECT CAST(value AS BIGINT) FROM meta WHERE key = $3), $4)`,
		windowsFrom, int64(always), hoursFrom, int64(always)).Scan(&r.windowsFrom, &r.hoursFrom)
	if err != nil {
		return fmt.Errorf("reading the retention limits: %w", err)
	}
	return nil
}

// each calls do for every row of a query.
func (r *reading) each(do func(*sql.Rows) error, query string, args ...any) error {
	rows, err := r.tx.QueryContext(r.ctx, query, args...)
	return ForEach(rows, err, do)
}

// numbers returns the values of a query with a single column.
func (r *reading) numbers(query string, args ...any) (all []int64, err error) {
	err = r.each(func(rows *sql.Rows) error {
		var n int64
		err := rows.Scan(&n)
		all = append(all, n)
		return err
	}, query, args...)
	return all, err
}

func (r *reading) answer(q *ledger.Query, plan ledger.Plan) (*ledger.Answer, error) {
	plan, err := r.adjusted(q, plan)
	if err != nil {
		return nil, err
	}
	t := newTable(r, q, plan)
	if plan.Windows {
		err = r.sumWindows(t)
	} else {
		err = r.sumDays(t)
	}
	if err != nil {
		return nil, err
	}
	asOf, err := r.asOf()
	if err != nil {
		return nil, err
	}
	a := &ledger.Answer{From: plan.From, To: plan.To, AsOf: asOf, Resolution: plan.Resolution, GroupBy: q.GroupBy}
	if a.Rows, a.Total, err = t.rows(); err != nil {
		return nil, err
	}
	return a, a.Trim(q.Limit)
}

// adjusted adjusts the interval of a query to the retained data.
func (r *reading) adjusted(q *ledger.Query, plan ledger.Plan) (ledger.Plan, error) {
	if plan.Windows {
		if plan.From.Unix() < r.windowsFrom {
			return plan, fmt.Errorf(
				"%w: pods, windows, and nodes by account are only available since %s: select a later start, or fewer "+
					"dimensions and filters",
				ledger.ErrQuery, stamp(r.windowsFrom))
		}
		return plan, nil
	}
	if byHour(q) && plan.From.Unix() < r.hoursFrom {
		return plan, fmt.Errorf("%w: hours are only available since %s: select a later start, or days", ledger.ErrQuery,
			stamp(r.hoursFrom))
	}
	const day = 24 * time.Hour
	if plan.Resolution == time.Hour {
		if plan.From.Unix() < r.hoursFrom {
			plan.From = plan.From.Truncate(day)
		}
		if plan.To.Unix() < r.hoursFrom {
			plan.To = plan.To.Add(day - 1).Truncate(day)
		}
		if plan.From.Truncate(day).Equal(plan.From) && plan.To.Truncate(day).Equal(plan.To) && !byHour(q) {
			plan.Resolution = day
		}
	}
	return plan, nil
}

func byHour(q *ledger.Query) bool {
	return slices.Contains(q.GroupBy, ledger.ByHour)
}

// lastBooked returns the end of the folded data in Unix seconds, or false if there is none.
func (r *reading) lastBooked() (last int64, booked bool, err error) {
	var of sql.NullInt64
	err = r.tx.QueryRowContext(r.ctx,
		"SELECT MAX(last) FROM node_days WHERE start >= (SELECT MAX(start) FROM node_days)").Scan(&of)
	if err != nil {
		err = fmt.Errorf("looking up the newest booking: %w", err)
	}
	return of.Int64, of.Valid, err
}

// asOf returns the end of the folded data, or the start of the unfolded data if that is earlier.
func (r *reading) asOf() (asOf time.Time, err error) {
	last, booked, err := r.lastBooked()
	if err != nil {
		return asOf, err
	}
	if booked {
		asOf = time.Unix(last, 0).UTC()
	}
	var oldest sql.NullInt64
	if err := r.tx.QueryRowContext(r.ctx, "SELECT MIN(start) FROM journal").Scan(&oldest); err != nil {
		return asOf, fmt.Errorf("reading the journal: %w", err)
	}
	if at := time.UnixMilli(oldest.Int64).UTC().Truncate(time.Second); oldest.Valid && (!booked || at.Before(asOf)) {
		return at, nil
	}
	return asOf, nil
}

// firstSummed returns the start of the first sum, or to if there is none. Budgets with an unlimited period query
// all days since 1970.
func (r *reading) firstSummed(to int64) (first int64, err error) {
	var each []string
	for _, t := range sumTables {
		each = append(each, "SELECT MIN(start) AS start FROM "+t.name)
	}
	err = r.tx.QueryRowContext(r.ctx, "SELECT COALESCE(MIN(start), $1) FROM ("+strings.Join(each, " UNION ALL ")+
		") AS firsts", to).Scan(&first)
	if err != nil {
		return 0, fmt.Errorf("looking up the first sum: %w", err)
	}
	return first, nil
}

// sumDays adds up days. It uses hours if the query covers a part of a day only or groups by hour.
func (r *reading) sumDays(t *table) error {
	from, to := t.plan.From.Unix(), t.plan.To.Unix()
	first, err := r.firstSummed(to)
	if err != nil {
		return err
	}
	for day := floorTo(max(from, first), aDay); day < to; day += aDay {
		if err := r.ctx.Err(); err != nil {
			return err
		}
		lo, hi := max(from, day), min(to, day+aDay)
		whole, err := r.whole(t, day, lo, hi)
		if err != nil {
			return err
		}
		if whole {
			lo, hi = day, day+aDay
			err = r.sumBlock(t, sumsOf(t.plan.Nodes, true), day)
		} else {
			for hour := lo; hour < hi && err == nil; hour += anHour {
				err = r.sumBlock(t, sumsOf(t.plan.Nodes, false), hour)
			}
		}
		if err == nil {
			err = r.sumTransfers(t, day, lo, hi)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// whole reports whether the sum of a day can be used for the interval [lo, hi) of that day.
func (r *reading) whole(t *table, day, lo, hi int64) (bool, error) {
	switch {
	case t.byHour:
		return false, nil
	case lo == day && hi == day+aDay:
		return true, nil
	}
	outside, err := r.numbers("SELECT start FROM node_hours WHERE start >= $1 AND start < $2 "+
		"UNION ALL SELECT start FROM node_hours WHERE start >= $3 AND start < $4 LIMIT 1", day, lo, hi, day+aDay)
	if err != nil {
		return false, fmt.Errorf("looking up hours: %w", err)
	}
	return len(outside) == 0, nil
}

func (r *reading) sumBlock(t *table, from *sumTable, start int64) error {
	b, err := r.block(from, start)
	if err != nil {
		return err
	}
	if r.scanned += len(b.rows); r.scanned > maxScanned {
		return fmt.Errorf("%w: %w: more than %d sums: select a shorter interval, or days instead of hours",
			ledger.ErrQuery, ledger.ErrTooLarge, maxScanned)
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
	return t.err
}

// sumTransfers deducts from hosts the energy that guests report in more detail.
func (r *reading) sumTransfers(t *table, day, lo, hi int64) error {
	counting, err := r.transfers(day)
	if err != nil {
		return err
	}
	for i := range counting.rows {
		row := &counting.rows[i]
		if row.start < lo || row.start >= hi {
			continue
		}
		t.begin(row.start)
		t.ofAccount(row, true).add(&row.Amount, 0, 0)
	}
	return t.err
}
