package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/kubenergy/kubenergy/ledger"
)

// How often a transaction is tried that others were in the way of, and how long it waits.
const (
	tries     = 6
	firstWait = 5 * time.Millisecond
)

// again reports whether a transaction failed only because of others, and was undone.
func again(err error) bool {
	failed, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return false
	}
	switch failed.Code {
	case "40001", "40P01", "55P03": // serialization_failure, deadlock_detected, lock_not_available
		return true
	}
	return false
}

// retry runs a transaction until others are not in its way.
func retry(ctx context.Context, do func() error) error {
	wait := firstWait
	for try := 1; ; try++ {
		err := do()
		if err == nil || try == tries || !again(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(wait/2 + rand.N(wait)):
		}
		wait *= 2
	}
}

// Book implements [ledger.Store].
func (s *Store) Book(ctx context.Context, all []*ledger.Booking) (receipts []ledger.Receipt, errs []error, err error) {
	err = retry(ctx, func() error {
		receipts, errs, err = s.DB.Book(ctx, all)
		return err
	})
	return receipts, errs, err
}

// Record implements [ledger.Store].
func (s *Store) Record(ctx context.Context, records []ledger.Record) error {
	return retry(ctx, func() error { return s.DB.Record(ctx, records) })
}

// Keep implements [ledger.Store].
func (s *Store) Keep(ctx context.Context, r ledger.Retention, now time.Time) error {
	return retry(ctx, func() error { return s.DB.Keep(ctx, r, now) })
}

// Fold implements [ledger.Store]. One process folds at a time; for the others, there is nothing to do.
func (s *Store) Fold(ctx context.Context) (left int, err error) {
	conn, err := s.writes.Conn(ctx)
	if err != nil {
		return 0, fmt.Errorf("%w: connecting: %w", ledger.ErrReadOnly, err)
	}
	defer conn.Close()
	var mine bool
	if err := conn.QueryRowContext(ctx, "SELECT pg_try_advisory_lock($1)", int64(foldLock)).Scan(&mine); err != nil {
		return 0, fmt.Errorf("%w: taking the lock of those who fold: %w", ledger.ErrReadOnly, err)
	}
	if !mine {
		return 0, nil
	}
	defer func() {
		// The lock is the connection's: if it cannot be given back, the connection goes with it.
		if _, unlock := conn.ExecContext(context.WithoutCancel(ctx), "SELECT pg_advisory_unlock($1)", int64(foldLock)); unlock != nil {
			_ = conn.Raw(func(any) error { return errBad })
		}
	}()
	err = retry(ctx, func() error {
		left, err = s.DB.Fold(ctx)
		return err
	})
	return left, err
}
