package sqlstore_test

import (
	"database/sql"
	"errors"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/ledger/ledgertest"
	"github.com/kubenergy/kubenergy/internal/ledger/sqlite"
)

const days = 24 * time.Hour

// Keep drops old windows, then hours, then days. The results of the remaining data do not change.
func TestKeep(t *testing.T) {
	ledgertest.OfContent(t)
	r := &ledgertest.Random{Rand: rand.New(rand.NewPCG(7, 7)), Start: start, Span: 5 * days}
	clock := start.Add(10 * days)
	s, err := sqlite.Open(t.Context(), t.TempDir()+"/ledger.db", sqlite.Options{Now: func() time.Time { return clock }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	oracle := &ledgertest.Store{}
	now := start.Add(4*days + time.Hour)
	on := func(node string, at time.Time) *ledger.Booking {
		b := ledgertest.World{Nodes: 1, Pods: 2}.Booking(0, 1)
		b.Batch.Stream.Node, b.Batch.Start, b.Batch.End = node, at, at.Add(time.Minute)
		return b
	}
	warm := func(node string, at time.Time) *ledger.Booking {
		b := on(node, at)
		b.Received, b.Temperature = at, new(energy.Celsius(70))
		return b
	}
	both(t, s, oracle, []*ledger.Booking{warm("recent", now.Add(-time.Hour)), warm("long ago", start)})
	fill := func() {
		for range 6 {
			var all []*ledger.Booking
			for range 40 {
				all = append(all, r.Next())
			}
			both(t, s, oracle, all)
			foldAll(t, s)
		}
	}
	fill()
	whole := func() []*ledger.Query {
		return []*ledger.Query{
			{
				From: start.Add(-days), To: start.Add(30 * days),
				GroupBy: []ledger.Dimension{ledger.ByDay, ledger.ByKind},
			},
			{From: start.Add(-days), To: start.Add(30 * days), GroupBy: []ledger.Dimension{ledger.ByNode}},
			{
				From: start.Add(-days), To: start.Add(30 * days),
				GroupBy: []ledger.Dimension{ledger.ByDay, ledger.ByOwner}, Namespaces: []string{"ns1"},
			},
			{From: start.Add(-days), To: start.Add(30 * days)},
		}
	}
	keep := ledger.Retention{Windows: 2 * days, Hours: 3 * days}
	for range 2 {
		if err := s.Keep(t.Context(), keep, now); err != nil {
			t.Fatal(err)
		}
		audited(t, s)
		for _, q := range whole() {
			ask(t, s, oracle, q, false)
		}
	}
	if hot, err := s.Temperatures(t.Context(), start, now, ""); err != nil || len(hot) != 1 || hot[0].Node != "recent" {
		t.Errorf("unexpected temperatures %+v or error %v", hot, err)
	}
	pods := &ledger.Query{From: start, To: start.Add(days), GroupBy: []ledger.Dimension{ledger.ByPod}}
	if _, err := s.Query(t.Context(), pods); !errors.Is(err, ledger.ErrQuery) {
		t.Errorf("expected an error for windows that were dropped, got %v", err)
	}
	hours := &ledger.Query{From: start, To: start.Add(days), GroupBy: []ledger.Dimension{ledger.ByHour}}
	if _, err := s.Query(t.Context(), hours); !errors.Is(err, ledger.ErrQuery) {
		t.Errorf("expected an error for hours that were dropped, got %v", err)
	}
	// A boundary within a day without hours is moved to the boundary of the day.
	a, err := s.Query(t.Context(), &ledger.Query{From: start.Add(90 * time.Minute), To: start.Add(30 * days)})
	if err != nil || !a.From.Equal(start) {
		t.Errorf("unexpected start %v or error %v", a.From, err)
	}
	kept := &ledger.Query{
		From: now.Add(-2 * days).Add(12 * time.Hour), To: now, GroupBy: []ledger.Dimension{ledger.ByPod, ledger.ByHour},
	}
	ask(t, s, oracle, kept, false)
	points, err := s.Series(t.Context(), &ledger.Query{From: start, To: start.Add(days)})
	if err != nil || len(points) != 1 {
		t.Errorf("got %d points for a day without hours, error %v", len(points), err)
	}

	// Repeat with late bookings.
	fill()
	if err := s.Keep(t.Context(), keep, now); err != nil {
		t.Fatal(err)
	}
	audited(t, s)
	// It is unknown whether the host had bookings in an hour that was dropped.
	for _, q := range whole() {
		q.Kinds = []ledger.Kind{ledger.Workload, ledger.System, ledger.Idle, ledger.Platform, ledger.Unknown}
		if len(q.GroupBy) == 1 {
			continue // queries by node and kind require windows
		}
		ask(t, s, oracle, q, false)
	}
	stats, err := s.Statistics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// Without new bookings, a clock that is far ahead does not drop data.
	if err := s.Keep(t.Context(), ledger.Retention{Windows: 20 * days, Hours: 20 * days, Days: 20 * days},
		start.Add(400*days)); err != nil {
		t.Fatal(err)
	}
	if after, err := s.Statistics(t.Context()); err != nil || after != stats {
		t.Errorf("unexpected statistics %+v, before Keep %+v, error %v", after, stats, err)
	}
	clock = start.Add(399 * days)
	ledgertest.MustBook(t, s, on("late", clock))
	foldAll(t, s)
	if err := s.Keep(t.Context(), ledger.Retention{Windows: days, Hours: days, Days: days},
		start.Add(400*days)); err != nil {
		t.Fatal(err)
	}
	after, err := s.Statistics(t.Context())
	if err != nil || after.Windows != 1 || after.Accounts > 12 || after.Consumers > 12 || stats.Windows == 0 {
		t.Errorf("unexpected statistics %+v, before Keep %+v", after, stats)
	}
	empty, err := s.Query(t.Context(), &ledger.Query{From: start.Add(-days), To: start.Add(30 * days)})
	if err != nil || len(empty.Rows) != 0 {
		t.Errorf("unexpected statistics %+v or error %v", empty, err)
	}
	audited(t, s)
	// Sequence numbers are retained for at least a year.
	receipts, _, err := s.Book(t.Context(), oracle.Booked()[1:2])
	if err != nil || receipts[0].Booked {
		t.Errorf("unexpected receipts %+v or error %v", receipts, err)
	}
}

func record(id string, at time.Time) ledger.Record {
	return ledger.Record{
		ID: id, At: at, Action: "place", Namespace: "shop", OwnerKind: "Job", Owner: "train", UID: "u-" + id,
		Strategy: "exec", Node: "worker1",
		Energy: 1234.5, Carbon: 0.25, Cost: 0.0001, Intensity: 321, Reason: "least energy", Digest: "ab",
		Snapshot: []byte("snapshot of " + id),
	}
}

func TestRecords(t *testing.T) {
	s, oracle := open(t), &ledgertest.Store{}
	var all []ledger.Record
	for i := range 50 {
		r := record(string(rune('a'+i%26))+string(rune('0'+i/26)), start.Add(time.Duration(i)*time.Hour+123456789))
		switch i % 5 {
		case 1:
			r.Namespace, r.Strategy = "lab", "carbon"
		case 2:
			r.Snapshot = nil
		case 3:
			r.Snapshot = make([]byte, ledger.MaxSnapshot+1)
		}
		all = append(all, r)
	}
	for _, part := range [][]ledger.Record{all[:30], all[20:], all[:5]} {
		if err := s.Record(t.Context(), part); err != nil {
			t.Fatal(err)
		}
		if err := oracle.Record(t.Context(), part); err != nil {
			t.Fatal(err)
		}
	}
	changed := all[7]
	changed.Node = "elsewhere"
	if err := s.Record(t.Context(), []ledger.Record{changed, changed}); err != nil {
		t.Fatal(err)
	}
	same := func() {
		t.Helper()
		for _, q := range []ledger.RecordQuery{
			{},
			{Snapshots: true},
			{From: start.Add(5 * time.Hour), To: start.Add(9 * time.Hour), Snapshots: true},
			{Limit: 3},
			{Namespaces: []string{"lab", "none"}},
			{Strategies: []string{"exec"}, Owner: "Job/train"},
			{Owner: "train"},
			{Owner: "Pod/train"},
			{UID: "u-c0"},
		} {
			got, err := s.Records(t.Context(), &q)
			if err != nil {
				t.Fatal(err)
			}
			want, _ := oracle.Records(t.Context(), &q)
			if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("unexpected records for %+v (-want +got):\n%s", q, diff)
			}
		}
	}
	same()
	for _, keep := range []ledger.Retention{
		{Snapshots: 30 * time.Hour}, {Records: 40 * time.Hour, Snapshots: 20 * time.Hour},
	} {
		now := start.Add(50 * time.Hour)
		if err := s.Keep(t.Context(), keep, now); err != nil {
			t.Fatal(err)
		}
		_ = oracle.Keep(t.Context(), keep, now)
		same()
	}
	audited(t, s)
	large := record("z", start)
	large.Message = string(make([]byte, 16<<10))
	if err := s.Record(t.Context(), []ledger.Record{large}); !errors.Is(err, ledger.ErrTooLarge) {
		t.Errorf("%v", err)
	}
	for name, bad := range map[string]func(*ledger.Record){
		"no id": func(r *ledger.Record) { r.ID = "" }, "no time": func(r *ledger.Record) { r.At = time.Time{} },
		"no text": func(r *ledger.Record) { r.Node = "a\x00" },
	} {
		r := record("y", start)
		bad(&r)
		if err := s.Record(t.Context(), []ledger.Record{r}); err == nil || errors.Is(err, ledger.ErrReadOnly) {
			t.Errorf("%s: unexpected error %v", name, err)
		}
	}
}

// The reported time of a node is retained as long as the node sends data, even though the spans of its boots are
// dropped.
func TestKeepTold(t *testing.T) {
	ledgertest.OfContent(t)
	file, clock := t.TempDir()+"/ledger.db", start
	s, err := sqlite.Open(t.Context(), file, sqlite.Options{Now: func() time.Time { return clock }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	boots := 0
	boot := func() {
		t.Helper()
		boots++
		b := ledgertest.World{Nodes: 1, Pods: 2}.Booking(0, 1)
		b.Batch.Stream.Node, b.Batch.Stream.Boot, b.Received = "n", strconv.Itoa(boots), clock
		b.Batch.Start, b.Batch.End = clock.Add(-ledgertest.Interval), clock
		ledgertest.MustBook(t, s, b)
		ledgertest.FoldAll(t, s)
		if err := s.Keep(t.Context(), ledger.Retention{Streams: 400 * days}, clock); err != nil {
			t.Fatal(err)
		}
	}
	for range 5 {
		boot()
		clock = clock.Add(40 * days)
	}
	boot()
	db, err := sql.Open("sqlite", "file:"+file)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var kept int
	if err := db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM spans").Scan(&kept); err != nil || kept > 2 {
		t.Errorf("got spans of %d boots, error %v", kept, err)
	}
	got, err := s.Reported(t.Context(), "n")
	if want := 6 * ledgertest.Interval; err != nil || got.Time != want || !got.Since.Equal(start) {
		t.Errorf("Reported() = %v since %v, %v; want %v since %v", got.Time, got.Since, err, want, start)
	}
}
