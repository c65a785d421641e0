package ledgertest

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
	"github.com/kubenergy/kubenergy/internal/ledger"
)

// Conformance runs the tests that every store must pass. Each test calls place to get a new, empty location, and
// calls the returned function each time it opens the store. A store that only supports one process must return an
// error if it is opened twice.
func Conformance(t *testing.T, place func(t *testing.T) func() (ledger.Store, error)) {
	for name, test := range map[string]func(t *testing.T, open func() (ledger.Store, error)){
		"numbers":            numbers,
		"one call":           oneCall,
		"folding":            folding,
		"opened again":       openedAgain,
		"agentless":          agentless,
		"long bookings":      longBookings,
		"long and agentless": longAndAgentless,
		"names":              names,
		"time of nodes":      reportedTime,
		"guests":             guests,
		"temperatures":       temperatures,
		"states":             states,
		"two at once":        twoAtOnce,
		"several folders":    severalFolders,
	} {
		t.Run(name, func(t *testing.T) { test(t, place(t)) })
	}
}

// OfContent skips the test under the race detector. It is used by tests that check the content of a store and not
// its concurrency, because SQLite is translated from C and runs thirty times slower under the race detector.
func OfContent(t *testing.T) {
	t.Helper()
	if raced {
		t.Skip("checks content only: skipped with the race detector")
	}
}

