package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/kubenergy/kubenergy/internal/ledger"
)

// Statistics implements [ledger.Store].
func (d *DB) Statistics(ctx context.Context) (ledger.Statistics, error) {
	s, err := d.Gauges(ctx)
	if err != nil {
		return s, err
	}
	err = d.read(ctx, func(r *reading) {
		var oldest, unsent sql.NullInt64
		// The schema version is read from the store, because a newer program may have migrated it.
		r.one("", `SELECT (SELECT CAST(value AS BIGINT) FROM meta WHERE key = 'schema'),
			(SELECT MIN(start) FROM journal), (SELECT COUNT(*) FROM windows), (SELECT COUNT(*) FROM accounts),
			(SELECT COUNT(*) FROM consumers), (SELECT COUNT(*) FROM records),
			(SELECT at FROM outbox ORDER BY id LIMIT 1)`, nil, &s.Schema, &oldest, &s.Windows, &s.Accounts,
			&s.Consumers, &s.Records, &unsent)
		if oldest.Valid {
			s.Oldest = time.UnixMilli(oldest.Int64).UTC()
		}
		if unsent.Valid {
			s.Unsent = time.Unix(unsent.Int64, 0).UTC()
		}
	})
	if err != nil {
		return ledger.Statistics{}, fmt.Errorf("reading the statistics of the ledger: %w", err)
	}
	return s, nil
}

// Gauges implements [ledger.Store].
func (d *DB) Gauges(ctx context.Context) (g ledger.Statistics, err error) {
	err = d.reads.QueryRowContext(ctx, "SELECT COUNT(*) FROM journal").Scan(&g.Journal)
	if err == nil {
		g.Bytes, err = d.dialect.Bytes(ctx, d.reads)
	}
	if err != nil {
		return ledger.Statistics{}, fmt.Errorf("reading the size of the ledger: %w", err)
	}
	return g, nil
}
