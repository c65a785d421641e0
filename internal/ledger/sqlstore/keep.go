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
)

// Keep implements [ledger.Store]. It drops windows before hours and hours before days.
func (d *DB) Keep(ctx context.Context, keep ledger.Retention, now time.Time) error {
	k := keeper{d: d, ctx: ctx, now: now.Unix()}
	if err := k.believed(); err != nil {
		return err
	}
	windows, hours, days := seconds(keep.Windows), seconds(keep.Hours), seconds(keep.Days)
	hours = longer(hours, windows)
	days = longer(days, hours)
	for _, step := range []struct {
		what string
		long int64 // 0 means forever
		do   func(before int64) error
	}{
		{"windows", windows, k.windows},
		{"hours", hours, k.hours},
		{"days", days, k.days},
		{"consumers", windows, func(before int64) error { return k.names("consumers", before-namesLonger) }},
		{"accounts", longer(days, windows), func(before int64) error {
			return k.names("accounts", before-estimatesLonger-namesLonger)
		}},
		{"snapshots", seconds(keep.Snapshots), func(before int64) error {
			return k.decisions("UPDATE records SET snapshot = NULL", "snapshot IS NOT NULL", before)
		}},
		{"records", seconds(keep.Records), func(before int64) error {
			return k.decisions("DELETE FROM records", "1 = 1", before)
		}},
		{"streams", longer(longer(seconds(keep.Streams), days), minStreams), k.streams},
		{"spans of boots", minSpans, k.spans},
	} {
		if step.long == 0 {
			continue
		}
		if err := step.do(k.now - step.long); err != nil {
			return fmt.Errorf("dropping old %s: %w", step.what, err)
		}
	}
	return nil
}

// believed limits the current time to one day after the newest booking. A clock that is far ahead would drop all
// data.
func (k *keeper) believed() error {
	return k.d.read(k.ctx, func(r *reading) error {
		last, booked, err := r.lastBooked()
		if booked {
			k.now = min(k.now, last+aDay)
		}
		return err
	})
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
	d   *DB
	ctx context.Context // context of the call
	now int64
}

// update runs do in a transaction that excludes folds, because it modifies sums and retention limits.
func (k *keeper) update(do func(ctx context.Context, s *session) error) error {
	return k.d.update(k.ctx, func(ctx context.Context, s *session) error {
		if err := s.lockSums(ctx); err != nil {
			return err
		}
		return do(ctx, s)
	})
}

// exec runs one statement in its own transaction and returns the number of affected rows.
func (k *keeper) exec(query string, args ...any) (changed int64, err error) {
	err = k.update(func(ctx context.Context, s *session) error {
		result, err := s.exec(ctx, query, args...)
		if err != nil {
			return err
		}
		changed, err = result.RowsAffected()
		return err
	})
	return changed, err
}

// repeated runs a statement with a row limit until it affects no rows, so that other transactions can write in
// between.
func (k *keeper) repeated(query string, args ...any) error {
	for {
		if n, err := k.exec(query, args...); err != nil || n == 0 {
			return err
		}
	}
}

// raise moves a retention limit forward.
func (k *keeper) raise(key string, to int64) error {
	return k.update(func(ctx context.Context, s *session) error {
		var have int64
		found, err := s.one(ctx, "SELECT CAST(value AS BIGINT) FROM meta WHERE key = $1", []any{key}, &have)
		if err != nil || found && have >= to {
			return err
		}
		return s.setMeta(ctx, key, strconv.FormatInt(to, 10))
	})
}

func (k *keeper) windows(before int64) error {
	before = floorTo(before, aDay)
	if err := k.raise(windowsFrom, before); err != nil {
		return err
	}
	if err := k.dropWindows(byAgent, before); err != nil {
		return err
	}
	if err := k.dropWindows(byEstimate, before-estimatesLonger); err != nil {
		return err
	}
	_, err := k.exec("DELETE FROM reaches WHERE last < $1", before-estimatesLonger)
	return err
}

func (k *keeper) dropWindows(agentless, before int64) error {
	return k.repeated(`DELETE FROM windows WHERE agentless = $1 AND start < $2 AND start <= (
		SELECT COALESCE(MAX(start), 0) FROM (SELECT start FROM windows WHERE agentless = $3 AND start < $4
			ORDER BY start LIMIT `+strconv.Itoa(droppedAtOnce)+`) AS oldest)`, agentless, before, agentless, before)
}

