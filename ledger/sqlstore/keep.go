package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/kubenergy/kubenergy/ledger"
)

// Things are dropped a few at a time: others can write in between.
const (
	droppedAtOnce = 5000
	recordsAtOnce = 500
)

// What is kept for longer than asked.
const (
	estimatesLonger = 60 * aDay // windows without an agent's: they are needed to take an estimate back
	namesLonger     = 2 * aDay  // who is used is said once a day
	leastStreams    = 366 * aDay
	leastSpans      = 30 * aDay // docs/protocol.md, Numbers
)

// Keep drops what is older than it is kept for: windows before hours, hours before days.
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
		do   func() error
	}{
		{"windows", func() error { return k.windows(k.before(windows)) }},
		{"hours", func() error { return k.hours(k.before(hours)) }},
		{"days", func() error { return k.days(k.before(days)) }},
		{"consumers", func() error { return k.names("consumers", windows, namesLonger) }},
		{"accounts", func() error { return k.names("accounts", longer(days, windows), estimatesLonger+namesLonger) }},
		{"snapshots", func() error { return k.snapshots(seconds(keep.Snapshots)) }},
		{"records", func() error { return k.records(seconds(keep.Records)) }},
		{"streams", func() error { return k.streams(longer(longer(seconds(keep.Streams), days), leastStreams)) }},
		{"times of boots", k.spans},
	} {
		if err := step.do(); err != nil {
			return fmt.Errorf("dropping old %s: %w", step.what, err)
		}
	}
	return nil
}

// believed moves a clock back that is more than a day ahead of the end of what was booked: it would have all dropped.
func (k *keeper) believed() error {
	var last sql.NullInt64
	err := k.d.reads.QueryRowContext(k.ctx,
		"SELECT MAX(last) FROM node_days WHERE start >= (SELECT MAX(start) FROM node_days)").Scan(&last)
	if err != nil {
		return fmt.Errorf("looking for the end of what was booked: %w", err)
	}
	if last.Valid {
		k.now = min(k.now, last.Int64+aDay)
	}
	return nil
}

// seconds is how long something is kept; 0: for good.
func seconds(long time.Duration) int64 {
	return int64((long + time.Second - 1) / time.Second)
}

// longer is the longer of two times for which things are kept.
func longer(a, b int64) int64 {
	if a == 0 || b == 0 {
		return 0
	}
	return max(a, b)
}

type keeper struct {
	d   *DB
	ctx context.Context // lives as long as one call
	now int64
}

// before is the beginning of the first day that is kept.
func (k *keeper) before(long int64) int64 {
	if long == 0 {
		return math.MinInt64
	}
	return floorTo(k.now-long, aDay)
}

// update changes sums and from when on they are kept: not while others fold.
func (k *keeper) update(do func(ctx context.Context, s *session) error) error {
	return k.d.update(k.ctx, func(ctx context.Context, s *session) error {
		if k.d.dialect.ForUpdate != "" {
			var version string
			if _, err := s.one(ctx, "SELECT value FROM meta WHERE key = 'schema'"+k.d.dialect.ForUpdate, nil,
				&version); err != nil {
				return err
			}
		}
		return do(ctx, s)
	})
}

func setMeta(ctx context.Context, s *session, key, value string) error {
	_,
		err := s.exec(ctx,
		"INSERT INTO meta (key, value) VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET value = excluded.value", key,
		value)
	return err
}

// raise moves forward from when on something is kept.
func (k *keeper) raise(key string, to int64) error {
	return k.update(func(ctx context.Context, s *session) error {
		var have int64
		found, err := s.one(ctx, "SELECT CAST(value AS BIGINT) FROM meta WHERE key = $1", []any{key}, &have)
		if err != nil || found && have >= to {
			return err
		}
		return setMeta(ctx, s, key, strconv.FormatInt(to, 10))
	})
}

