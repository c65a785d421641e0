package postgres

import (
	"context"
	"errors"
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
	case "40001", "40P01", "55P03": // serialisation_failure, deadlock_detected, lock_not_available
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

// Fold implements [ledger.Store]. One process folds at a time; for the others, there is nothing to do. The lock is
// the transaction's: that of a process that is gone ends when the server notices, at the latest when the transaction
// has been idle for too long.
func (s *Store) Fold(ctx context.Context) (left int, err error) {
	err = retry(ctx, func() error {
		left, err = s.DB.Fold(ctx)
		return err
	})
	return left, err
}
