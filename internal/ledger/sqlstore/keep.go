package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"time"

	"github.com/kubenergy/kubenergy/internal/ledger"
)

// Batch sizes of deletions, so that other transactions can write in between.
const (
	droppedAtOnce = 5000
	recordsAtOnce = 500
	namesAtOnce   = 5000 // range of IDs; some IDs may not exist
)

// Minimum and additional retention periods.
const (
	estimatesLonger = 60 * aDay // estimated windows are required to revoke an estimate
	namesLonger     = 2 * aDay  // the use of a name is recorded once a day
	minStreams      = 366 * aDay
	minSpans        = 30 * aDay // see docs/reference/protocol.md, Numbers
	maxStates       = 3 * 366 * aDay
)

// Keep implements [ledger.Store]. It drops windows before hours and hours before days.
func (d *DB) Keep(ctx context.Context, keep ledger.Retention, now time.Time) error {
	k := keeper{operation: operation{ctx: ctx}, d: d, now: now.Unix()}
	k.believed()
	windows, hours, days := seconds(keep.Windows), seconds(keep.Hours), seconds(keep.Days)
	hours = longer(hours, windows)
	days = longer(days, hours)
	for _, step := range []struct {
		what string
		long int64 // 0 means forever
		do   func(before int64)
	}{
		{"windows", windows, k.windows},
		{"hours", hours, k.hours},
		{"days", days, k.days},
		{"consumers", windows, func(before int64) { k.names("consumers", before-namesLonger) }},
		{"accounts", longer(days, windows), func(before int64) {
			k.names("accounts", before-estimatesLonger-namesLonger)
		}},
		{"snapshots", seconds(keep.Snapshots), func(before int64) {
			k.decisions("UPDATE records SET snapshot = NULL", "snapshot IS NOT NULL", before)
		}},
		{"records", seconds(keep.Records), func(before int64) { k.decisions("DELETE FROM records", "1 = 1", before) }},
		{"streams", longer(longer(seconds(keep.Streams), days), minStreams), k.streams},
		{"spans of boots", minSpans, k.spans},
		{"states", maxStates, func(before int64) { k.exec("DELETE FROM states WHERE saved < $1", before) }},
	} {
		if step.long != 0 {
			k.within("dropping old "+step.what, func() { step.do(k.now - step.long) })
		}
	}
	return k.err
}

// believed limits the current time to one day after the newest booking. A clock that is far ahead would drop all
// data.
func (k *keeper) believed() {
	k.check(k.d.read(k.ctx, func(r *reading) {
		if last, booked := r.lastBooked(); booked {
			k.now = min(k.now, last+aDay)
		}
	}))
}

// seconds converts a retention period to seconds, rounded up.
func seconds(long time.Duration) int64 {
	return int64((long + time.Second - 1) / time.Second)
}

// longer returns the longer of two retention periods, where 0 means forever.
func longer(a, b int64) int64 {
	if a == 0 || b == 0 {
		return 0
	}
	return max(a, b)
}

type keeper struct {
	operation // all transactions

	d   *DB
	now int64
}

// update runs do in a transaction that excludes folds, because it modifies sums and retention limits.
func (k *keeper) update(do func(s *session)) {
	if k.err != nil {
		return
	}
	k.check(k.d.update(k.ctx, func(s *session) {
		s.lockSums()
		do(s)
	}))
}

// exec runs one statement in its own transaction and returns the number of affected rows.
func (k *keeper) exec(query string, args ...any) (changed int64) {
	k.update(func(s *session) { changed = s.exec(query, args...) })
	return changed
}

// one reads the only row of a query outside of a transaction.
func (k *keeper) one(query string, args []any, into ...any) {
	if k.err == nil {
		k.check(k.d.reads.QueryRowContext(k.ctx, query, args...).Scan(into...))
	}
}

// repeated runs a statement with a row limit until it affects no rows, so that other transactions can write in
// between.
func (k *keeper) repeated(query string, args ...any) {
	for k.exec(query, args...) > 0 {
	}
}

// raise moves a retention limit forward.
func (k *keeper) raise(key string, to int64) {
	k.update(func(s *session) {
		var have int64
		if !s.one("SELECT CAST(value AS BIGINT) FROM meta WHERE key = $1", []any{key}, &have) || have < to {
			s.setMeta(key, strconv.FormatInt(to, 10))
		}
	})
}

