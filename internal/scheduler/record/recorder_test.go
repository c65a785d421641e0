package record

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubenergy/kubenergy/internal/apiclient"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/kube/panics"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/codec"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
	"github.com/kubenergy/kubenergy/test/kit/bubble"
)

var silent = slog.New(slog.DiscardHandler)

var noon = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

// snapshot returns a cluster with one site and nodes with increasing utilization.
func snapshot(t testing.TB, nodes int) *sched.Snapshot {
	t.Helper()
	series, err := grid.Constant(noon.Add(-time.Hour), 24*time.Hour, 360)
	if err != nil {
		t.Fatal(err)
	}
	site := &sched.Site{Name: "here", PUE: 1.5, Carbon: grid.Signal{Series: series}}
	profile := &energy.Profile{Name: "p", Idle: 100, Max: 300, Exponent: 2, Sleep: 100}
	s := &sched.Snapshot{Now: noon, Sites: []*sched.Site{site}, Queue: []sched.Job{{
		ID: "a/p", Submitted: noon, Duration: time.Hour, Request: sched.Resources{MilliCPU: 1000, Memory: 1 << 30},
	}}}
	for i := range nodes {
		s.Nodes = append(s.Nodes, &sched.Node{
			Name: fmt.Sprintf("n%04d", i), Site: site, Profile: profile, Jobs: 1,
			Capacity: sched.Resources{MilliCPU: 10000, Memory: 64 << 30},
			Free:     sched.Resources{MilliCPU: 1000 + int64(i*7919%9000), Memory: 32 << 30},
		})
	}
	return s
}

func decision(s *sched.Snapshot, node string) *Entry {
	return &Entry{Question: s, Record: ledger.Record{
		Action: Place, At: noon, Namespace: "a", OwnerKind: "Job", Owner: "j", UID: "u", Strategy: "carbon", Node: node,
		Reason: sched.Cheapest.String(),
	}}
}

// unit is a fake controller with responses that are set by the test.
type unit struct {
	mu      sync.Mutex
	answers []int // status codes of the next requests; 200 afterwards
	got     []ledger.Record
	calls   int
	token   string
	panics  int // number of requests that panic
}

func (c *unit) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.panics > 0 {
		c.panics--
		panic("a mistake")
	}
	c.calls++
	c.token = q.Header.Get("Authorization")
	if len(c.answers) > 0 {
		status := c.answers[0]
		c.answers = c.answers[1:]
		if status != http.StatusOK {
			w.WriteHeader(status)
			return
		}
	}
	var body struct{ Decisions []ledger.Record }
	if err := json.NewDecoder(q.Body).Decode(&body); err != nil || q.URL.Path != "/api/v1/decisions" ||
		q.Method != http.MethodPost {
		w.WriteHeader(http.StatusTeapot)
		return
	}
	c.got = append(c.got, body.Decisions...)
}

// RoundTrip calls the controller without a network connection, on which a synctest bubble cannot block durably.
func (c *unit) RoundTrip(q *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	c.ServeHTTP(w, q)
	return w.Result(), nil
}

func (c *unit) records() []ledger.Record {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]ledger.Record(nil), c.got...)
}

// start runs a recorder in a bubble until the test ends.
func start(t *testing.T, c *unit, log *slog.Logger) *Recorder {
	t.Helper()
	r, err := New(apiclient.Options{URL: "http://127.0.0.1:1", Transport: c}, log)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = r.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return r
}

