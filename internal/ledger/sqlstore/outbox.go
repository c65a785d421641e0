package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/kubenergy/kubenergy/internal/ledger"
)

var (
	_ ledger.Outbox = (*DB)(nil)

	outboxColumns = []string{"at", "stream", "payload", "crc"}
)

// outgoing returns the outbox row of a booking.
func (b *booker) outgoing(k *ledger.Booking) []any {
	s := &k.Batch.Stream
	return sealed([]any{b.now, fmt.Sprintf("%s %s %s", s.Node, s.Boot, s.Epoch), k.Forward})
}

const maxResting = 10_000 // maximum number of streams in a statement; databases limit parameters

// Outgoing implements [ledger.Outbox].
func (d *DB) Outgoing(ctx context.Context, after int64, most int, rest map[string]bool) (
	all []ledger.Outgoing, err error,
) {
	var resting strings.Builder
	args := []any{after, most}
	for stream := range rest {
		if len(args) == maxResting {
			break
		}
		args = append(args, stream)
		fmt.Fprintf(&resting, ", $%d", len(args))
	}
	rows, err := d.reads.QueryContext(ctx, "SELECT id, at, stream, CASE WHEN stream IN (''"+resting.String()+
		") THEN NULL ELSE payload END, crc FROM outbox WHERE id > $1 ORDER BY id LIMIT $2", args...)
	if err = ForEach(rows, err, func(rows *sql.Rows) error {
		var o ledger.Outgoing
		var at, sum int64
		err := rows.Scan(&o.Number, &at, &o.Stream, &o.Packed, &sum)
		if sum != rowCRC(at, o.Stream, o.Packed) {
			o.Packed = nil
		}
		all = append(all, o)
		return err
	}); err != nil {
		return nil, fmt.Errorf("reading the outbox: %w", err)
	}
	return all, nil
}

// Sent implements [ledger.Outbox].
func (d *DB) Sent(ctx context.Context, numbers []int64) error {
	return d.update(ctx, func(s *session) { s.forget("outbox", numbers) })
}

// Backlog implements [ledger.Outbox]. It does not count rows, because there may be millions.
func (d *DB) Backlog(ctx context.Context, most int64) (b ledger.Backlog, err error) {
	var first, last, at int64
	err = d.reads.QueryRowContext(ctx, `SELECT COALESCE(MIN(id), 0), COALESCE(MAX(id), -1),
		COALESCE((SELECT at FROM outbox ORDER BY id LIMIT 1), 0) FROM outbox`).Scan(&first, &last, &at)
	if err == nil && last-first >= most {
		err = d.update(ctx, func(s *session) { b.Dropped = s.exec("DELETE FROM outbox WHERE id <= $1", last-most) })
	}
	if err != nil {
		return ledger.Backlog{}, fmt.Errorf("reading the size of the outbox: %w", err)
	}
	b.Kept, b.Oldest = min(last-first+1, most), at
	return b, nil
}
