// Package ledgertest provides tests and fakes for stores of the ledger. [Conformance] and [Kill] test the behavior
// that every store must implement. [Store] is a simple in-memory ledger that stores each booking and sums them up
// for each query. Other stores are compared with it, and tests of other packages use it as a fake.
package ledgertest

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
	"github.com/kubenergy/kubenergy/internal/ledger"
)

// A Store is an in-memory ledger. The zero value is an empty ledger.
type Store struct {
	// Fail, if not nil, is called before each write. The write fails with the returned error if it is not nil.
	Fail func() error

	mu      sync.Mutex
	acked   map[batch.Stream]uint64
	spans   map[machine][]span
	booked  []*ledger.Booking
	pieces  []piece
	records map[string]ledger.Record
	since   map[string]time.Time // creation time of each node in its first booking
	seen    map[string]ledger.Seen
	names   map[string]map[string]name // by node and consumer key
}

var _ ledger.Store = (*Store)(nil)

type machine struct{ node, boot string }

type span struct{ first, last time.Duration }

// A piece is the part of a booking that belongs to one window of a node.
type piece struct {
	Window
	node, host string
	own        string // Host of its accounts; not empty for nodes of another cluster
	site       string
	agentless  bool
	names      map[string]name // names of the node's consumers, which may be set later
}

type name struct{ namespace, pod string }

func expand(b *ledger.Booking) (all []piece) {
	for _, w := range Windows(b) {
		p := piece{Window: w, node: b.Batch.Stream.Node, own: b.Account(ledger.Unknown).Host, site: b.Rates.Site, agentless: b.Agentless}
		if b.Batch.Parent != nil {
			p.host = b.Batch.Parent.Host
		}
		all = append(all, p)
	}
	return all
}

// Book records bookings as described in docs/reference/protocol.md under "Numbers".
func (s *Store) Book(ctx context.Context, all []*ledger.Booking) ([]ledger.Receipt, []error, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.fails(ctx); err != nil {
		return nil, nil, err
	}
	if s.acked == nil {
		s.acked, s.spans, s.names = map[batch.Stream]uint64{}, map[machine][]span{}, map[string]map[string]name{}
		s.since, s.seen = map[string]time.Time{}, map[string]ledger.Seen{}
	}
	receipts, errs := make([]ledger.Receipt, len(all)), make([]error, len(all))
	for i, b := range all {
		receipts[i], errs[i] = s.book(b)
	}
	return receipts, errs, nil
}

func (s *Store) fails(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.Fail != nil {
		return s.Fail()
	}
	return nil
}

func (s *Store) book(k *ledger.Booking) (ledger.Receipt, error) {
	b := k.Batch
	acked, known := s.acked[b.Stream]
	switch {
	case known && b.Last <= acked:
		return ledger.Receipt{Acked: acked}, nil
	case known && b.First <= acked:
		return ledger.Receipt{Acked: acked}, ledger.ErrPartly
	}
	apart, err := s.occupy(k)
	if err != nil {
		return ledger.Receipt{Acked: acked}, err
	}
	s.acked[b.Stream] = b.Last
	s.booked = append(s.booked, k)
	if s.names[b.Stream.Node] == nil {
		s.names[b.Stream.Node] = map[string]name{}
	}
	names := s.names[b.Stream.Node]
	for _, c := range k.Consumers {
		if names[c.Key].pod == "" {
			names[c.Key] = name{c.Account.Namespace, c.Pod}
		}
	}
	for _, p := range expand(k) {
		p.names = names
		s.pieces = append(s.pieces, p)
	}
	return ledger.Receipt{
		Acked: b.Last, Booked: true, Gap: b.First != acked+1, New: apart || !known,
	}, nil
}

// occupy records the interval of a booking and reports whether it is separate from all recorded intervals of its
// boot.
func (s *Store) occupy(k *ledger.Booking) (apart bool, _ error) {
	b := k.Batch
	if k.Agentless || b.StartSinceBoot >= b.EndSinceBoot {
		return false, nil
	}
	m := machine{b.Stream.Node, b.Stream.Boot}
	apart = true
	for _, t := range s.spans[m] {
		if t.first < b.EndSinceBoot && b.StartSinceBoot < t.last {
			return false, ledger.ErrOverlap
		}
		apart = apart && t.last != b.StartSinceBoot && t.first != b.EndSinceBoot
	}
	s.spans[m] = append(s.spans[m], span{b.StartSinceBoot, b.EndSinceBoot})
	if s.since[b.Stream.Node].IsZero() {
		s.since[b.Stream.Node] = k.CameToBe()
	}
	if k.NodeSeen != nil {
		s.seen[b.Stream.Node] = s.seen[b.Stream.Node].Add(*k.NodeSeen)
	}
	return apart, nil
}

