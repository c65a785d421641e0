package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/kubenergy/kubenergy/ledger"
)

// Statistics counts what is in the store.
func (d *DB) Statistics(ctx context.Context) (ledger.Statistics, error) {
	var s ledger.Statistics
	err := d.read(ctx, func(r *reading) error {
		// A newer program may have been here: the version is the store's, not ours.
		if err := r.tx.QueryRowContext(ctx, "SELECT CAST(value AS BIGINT) FROM meta WHERE key = 'schema'").Scan(
			&s.Schema); err != nil {
			return err
		}
		var oldest sql.NullInt64
		err := r.tx.QueryRowContext(ctx, "SELECT COUNT(*), MIN(start) FROM journal").Scan(&s.Journal, &oldest)
		if err != nil {
			return err
		}
		if oldest.Valid {
			s.Oldest = time.UnixMilli(oldest.Int64).UTC()
		}
		for table, n := range map[string]*int64{
			"windows": &s.Windows, "accounts": &s.Accounts, "consumers": &s.Consumers, "records": &s.Records,
		} {
			if err := r.tx.QueryRowContext(ctx, "SELECT COUNT(*) FROM "+table).Scan(n); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil && d.dialect.Bytes != nil {
		s.Bytes, err = d.dialect.Bytes(ctx, d.reads)
	}
	if err != nil {
		return ledger.Statistics{}, fmt.Errorf("counting what is in the ledger: %w", err)
	}
	return s, nil
}

// Gauges implements [ledger.Store].
func (d *DB) Gauges(ctx context.Context) (g ledger.Statistics, err error) {
	err = d.reads.QueryRowContext(ctx, "SELECT COUNT(*) FROM journal").Scan(&g.Journal)
	if err == nil && d.dialect.Bytes != nil {
		g.Bytes, err = d.dialect.Bytes(ctx, d.reads)
	}
	if err != nil {
		return ledger.Statistics{}, fmt.Errorf("looking how full the ledger is: %w", err)
	}
	return g, nil
}
