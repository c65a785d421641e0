package sqlstore_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/ledger/ledgertest"
	"github.com/kubenergy/kubenergy/internal/ledger/sqlite"
	"github.com/kubenergy/kubenergy/internal/ledger/sqlstore"
)

var start = time.Date(2026, 11, 3, 0, 0, 0, 0, time.UTC)

func open(t testing.TB) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(t.Context(), t.TempDir()+"/ledger.db",
		sqlite.Options{Now: func() time.Time { return start.Add(10 * 24 * time.Hour) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// both records the same bookings in a store and in the oracle.
func both(t testing.TB, s ledger.Store, oracle *ledgertest.Store, all []*ledger.Booking) {
	t.Helper()
	got, gotErrs, err := s.Book(t.Context(), all)
	if err != nil {
		t.Fatal(err)
	}
	want, wantErrs, _ := oracle.Book(t.Context(), all)
	for i := range all {
		if (gotErrs[i] == nil) != (wantErrs[i] == nil) || gotErrs[i] == nil && got[i] != want[i] {
			t.Fatalf("booking %d: got %+v, %v; want %+v, %v", i, got[i], gotErrs[i], want[i], wantErrs[i])
		}
	}
}

func foldAll(t testing.TB, s ledger.Store) {
	t.Helper()
	for {
		left, err := s.Fold(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if left == 0 {
			return
		}
	}
}

// ask compares the results of a query. After estimates were revoked, the first and last times may be wider.
func ask(t testing.TB, s ledger.Store, oracle *ledgertest.Store, q *ledger.Query, wider bool) {
	t.Helper()
	want, err := oracle.Query(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.Query(t.Context(), q)
	if err != nil {
		t.Fatalf("unexpected error for query %+v: %v", q, err)
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(ledger.Row{}, "First", "Last"),
		cmpopts.IgnoreFields(ledger.Answer{}, "AsOf"),
		cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("unexpected answer for %+v (-want +got):\n%s", q, diff)
	}
	if got.AsOf != want.AsOf && (!wider || got.AsOf.Before(want.AsOf)) {
		t.Fatalf("AsOf is %v, want %v", got.AsOf, want.AsOf)
	}
	for i := range want.Rows {
		g, w := &got.Rows[i], &want.Rows[i]
		if g.First.IsZero() != w.First.IsZero() && !wider {
			t.Fatalf("%+v: row %v starts at %v, want %v", q, g.Key, g.First, w.First)
		}
		early, late := w.First.Sub(g.First), g.Last.Sub(w.Last)
		if early < 0 || late < 0 || !wider && (early > ledger.WindowLength || late > ledger.WindowLength) {
			t.Fatalf("%+v: row %v from %v to %v, want %v to %v", q, g.Key, g.First, g.Last, w.First, w.Last)
		}
	}
	var sum ledger.Row
	for i := range got.Rows {
		sum.Include(&got.Rows[i])
	}
	if diff := cmp.Diff(got.Total.Amount, sum.Amount); diff != "" {
		t.Fatalf("the rows do not add up to the total: %s", diff)
	}
}

func TestAnswersAreThoseOfTheOracle(t *testing.T) {
	ledgertest.OfContent(t)
	seeds := uint64(4)
	if os.Getenv("KUBENERGY_LONG") != "" {
		seeds = 50
	}
	for seed := range seeds {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			r := &ledgertest.Random{
				Rand: rand.New(rand.NewPCG(seed, 1)), Start: start, Span: 60 * time.Hour, Estimates: seed%2 == 1,
			}
			s, oracle := open(t), &ledgertest.Store{}
			for range 6 {
				var all []*ledger.Booking
				for range 30 {
					all = append(all, r.Next())
				}
				both(t, s, oracle, all)
				foldAll(t, s)
				for range 25 {
					ask(t, s, oracle, r.Query(), r.Estimates)
				}
			}
			audited(t, s)
		})
	}
}

func audited(t testing.TB, s ledger.Store) {
	t.Helper()
	found, err := s.Audit(t.Context(), time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	if len(found.Problems) > 0 || found.Checked == 0 {
		t.Fatalf("audit checked %d rows and found %q", found.Checked, found.Problems)
	}
}

// The series of a query equals its answer grouped by time, in watts.
func TestSeries(t *testing.T) {
	ledgertest.OfContent(t)
	r := &ledgertest.Random{Rand: rand.New(rand.NewPCG(8, 1)), Start: start, Span: 40 * time.Hour}
	s, oracle := open(t), &ledgertest.Store{}
	for range 4 {
		var all []*ledger.Booking
		for range 40 {
			all = append(all, r.Next())
		}
		both(t, s, oracle, all)
	}
	foldAll(t, s)
	for i := range 20 {
		q := r.Query()
		if q.GroupBy, q.Limit = nil, 0; i%3 == 0 {
			q.To = q.To.Add(10 * days) // resolution of hours
		}
		want, err := oracle.Series(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.Series(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("unexpected answer for %+v (-want +got):\n%s", q, diff)
		}
	}
}

// A sum that overflows results in an error, while durations are clamped.
func TestSumsTooLarge(t *testing.T) {
	const most = math.MaxInt64
	for name, c := range map[string]struct {
		amount  ledger.Amount
		refused bool
	}{
		"energy":    {ledger.Amount{Dynamic: most / 2, Idle: 10}, true},
		"all of it": {ledger.Amount{Dynamic: most / 4, Idle: most / 4}, true},
		"facility":  {ledger.Amount{Dynamic: 1, Facility: most / 2}, true},
		"carbon":    {ledger.Amount{Dynamic: 1, Carbon: most / 2}, true},
		"cost":      {ledger.Amount{Dynamic: 1, Cost: most / 2}, true},
		"revenue":   {ledger.Amount{Dynamic: 1, Cost: -most / 2}, true},
		"CPU time":  {ledger.Amount{Dynamic: 1, CPU: most / 2}, false},
		"enough": {ledger.Amount{
			Dynamic: most / 8, Idle: most / 8, CPU: most / 4, Facility: most / 4, Carbon: most / 4, Cost: most / 4,
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t)
			var sums []sqlstore.Sum
			for i := range 3 {
				sums = append(sums, sqlstore.Sum{
					Start: start.Unix(), Account: ledger.Account{
						Namespace: strconv.Itoa(i), Signal: "average", Currency: "EUR",
					}, Amount: c.amount,
				})
			}
			for _, table := range []string{"account_days", "account_hours"} {
				if err := s.PutSums(t.Context(), table, sums); err != nil {
					t.Fatal(err)
				}
			}
			q := &ledger.Query{From: start, To: start.Add(days), GroupBy: []ledger.Dimension{ledger.ByNamespace}}
			for _, q.Limit = range []int{0, 1} {
				a, err := s.Query(t.Context(), q)
				if (err != nil) != c.refused || c.refused && (!errors.Is(err, ledger.ErrTooLarge) ||
					!errors.Is(err, ledger.ErrQuery)) {
					t.Fatalf("unexpected answer %+v or error %v", a, err)
				}
				if err == nil && name == "CPU time" && a.Total.CPU != most {
					t.Errorf("unexpected CPU time %v", a.Total.CPU)
				}
			}
			q.Namespaces, q.Limit = []string{"1"}, 0
			if a, err := s.Query(t.Context(), q); err != nil || a.Total.Amount != c.amount {
				t.Errorf("unexpected answer for one namespace: %+v, %v", a, err)
			}
			rest := ledger.Answer{Rows: []ledger.Row{
				{Key: []string{"a"}, Amount: ledger.Amount{Dynamic: most}}, {Key: []string{"b"}}, {Key: []string{"c"}},
			}}
			for i := range rest.Rows[1:] {
				row := &rest.Rows[i+1]
				row.Amount = c.amount
				row.Emit("average", c.amount.Carbon)
				row.Charge("EUR", c.amount.Cost)
				row.Add(&ledger.Amount{Dynamic: c.amount.Dynamic / 8, Facility: c.amount.Facility / 8})
			}
			if err := rest.Trim(1); err != nil && !errors.Is(err, ledger.ErrTooLarge) ||
				rest.Rows[len(rest.Rows)-1].Dynamic < 0 {
				t.Errorf("unexpected rows %+v or error %v", rest.Rows, err)
			}
		})
	}
}

// Expensive queries are rejected with a hint.
func TestTooLarge(t *testing.T) {
	s := open(t)
	q := &ledger.Query{From: start, To: start.Add(days), GroupBy: []ledger.Dimension{"colour"}}
	if _, err := s.Query(t.Context(), q); !errors.Is(err, ledger.ErrQuery) {
		t.Error(err)
	}
	if _, err := s.Records(t.Context(), &ledger.RecordQuery{Namespaces: make([]string, 2000)}); !errors.Is(err,
		ledger.ErrTooLarge) {
		t.Error(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Query(ended, &ledger.Query{From: start, To: start.Add(days)}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