// Reported returns the total time of all boots of a node.
func (s *Store) Reported(_ context.Context, node string) (reported ledger.Reported, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	reported.Since, reported.Seen = s.since[node], s.seen[node]
	for m, spans := range s.spans {
		for _, one := range spans {
			if m.node == node {
				reported.Time += one.last - one.first
			}
		}
	}
	return reported, nil
}

// Acked implements [ledger.Store].
func (s *Store) Acked(_ context.Context, of batch.Stream) (acked uint64, known bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	acked, known = s.acked[of]
	return acked, known, nil
}

// Booked returns the recorded bookings in the order in which they were recorded.
func (s *Store) Booked() []*ledger.Booking {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.booked)
}

// Fold is a no-op.
func (s *Store) Fold(context.Context) (int, error) { return 0, nil }

// Temperatures computes the statistics from the recorded bookings.
func (s *Store) Temperatures(_ context.Context, from, to time.Time, node string) ([]ledger.Temperature, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	type key struct {
		hour time.Time
		node string
	}
	reported := map[key][]energy.Celsius{}
	for _, b := range s.booked {
		k := key{b.Received.Truncate(time.Hour).UTC(), b.Batch.Stream.Node}
		if b.Temperature != nil && (node == "" || node == k.node) && k.hour.Before(to) &&
			!k.hour.Before(from.Truncate(time.Hour)) {
			reported[k] = append(reported[k], *b.Temperature)
		}
	}
	var all []ledger.Temperature
	for k, of := range reported {
		var sum energy.Celsius
		for _, t := range of {
			sum += t
		}
		all = append(all, ledger.Temperature{
			Hour: k.hour, Node: k.node, Max: slices.Max(of), Samples: int64(len(of)),
			Mean: energy.Celsius(math.Round(float64(sum)*1000/float64(len(of)))) / 1000,
		})
	}
	slices.SortFunc(all, func(a, b ledger.Temperature) int {
		return cmp.Or(a.Hour.Compare(b.Hour), cmp.Compare(a.Node, b.Node))
	})
	return all, nil
}

// Record stores decisions. Existing records are not modified.
func (s *Store) Record(ctx context.Context, records []ledger.Record) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.fails(ctx); err != nil {
		return err
	}
	for i := range records {
		if err := records[i].Validate(); err != nil {
			return err
		}
	}
	if s.records == nil {
		s.records = map[string]ledger.Record{}
	}
	for i := range records {
		if _, known := s.records[records[i].ID]; !known {
			s.records[records[i].ID] = records[i].Kept()
		}
	}
	return nil
}

// Selects reports whether q matches r.
func Selects(q *ledger.RecordQuery, r *ledger.Record) bool {
	return !r.At.Before(q.From) && (q.To.IsZero() || r.At.Before(q.To)) && passes(q.Namespaces, r.Namespace) &&
		passes(q.Strategies, r.Strategy) &&
		(q.Owner == "" || q.Owner == r.OwnerName()) && (q.UID == "" || q.UID == r.UID)
}

// Records returns the matching decisions, newest first.
func (s *Store) Records(_ context.Context, q *ledger.RecordQuery) ([]ledger.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := []ledger.Record{}
	for _, r := range s.records {
		if Selects(q, &r) {
			if !q.Snapshots {
				r.Snapshot = nil
			}
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b ledger.Record) int {
		return cmp.Or(b.At.Compare(a.At), strings.Compare(a.ID, b.ID))
	})
	return out[:min(len(out), q.Rows())], nil
}

// Keep drops records and snapshots, but not energy.
func (s *Store) Keep(_ context.Context, r ledger.Retention, now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, record := range s.records {
		if r.Snapshots > 0 && record.At.Before(now.Add(-r.Snapshots)) {
			record.Snapshot = nil
			s.records[id] = record
		}
		if r.Records > 0 && record.At.Before(now.Add(-r.Records)) {
			delete(s.records, id)
		}
	}
	return nil
}

// Audit never returns problems, because the store has no redundant data.
func (s *Store) Audit(context.Context, time.Time) (*ledger.Findings, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &ledger.Findings{Checked: len(s.pieces)}, nil
}

// Statistics implements [ledger.Store].
func (s *Store) Statistics(context.Context) (ledger.Statistics, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	windows, accounts, consumers := map[place]bool{}, map[ledger.Account]bool{}, map[[2]string]bool{}
	for i := range s.pieces {
		p := &s.pieces[i]
		windows[place{p.node, p.Start}] = true
		for _, v := range p.Postings {
			accounts[v.Consumer.Account] = true
			consumers[[2]string{p.node, v.Consumer.Key}] = true
		}
	}
	return ledger.Statistics{
		Windows: int64(len(windows)), Accounts: int64(len(accounts)), Consumers: int64(len(consumers)),
		Records: int64(len(s.records)),
	}, nil
}

// Close is a no-op. The data is retained.
func (s *Store) Close() error { return nil }

// Gauges returns zero values, because the store has no journal and uses no disk.
func (s *Store) Gauges(context.Context) (ledger.Statistics, error) { return ledger.Statistics{}, nil }
