package intake_test

import (
	"bytes"
	"context"
	"net/http"
	"testing"

	"github.com/kubenergy/kubenergy/internal/controller/intake"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
	"github.com/kubenergy/kubenergy/internal/ledger"
)

// nowhere is a ledger that accepts every booking without storing it.
type nowhere struct{}

func (nowhere) Book(_ context.Context, b *ledger.Booking) (ledger.Receipt, error) {
	return ledger.Receipt{Acked: b.Batch.Last, Booked: true}, nil
}

func (nowhere) Acked(context.Context, batch.Stream) (uint64, bool, error) { return 0, false, nil }

func (nowhere) Reported(context.Context, string) (ledger.Reported, error) {
	return ledger.Reported{}, nil
}

type discard struct {
	header http.Header
	code   int
}

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(p []byte) (int, error) { return len(p), nil }
func (d *discard) WriteHeader(code int)        { d.code = code }

func benchmark(b *testing.B, w *world, bodies [][]byte) {
	change := func(c *intake.Config) { c.Ledger = nowhere{} }
	w.restart(change)
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		if n == len(bodies) {
			b.StopTimer()
			w.restart(change)
			n = 0
			b.StartTimer()
		}
		answer := &discard{header: http.Header{}}
		w.handler.ServeHTTP(answer, post("token-a", bytes.NewReader(bodies[n]), "gzip"))
		if answer.code != 0 {
			b.Fatal(answer.code)
		}
		n++
	}
}