func unzip(t *testing.T, data []byte) []byte {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestRecordsAreDelivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &unit{}
		r := start(t, c, silent)
		s := snapshot(t, 3)
		r.Record(decision(s, "n0001"))
		s.Nodes[1].Free = sched.Resources{} // the scheduler reuses its memory
		s.Queue[0].ID = "something else"
		r.Record(&Entry{Record: ledger.Record{
			Action: Release, At: noon, Namespace: "a", OwnerKind: "Job", Owner: "k", UID: "v", Reason: "DelayUsedUp",
		}})
		bubble.Advance(time.Minute)
		got := c.records()
		if len(got) != 2 || c.calls != 1 {
			t.Fatalf("%d records in %d requests", len(got), c.calls)
		}
		first := got[0]
		if first.ID == got[1].ID || len(first.ID) < 20 {
			t.Errorf("the IDs are %q and %q", first.ID, got[1].ID)
		}
		encoded := unzip(t, first.Snapshot)
		if codec.Digest(encoded) != first.Digest {
			t.Error("the digest does not match the snapshot")
		}
		back, err := codec.Decode(encoded)
		if err != nil {
			t.Fatal(err)
		}
		if back.Queue[0].ID != "a/p" || len(back.Nodes) != 3 || back.Nodes[1].Free.MilliCPU != 8919 {
			t.Errorf("the snapshot is not that of the decision: %+v, %+v", back.Queue[0], back.Nodes[1])
		}
		// The utilization rises from 0.1081 to 0.2081, so the energy is 200 W × (0.2081² − 0.1081²) × 1 h with a
		// PUE of 1.5.
		joules := 200 * (0.2081*0.2081 - 0.1081*0.1081) * 3600 * 1.5
		if d := float64(first.Energy) - joules; d > 1e-6 || d < -1e-6 {
			t.Errorf("the expected energy is %v J, want %v", float64(first.Energy), joules)
		}
		if d := float64(first.Carbon) - joules/3.6e6*360; d > 1e-9 || d < -1e-9 || first.Intensity != 360 {
			t.Errorf("the expected carbon is %v g at %v g/kWh", float64(first.Carbon), first.Intensity)
		}
		if !first.Start.Equal(noon) || !first.End.Equal(noon.Add(time.Hour)) || first.Quality != energy.Estimated {
			t.Errorf("window %v to %v, %v", first.Start, first.End, first.Quality)
		}
		for i := range got {
			if err := got[i].Validate(); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestManyCandidatesAreCut(t *testing.T) {
	var s scribe
	full := snapshot(t, 1000)
	r := s.write(decision(full, "n0777"))
	if !strings.Contains(r.Message, "64 of 1000 candidates") {
		t.Errorf("the message is %q", r.Message)
	}
	cut, err := codec.Decode(unzip(t, r.Snapshot))
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Snapshot) > 3000 {
		t.Errorf("the snapshot has %d bytes", len(r.Snapshot))
	}
	wheres, _ := strategy.Names()
	for _, name := range wheres {
		a, _ := replay(full, name)
		b, _ := replay(cut, name)
		if a[0].Node != b[0].Node {
			t.Errorf("%s chooses %q from all nodes and %q from the recorded nodes", name, a[0].Node, b[0].Node)
		}
	}
}

func TestDeliveryIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &unit{answers: []int{503, 401, 302, 404, 500}}
		r := start(t, c, silent)
		r.Record(decision(snapshot(t, 1), "n0000"))
		bubble.Advance(5 * time.Minute)
		if got := c.records(); len(got) != 1 || c.calls != 6 {
			t.Errorf("%d records in %d requests", len(got), c.calls)
		}
	})
}

// TestRefusedRecordsAreDropped verifies that a rejected record is not retried forever and does not affect other
// records.
func TestRefusedRecordsAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		c := &unit{answers: []int{400, 200, 422, 422}}
		r := start(t, c, slog.New(slog.NewTextHandler(&log, nil)))
		for range 4 {
			r.Record(decision(snapshot(t, 1), "n0000"))
		}
		bubble.Advance(time.Minute)
		if got := c.records(); len(got) != 2 || c.calls != 5 {
			t.Errorf("%d records in %d requests", len(got), c.calls)
		}
		if n := strings.Count(log.String(), "rejected"); n != 1 {
			t.Errorf("logged %d times:\n%s", n, &log)
		}
	})
}

func TestTheOldestAreDropped(t *testing.T) {
	r, err := New(apiclient.Options{URL: "http://127.0.0.1:1"}, silent)
	if err != nil {
		t.Fatal(err)
	}
	large := snapshot(t, 5000)
	for i := range 40 { // 200,000 nodes while no goroutine writes records
		d := decision(large, "n0000")
		d.UID = strconv.Itoa(i)
		r.Record(d)
	}
	if r.nodes > maxSentNodes || len(r.sent) != maxSentNodes/5000 || r.sent[len(r.sent)-1].UID != "39" ||
		r.dropped != 40-len(r.sent) {
		t.Errorf("%d decisions with %d nodes are pending, %d were dropped", len(r.sent), r.nodes, r.dropped)
	}
	for i := range 5000 {
		r.keep(ledger.Record{ID: strconv.Itoa(i), Snapshot: make([]byte, 10<<10)})
	}
	if len(r.queue) > maxQueue || r.bytes > maxQueueBytes || r.queue[len(r.queue)-1].ID != "4999" ||
		r.bytes != len(r.queue)*10<<10 {
		t.Errorf("%d records with %d bytes are pending", len(r.queue), r.bytes)
	}
	before := r.bytes
	r.forget(2)
	if r.bytes != before-2*10<<10 {
		t.Errorf("%d bytes are left", r.bytes)
	}
}

