package ledgertest

import (
	"context"
	"math"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/ledger"
)

// A place is a node in a window, an hour or a day.
type place struct {
	node string
	at   time.Time
}

// counted returns the pieces that count. Estimates do not count in windows with agent data.
func (s *Store) counted() []*piece {
	agents := map[place]bool{}
	for i := range s.pieces {
		p := &s.pieces[i]
		if p.agentless {
			continue
		}
		agents[place{p.node, p.Start}] = true
		// a piece of an hour or a day covers all of its windows
		for at := p.First.Truncate(ledger.WindowLength); at.Before(p.Last); at = at.Add(ledger.WindowLength) {
			agents[place{p.node, at}] = true
		}
	}
	var out []*piece
	for i := range s.pieces {
		if p := &s.pieces[i]; !p.agentless || !agents[place{p.node, p.Start}] {
			out = append(out, p)
		}
	}
	return out
}

// hosts returns the hours in which nodes count as hosts. They must have bookings in the hour and must not be guests
// of their own guests on that day.
func hosts(pieces []*piece) map[place]bool {
	hours := map[place]bool{}
	above := map[place][]string{}
	for _, p := range pieces {
		hours[place{p.node, p.Start.Truncate(time.Hour)}] = true
		if d := (place{p.node, p.Start.Truncate(day)}); p.host != "" && !slices.Contains(above[d], p.host) {
			above[d] = append(above[d], p.host)
		}
	}
	for at := range hours {
		if circles(above, place{at.node, at.at.Truncate(day)}, at.node, map[string]bool{}) {
			delete(hours, at)
		}
	}
	return hours
}

// circles reports whether target is a direct or indirect host of a node.
func circles(above map[place][]string, from place, target string, seen map[string]bool) bool {
	for _, host := range above[from] {
		if host == target {
			return true
		}
		if !seen[host] {
			seen[host] = true
			if circles(above, place{host, from.at}, target, seen) {
				return true
			}
		}
	}
	return false
}

// Query implements [ledger.Store].
func (s *Store) Query(ctx context.Context, q *ledger.Query) (*ledger.Answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	plan, err := q.Plan()
	if err != nil {
		return nil, err
	}
	return s.answer(q, plan)
}

func (s *Store) answer(q *ledger.Query, plan ledger.Plan) (*ledger.Answer, error) {
	t := &table{sums: map[string]*sum{}, all: newSum(nil)}
	pieces := s.counted()
	counting := hosts(pieces)
	var asOf time.Time
	if plan.Windows {
		pieces = extended(pieces)
	}
	for _, p := range pieces {
		asOf = later(asOf, ceil(p.Last))
		if p.Start.Before(plan.From) || !p.Start.Before(plan.To) {
			continue
		}
		for i := range p.Postings {
			v := &p.Postings[i]
			if v.Consumer.Account.Kind == ledger.Transfer &&
				!counting[place{v.Consumer.Account.Host, p.Start.Truncate(time.Hour)}] {
				continue
			}
			if selects(q, p, v) {
				t.add(key(q, p, v), p, v)
			}
		}
		v := &ledger.Posting{Amount: ledger.Amount{Unmeasured: p.Unmeasured}}
		v.Consumer.Account = ledger.Account{Kind: ledger.Unknown, Site: p.site, Host: p.own}
		if plan.Nodes && passes(q.Nodes, p.node) && q.Selects(&v.Consumer.Account) {
			t.add(key(q, p, v), p, v)
		}
	}
	a := &ledger.Answer{From: plan.From, To: plan.To, AsOf: asOf, Resolution: plan.Resolution, GroupBy: q.GroupBy}
	if t.all.tooMuch() {
		return nil, ledger.ErrSum
	}
	for _, s := range t.sums {
		if s.tooMuch() {
			return nil, ledger.ErrSum
		}
	}
	a.Rows, a.Total = t.rows(), t.total()
	return a, a.Trim(q.Limit)
}

func passes(filter []string, value string) bool {
	return len(filter) == 0 || slices.Contains(filter, value)
}

