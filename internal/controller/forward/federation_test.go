package forward_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubenergy/kubenergy/internal/controller/access"
	"github.com/kubenergy/kubenergy/internal/controller/forward"
	"github.com/kubenergy/kubenergy/internal/controller/intake"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/ledger/ledgertest"
	"github.com/kubenergy/kubenergy/internal/ledger/postgres"
	"github.com/kubenergy/kubenergy/internal/ledger/postgres/pgtest"
	"github.com/kubenergy/kubenergy/internal/ledger/sqlite"
)

var errKilled = errors.New("killed")

// rates returns the rates that all clusters and the federation use in this test. The carbon intensity depends on
// the hour.
func rates(_ string, from, _ time.Time) ledger.Rates {
	return ledger.Rates{
		Site: "de", PUE: 1.25, Carbon: 300 + 10*float64(from.Hour()), Signal: "average", Price: 0.3, Currency: "EUR",
	}
}

// federation is the controller that receives forwarded records. It can be killed at any step.
type federation struct {
	t       *testing.T
	random  *rand.Rand // nil if no failures are injected
	now     time.Time
	open    opener
	members access.Members
	gate    *access.Gate
	rates   func(node string, from, to time.Time) ledger.Rates

	store   store
	ledger  *ledger.Ledger
	handler *intake.Handler
}

// store is the store of a controller.
type store interface {
	ledger.Store
	ledger.Outbox
}

// opener opens the same store repeatedly.
type opener func() (store, error)

func inFile(t *testing.T) opener {
	path := filepath.Join(t.TempDir(), "ledger.db")
	return func() (store, error) { return sqlite.Open(t.Context(), path, sqlite.Options{}) }
}

// inDatabase returns a function that creates a new database on a server and returns its opener.
func inDatabase(source string) func(*testing.T) opener {
	made := 0
	return func(t *testing.T) opener {
		t.Helper()
		made++
		name := "ledger" + strconv.Itoa(made)
		db, err := sql.Open("pgx", source)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = db.Close() }()
		if _, err := db.ExecContext(t.Context(), "CREATE DATABASE "+name); err != nil {
			t.Fatal(err)
		}
		own := strings.Replace(source, "dbname=postgres", "dbname="+name, 1)
		return func() (store, error) { return postgres.Open(t.Context(), own, postgres.Options{Connections: 4}) }
	}
}

