package intake

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"golang.org/x/time/rate"

	"github.com/kubenergy/kubenergy/internal/controller/access"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/ledger/ledgertest"
)

// booker records single bookings in an in-memory ledger.
type booker struct{ ledgertest.Store }

func (b *booker) Book(ctx context.Context, booking *ledger.Booking) (ledger.Receipt, error) {
	receipts, errs, err := b.Store.Book(ctx, []*ledger.Booking{booking})
	if err != nil {
		return ledger.Receipt{}, err
	}
	return receipts[0], errs[0]
}

// A forwarded booking passes the same steps as a batch of an agent: it is priced and counted, and its consumers beyond
// the quota are replaced in a copy. The argument and the booking of another node stay as they are.
func TestForwardedBookingsPassTheSameSteps(t *testing.T) {
	noon := time.Date(2026, 11, 3, 12, 0, 0, 0, time.UTC)
	store, registry := &booker{}, prometheus.NewRegistry()
	h := New(Config{
		Ledger: store, PodIndex: NewPodIndex(PodIndexOptions{Now: time.Now}), Now: func() time.Time { return noon },
		Log: slog.New(slog.DiscardHandler), Registerer: registry, Forward: true,
		Rates: func(node string, _, _ time.Time) ledger.Rates { return ledger.Rates{Site: node, PUE: 1} },
		Power: func(string) string { return "" },
	})
	m := &member{
		Member: access.Member{Name: "alpha", Nodes: 2, MaxPower: 2000}, news: nameQuota{most: 1},
		nodes: nameQuota{most: 2}, rate: rate.NewLimiter(rate.Inf, 1),
	}
	for _, node := range []string{"alpha/a", "alpha/b"} {
		consumers := []*ledger.Consumer{
			{Key: "vm/x", Account: ledger.Account{Kind: ledger.VM, Owner: "x"}},
			{Key: "vm/y", Account: ledger.Account{Kind: ledger.VM, Owner: "y"}},
			{Key: "vm/z", Account: ledger.Account{Kind: ledger.Foreign}},
		}
		b := &ledger.Booking{
			Batch: &batch.Batch{
				Version: batch.Version, Stream: batch.Stream{Node: node, Boot: "boot", Epoch: "epoch"}, First: 3, Last: 3,
				EndSinceBoot: 2 * time.Hour, Source: "s", Measured: 90e6, IdlePolicy: "apart",
				Shares: []energy.Share{{ID: "vm/x", Dynamic: 30e6}, {ID: "vm/y", Dynamic: 30e6}, {ID: "vm/z", Dynamic: 30e6}},
			},
			Consumers: append([]*ledger.Consumer(nil), consumers...), Power: ledger.Booting,
		}
		b.Batch.SetWall(noon.Add(time.Hour)) // its clock is ahead
		before, sent := *b, *b.Batch
		if err := h.bookForwarded(t.Context(), m, b); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(before, *b); diff != "" || b.Batch != before.Batch || b.Consumers[1] != consumers[1] {
			t.Errorf("the argument was modified: %s", diff)
		}
		if diff := cmp.Diff(sent, *b.Batch); diff != "" {
			t.Errorf("the batch of the argument was modified: %s", diff)
		}
	}
	booked := store.Booked()
	if len(booked) != 2 {
		t.Fatalf("recorded %d bookings, want 2", len(booked))
	}
	for _, b := range booked {
		want := ledger.Booking{Received: noon, Rates: ledger.Rates{Site: b.Batch.Stream.Node, PUE: 1}, Power: ledger.Booting}
		if diff := cmp.Diff(want, *b, cmpopts.IgnoreFields(ledger.Booking{}, "Batch", "Consumers", "NodeSince")); diff != "" {
			t.Errorf("booking (-want +got):\n%s", diff)
		}
		if !b.Batch.End.Equal(noon) || b.Consumers[0].Key != "vm/x" || b.Consumers[1].Key != batch.Others {
			t.Errorf("unexpected booking: %+v of %+v", b.Batch, b.Consumers)
		}
		b.Consumers[1].Pod = "modified"
	}
	if overflow.Pod != "" || booked[0].Consumers[1] == booked[1].Consumers[1] {
		t.Error("bookings share the consumer beyond the quota")
	}
	for name, want := range map[string]struct {
		counter prometheus.Counter
		value   float64
	}{
		"energy": {h.metrics.energy, 180}, "late": {h.metrics.late, 2}, "gaps": {h.metrics.gaps, 2},
		"moved": {h.metrics.moved, 2},
	} {
		if got := testutil.ToFloat64(want.counter); got != want.value {
			t.Errorf("%s = %v, want %v", name, got, want.value)
		}
	}
}