// extended returns the pieces with the interval of all pieces of their node's window, because windows do not store
// intervals of single bookings.
func extended(pieces []*piece) []*piece {
	type extent struct{ first, last time.Time }
	windows := map[place]extent{}
	for _, p := range pieces {
		e, ok := windows[place{p.node, p.Start}]
		if !ok || p.First.Before(e.first) {
			e.first = p.First
		}
		e.last = later(e.last, p.Last)
		windows[place{p.node, p.Start}] = e
	}
	out := make([]*piece, len(pieces))
	for i, p := range pieces {
		c := *p
		e := windows[place{p.node, p.Start}]
		c.First, c.Last = e.first, e.last
		out[i] = &c
	}
	return out
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// nodeOf returns the node that energy is reported for. Transfers are reported for the host.
func nodeOf(p *piece, v *ledger.Posting) string {
	if v.Consumer.Account.Kind == ledger.Transfer {
		return v.Consumer.Account.Host
	}
	return p.node
}

// consumer returns the consumer of a posting with its current name, which may have become known after its energy.
func consumer(p *piece, v *ledger.Posting) *ledger.Consumer {
	c := v.Consumer
	c.Pod, c.Account.Namespace = p.names[c.Key].pod, p.names[c.Key].namespace
	return &c
}

func selects(q *ledger.Query, p *piece, v *ledger.Posting) bool {
	return q.Selects(&v.Consumer.Account) && passes(q.Nodes, nodeOf(p, v)) && q.SelectsPod(consumer(p, v))
}

func key(q *ledger.Query, p *piece, v *ledger.Posting) []string {
	out := []string{}
	for _, d := range q.GroupBy {
		value := q.Key(&v.Consumer.Account, d)
		switch d {
		case ledger.ByNode:
			value = nodeOf(p, v)
		case ledger.ByPod:
			value = consumer(p, v).PodName()
		case ledger.ByUID:
			value = v.Consumer.UID()
		case ledger.ByWindow:
			value = p.Start.UTC().Format(time.RFC3339)
		case ledger.ByHour:
			value = p.Start.UTC().Truncate(time.Hour).Format(time.RFC3339)
		case ledger.ByDay:
			value = p.Start.UTC().Truncate(day).Format(time.RFC3339)
		}
		out = append(out, value)
	}
	return out
}

// Series returns the mean power of each step with bookings.
func (s *Store) Series(ctx context.Context, q *ledger.Query) ([]ledger.Point, error) {
	step := q.SeriesStep()
	by := map[time.Duration]ledger.Dimension{
		ledger.WindowLength: ledger.ByWindow, time.Hour: ledger.ByHour, day: ledger.ByDay,
	}
	c := *q
	c.GroupBy, c.Limit = []ledger.Dimension{by[step]}, 0
	a, err := s.Query(ctx, &c)
	if err != nil {
		return nil, err
	}
	return a.Points(step)
}

// A table aggregates rows with arbitrary precision.
type table struct {
	sums map[string]*sum
	all  *sum
}

type sum struct {
	key         []string
	amounts     [11]big.Int
	emissions   map[string]*big.Int
	costs       map[string]*big.Int
	first, last time.Time
}

func newSum(key []string) *sum {
	return &sum{key: key, emissions: map[string]*big.Int{}, costs: map[string]*big.Int{}}
}

func (t *table) add(key []string, p *piece, v *ledger.Posting) {
	id := strings.Join(key, "\x00")
	if t.sums[id] == nil {
		t.sums[id] = newSum(key)
	}
	t.sums[id].add(p, v)
	t.all.add(p, v)
}

func (s *sum) add(p *piece, v *ledger.Posting) {
	a := &v.Amount
	for i, n := range []int64{
		int64(a.Dynamic), int64(a.Idle), int64(a.CPU), int64(a.Facility), int64(a.Carbon), int64(a.Cost),
		int64(a.Estimated), int64(a.Uncharted), int64(a.Unpriced), int64(a.Unmeasured), int64(a.GPU),
	} {
		s.amounts[i].Add(&s.amounts[i], big.NewInt(n))
	}
	increase(s.emissions, v.Consumer.Account.Signal, int64(a.Carbon))
	increase(s.costs, v.Consumer.Account.Currency, int64(a.Cost))
	if v.Consumer.Account.Kind == ledger.Transfer {
		return
	}
	if first := p.First.Truncate(time.Second); s.first.IsZero() || first.Before(s.first) {
		s.first = first.UTC()
	}
	s.last = later(s.last, ceil(p.Last))
}

func ceil(t time.Time) time.Time { return t.Add(time.Second - 1).Truncate(time.Second).UTC() }

func increase(sums map[string]*big.Int, name string, n int64) {
	if sums[name] == nil {
		sums[name] = new(big.Int)
	}
	sums[name].Add(sums[name], big.NewInt(n))
}

// tooMuch reports whether a sum other than a duration overflows.
func (s *sum) tooMuch() bool {
	for i := range s.amounts {
		// skip CPU, carbon, cost and unmeasured
		if i != 2 && i != 4 && i != 5 && i != 9 && !s.amounts[i].IsInt64() {
			return true
		}
	}
	for _, sums := range []map[string]*big.Int{s.emissions, s.costs} {
		for _, v := range sums {
			if !v.IsInt64() {
				return true
			}
		}
	}
	return !new(big.Int).Add(&s.amounts[0], &s.amounts[1]).IsInt64()
}

func (s *sum) row() ledger.Row {
	n := func(i int) int64 {
		switch {
		case s.amounts[i].IsInt64():
			return s.amounts[i].Int64()
		case s.amounts[i].Sign() < 0:
			return math.MinInt64
		}
		return math.MaxInt64
	}
	r := ledger.Row{Key: s.key, First: s.first, Last: s.last, Amount: ledger.Amount{
		Dynamic: energy.Microjoules(n(0)), Idle: energy.Microjoules(n(1)), CPU: time.Duration(n(2)),
		Facility: energy.Microjoules(n(3)),
		// indexes 4 and 5 are carbon and cost
		Estimated: energy.Microjoules(n(6)), Uncharted: energy.Microjoules(n(7)), Unpriced: energy.Microjoules(n(8)),
		Unmeasured: time.Duration(n(9)), GPU: energy.Microjoules(n(10)),
	}}
	for signal, v := range s.emissions {
		if v.Sign() != 0 {
			r.Emit(signal, ledger.Micrograms(v.Int64()))
		}
	}
	for currency, v := range s.costs {
		if v.Sign() != 0 {
			r.Charge(currency, ledger.Nanos(v.Int64()))
		}
	}
	return r
}

func (t *table) rows() []ledger.Row {
	rows := []ledger.Row{}
	for _, s := range t.sums {
		if r := s.row(); !r.Empty() {
			rows = append(rows, r)
		}
	}
	slices.SortFunc(rows, func(a, b ledger.Row) int { return slices.Compare(a.Key, b.Key) })
	return rows
}

func (t *table) total() ledger.Row { return t.all.row() }