// hours drops hours. Transfers of these days are finalized before, because they count by the hour.
func (k *keeper) hours(before int64) error {
	before = floorTo(before, aDay)
	for {
		day, found, err := k.oldest(before, "account_hours", "node_hours")
		if err != nil {
			return err
		}
		if !found {
			return k.raise(hoursFrom, before)
		}
		day = floorTo(day, aDay)
		if err := k.finishDay(day); err != nil {
			return err
		}
		for hour := day; hour < day+aDay; hour += anHour {
			if err := k.dropSums(hour, "account_hours", "node_hours", "temperatures"); err != nil {
				return err
			}
		}
	}
}

// oldest returns the minimum start of rows in the tables that is before the given time.
func (k *keeper) oldest(before int64, tables ...string) (at int64, found bool, err error) {
	at = before
	for _, table := range tables {
		err := k.d.reads.QueryRowContext(k.ctx, "SELECT COALESCE(MIN(start), $1) FROM "+table+" WHERE start < $2", at,
			at).Scan(&at)
		if err != nil {
			return 0, false, err
		}
	}
	return at, at < before, nil
}

func (k *keeper) dropSums(start int64, tables ...string) error {
	return k.update(func(ctx context.Context, s *session) error {
		for _, table := range tables {
			if _, err := s.exec(ctx, "DELETE FROM "+table+" WHERE start = $1", start); err != nil {
				return err
			}
		}
		return nil
	})
}

// finishDay removes transfers that do not count from a day's sums and records that its hours are no longer
// retained.
func (k *keeper) finishDay(day int64) error {
	return k.update(func(ctx context.Context, s *session) error {
		r := &reading{d: k.d, ctx: ctx, tx: s.conn}
		if err := r.loadKept(); err != nil {
			return err
		}
		t, err := r.transferred(day)
		if err != nil {
			return err
		}
		late := day < r.hoursFrom // recorded after the hours were dropped, including those of the host
		surplus := &summing{folder: &folder{reading: r, s: s}, sumsByKey: newBooks(), taken: map[int64]bool{0: true}}
		for i := range t.all {
			if row := &t.all[i]; !t.counts(row, late) {
				negative := row.Negative()
				at(surplus.accounts, sumKey{start: day, id: row.id}).Add(&negative)
			}
		}
		if err := surplus.writeTo(ctx, sumsOf(false, true)); err != nil {
			return err
		}
		if !late {
			if err := s.setMeta(ctx, hoursFrom, strconv.FormatInt(day+aDay, 10)); err != nil {
				return err
			}
		}
		return k.d.touch(ctx, s, day)
	})
}

func (k *keeper) days(before int64) error {
	before = floorTo(before, aDay)
	for {
		day, found, err := k.oldest(before, "account_days", "node_days")
		if err != nil || !found {
			return err
		}
		if err := k.dropSums(day, "account_days", "node_days"); err != nil {
			return err
		}
		if _, err := k.exec("DELETE FROM meta WHERE key = $1", dayKey(day)); err != nil {
			return err
		}
	}
}

// names drops accounts or consumers that were not used for so long that no retained row references them. The row
// with the highest ID is retained, because a database might reuse its ID.
func (k *keeper) names(table string, before int64) error {
	var first, last int64
	err := k.d.reads.QueryRowContext(k.ctx,
		"SELECT COALESCE(MIN(id), 0), COALESCE(MAX(id), 0) FROM "+table).Scan(&first, &last)
	for err == nil {
		var old sql.NullInt64 // IDs that were deleted before are skipped
		err = k.d.reads.QueryRowContext(k.ctx, "SELECT MIN(id) FROM "+table+
			" WHERE id >= $1 AND id < $2 AND seen < $3", first, last, before).Scan(&old)
		if err != nil || !old.Valid {
			break
		}
		first = old.Int64 + namesAtOnce
		_, err = k.exec("DELETE FROM "+table+" WHERE id >= $1 AND id < $2 AND seen < $3", old.Int64,
			min(first, last), before)
	}
	return err
}

// decisions drops records or their snapshots.
func (k *keeper) decisions(statement, which string, before int64) error {
	return k.repeated(fmt.Sprintf("%s WHERE id IN (SELECT id FROM records WHERE at < $1 AND %s ORDER BY at LIMIT %d)",
		statement, which, recordsAtOnce), time.Unix(before, 0).UnixMilli())
}

func (k *keeper) streams(before int64) error {
	if _, err := k.exec("DELETE FROM streams WHERE seen < $1", before); err != nil {
		return err
	}
	_, err := k.exec("DELETE FROM meta WHERE (key LIKE 'told/%' OR key LIKE 'seen/%') " +
		"AND NOT EXISTS (SELECT 1 FROM streams WHERE streams.node = substr(meta.key, 6))")
	return err
}