func (k *keeper) windows(before int64) {
	before = floorTo(before, aDay)
	k.raise(windowsFrom, before)
	k.dropWindows(byAgent, before)
	k.dropWindows(byEstimate, before-estimatesLonger)
	k.exec("DELETE FROM reaches WHERE last < $1", before-estimatesLonger)
}

func (k *keeper) dropWindows(agentless, before int64) {
	k.repeated(`DELETE FROM windows WHERE agentless = $1 AND start < $2 AND start <= (
		SELECT COALESCE(MAX(start), 0) FROM (SELECT start FROM windows WHERE agentless = $3 AND start < $4
			ORDER BY start LIMIT `+strconv.Itoa(droppedAtOnce)+`) AS oldest)`, agentless, before, agentless, before)
}

// hours drops hours. Transfers of these days are finalized before, because they count by the hour.
func (k *keeper) hours(before int64) {
	before = floorTo(before, aDay)
	for {
		day, found := k.oldest(before, "account_hours", "node_hours")
		if !found {
			break
		}
		day = floorTo(day, aDay)
		k.finishDay(day)
		for hour := day; hour < day+aDay; hour += anHour {
			k.dropSums(hour, "account_hours", "node_hours", "temperatures")
		}
	}
	k.raise(hoursFrom, before)
}

// oldest returns the minimum start of rows in the tables that is before the given time. It returns false after an
// error.
func (k *keeper) oldest(before int64, tables ...string) (at int64, found bool) {
	at = before
	for _, table := range tables {
		k.one("SELECT COALESCE(MIN(start), $1) FROM "+table+" WHERE start < $2", []any{at, at}, &at)
	}
	return at, k.err == nil && at < before
}

func (k *keeper) dropSums(start int64, tables ...string) {
	k.update(func(s *session) {
		for _, table := range tables {
			s.exec("DELETE FROM "+table+" WHERE start = $1", start)
		}
	})
}

// finishDay removes transfers that do not count from a day's sums and records that its hours are no longer
// retained.
func (k *keeper) finishDay(day int64) {
	k.update(func(s *session) {
		r := &reading{operation: s.operation, d: k.d, tx: s.conn}
		r.loadKept()
		t := r.transferred(day)
		late := day < r.hoursFrom // recorded after the hours were dropped, including those of the host
		surplus := &summing{folder: &folder{reading: r, s: s}, sumsByKey: newBooks(), taken: map[int64]bool{0: true}}
		for i := range t.all {
			if row := &t.all[i]; !t.counts(row, late) {
				negative := row.Negative()
				at(surplus.accounts, sumKey{start: day, id: row.id}).Add(&negative)
			}
		}
		surplus.writeTo(sumsOf(false, true))
		if !late {
			s.setMeta(hoursFrom, strconv.FormatInt(day+aDay, 10))
		}
		s.touch(day)
	})
}

func (k *keeper) days(before int64) {
	before = floorTo(before, aDay)
	for {
		day, found := k.oldest(before, "account_days", "node_days")
		if !found {
			return
		}
		k.dropSums(day, "account_days", "node_days")
		k.exec("DELETE FROM meta WHERE key = $1", dayKey(day))
	}
}

// names drops accounts or consumers that were not used for so long that no retained row references them. The row
// with the highest ID is retained, because a database might reuse its ID.
func (k *keeper) names(table string, before int64) {
	const old = " WHERE id >= $1 AND id < $2 AND seen < $3"
	var first, last int64
	k.one("SELECT COALESCE(MIN(id), 0), COALESCE(MAX(id), 0) FROM "+table, nil, &first, &last)
	for {
		var next sql.NullInt64 // IDs that were deleted before are skipped
		if k.one("SELECT MIN(id) FROM "+table+old, []any{first, last, before}, &next); !next.Valid {
			return
		}
		first = next.Int64 + namesAtOnce
		k.exec("DELETE FROM "+table+old, next.Int64, min(first, last), before)
	}
}

// decisions drops records or their snapshots.
func (k *keeper) decisions(statement, which string, before int64) {
	k.repeated(fmt.Sprintf("%s WHERE id IN (SELECT id FROM records WHERE at < $1 AND %s ORDER BY at LIMIT %d)",
		statement, which, recordsAtOnce), time.Unix(before, 0).UnixMilli())
}

func (k *keeper) streams(before int64) {
	k.exec("DELETE FROM streams WHERE seen < $1", before)
	k.exec("DELETE FROM meta WHERE (key LIKE 'told/%' OR key LIKE 'seen/%') " +
		"AND NOT EXISTS (SELECT 1 FROM streams WHERE streams.node = substr(meta.key, 6))")
}