func opened(t *testing.T, open func() (ledger.Store, error)) ledger.Store {
	t.Helper()
	s, err := open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

var one = World{Nodes: 1, Pods: 3, Epoch: "1"}

// change returns a booking with different sequence numbers and another interval. Intervals are numbered as in
// [World].
func change(first, last uint64, from, to int, epoch string) *ledger.Booking {
	b := one.Booking(0, 1)
	b.Batch.First, b.Batch.Last, b.Batch.Stream.Epoch = first, last, epoch
	b.Batch.StartSinceBoot, b.Batch.EndSinceBoot = time.Duration(from)*Interval, time.Duration(to)*Interval
	b.Batch.Start, b.Batch.End = Noon.Add(b.Batch.StartSinceBoot), Noon.Add(b.Batch.EndSinceBoot)
	b.Batch.Unmeasured = 0
	return b
}

// numbers tests the cases of the table in docs/reference/protocol.md, in the same order.
func numbers(t *testing.T, open func() (ledger.Store, error)) {
	s := opened(t, open)
	var truth Truth
	steps := []struct {
		what    string
		booking *ledger.Booking
		want    ledger.Receipt
		err     error
	}{
		{"new", change(1, 1, 0, 1, "a"), ledger.Receipt{Acked: 1, Booked: true}, nil},
		{"next", change(2, 3, 1, 3, "a"), ledger.Receipt{Acked: 3, Booked: true}, nil},
		{"again", change(2, 3, 1, 3, "a"), ledger.Receipt{Acked: 3}, nil},
		{"an older one again, with another interval", change(1, 1, 1, 9, "a"), ledger.Receipt{Acked: 3}, nil},
		{"partly", change(3, 4, 3, 5, "a"), ledger.Receipt{}, ledger.ErrPartly},
		{"overlap", change(4, 4, 2, 4, "a"), ledger.Receipt{}, ledger.ErrOverlap},
		{"overlap of another epoch", change(1, 1, 0, 1, "b"), ledger.Receipt{}, ledger.ErrOverlap},
		{"gap", change(9, 9, 8, 9, "a"), ledger.Receipt{Acked: 9, Booked: true, Gap: true}, nil},
		{
			"in the gap, by another epoch", change(5, 5, 5, 6, "c"),
			ledger.Receipt{Acked: 5, Booked: true, Gap: true},
			nil,
		},
		{"over the end of a span", change(6, 6, 6, 9, "c"), ledger.Receipt{}, ledger.ErrOverlap},
		{"around a span", change(6, 6, 4, 8, "c"), ledger.Receipt{}, ledger.ErrOverlap},
		{"touching both", change(6, 6, 6, 8, "c"), ledger.Receipt{Acked: 6, Booked: true}, nil},
		{"the rest", change(7, 7, 3, 5, "c"), ledger.Receipt{Acked: 7, Booked: true}, nil},
		{"inside of all", change(8, 8, 4, 5, "c"), ledger.Receipt{}, ledger.ErrOverlap},
		{
			"the highest number", change(10, math.MaxUint64-1, 9, 10, "a"),
			ledger.Receipt{Acked: math.MaxUint64 - 1, Booked: true},
			nil,
		},
		{
			"the highest number again", change(10, math.MaxUint64-1, 9, 10, "a"),
			ledger.Receipt{Acked: math.MaxUint64 - 1},
			nil,
		},
	}
	for _, step := range steps {
		receipts, errs, err := s.Book(t.Context(), []*ledger.Booking{step.booking})
		if err != nil {
			t.Fatalf("%s: %v", step.what, err)
		}
		receipts[0].New = false // tested in reportedTime
		if !errors.Is(errs[0], step.err) || step.err == nil && receipts[0] != step.want {
			t.Fatalf("%s: got %+v, %v; want %+v, %v", step.what, receipts[0], errs[0], step.want, step.err)
		}
		if receipts[0].Booked {
			truth.Book(step.booking)
		}
	}
	none := change(8, 8, 1, 1, "c") // empty booking that overlaps no other
	none.Batch.Measured, none.Batch.Platform, none.Batch.Unknown, none.Batch.Shares, none.Consumers = 0, 0, 0, nil, nil
	if r := MustBook(t, s, none); !r[0].Booked {
		t.Error("a booking with an empty interval was not recorded")
	}
	wrong := change(9, 9, 20, 21, "c")
	wrong.Consumers = nil
	if _, errs, err := s.Book(t.Context(), []*ledger.Booking{wrong}); err != nil ||
		!errors.Is(errs[0], ledger.ErrInvalid) {
		t.Errorf("unexpected errors for shares without a consumer: %v, %v", errs, err)
	}
	for epoch, want := range map[string]uint64{"a": math.MaxUint64 - 1, "c": 8, "b": 0} {
		of := none.Batch.Stream
		of.Epoch = epoch
		if acked, known, err := s.Acked(t.Context(), of); err != nil || acked != want || known != (want > 0) {
			t.Errorf("epoch %s: Acked() = %d, %v, %v; want %d", epoch, acked, known, err, want)
		}
	}
	FoldAll(t, s)
	truth.Check(t, s)
}

// reportedTime tests the total time that a node has reported over its boots, and its creation time.
func reportedTime(t *testing.T, open func() (ledger.Store, error)) {
	s := opened(t, open)
	reported := func(want ledger.Reported) {
		t.Helper()
		got, err := s.Reported(t.Context(), one.Booking(0, 1).Batch.Stream.Node)
		if err != nil || got.Time != want.Time || !got.Since.Equal(want.Since) || got.Seen != want.Seen {
			t.Errorf("Reported() = %+v, %v; want %+v", got, err, want)
		}
	}
	reported(ledger.Reported{})
	made := Noon.Add(-48 * time.Hour)
	book := func(number uint64, boot string, from, to int, since time.Time, isNew bool) {
		t.Helper()
		b := change(number, number, from, to, boot)
		b.Batch.Stream.Boot, b.NodeSince = boot, since
		if r := MustBook(t, s, b); r[0].New != isNew {
			t.Errorf("interval %d to %d of the %s boot: New is %v", from, to, boot, r[0].New)
		}
	}
	book(1, "first", 0, 1, made, true)
	reported(ledger.Reported{Time: Interval, Since: made})
	book(2, "first", 1, 4, Noon, false)
	book(3, "first", 9, 10, Noon, true) // a gap does not count
	book(1, "second", 0, 2, Noon, true) // another boot counts
	reported(ledger.Reported{Time: 7 * Interval, Since: made})
	estimate := change(1, 1, 0, 3, "estimate") // estimates of the controller do not count
	estimate.Agentless = true
	MustBook(t, s, estimate)
	reported(ledger.Reported{Time: 7 * Interval, Since: made})
	more := change(4, 4, 10, 11, "first")
	more.Batch.Stream.Boot, more.NodeSeen = "first", &ledger.Seen{Made: made.Unix(), Cores: 64, GPUs: 8}
	MustBook(t, s, more)
	reported(ledger.Reported{Time: 8 * Interval, Since: made, Seen: *more.NodeSeen})
	more = change(5, 5, 11, 12, "first")
	more.Batch.Stream.Boot = "first"
	// Another controller with stale data reports more. The values reported first must be retained.
	more.NodeSeen = &ledger.Seen{Made: made.Unix(), Cores: 64, GPUs: 16, Bytes: 1 << 40}
	MustBook(t, s, more)
	reported(ledger.Reported{Time: 9 * Interval, Since: made, Seen: ledger.Seen{Made: made.Unix(), Cores: 64, GPUs: 8, Bytes: 1 << 40}})
}

// oneCall records contradicting bookings in one call. Only the contradicting ones are rejected.
func oneCall(t *testing.T, open func() (ledger.Store, error)) {
	s := opened(t, open)
	all := []*ledger.Booking{
		change(1, 1, 0, 1, "a"), change(1, 1, 0, 1, "a"), change(1, 2, 0, 2, "a"), change(1, 1, 0, 1, "b"),
		change(2, 2, 1, 2, "a"),
		World{Nodes: 2, Pods: 3}.Booking(1, 1),
	}
	receipts, errs, err := s.Book(t.Context(), all)
	if err != nil {
		t.Fatal(err)
	}
	var truth Truth
	for i, want := range []struct {
		booked bool
		err    error
	}{{true, nil}, {false, nil}, {false, ledger.ErrPartly}, {false, ledger.ErrOverlap}, {true, nil}, {true, nil}} {
		if receipts[i].Booked != want.booked || !errors.Is(errs[i], want.err) {
			t.Errorf("%d: got %+v, %v; want %v, %v", i, receipts[i], errs[i], want.booked, want.err)
		}
		if receipts[i].Booked {
			truth.Book(all[i])
		}
	}
	if receipts[1].Acked != 1 {
		t.Errorf("unexpected acknowledged number %d for a booking of the same call", receipts[1].Acked)
	}
	FoldAll(t, s)
	truth.Check(t, s)
}

func folding(t *testing.T, open func() (ledger.Store, error)) {
	s := opened(t, open)
	w := World{Nodes: 5, Pods: 8, Epoch: "1"}
	var truth Truth
	const batches = 60
	for number := range uint64(batches) {
		var all []*ledger.Booking
		for node := range w.Nodes {
			b := w.Booking(node, number+1)
			truth.Book(b)
			all = append(all, b)
		}
		MustBook(t, s, all...)
		if number%9 == 3 {
			FoldAll(t, s)
		}
	}
	FoldAll(t, s)
	truth.Check(t, s)
	if stats, err := s.Statistics(t.Context()); err != nil || stats.Journal != 0 {
		t.Errorf("unexpected statistics %+v or error %v", stats, err)
	}
	MustBook(t, s, w.Booking(0, batches+1))
	if g, err := s.Gauges(t.Context()); err != nil || g.Journal != 1 || g.Bytes == 0 {
		t.Errorf("unexpected gauges %+v or error %v", g, err)
	}
}

func openedAgain(t *testing.T, open func() (ledger.Store, error)) {
	w := World{Nodes: 2, Pods: 4, Epoch: "1"}
	var truth Truth
	for number := range uint64(6) {
		s, err := open()
		if err != nil {
			t.Fatal(err)
		}
		for node := range w.Nodes {
			b := w.Booking(node, number+1)
			truth.Book(b)
			if r := MustBook(t, s, b, b); !r[0].Booked || r[0].Gap || r[1].Booked {
				t.Fatalf("unexpected receipt %+v", r)
			}
		}
		if number%2 == 1 {
			FoldAll(t, s)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	s := opened(t, open)
	FoldAll(t, s)
	truth.Check(t, s)
}

// names tests names that become known after the energy was recorded.
func names(t *testing.T, open func() (ledger.Store, error)) {
	s := opened(t, open)
	b := one.Booking(0, 1)
	for i := range b.Consumers {
		if b.Consumers[i].Pod != "" {
			b.Consumers[i].Pod, b.Consumers[i].Account = "", ledger.Account{Kind: ledger.Workload}
		}
	}
	MustBook(t, s, b)
	MustBook(t, s, one.Booking(0, 2))
	FoldAll(t, s)
	answer, err := s.Query(t.Context(), &ledger.Query{
		From: Noon, To: Noon.Add(time.Hour), GroupBy: []ledger.Dimension{ledger.ByUID}, Pods: []string{"pod-0-1"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(answer.Rows) != 1 || answer.Rows[0].Key[0] != PodUID(0, 1) ||
		answer.Total.Dynamic != b.Batch.Shares[1].Dynamic+one.Booking(0, 2).Batch.Shares[1].Dynamic {
		t.Errorf("unexpected rows %+v", answer.Rows)
	}
}

// guests tests that guests are deducted from their host if the host has bookings in the same hour.
func guests(t *testing.T, open func() (ledger.Store, error)) {
	s := opened(t, open)
	host, guest := one.Booking(0, 1), World{Nodes: 2, Pods: 2}.Booking(1, 1)
	guest.Batch.Parent = &batch.Parent{Host: host.Batch.Stream.Node, VM: "vm1"}
	total := func() energy.Microjoules {
		t.Helper()
		FoldAll(t, s)
		Audit(t, s)
		answer, err := s.Query(t.Context(), &ledger.Query{From: Noon, To: Noon.Add(time.Hour)})
		if err != nil {
			t.Fatal(err)
		}
		return answer.Total.Energy()
	}
	MustBook(t, s, guest)
	if have := total(); have != guest.Batch.Measured {
		t.Errorf("guest without bookings of its host: got %d µJ, want %d", have, guest.Batch.Measured)
	}
	MustBook(t, s, host)
	if have := total(); have != host.Batch.Measured {
		t.Errorf("guest with bookings of its host: got %d µJ, want %d", have, host.Batch.Measured)
	}
}

// temperatures tests the hourly mean and maximum of the temperatures of new bookings.
func temperatures(t *testing.T, open func() (ledger.Store, error)) {
	s := opened(t, open)
	w := World{Nodes: 2, Pods: 1, Epoch: "hot"}
	book := func(node int, number uint64, after time.Duration, celsius energy.Celsius) {
		t.Helper()
		b := w.Booking(node, number)
		b.Received, b.Temperature = Noon.Add(after), &celsius
		MustBook(t, s, b)
	}
	for range 2 { // duplicates count once
		book(0, 1, 0, 60)
		book(0, 2, 20*time.Minute, -10.5)
		book(0, 3, 59*time.Minute, 71.3)
		book(0, 4, 60*time.Minute, 90)
		book(1, 1, 10*time.Minute, 40)
	}
	MustBook(t, s, w.Booking(1, 2)) // without a temperature
	first, second := w.Booking(0, 1).Batch.Stream.Node, w.Booking(1, 1).Batch.Stream.Node
	hour := Noon.UTC()
	all := []ledger.Temperature{
		{Hour: hour, Node: first, Mean: 40.267, Max: 71.3, Samples: 3},
		{Hour: hour, Node: second, Mean: 40, Max: 40, Samples: 1},
		{Hour: hour.Add(time.Hour), Node: first, Mean: 90, Max: 90, Samples: 1},
	}
	for _, c := range []struct {
		from, to time.Time
		node     string
		want     []ledger.Temperature
	}{
		{Noon, Noon.Add(2 * time.Hour), "", all},
		{Noon.Add(59 * time.Minute), Noon.Add(time.Hour), "", all[:2]},
		{Noon, Noon.Add(2 * time.Hour), second, all[1:2]},
		{Noon.Add(2 * time.Hour), Noon.Add(3 * time.Hour), "", nil},
	} {
		got, err := s.Temperatures(t.Context(), c.from, c.to, c.node)
		if diff := cmp.Diff(c.want, got); err != nil || diff != "" {
			t.Errorf("from %v to %v, node %q: error %v, diff %s", c.from, c.to, c.node, err, diff)
		}
	}
}