func open(t *testing.T, o opener) store {
	t.Helper()
	s, err := o()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// begin starts the process.
func (f *federation) begin() {
	f.store = open(f.t, f.open)
	f.ledger = ledger.New(f.store, ledger.Options{})
	f.handler = f.handlerOf(f)
}

func (f *federation) handlerOf(l intake.Booker) *intake.Handler {
	return intake.New(intake.Config{
		Ledger: l, Members: f.members, Rates: f.rates, Now: func() time.Time { return f.now }, Log: logs(f.t),
		PodIndex: intake.NewPodIndex(intake.PodIndexOptions{Now: time.Now}), Gate: f.gate,
		AgentUser: "system:serviceaccount:kubenergy-system:kubenergy-agent",
	})
}

func (f *federation) end() {
	if err := f.ledger.Close(); err != nil {
		f.t.Fatal(err)
	}
}

func (f *federation) killed(oneIn int) bool { return f.random != nil && f.random.IntN(oneIn) == 0 }

func (f *federation) Book(ctx context.Context, b *ledger.Booking) (ledger.Receipt, error) {
	return f.ledger.Book(ctx, b)
}

func (f *federation) Acked(ctx context.Context, s batch.Stream) (uint64, bool, error) {
	return f.ledger.Acked(ctx, s)
}

func (f *federation) Reported(ctx context.Context, node string) (ledger.Reported, error) {
	return f.ledger.Reported(ctx, node)
}

// dying is a ledger that fails within a request after some records have been committed.
type dying struct {
	*federation
	left chan struct{} // one element per record that is still committed
}

func (d *dying) Book(ctx context.Context, b *ledger.Booking) (ledger.Receipt, error) {
	select {
	case <-d.left:
		return d.federation.Book(ctx, b)
	default:
		return ledger.Receipt{}, ledger.ErrReadOnly
	}
}

// RoundTrip handles a request of a cluster. Failures are injected before, during and after the request.
func (f *federation) RoundTrip(r *http.Request) (*http.Response, error) {
	defer func() { _ = r.Body.Close() }()
	if f.killed(8) {
		return nil, errKilled
	}
	within := f.killed(4)
	if within {
		d := &dying{f, make(chan struct{}, 1000)}
		for range f.random.IntN(20) {
			d.left <- struct{}{}
		}
		f.handler = f.handlerOf(d)
	}
	r.SetPathValue("cluster", strings.Split(r.URL.Path, "/")[4])
	answer := httptest.NewRecorder()
	f.handler.ServeMember(answer, r)
	after := f.killed(6)
	if within || after {
		f.end()
		f.begin()
	}
	if after {
		return nil, errKilled
	}
	return answer.Result(), nil
}

// box is an outbox that can fail before and after it removes the acknowledged records.
type box struct {
	ledger.Outbox
	f *federation
}

func (b box) Sent(ctx context.Context, numbers []int64) error {
	if b.f.killed(5) {
		return errKilled
	}
	err := b.Outbox.Sent(ctx, numbers)
	if err == nil && b.f.killed(5) {
		return errKilled
	}
	return err
}

// narrow is a proxy that rejects requests with more than most records. If most is 0, it accepts all requests.
type narrow struct {
	f    *federation
	most int
}

func (n narrow) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	if lines := bytes.Count(body, []byte("\x1f\x8b\x08")); n.most > 0 && lines > n.most { // gzip header of a record
		answer := httptest.NewRecorder()
		answer.WriteHeader(http.StatusRequestEntityTooLarge)
		return answer.Result(), nil
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	return n.f.RoundTrip(r)
}

type cluster struct {
	most    int // maximum records per request; 0 for no limit
	name    string
	open    opener
	store   store
	source  *ledgertest.Random
	forward *forward.Forwarder
}

func (c *cluster) begin(f *federation, keep int64) {
	c.store = open(f.t, c.open)
	var err error
	c.forward, err = forward.New(forward.Options{
		URL: "http://localhost", Cluster: c.name, Most: keep, Transport: narrow{f, c.most}, Log: logs(f.t),
		Outbox: func() (ledger.Outbox, error) { return box{c.store, f}, nil },
	})
	if err != nil {
		f.t.Fatal(err)
	}
}

// next returns a usage record of a node in this cluster, as created by the cluster's controller.
func (c *cluster) next(t *testing.T) *ledger.Booking {
	for {
		b := c.source.Next()
		if p := b.Batch.Parent; strings.Contains(b.Batch.Stream.Node, "/") || p != nil && strings.Contains(p.Host, "/") {
			continue
		}
		own := *b
		own.Rates = rates("", b.Batch.Start, b.Batch.End)
		var err error
		if own.Forward, err = own.Pack(); err != nil {
			t.Fatal(err)
		}
		return &own
	}
}

func newFederation(t *testing.T, random *rand.Rand, now time.Time, o opener) *federation {
	f := &federation{
		t: t, random: random, now: now, open: o, members: access.Members{}, rates: rates,
		gate: access.NewGate(access.Options{
			Tokens: apiServer{}, Access: judge{}, Reviews: 1e6, Now: time.Now, Log: slog.New(slog.DiscardHandler),
		}),
	}
	for _, name := range []string{"alpha", "beta"} {
		f.members[name] = access.Member{Name: name, Nodes: 20, MaxPower: 2000, Bookings: 1_000_000}
	}
	return f
}

// TestSumsSurviveKills kills the members and the federation at random steps while records are forwarded. The totals
// of the federation must exactly match the ledger of each cluster, so that duplicate and lost records are detected.
//
//test:norace
func TestSumsSurviveKills(t *testing.T) {
	for range 2 {
		seed := uint64(time.Now().UnixNano())
		random := rand.New(rand.NewPCG(seed, 1))
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) { sumsSurviveKills(t, random, inFile) })
	}
	t.Run("postgres", func(t *testing.T) {
		seed := uint64(time.Now().UnixNano())
		t.Log("seed", seed)
		sumsSurviveKills(t, rand.New(rand.NewPCG(seed, 1)), inDatabase(pgtest.Start(t)))
	})
}

