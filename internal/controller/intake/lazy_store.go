package intake

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy/batch"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/ledger"
)

// A LazyStore is a store that opens when it becomes available, such as a database that starts after the controller
// or a volume that is being restored. Until then, its methods return [ledger.ErrReadOnly], so that no batch is
// acknowledged and no query is answered. Signals, holds and deadlines do not depend on it.
type LazyStore struct {
	open func(context.Context) (ledger.Store, error)
	log  *slog.Logger

	mu     sync.RWMutex
	store  ledger.Store
	why    error // the last error of open
	closed bool
}

var errNotOpened = errors.New("the ledger is not open yet")

const (
	openWithin  = 15 * time.Second // timeout of the first attempt, which delays the start of the controller
	retryToOpen = 10 * time.Second
)

// OpenLate tries to open a store once. If this fails, Run retries.
func OpenLate(ctx context.Context, open func(context.Context) (ledger.Store, error), log *slog.Logger) *LazyStore {
	s := &LazyStore{open: open, log: log, why: errNotOpened}
	ctx, cancel := context.WithTimeout(ctx, openWithin)
	defer cancel()
	s.try(ctx)
	return s
}

// Run retries until the store is open or ctx is done.
func (s *LazyStore) Run(ctx context.Context) error {
	for {
		if _, err := s.get(); err == nil || !kube.Pause(ctx, retryToOpen) {
			return nil
		}
		s.try(ctx)
	}
}

func (s *LazyStore) try(ctx context.Context) {
	store, err := s.open(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err != nil:
		if s.why.Error() != err.Error() {
			s.log.Error("Failed to open the ledger, batches are not acknowledged until it is open", "error", err)
		}
		s.why = err
	case s.closed:
		_ = store.Close() // opened after Close
	default:
		s.store, s.why = store, nil
	}
}

func (s *LazyStore) get() (ledger.Store, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.store == nil {
		return nil, fmt.Errorf("%w: %w", ledger.ErrReadOnly, s.why)
	}
	return s.store, nil
}

// ask calls a method of the store, or returns an error if it is not open.
func ask[T any](s *LazyStore, question func(ledger.Store) (T, error)) (answer T, err error) {
	store, err := s.get()
	if err != nil {
		return answer, err
	}
	return question(store)
}

// Book implements [ledger.Store].
func (s *LazyStore) Book(ctx context.Context, all []*ledger.Booking) ([]ledger.Receipt, []error, error) {
	store, err := s.get()
	if err != nil {
		return nil, nil, err
	}
	return store.Book(ctx, all)
}

// Acked implements [ledger.Store].
func (s *LazyStore) Acked(ctx context.Context, stream batch.Stream) (uint64, bool, error) {
	store, err := s.get()
	if err != nil {
		return 0, false, err
	}
	return store.Acked(ctx, stream)
}

// Reported implements [ledger.Store].
func (s *LazyStore) Reported(ctx context.Context, node string) (ledger.Reported, error) {
	return ask(s, func(l ledger.Store) (ledger.Reported, error) { return l.Reported(ctx, node) })
}

// Fold implements [ledger.Store].
func (s *LazyStore) Fold(ctx context.Context) (int, error) {
	return ask(s, func(l ledger.Store) (int, error) { return l.Fold(ctx) })
}

// Query implements [ledger.Store].
func (s *LazyStore) Query(ctx context.Context, q *ledger.Query) (*ledger.Answer, error) {
	return ask(s, func(l ledger.Store) (*ledger.Answer, error) { return l.Query(ctx, q) })
}

// Series implements [ledger.Store].
func (s *LazyStore) Series(ctx context.Context, q *ledger.Query) ([]ledger.Point, error) {
	return ask(s, func(l ledger.Store) ([]ledger.Point, error) { return l.Series(ctx, q) })
}

// Temperatures implements [ledger.Store].
func (s *LazyStore) Temperatures(ctx context.Context, from, to time.Time, node string) ([]ledger.Temperature, error) {
	return ask(s, func(l ledger.Store) ([]ledger.Temperature, error) { return l.Temperatures(ctx, from, to, node) })
}

// Record implements [ledger.Store].
func (s *LazyStore) Record(ctx context.Context, records []ledger.Record) error {
	_, err := ask(s, func(l ledger.Store) (any, error) { return nil, l.Record(ctx, records) })
	return err
}

// Records implements [ledger.Store].
func (s *LazyStore) Records(ctx context.Context, q *ledger.RecordQuery) ([]ledger.Record, error) {
	return ask(s, func(l ledger.Store) ([]ledger.Record, error) { return l.Records(ctx, q) })
}

// Keep implements [ledger.Store].
func (s *LazyStore) Keep(ctx context.Context, r ledger.Retention, now time.Time) error {
	_, err := ask(s, func(l ledger.Store) (any, error) { return nil, l.Keep(ctx, r, now) })
	return err
}

// Audit implements [ledger.Store].
func (s *LazyStore) Audit(ctx context.Context, from time.Time) (*ledger.Findings, error) {
	return ask(s, func(l ledger.Store) (*ledger.Findings, error) { return l.Audit(ctx, from) })
}

// Statistics implements [ledger.Store].
func (s *LazyStore) Statistics(ctx context.Context) (ledger.Statistics, error) {
	return ask(s, func(l ledger.Store) (ledger.Statistics, error) { return l.Statistics(ctx) })
}

// Gauges implements [ledger.Store].
func (s *LazyStore) Gauges(ctx context.Context) (ledger.Statistics, error) {
	return ask(s, func(l ledger.Store) (ledger.Statistics, error) { return l.Gauges(ctx) })
}

// Outbox returns the outbox of the store, or an error if the store is not open.
func (s *LazyStore) Outbox() (ledger.Outbox, error) {
	return ask(s, func(l ledger.Store) (ledger.Outbox, error) { return l.(ledger.Outbox), nil })
}

// SaveState implements [ledger.StateStore].
func (s *LazyStore) SaveState(ctx context.Context, name string, payload []byte) error {
	_, err := ask(s, func(l ledger.Store) (any, error) {
		return nil, l.(ledger.StateStore).SaveState(ctx, name, payload)
	})
	return err
}

// States implements [ledger.StateStore].
func (s *LazyStore) States(ctx context.Context, prefix string) (map[string][]byte, error) {
	return ask(s, func(l ledger.Store) (map[string][]byte, error) { return l.(ledger.StateStore).States(ctx, prefix) })
}

// Close implements [ledger.Store].
func (s *LazyStore) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.store == nil {
		return nil
	}
	return s.store.Close()
}