// TestDraftsAreBounded verifies that the total size of drafts, which are pending until the pod is bound, is limited
// and released.
func TestDraftsAreBounded(t *testing.T) {
	r, err := New(apiclient.Options{URL: "http://127.0.0.1:1"}, silent)
	if err != nil {
		t.Fatal(err)
	}
	large := snapshot(t, 5000)
	var drafts []*Draft
	for range 80 { // 400,000 nodes
		drafts = append(drafts, r.Draft(decision(large, "n0000")))
	}
	full := 0
	for _, d := range drafts {
		if d.Question != nil {
			full++
		} else if d.NoSnapshot == "" {
			t.Error("the reason for the missing snapshot is missing")
		}
	}
	if full != maxDraftNodes/5000 || r.drafted > maxDraftNodes {
		t.Errorf("%d drafts with %d nodes are pending", full, r.drafted)
	}
	for _, d := range drafts[1:] {
		r.Discard(d)
	}
	r.Discard(nil)
	if r.drafted != 5000 || len(r.sent) != 0 {
		t.Errorf("%d nodes are pending", r.drafted)
	}
	r.Send(drafts[0])
	if r.drafted != 0 || r.nodes != 5000 || len(r.sent) != 1 || r.sent[0].Question == nil {
		t.Errorf("%d and %d nodes are pending", r.drafted, r.nodes)
	}
}

func TestWhatIsLeftIsDeliveredAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &unit{}
		r, err := New(apiclient.Options{URL: "http://127.0.0.1:1", Transport: c}, silent)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		r.Record(decision(snapshot(t, 1), "n0000"))
		if err := r.Run(ctx); err != nil || len(c.records()) != 1 {
			t.Errorf("%d records, error %v", len(c.records()), err)
		}
	})
}

// TestADraftAtTheEndIsWaitedFor verifies that a shutdown waits for the record of a pod that has just been bound.
func TestADraftAtTheEndIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &unit{}
		r, err := New(apiclient.Options{URL: "http://127.0.0.1:1", Transport: c}, silent)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		bound, never := r.Draft(decision(snapshot(t, 1), "n0000")), r.Draft(decision(snapshot(t, 1), "n0000"))
		go func() {
			time.Sleep(bindsWithin / 2)
			r.Send(bound)
		}()
		began := time.Now()
		if err := r.Run(ctx); err != nil || len(c.records()) != 1 || time.Since(began) > 2*bindsWithin {
			t.Errorf("%d records after %v, error %v", len(c.records()), time.Since(began), err)
		}
		r.Discard(never)
	})
}

// TestLossesAreSaidSeldom verifies that losses while the controller is unavailable are logged once per minute with
// their number.
func TestLossesAreSaidSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		r, err := New(apiclient.Options{URL: "http://127.0.0.1:1"}, slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		for range maxQueue + 600 {
			r.keep(ledger.Record{ID: "x"})
			bubble.Advance(time.Second / 10)
		}
		if n := strings.Count(log.String(), "Lost records"); n != 1 || !strings.Contains(log.String(), "number=1 ") {
			t.Errorf("logged %d times in a minute:\n%s", n, &log)
		}
		log.Reset()
		bubble.Advance(time.Second)
		r.keep(ledger.Record{ID: "x"})
		if !strings.Contains(log.String(), "number=600 ") {
			t.Errorf("after a minute: %s", &log)
		}
	})
}

