package ledgertest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
	"github.com/kubenergy/kubenergy/internal/ledger"
)

// Noon is the start of the first booking of a [World].
var Noon = time.Date(2026, 11, 3, 12, 0, 0, 0, time.UTC)

// Interval is the duration of a booking of a [World].
const Interval = 15 * time.Second

// A World is a number of nodes with bookings that are a function of node and sequence number, so that two processes
// generate the same ones.
type World struct {
	Nodes     int
	Pods      int    // per node
	Epoch     string // epoch of the streams
	Agentless bool
}

// Node returns the name of a node.
func (w World) Node(node int) string { return fmt.Sprintf("node%04d", node) }

// Stream returns the stream of a node.
func (w World) Stream(node int) batch.Stream {
	return batch.Stream{Node: w.Node(node), Boot: "boot of " + w.Node(node), Epoch: "epoch " + w.Epoch}
}

// Booking returns the booking of a node with the given sequence number.
func (w World) Booking(node int, number uint64) *ledger.Booking {
	r := rand.New(rand.NewPCG(uint64(node), number))
	start := time.Duration(number-1) * Interval
	b := &batch.Batch{
		Version: batch.Version, Stream: w.Stream(node), First: number, Last: number,
		Start: Noon.Add(start), End: Noon.Add(start + Interval), StartSinceBoot: start, EndSinceBoot: start + Interval,
		Source: "package (rapl)", Quality: energy.Measured, IdlePolicy: "requests",
		Platform: energy.Microjoules(r.Int64N(1e8)), Unknown: energy.Microjoules(r.Int64N(1e5)),
	}
	if number%7 == 0 {
		b.Quality, b.Unmeasured = energy.Estimated, time.Second
	}
	of := &ledger.Booking{
		Batch: b, Received: b.End.Add(time.Second), Agentless: w.Agentless,
		Rates: ledger.Rates{
			Site: "site", PUE: 1.4, Carbon: 300 + float64(number/20%24)*5, Signal: "average", Price: 0.25,
			Currency: "EUR",
		},
	}
	if w.Agentless {
		b.Quality = energy.Estimated
	}
	for i := range w.Pods {
		uid := PodUID(node, i)
		b.Shares = append(b.Shares, energy.Share{
			ID:      energy.ContainerID(uid, "c"),
			Dynamic: energy.Microjoules(r.Int64N(9e7)), Idle: energy.Microjoules(r.Int64N(3e7)),
			CPU: time.Duration(r.Int64N(15e6)) * time.Microsecond,
		})
		of.Consumers = append(of.Consumers, &ledger.Consumer{
			Key: energy.ContainerID(uid, ""), Pod: fmt.Sprintf("pod-%d-%d", node, i),
			Account: ledger.Account{
				Kind: ledger.Workload, Namespace: fmt.Sprintf("ns%d", i%5), OwnerKind: "Deployment",
				Owner: fmt.Sprintf("owner%d", i), Team: "team",
			},
		})
	}
	b.Shares = append(b.Shares, energy.Share{
		ID: energy.System, Dynamic: energy.Microjoules(r.Int64N(1e8)), CPU: time.Second,
	})
	of.Consumers = append(of.Consumers, &ledger.Consumer{
		Key: energy.System, Account: ledger.Account{Kind: ledger.System},
	})
	b.Measured = b.Platform + b.Unknown
	for _, s := range b.Shares {
		b.Measured += s.Dynamic + s.Idle
	}
	return of
}

// PodUID returns the UID of a pod of a node.
func PodUID(node, pod int) string {
	return fmt.Sprintf("%08x-0000-4000-8000-%012x", node, pod)
}

// A Truth contains the expected content of a ledger.
type Truth struct {
	Total  ledger.Amount
	Nodes  map[string]ledger.Amount
	Pods   map[string]ledger.Amount // by UID; the key "" contains energy that belongs to no pod
	Kinds  map[string]ledger.Amount
	Spaces map[string]ledger.Amount
}

