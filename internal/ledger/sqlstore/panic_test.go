package sqlstore_test

import (
	"context"
	"testing"

	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/ledger/ledgertest"
	"github.com/kubenergy/kubenergy/internal/ledger/sqlite"
)

// A panic only affects its own transaction. The next one succeeds immediately, in this process and in another one.
func TestPanicInATransaction(t *testing.T) {
	file := t.TempDir() + "/ledger.db"
	s, err := sqlite.Open(t.Context(), file, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	for n := range 3 {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("expected a panic")
				}
			}()
			_ = s.Update(t.Context(), func(context.Context) error { panic("planted") })
		}()
		b := ledgertest.World{Nodes: 1, Pods: 2}.Booking(0, uint64(n+1))
		if r, errs, err := s.Book(t.Context(), []*ledger.Booking{b}); err != nil || errs[0] != nil || !r[0].Booked {
			t.Fatalf("unexpected result after a panic: %v, %v, %v", r, errs, err)
		}
	}
}
