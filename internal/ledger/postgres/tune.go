package postgres

import (
	"context"
	"fmt"
)

// Recent windows and sums are updated frequently, and the journal is emptied every few seconds, so these tables
// need to be vacuumed more often than by default. Windows are encoded in a format that cannot be compressed, and
// are stored inline.
var settings = []string{
	`ALTER TABLE windows SET (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.01,
		autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 1, toast_tuple_target = 8160)`,
	`ALTER TABLE windows ALTER COLUMN payload SET STORAGE EXTERNAL`,
	`ALTER TABLE journal SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000,
		autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 10000, autovacuum_vacuum_cost_delay = 0,
		toast_tuple_target = 8160)`,
	`ALTER TABLE journal ALTER COLUMN payload SET STORAGE EXTERNAL`,
	`ALTER TABLE account_hours SET (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02)`,
	`ALTER TABLE account_days SET (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02)`,
	`ALTER TABLE node_hours SET (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02)`,
	`ALTER TABLE node_days SET (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02)`,
	`ALTER TABLE streams SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.1)`,
	`ALTER TABLE spans SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.1)`,
}

// hypertable partitions windows by day. It has not been tested with TimescaleDB. A test only checks that the
// statement is sent.
const hypertable = `SELECT create_hypertable('windows', 'start', chunk_time_interval => 86400::BIGINT,
	if_not_exists => TRUE, migrate_data => TRUE)`

// tuned is the version of the settings, stored in meta.
const tuned = "1"

// tune applies the settings that are specific to PostgreSQL, once per version.
func (s *Store) tune(ctx context.Context) error {
	tx, err := s.writes.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // no-op after a commit
	if _, err := tx.ExecContext(ctx, "SELECT pg_advisory_xact_lock($1)", int64(migrateLock)); err != nil {
		return err
	}
	var have, timescale bool
	err = tx.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM meta WHERE key = 'postgres' AND value = $1),
		EXISTS (SELECT 1 FROM pg_extension WHERE extname = 'timescaledb')`, tuned).Scan(&have, &timescale)
	if err != nil {
		return err
	}
	var statements []string
	if !have {
		statements = append(settings, "INSERT INTO meta (key, value) VALUES ('postgres', '"+tuned+"') "+
			"ON CONFLICT (key) DO UPDATE SET value = excluded.value")
	}
	if timescale {
		statements = append(statements, hypertable)
	}
	for _, statement := range statements {
		if _, err := tx.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("%.60q: %w", statement, err)
		}
	}
	return tx.Commit()
}