// Book adds a booking.
func (t *Truth) Book(b *ledger.Booking) {
	if t.Nodes == nil {
		t.Nodes, t.Pods = map[string]ledger.Amount{}, map[string]ledger.Amount{}
		t.Kinds, t.Spaces = map[string]ledger.Amount{}, map[string]ledger.Amount{}
	}
	for _, w := range Windows(b) {
		for i := range w.Postings {
			p := &w.Postings[i]
			uid, _, _ := energy.PodOf(p.Consumer.Key)
			t.Total.Add(&p.Amount)
			add(t.Nodes, b.Batch.Stream.Node, &p.Amount)
			add(t.Pods, uid, &p.Amount)
			add(t.Kinds, p.Consumer.Account.Kind.String(), &p.Amount)
			add(t.Spaces, p.Consumer.Account.Namespace, &p.Amount)
		}
		t.Total.Unmeasured += w.Unmeasured
		add(t.Nodes, b.Batch.Stream.Node, &ledger.Amount{Unmeasured: w.Unmeasured})
	}
}

func add(to map[string]ledger.Amount, key string, a *ledger.Amount) {
	sum := to[key]
	sum.Add(a)
	to[key] = sum
}

// Check compares a store with the expected content and audits it.
func (t *Truth) Check(tb testing.TB, s ledger.Store) {
	tb.Helper()
	for dimension, want := range map[ledger.Dimension]map[string]ledger.Amount{
		ledger.ByNode: t.Nodes, ledger.ByUID: t.Pods, ledger.ByKind: t.Kinds, ledger.ByNamespace: t.Spaces,
	} {
		answer, err := s.Query(tb.Context(), &ledger.Query{
			From: Noon.AddDate(0, 0, -2), To: Noon.AddDate(0, 0, 12), GroupBy: []ledger.Dimension{dimension},
		})
		if err != nil {
			tb.Fatalf("unexpected error for a query by %s: %v", dimension, err)
		}
		have := map[string]ledger.Amount{}
		for _, r := range answer.Rows {
			have[strings.Join(r.Key, "/")] = r.Amount
		}
		for _, key := range union(have, want) {
			h, w := have[key], want[key]
			if dimension != ledger.ByNode { // only nodes have unmeasured time
				h.Unmeasured, w.Unmeasured = 0, 0
			}
			if h != w {
				tb.Errorf("by %s, %q: got %+v, want %+v", dimension, key, h, w)
			}
		}
		if answer.Total.Energy() != t.Total.Energy() || answer.Total.Facility != t.Total.Facility {
			tb.Errorf("by %s: got total %v, want %v", dimension, answer.Total.Energy(), t.Total.Energy())
		}
	}
	Audit(tb, s)
}

func union(a, b map[string]ledger.Amount) []string {
	var keys []string
	for k := range a {
		keys = append(keys, k)
	}
	for k := range b {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// Audit fails the test if the audit of a store finds problems.
func Audit(tb testing.TB, s ledger.Store) {
	tb.Helper()
	findings, err := s.Audit(tb.Context(), time.Unix(math.MinInt32, 0))
	if err != nil {
		tb.Fatal(err)
	}
	for _, problem := range findings.Problems {
		tb.Error("audit found a problem:", problem)
	}
}

// FoldAll folds until the journal is empty.
func FoldAll(tb testing.TB, s ledger.Store) {
	tb.Helper()
	for {
		left, err := s.Fold(tb.Context())
		if err != nil {
			tb.Fatal(err)
		}
		if left == 0 {
			return
		}
	}
}

// MustBook records bookings and fails the test if one of them is rejected.
func MustBook(tb testing.TB, s ledger.Store, all ...*ledger.Booking) []ledger.Receipt {
	tb.Helper()
	receipts, errs, err := s.Book(tb.Context(), all)
	if err != nil {
		tb.Fatal(err)
	}
	for _, err := range errs {
		if err != nil {
			tb.Fatal(err)
		}
	}
	return receipts
}
