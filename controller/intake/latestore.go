package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/kubenergy/kubenergy/energy/batch"
	"github.com/kubenergy/kubenergy/ledger"
)

// lateStore is a store that may not be there yet: a database that starts later than we do, a volume that is restored.
// Until it is, nothing is acknowledged and no question answered; signals, holds and deadlines have nothing to do with
// it and go on.
type lateStore struct {
	open func(context.Context) (ledger.Store, error)
	log  *slog.Logger

	mu     sync.RWMutex
	store  ledger.Store
	why    error // why there is none
	closed bool
}

var errNotOpened = errors.New("the ledger is not opened yet")

const (
	openWithin  = 15 * time.Second // the first try, which others wait for
	retryToOpen = 10 * time.Second
)

// openLate opens a store, or leaves that to run.
func openLate(ctx context.Context, open func(context.Context) (ledger.Store, error), log *slog.Logger) *lateStore {
	s := &lateStore{open: open, log: log, why: errNotOpened}
	ctx, cancel := context.WithTimeout(ctx, openWithin)
	defer cancel()
	s.try(ctx)
	return s
}

// run tries until the store is open or ctx ends.
func (s *lateStore) run(ctx context.Context) error {
	for {
		if s.opened() {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(retryToOpen):
			s.try(ctx)
		}
	}
}

func (s *lateStore) try(ctx context.Context) {
	store, err := s.open(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err != nil:
		if s.why.Error() != err.Error() {
			s.log.Error("The ledger cannot be opened: nothing is acknowledged until it can", "error", err)
		}
		s.why = err
	case s.closed:
		_ = store.Close() // nobody waits for it any more
	default:
		s.store, s.why = store, nil
	}
}

func (s *lateStore) opened() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.store != nil
}

func (s *lateStore) get() (ledger.Store, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.store == nil {
		return nil, fmt.Errorf("%w: %w", ledger.ErrReadOnly, s.why)
	}
	return s.store, nil
}

// Book implements [ledger.Store], as all that follows.
func (s *lateStore) Book(ctx context.Context, all []*ledger.Booking) ([]ledger.Receipt, []error, error) {
	store, err := s.get()
	if err != nil {
		return nil, nil, err
	}
	return store.Book(ctx, all)
}

// Acked implements [ledger.Store].
func (s *lateStore) Acked(ctx context.Context, stream batch.Stream) (uint64, bool, error) {
	store, err := s.get()
	if err != nil {
		return 0, false, err
	}
	return store.Acked(ctx, stream)
}

// Fold implements [ledger.Store].
func (s *lateStore) Fold(ctx context.Context) (int, error) {
	store, err := s.get()
	if err != nil {
		return 0, err
	}
	return store.Fold(ctx)
}

// Query implements [ledger.Store].
func (s *lateStore) Query(ctx context.Context, q *ledger.Query) (*ledger.Answer, error) {
	store, err := s.get()
	if err != nil {
		return nil, err
	}
	return store.Query(ctx, q)
}

// Series implements [ledger.Store].
func (s *lateStore) Series(ctx context.Context, q *ledger.Query) ([]ledger.Point, error) {
	store, err := s.get()
	if err != nil {
		return nil, err
	}
	return store.Series(ctx, q)
}

// Record implements [ledger.Store].
func (s *lateStore) Record(ctx context.Context, records []ledger.Record) error {
	store, err := s.get()
	if err != nil {
		return err
	}
	return store.Record(ctx, records)
}

// Records implements [ledger.Store].
func (s *lateStore) Records(ctx context.Context, q *ledger.RecordQuery) ([]ledger.Record, error) {
	store, err := s.get()
	if err != nil {
		return nil, err
	}
	return store.Records(ctx, q)
}

// Keep implements [ledger.Store].
func (s *lateStore) Keep(ctx context.Context, r ledger.Retention, now time.Time) error {
	store, err := s.get()
	if err != nil {
		return err
	}
	return store.Keep(ctx, r, now)
}

// Audit implements [ledger.Store].
func (s *lateStore) Audit(ctx context.Context, from time.Time) (*ledger.Findings, error) {
	store, err := s.get()
	if err != nil {
		return nil, err
	}
	return store.Audit(ctx, from)
}

// Statistics implements [ledger.Store].
func (s *lateStore) Statistics(ctx context.Context) (ledger.Statistics, error) {
	store, err := s.get()
	if err != nil {
		return ledger.Statistics{}, err
	}
	return store.Statistics(ctx)
}

// Gauges implements [ledger.Gauger].
func (s *lateStore) Gauges(ctx context.Context) (ledger.Gauges, error) {
	store, err := s.get()
	if err != nil {
		return ledger.Gauges{}, err
	}
	if g, ok := store.(ledger.Gauger); ok {
		return g.Gauges(ctx)
	}
	all, err := store.Statistics(ctx)
	return ledger.Gauges{Journal: all.Journal, Bytes: all.Bytes}, err
}

// Close implements [ledger.Store].
func (s *lateStore) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.store == nil {
		return nil
	}
	return s.store.Close()
}