func (k *keeper) windows(before int64) error {
	if before == math.MinInt64 {
		return nil
	}
	if err := k.raise(windowsFrom, before); err != nil {
		return err
	}
	if err := k.dropWindows(0, before); err != nil {
		return err
	}
	if err := k.dropWindows(1, before-estimatesLonger); err != nil {
		return err
	}
	return k.long(before - estimatesLonger)
}

func (k *keeper) dropWindows(agentless, before int64) error {
	for more := true; more; {
		err := k.update(func(ctx context.Context, s *session) error {
			until := before
			found,
				err := s.one(ctx,
				"SELECT start FROM windows WHERE start < $1 AND agentless = $2 ORDER BY start LIMIT 1 OFFSET "+
					strconv.Itoa(droppedAtOnce), []any{before, agentless}, &until)
			if err != nil {
				return err
			}
			if more = found; found {
				until++
			}
			_, err = s.exec(ctx, "DELETE FROM windows WHERE start < $1 AND agentless = $2", until, agentless)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// hours drops hours. What guests transferred from hosts on these days is settled before: it counted by the hour.
func (k *keeper) hours(before int64) error {
	if before == math.MinInt64 {
		return nil
	}
	for {
		day, found, err := k.oldest(before, "account_hours", "node_hours")
		if err != nil {
			return err
		}
		if !found {
			return k.raise(hoursFrom, before)
		}
		day = floorTo(day, aDay)
		if err := k.settle(day); err != nil {
			return err
		}
		for hour := day; hour < day+aDay; hour += anHour {
			if err := k.dropSums(hour, "account_hours", "node_hours"); err != nil {
				return err
			}
		}
	}
}

// oldest returns the first beginning in tables that is before an instant.
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

// settle takes out of a day's sums what was transferred and does not count, and says that its hours are no longer kept.
func (k *keeper) settle(day int64) error {
	return k.update(func(ctx context.Context, s *session) error {
		r := &reading{d: k.d, ctx: ctx, tx: s.conn}
		var err error
		if r.hoursFrom, err = r.kept(hoursFrom); err != nil {
			return err
		}
		t, err := r.transferred(day)
		if err != nil {
			return err
		}
		late := day < r.hoursFrom // booked after the hours were dropped: those of the host are gone
		surplus := map[int64]*ledger.Amount{}
		for i := range t.all {
			row := &t.all[i]
			if t.counts(row, late) {
				continue
			}
			if surplus[row.id] == nil {
				surplus[row.id] = new(ledger.Amount)
			}
			surplus[row.id].Add(&row.Amount)
		}
		for id, amount := range surplus {
			if err := takeFromDay(ctx, s, day, id, amount); err != nil {
				return err
			}
		}
		if !late {
			if err := setMeta(ctx, s, hoursFrom, strconv.FormatInt(day+aDay, 10)); err != nil {
				return err
			}
		}
		return k.d.touch(ctx, s, day)
	})
}

func takeFromDay(ctx context.Context, s *session, day, account int64, surplus *ledger.Amount) error {
	var sum *accountSum
	rows,
		err := s.query(ctx,
		"SELECT "+columnList(accountSumColumns)+" FROM account_days WHERE start = $1 AND account = $2", day, account)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if sum, err = scanAccountSum(rows); err != nil {
			return err
		}
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return err
	}
	if sum == nil {
		return fmt.Errorf("%w: account %d has hours on %s and no day", ledger.ErrDamaged, account, stamp(day))
	}
	negative := surplus.Negative()
	sum.Add(&negative)
	if sum.empty() {
		_, err := s.exec(ctx, "DELETE FROM account_days WHERE start = $1 AND account = $2", day, account)
		return err
	}
	_, err = s.exec(ctx, `UPDATE account_days SET dynamic = $1, idle = $2, cpu = $3, facility = $4, carbon = $5, cost = $6, estimated = $7,
		uncharted = $8, unpriced = $9, crc = $10 WHERE start = $11 AND account = $12`,
		int64(sum.Dynamic), int64(sum.Idle), int64(sum.CPU), int64(sum.Facility), int64(sum.Carbon), int64(sum.Cost),
		int64(sum.Estimated),
		int64(sum.Uncharted), int64(sum.Unpriced), sum.crc(), day, account)
	return err
}

func (k *keeper) days(before int64) error {
	if before == math.MinInt64 {
		return nil
	}
	for {
		day, found, err := k.oldest(before, "account_days", "node_days")
		if err != nil || !found {
			return err
		}
		if err := k.dropSums(day, "account_days", "node_days"); err != nil {
			return err
		}
		err = k.update(func(ctx context.Context, s *session) error {
			_, err := s.exec(ctx, "DELETE FROM meta WHERE key = $1", dayKey(day))
			return err
		})
		if err != nil {
			return err
		}
	}
}

// names drops accounts or consumers that nothing has used for so long that nothing that is kept can name them. That
// with the highest number stays: a database might give its number to another.
func (k *keeper) names(table string, long, more int64) error {
	if long == 0 {
		return nil
	}
	before := k.now - long - more
	var last int64
	if err := k.d.reads.QueryRowContext(k.ctx, "SELECT COALESCE(MAX(id), 0) FROM "+table).Scan(&last); err != nil {
		return err
	}
	for cursor := int64(math.MinInt64); ; {
		old, err := k.unused(table, before, cursor, last)
		if err != nil || len(old) == 0 {
			return err
		}
		err = k.update(func(ctx context.Context, s *session) error {
			for chunk := range slices.Chunk(old, listed) {
				// It may have been used since.
				if _, err := s.conn.ExecContext(ctx, "DELETE FROM "+table+" WHERE id IN ("+ids(chunk)+") AND seen < $1",
					before); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		cursor = old[len(old)-1]
	}
}

func (k *keeper) unused(table string, before, after, last int64) (old []int64, err error) {
	rows,
		err := k.d.reads.QueryContext(k.ctx,
		"SELECT id FROM "+table+" WHERE id > $1 AND id < $2 AND seen < $3 ORDER BY id LIMIT "+
			strconv.Itoa(droppedAtOnce), after, last, before)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		old = append(old, id)
	}
	return old, rows.Err()
}

// repeated runs a statement that changes a few rows until it changes none.
func (k *keeper) repeated(query string, args ...any) error {
	for n := int64(1); n > 0; {
		err := k.d.update(k.ctx, func(ctx context.Context, s *session) error {
			result, err := s.exec(ctx, query, args...)
			if err != nil {
				return err
			}
			n, err = result.RowsAffected()
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

const milliseconds = 1000

func (k *keeper) records(long int64) error {
	if long == 0 {
		return nil
	}
	return k.repeated(
		"DELETE FROM records WHERE id IN (SELECT id FROM records WHERE at < $1 ORDER BY at LIMIT "+strconv.Itoa(
			recordsAtOnce)+")",
		(k.now-long)*milliseconds)
}

func (k *keeper) snapshots(long int64) error {
	if long == 0 {
		return nil
	}
	return k.repeated("UPDATE records SET snapshot = NULL WHERE id IN (SELECT id FROM records WHERE at < $1 AND "+
		"snapshot IS NOT NULL ORDER BY at LIMIT "+
		strconv.Itoa(recordsAtOnce)+")", (k.now-long)*milliseconds)
}

func (k *keeper) streams(long int64) error {
	if long == 0 {
		return nil // as long as there is energy of the stream
	}
	return k.d.update(k.ctx, func(ctx context.Context, s *session) error {
		_, err := s.exec(ctx, "DELETE FROM streams WHERE seen < $1", k.now-long)
		return err
	})
}

// spans drops what is known of the time of boots, when nothing more can come of them.
func (k *keeper) spans() error {
	return k.d.update(k.ctx, func(ctx context.Context, s *session) error {
		_, err := s.exec(ctx, `DELETE FROM spans WHERE seen < $1 AND EXISTS (
			SELECT 1 FROM spans AS other WHERE other.node = spans.node AND other.boot <> spans.boot AND other.seen > spans.seen)`, k.now-leastSpans)
		return err
	})
}
