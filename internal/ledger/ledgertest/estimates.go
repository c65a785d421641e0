package ledgertest

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
	"github.com/kubenergy/kubenergy/internal/ledger"
)

// agentless records estimates and agent data for some of the same windows in different orders.
func agentless(t *testing.T, open func() (ledger.Store, error)) {
	OfContent(t)
	s := opened(t, open)
	estimates := World{Nodes: 2, Pods: 5, Epoch: "estimate", Agentless: true}
	agents := World{Nodes: 2, Pods: 4, Epoch: "agent"}
	const inWindow = uint64(ledger.WindowLength / Interval)
	var truth Truth
	estimate := func(node int, number uint64) *ledger.Booking {
		b := estimates.Booking(node, number)
		b.Batch.Stream.Boot = "central"
		return b
	}
	for window := range uint64(6) {
		for node := range 2 {
			for i := range inWindow {
				number := window*inWindow + i + 1
				reported := window != 0 && window != 4 && (node == 0 || window == 3)
				if window == 5 && reported { // agent data is folded before the estimate is recorded
					MustBook(t, s, agents.Booking(node, number))
					FoldAll(t, s)
				}
				MustBook(t, s, estimate(node, number))
				if window == 2 && i == 7 {
					FoldAll(t, s) // the estimate is folded before agent data is recorded
				}
				if reported {
					if window != 5 {
						MustBook(t, s, agents.Booking(node, number))
					}
					truth.Book(agents.Booking(node, number))
				} else {
					truth.Book(estimate(node, number))
				}
			}
		}
		if window == 1 {
			FoldAll(t, s) // fold both together
		}
	}
	FoldAll(t, s)
	truth.Check(t, s)
}