func sumsSurviveKills(t *testing.T, random *rand.Rand, stores func(*testing.T) opener) {
	start := time.Date(2026, 11, 2, 22, 0, 0, 0, time.UTC)
	f := newFederation(t, random, start.Add(48*time.Hour), stores(t))
	f.begin()
	defer func() { f.end() }()
	clusters := make([]*cluster, 0, 2)
	for _, name := range []string{"alpha", "beta"} {
		c := &cluster{
			name: name, open: stores(t),
			source: &ledgertest.Random{Rand: random, Start: start, Span: 12 * time.Hour, Estimates: true},
		}
		c.begin(f, 1<<40)
		clusters = append(clusters, c)
	}
	for range 150 {
		c := clusters[random.IntN(2)]
		switch random.IntN(6) {
		case 0: // restart of the cluster's controller
			if err := c.store.Close(); err != nil {
				t.Fatal(err)
			}
			c.begin(f, 1<<40)
		case 1, 2:
			_ = c.forward.Step(t.Context()) // fails if a kill is injected and continues with the next step
		default:
			for range 1 + random.IntN(4) {
				ledgertest.MustBook(t, c.store, c.next(t))
			}
		}
	}
	f.random = nil
	for _, c := range clusters {
		drain(t, c)
		defer func() { _ = c.store.Close() }()
		same(t, f, c)
	}
}

// drain forwards all remaining records.
func drain(t *testing.T, c *cluster) {
	t.Helper()
	for range 1000 {
		if err := c.forward.Step(t.Context()); err != nil {
			t.Fatal(err)
		}
		left, err := c.store.Backlog(t.Context(), 1<<40)
		if err != nil {
			t.Fatal(err)
		}
		if left.Kept == 0 {
			return
		}
	}
	t.Fatal("the outbox was not drained")
}

// same verifies that the federation's ledger matches the ledger of a cluster.
func same(t *testing.T, f *federation, c *cluster) {
	t.Helper()
	day := time.Date(2026, 11, 2, 0, 0, 0, 0, time.UTC)
	some := 0
	// The time range of a row may differ if an estimate was corrected after it had been added to the totals.
	moved := cmpopts.IgnoreFields(ledger.Row{}, "First", "Last")
	for _, by := range []string{
		"", "kind", "namespace,day", "owner,hour", "team,kind", "node", "node,hour", "pod,node", "window,kind",
	} {
		q := &ledger.Query{From: day, To: day.AddDate(0, 0, 5)}
		for d := range strings.SplitSeq(by, ",") {
			if d != "" {
				q.GroupBy = append(q.GroupBy, ledger.Dimension(d))
			}
		}
		own := rowsOf(t, c.store, q)
		there := *q
		there.Clusters, there.Own = []string{c.name}, "home"
		forwarded := rowsOf(t, f.store, &there)
		if diff := cmp.Diff(own, forwarded, moved); diff != "" {
			t.Errorf("%s by %q (-cluster +federation):\n%s", c.name, by, diff)
		}
		some += len(own)
		// A query grouped by cluster must return the same result.
		there.Clusters, there.GroupBy = nil, append(slices.Clip(q.GroupBy), ledger.ByCluster)
		grouped := slices.DeleteFunc(rowsOf(t, f.store, &there), func(r ledger.Row) bool {
			return r.Key[len(r.Key)-1] != c.name
		})
		for i := range grouped {
			grouped[i].Key = grouped[i].Key[:len(grouped[i].Key)-1]
		}
		if diff := cmp.Diff(own, grouped, moved); diff != "" {
			t.Errorf("%s by %q and cluster (-cluster +federation):\n%s", c.name, by, diff)
		}
	}
	if some < 100 {
		t.Errorf("compared only %d rows, want at least 100", some)
	}
	if found, err := f.store.Audit(t.Context(), day); err != nil || len(found.Problems) > 0 {
		t.Errorf("%v, %v", found, err)
	}
}

