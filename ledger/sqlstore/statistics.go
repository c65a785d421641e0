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
	s := ledger.Statistics{Schema: Schema()}
	err := d.read(ctx, func(r *reading) error {
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
