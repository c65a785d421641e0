package intake

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/ledger/ledgertest"
	"github.com/kubenergy/kubenergy/test/kit/bubble"
)

// TestStoreThatComesLater checks that the controller works while the database is unavailable at its start.
func TestStoreThatComesLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var there atomic.Bool
		open := func(context.Context) (ledger.Store, error) {
			if !there.Load() {
				return nil, errors.New("connection refused")
			}
			return &ledgertest.Store{}, nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		s := OpenLate(ctx, open, slog.New(slog.DiscardHandler))
		ended := make(chan error)
		go func() { ended <- s.Run(ctx) }()
		if _, _, err := s.Book(ctx, nil); !errors.Is(err, ledger.ErrReadOnly) {
			t.Errorf("Book() error = %v, want ErrReadOnly", err)
		}
		if _, err := s.Query(ctx, &ledger.Query{From: time.Now().Add(-time.Hour), To: time.Now()}); !errors.Is(err,
			ledger.ErrReadOnly) {
			t.Errorf("Query() error = %v, want ErrReadOnly", err)
		}
		bubble.Advance(3 * retryToOpen)
		there.Store(true)
		bubble.Advance(2 * retryToOpen)
		if _, err := s.Query(ctx, &ledger.Query{From: time.Now().Add(-time.Hour), To: time.Now()}); err != nil {
			t.Errorf("Query() after opening: unexpected error: %v", err)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
		cancel()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}
