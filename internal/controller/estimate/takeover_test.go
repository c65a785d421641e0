package estimate

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
	"github.com/kubenergy/kubenergy/internal/kube/panics"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/ledger/ledgertest"
)

// booking returns the ledger record of a batch.
func booking(b *batch.Batch, agentless bool) *ledger.Booking {
	k := &ledger.Booking{
		Batch: b, Received: b.End, Agentless: agentless,
		Rates: ledger.Rates{PUE: 1, Carbon: math.NaN(), Price: math.NaN()},
	}
	for _, s := range b.Shares {
		account := ledger.Account{Kind: ledger.System}
		if strings.HasPrefix(s.ID, "pod/") {
			account = ledger.Account{Kind: ledger.Workload}
		}
		k.Consumers = append(k.Consumers, &ledger.Consumer{Key: s.ID, Account: account})
	}
	return k
}

// TestTakeOverInTheLedger verifies with a ledger that batches of an agent replace estimates, even if they arrive
// after the estimates were recorded, and that no energy is counted twice.
func TestTakeOverInTheLedger(t *testing.T) {
	w := newWorld(t)
	w.node("n", "10", 0)
	w.pod("n", "a", "2", 0)
	w.used(map[string]float64{"/n": 5, "a": 5}) // 100 W
	store := new(ledgertest.Store)
	book := func(b *batch.Batch, agentless bool) {
		_, errs, err := store.Book(t.Context(), []*ledger.Booking{booking(b, agentless)})
		if err != nil || errs[0] != nil {
			t.Fatal(err, errs)
		}
	}
	e := w.estimator()
	e.queue.book = func(_ context.Context, b *batch.Batch) error { book(b, true); return nil }
	noon := w.clock
	number := uint64(0)
	notify := func(minute int) { // the agent reports one minute at 200 W
		number++
		b := &batch.Batch{
			Version: batch.Version, Stream: batch.Stream{Node: "n", Boot: "real", Epoch: "x"}, First: number,
			Last:           number,
			StartSinceBoot: time.Duration(minute) * time.Minute, EndSinceBoot: time.Duration(minute+1) * time.Minute,
			Source: "psys (rapl)", Quality: energy.Measured, IdlePolicy: "apart", Measured: 12e9, Idle: 12e9,
		}
		b.SetWall(noon.Add(time.Duration(minute+1) * time.Minute))
		book(b, false)
		w.agents["n"] = w.clock
	}
	w.tick(e)
	for minute := 1; minute <= 50; minute++ {
		w.pass(time.Minute)
		switch {
		case minute == 13:
			for late := 5; late < 13; late++ { // after a network outage
				notify(late)
			}
		case minute > 13 && minute <= 30:
			notify(minute - 1)
		}
		w.tick(e)
	}
	answer, err := store.Query(t.Context(), &ledger.Query{
		From: noon, To: noon.Add(time.Hour), GroupBy: []ledger.Dimension{ledger.ByWindow},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := map[int]energy.Joules{0: 30_000, 30: 30_000, 35: 30_000, 40: 30_000, 45: 30_000}
	for minute := 5; minute < 30; minute += 5 {
		want[minute] = 60_000
	}
	if len(answer.Rows) != len(want) {
		t.Errorf("got %d windows, want %d", len(answer.Rows), len(want))
	}
	for _, row := range answer.Rows {
		at, err := time.Parse(time.RFC3339, row.Key[0])
		if err != nil {
			t.Fatal(err)
		}
		near(t, row.Key[0], row.Energy(), want[int(at.Sub(noon)/time.Minute)])
	}
}

// BenchmarkTick measures the time and allocations of a tick for 5,000 nodes without an agent.
func BenchmarkTick(b *testing.B) {
	t := new(testing.T)
	w := newWorld(t)
	cores := map[string]float64{}
	for i := range 5000 {
		name := fmt.Sprint("n", i)
		w.node(name, "64", 0)
		cores["/"+name] = 20
		for j := range 20 {
			uid := fmt.Sprint("u", i, "-", j)
			w.pod(name, uid, "500m", 0)
			cores[uid] = 0.7
		}
	}
	w.used(cores)
	e := w.estimator()
	e.queue.book = func(context.Context, *batch.Batch) error { return nil }
	for b.Loop() {
		w.pass(time.Minute)
		if err := e.estimate(b.Context()); err != nil {
			b.Fatal(err)
		}
		e.queue.drain(b.Context())
	}
}

// TestAnEstimateThatPanics verifies that a batch is retried after a panic and that other nodes are not affected.
func TestAnEstimateThatPanics(t *testing.T) {
	t.Cleanup(panics.Reset)
	w := newWorld(t)
	for _, name := range []string{"a", "b"} {
		w.node(name, "10", 0)
		w.pod(name, "pod-"+name, "2", 0)
	}
	planted := false
	w.refuse = func(b *batch.Batch) error {
		if b.Stream.Node == "a" && !planted {
			planted = true
			panic("planted")
		}
		return nil
	}
	e := w.estimator()
	booked := func() map[string]bool {
		nodes := map[string]bool{}
		for _, b := range w.booked {
			nodes[b.Stream.Node] = true
		}
		return nodes
	}
	for range 10 {
		if w.tick(e); planted && len(w.booked) == 1 && !booked()["b"] {
			t.Error("the other node was not recorded")
		}
		w.pass(time.Minute)
	}
	if nodes := booked(); !nodes["a"] || !nodes["b"] || panics.Note("estimate") != 2 {
		t.Errorf("got records of the nodes %v", nodes)
	}
}