// longAndAgentless records estimates before, together with and after a long booking of an agent that covers their
// windows. The booking is cut by hours, cut by days, or not cut.
func longAndAgentless(t *testing.T, open func() (ledger.Store, error)) {
	OfContent(t)
	s := opened(t, open)
	var truth Truth
	oracle := &Store{}
	book := func(b *ledger.Booking) {
		t.Helper()
		MustBook(t, s, b)
		MustBook(t, oracle, b)
	}
	const pods = 1000
	for i, long := range []time.Duration{20 * time.Hour, 9*24*time.Hour + time.Minute, 210 * 24 * time.Hour} {
		w := World{Nodes: 4, Pods: pods, Epoch: "agent"}
		agent := w.Booking(i, 1)
		begin := Noon.Add(200*time.Second).AddDate(0, 0, -1)
		if i == 2 { //nolint:mnd // the longest one ends before the queries of the others
			begin = begin.Add(10*24*time.Hour - long)
		}
		agent.Batch.Start, agent.Batch.End, agent.Batch.EndSinceBoot = begin.UTC(), begin.Add(long).UTC(),
			agent.Batch.StartSinceBoot+long
		number := uint64(0)
		estimate := func(at time.Time, stands bool) {
			t.Helper()
			number++
			b := World{Nodes: 4, Pods: 2, Epoch: "estimate", Agentless: true}.Booking(i, number)
			b.Batch.Stream.Boot = "central"
			b.Batch.Start, b.Batch.End = at, at.Add(Interval)
			book(b)
			if stands {
				truth.Book(b)
			}
		}
		at := agent.Batch.Start.Truncate(ledger.WindowLength)
		end := agent.Batch.End
		last := end.Add(-1).Truncate(ledger.WindowLength)
		all := func(offset time.Duration) {
			t.Helper()
			estimate(at.Add(-ledger.WindowLength+offset), i < 2) //nolint:mnd // before the queried interval
			estimate(at.Add(offset), false)
			estimate(at.Add(25*time.Minute+offset), false)
			estimate(at.Add(long/2).Truncate(ledger.WindowLength).Add(offset), false)
			estimate(last.Add(offset), false)
			estimate(last.Add(ledger.WindowLength+offset), true)
		}
		all(0)
		FoldAll(t, s)
		all(Interval)
		book(agent)
		truth.Book(agent)
		all(2 * Interval)
		FoldAll(t, s)
		all(3 * Interval)
		FoldAll(t, s)
		all(4 * Interval)
	}
	FoldAll(t, s)
	truth.Check(t, s)
	for _, q := range []*ledger.Query{
		{From: Noon.AddDate(-1, 0, 0), To: Noon.AddDate(0, 1, 0), GroupBy: []ledger.Dimension{ledger.ByNode}},
		{
			From: Noon.AddDate(-1, 0, 0), To: Noon.AddDate(0, 1, 0),
			GroupBy: []ledger.Dimension{ledger.ByDay, ledger.ByKind},
		},
	} {
		want, err := oracle.Query(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		have, err := s.Query(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		if len(have.Rows) != len(want.Rows) || have.Total.Amount != want.Total.Amount {
			t.Errorf("by %v: got %d rows, total %+v; want %d, %+v", q.GroupBy, len(have.Rows), have.Total.Amount,
				len(want.Rows), want.Total.Amount)
		}
		for i := range min(len(have.Rows), len(want.Rows)) {
			if !slices.Equal(have.Rows[i].Key, want.Rows[i].Key) || have.Rows[i].Amount != want.Rows[i].Amount {
				t.Errorf("%v: got %+v, want %+v", want.Rows[i].Key, have.Rows[i].Amount, want.Rows[i].Amount)
			}
		}
	}
}

// longBookings tests bookings of up to several days with unaligned times and unusual rates.
func longBookings(t *testing.T, open func() (ledger.Store, error)) {
	OfContent(t)
	s := opened(t, open)
	var truth Truth
	drawn := rapid.Custom(Draw)
	for boot := range 40 {
		b := drawn.Example(boot)
		b.Batch.Stream = batch.Stream{Node: fmt.Sprintf("node%d", boot), Boot: "b", Epoch: "e"}
		b.Batch.First, b.Batch.Last, b.Batch.Parent, b.Agentless = 1, 1, nil, false
		truth.Book(b)
		MustBook(t, s, b)
		if boot%8 == 0 {
			FoldAll(t, s)
		}
	}
	FoldAll(t, s)
	truth.Check(t, s)
}

// Draw returns a random booking that starts around noon.
func Draw(t *rapid.T) *ledger.Booking {
	length := time.Duration(rapid.OneOf(
		rapid.Just(int64(0)), rapid.Int64Range(1, int64(20*time.Minute)), rapid.Int64Range(1, int64(9*24*time.Hour)),
	).Draw(t, "length"))
	start := time.Duration(rapid.Int64Range(0, int64(26*time.Hour)).Draw(t, "start"))
	used := rapid.Int64Range(0, 5e9)
	if length == 0 {
		used = rapid.Just(int64(0))
	}
	b := &batch.Batch{
		Version: batch.Version, Stream: batch.Stream{Node: "n", Boot: "b", Epoch: "e"}, First: 1, Last: 1,
		Start: Noon.Add(start), End: Noon.Add(start + length), StartSinceBoot: start, EndSinceBoot: start + length,
		Unmeasured: time.Duration(rapid.Int64Range(0, int64(length)).Draw(t, "unmeasured")),
		Source:     "s", Quality: energy.Quality(rapid.IntRange(0, 2).Draw(t, "quality")), IdlePolicy: "equal",
		Idle: energy.Microjoules(used.Draw(t, "idle")), Platform: energy.Microjoules(used.Draw(t, "platform")),
		Unknown: energy.Microjoules(used.Draw(t, "unknown")),
	}
	rate := rapid.OneOf(rapid.Just(math.NaN()), rapid.Just(0.0), rapid.Float64Range(0, 900))
	of := &ledger.Booking{
		Power: rapid.SampledFrom([]ledger.Kind{0, ledger.Asleep, ledger.Booting}).Draw(t, "power"),
		Batch: b, Received: b.End,
		Rates: ledger.Rates{
			Site: "site", PUE: rapid.SampledFrom([]float64{1, 1.37, math.NaN(), 0.5, 2}).Draw(t, "pue"),
			Carbon: rate.Draw(t, "carbon"), Signal: "average", Price: rate.Draw(t, "price") - 100, Currency: "EUR",
		},
	}
	if rapid.Bool().Draw(t, "guest") {
		b.Parent = &batch.Parent{Host: "host", VM: "vm"}
	}
	b.Measured = b.Idle + b.Platform + b.Unknown
	for i := range rapid.IntRange(0, 6).Draw(t, "shares") {
		share := energy.Share{
			ID: fmt.Sprintf("pod/%d/%d", i/2, i), Dynamic: energy.Microjoules(used.Draw(t, "dynamic")),
			Idle: energy.Microjoules(used.Draw(t, "shared")),
			CPU:  time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "cpu")),
		}
		b.Measured += share.Dynamic + share.Idle
		b.Shares = append(b.Shares, share)
		of.Consumers = append(of.Consumers, &ledger.Consumer{
			Key: fmt.Sprintf("pod/%d", i/2), Pod: fmt.Sprintf("p%d", i/2),
			Account: ledger.Account{Namespace: fmt.Sprintf("ns%d", i/4), OwnerKind: "Job", Owner: "o"},
		})
	}
	return of
}