// TestPanicsAreSurvived verifies that a panic while writing a decision only affects its snapshot.
func TestPanicsAreSurvived(t *testing.T) {
	t.Cleanup(panics.Reset)
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		c := &unit{panics: 1}
		r := start(t, c, slog.New(slog.NewTextHandler(&log, nil)))
		s := snapshot(t, 2)
		s.Nodes[1].Site = nil
		r.Record(decision(s, "n0001"))
		r.Record(decision(snapshot(t, 2), "n0001"))
		bubble.Advance(5 * time.Minute)
		got := c.records()
		if len(got) != 2 || c.panics != 0 {
			t.Fatalf("%d records\n%s", len(got), &log)
		}
		if got[0].Snapshot != nil || !strings.Contains(got[0].Message, "the snapshot is missing") ||
			got[0].Node != "n0001" || got[1].Snapshot == nil {
			t.Errorf("recorded %+v", got[0])
		}
		if n := strings.Count(log.String(), "panic"); n < 2 {
			t.Errorf("the log is %s", &log)
		}
		if again := panics.Note("record"); again != 3 || panics.Open() {
			t.Errorf("%d panics are counted, or the circuit breaker is open", again-1)
		}
		// A caller with invalid arguments panics, which does not affect the next caller.
		func() {
			defer func() {
				if recover() == nil {
					t.Error("a nil node was accepted")
				}
			}()
			s.Nodes[0] = nil
			r.Record(decision(s, "n0001"))
		}()
		r.Record(decision(snapshot(t, 2), "n0001"))
		bubble.Advance(time.Minute)
		if n := len(c.records()); n != 3 {
			t.Errorf("%d records", n)
		}
	})
}

// TestAPanicAtTheEndIsSurvived verifies that a panic during shutdown does not abort it, and that undelivered
// records are counted.
func TestAPanicAtTheEndIsSurvived(t *testing.T) {
	t.Cleanup(panics.Reset)
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		c := &unit{panics: 1}
		r, err := New(apiclient.Options{URL: "http://127.0.0.1:1", Transport: c}, slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		r.Record(decision(snapshot(t, 2), "n0001"))
		if err := r.Run(ctx); err != nil || c.panics != 0 {
			t.Errorf("error %v; %d panics did not happen", err, c.panics)
		}
		if !strings.Contains(log.String(), "panic") || len(c.records()) != 0 {
			t.Errorf("%d records; the log is %s", len(c.records()), &log)
		}
	})
}

func TestNoRecorder(t *testing.T) {
	var r *Recorder
	r.Record(nil)
	if err := r.Run(t.Context()); err != nil || r.Enabled() {
		t.Errorf("error %v", err)
	}
}

func TestTheTokenAndTheCertificates(t *testing.T) {
	c := &unit{}
	server := httptest.NewTLSServer(c)
	defer server.Close()
	dir := t.TempDir()
	token, ca := filepath.Join(dir, "token"), filepath.Join(dir, "ca.pem")
	r, err := New(apiclient.Options{URL: server.URL + "/", TokenFile: token, CAFile: ca}, silent)
	if err != nil {
		t.Fatal(err)
	}
	deliver := func() error {
		_, err := post(t.Context(), r.client, []ledger.Record{{ID: "x", At: noon}})
		return err
	}
	if err := deliver(); err == nil || !strings.Contains(err.Error(), "reading the token") {
		t.Errorf("error %v without files", err)
	}
	pem := "-----BEGIN CERTIFICATE-----\n" + base64.StdEncoding.EncodeToString(server.Certificate().Raw) + "\n" +
		"-----END CERTIFICATE-----\n"
	if err := os.WriteFile(ca, []byte(pem), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"one\n", "two"} { // the token is rotated
		if err := os.WriteFile(token, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := deliver(); err != nil || c.token != "Bearer "+strings.TrimSpace(text) {
			t.Errorf("error %v; the sent token is %q", err, c.token)
		}
	}
	for _, url := range []string{
		"", "ftp://x", "https://user:secret@x", "http://kubenergy-controller:9443", "https://x/%zz",
	} {
		_, err := New(apiclient.Options{URL: url, TokenFile: token}, silent)
		if err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: error %v", url, err)
		}
	}
}

func BenchmarkTell1000(b *testing.B) {
	r, err := New(apiclient.Options{URL: "http://127.0.0.1:1"}, silent)
	if err != nil {
		b.Fatal(err)
	}
	d := decision(snapshot(b, 1000), "n0000")
	b.ReportAllocs()
	for b.Loop() {
		r.Record(d)
	}
}

func BenchmarkWrite1000(b *testing.B) {
	var s scribe
	d := decision(snapshot(b, 1000), "n0000")
	b.ReportAllocs()
	for b.Loop() {
		s.write(d)
	}
}

// replay plans a snapshot with the strategy of the given name.
func replay(s *sched.Snapshot, name string) (sched.Plan, error) {
	g, err := strategy.New(name)
	if err != nil {
		return nil, err
	}
	return g.Plan(s), nil
}
