package sqlite

import (
	"context"
	"database/sql"
	"fmt"
)

// OpenSmall opens a file that is checkpointed frequently.
func OpenSmall(ctx context.Context, path string) (*Store, error) {
	s, err := Open(ctx, path, Options{})
	if s != nil {
		s.logBytes = 400_000
	}
	return s, err
}

// Exec modifies the database behind the back of the store.
func (s *Store) Exec(ctx context.Context, query string) error {
	db, err := sql.Open("sqlite", s.source(readerCache))
	if err != nil {
		return err
	}
	defer db.Close()
	result, err := db.ExecContext(ctx, query)
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); n == 0 || err != nil {
		return fmt.Errorf("%d rows were modified: %w", n, err)
	}
	return nil
}

// Checkpoint moves the log to the file and truncates it.
func (s *Store) Checkpoint(ctx context.Context) error {
	var busy, frames, moved int
	return s.reads.QueryRowContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)").Scan(&busy, &frames, &moved)
}
