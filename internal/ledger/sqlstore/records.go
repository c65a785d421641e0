package sqlstore

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/sliceutil"
)

var recordColumns = []string{
	"id", "at", "namespace", "owner_kind", "owner", "uid", "strategy", "record", "snapshot", "crc",
}

// Record implements [ledger.Store]. Existing records are not modified.
func (d *DB) Record(ctx context.Context, records []ledger.Record) error {
	rows := make([][]any, 0, len(records))
	for i := range records {
		row, err := recordRow(&records[i])
		if err != nil {
			return err
		}
		rows = append(rows, row)
	}
	// All processes insert in the same order to avoid deadlocks.
	slices.SortFunc(rows, func(a, b []any) int { return strings.Compare(a[0].(string), b[0].(string)) })
	rows = slices.CompactFunc(rows, func(a, b []any) bool { return a[0] == b[0] })
	err := d.update(ctx, func(s *session) { s.insert("records", recordColumns, rows, "ON CONFLICT (id) DO NOTHING") })
	if err != nil {
		return fmt.Errorf("recording decisions: %w", err)
	}
	return nil
}

func recordRow(r *ledger.Record) ([]any, error) {
	if err := r.Validate(); err != nil {
		return nil, fmt.Errorf("recording a decision: %w", err)
	}
	k := r.Kept()
	snapshot := k.Snapshot
	k.Snapshot = nil
	data, err := json.Marshal(&k)
	if err != nil {
		return nil, fmt.Errorf("recording a decision: %w", err)
	}
	at := k.At.UnixMilli()
	var blob any
	if snapshot != nil {
		blob = sealBlob(slices.Clone(snapshot), at)
	}
	row := []any{k.ID, at, k.Namespace, k.OwnerKind, k.Owner, k.UID, k.Strategy, data}
	return append(row, blob, rowCRC(row...)), nil
}

// maxNames is the maximum number of values in a filter of records.
const maxNames = 1000

// Records implements [ledger.Store]. It returns the newest decisions first.
func (d *DB) Records(ctx context.Context, q *ledger.RecordQuery) ([]ledger.Record, error) {
	if len(q.Namespaces) > maxNames || len(q.Strategies) > maxNames {
		return nil, fmt.Errorf("%w: %w: a filter has more than %d values", ledger.ErrQuery, ledger.ErrTooLarge,
			maxNames)
	}
	where, args := []string{"1 = 1"}, []any{}
	add := func(condition string, values ...any) { // $ is replaced by one parameter per value
		places := make([]string, len(values))
		for i, v := range values {
			args = append(args, v)
			places[i] = fmt.Sprintf("$%d", len(args))
		}
		where = append(where, strings.Replace(condition, "$", strings.Join(places, ", "), 1))
	}
	if !q.From.IsZero() {
		add("at >= $", q.From.UnixMilli())
	}
	if !q.To.IsZero() {
		add("at < $", q.To.UnixMilli())
	}
	if len(q.Namespaces) > 0 {
		add("namespace IN ($)", sliceutil.Map(q.Namespaces, asAny)...)
	}
	if len(q.Strategies) > 0 {
		add("strategy IN ($)", sliceutil.Map(q.Strategies, asAny)...)
	}
	if q.UID != "" {
		add("uid = $", q.UID)
	}
	if kind, owner, ok := strings.Cut(q.Owner, "/"); ok {
		add("owner_kind = $", kind)
		add("owner = $", owner)
	} else if q.Owner != "" {
		return []ledger.Record{}, nil
	}
	snapshot := "NULL"
	if q.Snapshots {
		snapshot = "snapshot"
	}
	out := []ledger.Record{}
	err := d.read(ctx, func(r *reading) {
		r.each("", func(rows *sql.Rows) error {
			record, err := scanRecord(rows)
			out = append(out, record)
			return err
		}, fmt.Sprintf("SELECT id, at, namespace, owner_kind, owner, uid, strategy, record, %s, crc FROM records "+
			"WHERE %s ORDER BY at DESC, id LIMIT %d", snapshot, strings.Join(where, " AND "), q.Rows()), args...)
	})
	if err != nil {
		return nil, fmt.Errorf("reading decisions: %w", err)
	}
	return out, nil
}

func asAny(text string) any { return text }

func scanRecord(rows *sql.Rows) (record ledger.Record, err error) {
	var id, namespace, ownerKind, owner, uid, strategy string
	var at, crc int64
	var data, snapshot []byte
	if err := rows.Scan(&id, &at, &namespace, &ownerKind, &owner, &uid, &strategy, &data, &snapshot, &crc); err != nil {
		return record, err
	}
	if crc != rowCRC(id, at, namespace, ownerKind, owner, uid, strategy, data) {
		return record, fmt.Errorf("%w: record %q", ledger.ErrDamaged, id)
	}
	if err := json.Unmarshal(data, &record); err != nil {
		return record, fmt.Errorf("record %q: %w", id, err)
	}
	if snapshot != nil {
		if record.Snapshot, err = openBlob(snapshot, at); err != nil {
			return record, fmt.Errorf("snapshot of record %q: %w", id, err)
		}
	}
	return record, nil
}