// rowsOf returns the rows of a query. The cluster prefixes of node names are removed.
func rowsOf(t *testing.T, s store, q *ledger.Query) []ledger.Row {
	t.Helper()
	if _, err := s.Fold(t.Context()); err != nil { // a query folds for at most 2 s, which may be too short
		t.Fatal(err)
	}
	answer, err := s.Query(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	at := slices.Index(q.GroupBy, ledger.ByNode)
	for i := range answer.Rows {
		if at >= 0 {
			key := answer.Rows[i].Key
			key[at] = key[at][strings.Index(key[at], "/")+1:]
		}
	}
	slices.SortFunc(answer.Rows, func(a, b ledger.Row) int { return slices.Compare(a.Key, b.Key) })
	return answer.Rows
}

// TestBacklogIsBounded verifies that the oldest records are dropped and counted if the outbox exceeds its limit,
// and that the federation accepts the resulting gap.
func TestBacklogIsBounded(t *testing.T) {
	f := newFederation(t, nil, ledgertest.Noon.Add(time.Hour), inFile(t))
	f.begin()
	defer f.end()
	c := &cluster{name: "alpha", open: inFile(t)}
	c.begin(f, 10)
	defer func() { _ = c.store.Close() }()
	world := ledgertest.World{Nodes: 1, Pods: 2, Epoch: "1"}
	for number := range uint64(25) {
		b := world.Booking(0, number+1)
		b.Forward, _ = b.Pack()
		ledgertest.MustBook(t, c.store, b)
	}
	drain(t, c)
	q := &ledger.Query{From: ledgertest.Noon, To: ledgertest.Noon.Add(time.Hour)}
	var truth ledgertest.Truth
	for number := range uint64(10) {
		truth.Book(world.Booking(0, number+16))
	}
	if rows := rowsOf(t, f.store, q); len(rows) != 1 || rows[0].Energy() != truth.Total.Energy() {
		t.Errorf("got %+v, want %d µJ of the last ten records", rows, truth.Total.Energy())
	}
}

// damaged is an outbox with a corrupted record.
type damaged struct {
	ledger.Outbox
	number int64
	fail   error // error of the next call of Sent
}

func (d *damaged) Outgoing(ctx context.Context, after int64, most int, rest map[string]bool) (
	[]ledger.Outgoing, error,
) {
	all, err := d.Outbox.Outgoing(ctx, after, most, rest)
	for i := range all {
		if all[i].Number == d.number {
			all[i].Packed = nil
		}
	}
	return all, err
}

func (d *damaged) Sent(ctx context.Context, numbers []int64) error {
	if err := d.fail; err != nil {
		d.fail = nil
		return err
	}
	return d.Outbox.Sent(ctx, numbers)
}

// TestDamageIsCountedOnce verifies that a corrupted record is dropped and counted once, even if the first attempt
// to drop it fails.
func TestDamageIsCountedOnce(t *testing.T) {
	f := newFederation(t, nil, ledgertest.Noon.Add(time.Hour), inFile(t))
	f.begin()
	defer f.end()
	c := &cluster{name: "alpha", open: inFile(t)}
	c.begin(f, 1<<40)
	defer func() { _ = c.store.Close() }()
	world := ledgertest.World{Nodes: 2, Pods: 2, Epoch: "1"}
	for node := range 2 {
		b := world.Booking(node, 1)
		b.Forward, _ = b.Pack()
		ledgertest.MustBook(t, c.store, b)
	}
	registry, box := prometheus.NewRegistry(), &damaged{c.store, 1, errKilled}
	forwarder, err := forward.New(forward.Options{
		URL: "http://localhost", Cluster: "alpha", Most: 1 << 40, Transport: f, Log: logs(t), Registerer: registry,
		Outbox: func() (ledger.Outbox, error) { return box, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := forwarder.Step(t.Context()); !errors.Is(err, errKilled) {
		t.Fatal(err)
	}
	c.forward = forwarder
	drain(t, c)
	all, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		if m.GetName() == "kubenergy_forward_dropped_total" && m.Metric[0].Counter.GetValue() != 1 {
			t.Errorf("got %v dropped records, want 1", m.Metric[0].Counter.GetValue())
		}
	}
}

// TestTooMuchIsHalved forwards records through a proxy that accepts at most two records per request.
//
//test:norace
func TestTooMuchIsHalved(t *testing.T) {
	f := newFederation(t, nil, ledgertest.Noon.Add(time.Hour), inFile(t))
	f.begin()
	defer f.end()
	c := &cluster{name: "alpha", open: inFile(t), most: 2}
	c.begin(f, 1<<40)
	defer func() { _ = c.store.Close() }()
	world := ledgertest.World{Nodes: 1, Pods: 2, Epoch: "1"}
	var truth ledgertest.Truth
	for number := range uint64(25) {
		b := world.Booking(0, number+1)
		b.Forward, _ = b.Pack()
		ledgertest.MustBook(t, c.store, b)
		truth.Book(b)
	}
	drain(t, c)
	q := &ledger.Query{From: ledgertest.Noon, To: ledgertest.Noon.Add(time.Hour)}
	if rows := rowsOf(t, f.store, q); len(rows) != 1 || rows[0].Energy() != truth.Total.Energy() {
		t.Errorf("got %+v, want %d µJ of all records", rows, truth.Total.Energy())
	}
}

// logs returns a logger that writes to the output of the test.
func logs(t *testing.T) *slog.Logger { return slog.New(slog.NewTextHandler(t.Output(), nil)) }
