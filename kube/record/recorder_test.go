package record

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
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

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubenergy/kubenergy/energy"
	"github.com/kubenergy/kubenergy/grid"
	"github.com/kubenergy/kubenergy/ledger"
	"github.com/kubenergy/kubenergy/sched"
)

var noon = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

// snapshot is a cluster of one site and of machines that are more and more loaded.
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
			Capacity: sched.Resources{MilliCPU: 10000, Memory: 64 << 30}, Free: sched.Resources{MilliCPU: 1000 + int64(i*7919%9000), Memory: 32 << 30},
		})
	}
	return s
}

func decision(s *sched.Snapshot, node string) *Decision {
	return &Decision{
		Action: Place, At: noon, Namespace: "a", OwnerKind: "Job", Owner: "j", UID: "u", Strategy: "carbon", Node: node, Snapshot: s,
		Reason: sched.Cheapest.String(),
	}
}

// central is a central unit that answers as it is told.
type central struct {
	mu      sync.Mutex
	answers []int // status of the next requests; then 200
	got     []ledger.Record
	calls   int
	token   string
}

func (c *central) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
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
	if err := json.NewDecoder(q.Body).Decode(&body); err != nil || q.URL.Path != "/api/v1/decisions" || q.Method != http.MethodPost {
		w.WriteHeader(http.StatusTeapot)
		return
	}
	c.got = append(c.got, body.Decisions...)
}

// RoundTrip lets the central unit be asked without a connection, which a synctest bubble cannot wait for.
func (c *central) RoundTrip(q *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	c.ServeHTTP(w, q)
	return w.Result(), nil
}

func (c *central) records() []ledger.Record {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]ledger.Record(nil), c.got...)
}

// start runs a recorder inside a bubble until the test ends.
func start(t *testing.T, c *central) *Recorder {
	t.Helper()
	r, err := New(Options{URL: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	r.post.client = &http.Client{Transport: c}
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
		c := &central{}
		r := start(t, c)
		s := snapshot(t, 3)
		r.Tell(decision(s, "n0001"))
		s.Nodes[1].Free = sched.Resources{} // the scheduler uses its memory again
		s.Queue[0].ID = "something else"
		r.Tell(&Decision{Action: Release, At: noon, Namespace: "a", OwnerKind: "Job", Owner: "k", UID: "v", Reason: "DelayUsedUp"})
		time.Sleep(time.Minute)
		got := c.records()
		if len(got) != 2 || c.calls != 1 {
			t.Fatalf("%d records in %d requests", len(got), c.calls)
		}
		first := got[0]
		if first.ID == got[1].ID || len(first.ID) < 20 {
			t.Errorf("the IDs are %q and %q", first.ID, got[1].ID)
		}
		encoded := unzip(t, first.Snapshot)
		if sched.Digest(encoded) != first.Digest {
			t.Error("the digest is of something else")
		}
		back, err := sched.Decode(encoded)
		if err != nil {
			t.Fatal(err)
		}
		if back.Queue[0].ID != "a/p" || len(back.Nodes) != 3 || back.Nodes[1].Free.MilliCPU != 8919 {
			t.Errorf("the snapshot is not of the moment: %+v, %+v", back.Queue[0], back.Nodes[1])
		}
		// From 0.1081 of the cores to 0.2081: 200 W × (0.2081² − 0.1081²) for an hour, with a PUE of 1.5.
		joules := 200 * (0.2081*0.2081 - 0.1081*0.1081) * 3600 * 1.5
		if d := float64(first.Energy) - joules; d > 1e-6 || d < -1e-6 {
			t.Errorf("%v J are expected, want %v", float64(first.Energy), joules)
		}
		if d := float64(first.Carbon) - joules/3.6e6*360; d > 1e-9 || d < -1e-9 || first.Intensity != 360 {
			t.Errorf("%v g are expected at %v g/kWh", float64(first.Carbon), first.Intensity)
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
	cut, err := sched.Decode(unzip(t, r.Snapshot))
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Snapshot) > 3000 {
		t.Errorf("the snapshot has %d bytes", len(r.Snapshot))
	}
	wheres, _ := sched.Names()
	for _, name := range wheres {
		a, _ := sched.Replay(full, name)
		b, _ := sched.Replay(cut, name)
		if a[0].Node != b[0].Node {
			t.Errorf("%s chooses %q of all nodes and %q of those recorded", name, a[0].Node, b[0].Node)
		}
	}
}

func TestDeliveryIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &central{answers: []int{503, 401, 302, 404, 500}}
		r := start(t, c)
		r.Tell(decision(snapshot(t, 1), "n0000"))
		time.Sleep(5 * time.Minute)
		if got := c.records(); len(got) != 1 || c.calls != 6 {
			t.Errorf("%d records in %d requests", len(got), c.calls)
		}
	})
}

// One record that is refused takes no others along, and is not sent for ever.
func TestRefusedRecordsAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &central{answers: []int{400, 200, 422}}
		r := start(t, c)
		for range 3 {
			r.Tell(decision(snapshot(t, 1), "n0000"))
		}
		time.Sleep(time.Minute)
		if got := c.records(); len(got) != 2 || c.calls != 4 {
			t.Errorf("%d records in %d requests", len(got), c.calls)
		}
	})
}

func TestTheOldestAreDropped(t *testing.T) {
	r, err := New(Options{URL: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	large := snapshot(t, 5000)
	for i := range 40 { // 200,000 nodes, and nobody writes
		d := decision(large, "n0000")
		d.UID = strconv.Itoa(i)
		r.Tell(d)
	}
	if r.nodes > maxToldNodes || len(r.told) != maxToldNodes/5000 || r.told[len(r.told)-1].UID != "39" || r.dropped != 40-uint64(len(r.told)) {
		t.Errorf("%d decisions with %d nodes wait, %d were dropped", len(r.told), r.nodes, r.dropped)
	}
	for i := range 5000 {
		r.keep(ledger.Record{ID: strconv.Itoa(i), Snapshot: make([]byte, 10<<10)})
	}
	if len(r.queue) > maxQueue || r.bytes > maxQueueBytes || r.queue[len(r.queue)-1].ID != "4999" || r.bytes != len(r.queue)*10<<10 {
		t.Errorf("%d records with %d bytes wait", len(r.queue), r.bytes)
	}
	before := r.bytes
	r.forget(2)
	if r.bytes != before-2*10<<10 {
		t.Errorf("%d bytes are left", r.bytes)
	}
}

func TestWhatIsLeftIsDeliveredAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &central{}
		r, err := New(Options{URL: "http://127.0.0.1:1"})
		if err != nil {
			t.Fatal(err)
		}
		r.post.client = &http.Client{Transport: c}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		r.Tell(decision(snapshot(t, 1), "n0000"))
		if err := r.Run(ctx); err != nil || len(c.records()) != 1 {
			t.Errorf("%d records, error %v", len(c.records()), err)
		}
	})
}

func TestNobodyToTell(t *testing.T) {
	var r *Recorder
	r.Tell(nil)
	if err := r.Run(t.Context()); err != nil || r.On() {
		t.Errorf("error %v", err)
	}
}

func TestTheTokenAndTheCertificates(t *testing.T) {
	c := &central{}
	server := httptest.NewTLSServer(c)
	defer server.Close()
	dir := t.TempDir()
	token, ca := filepath.Join(dir, "token"), filepath.Join(dir, "ca.pem")
	r, err := New(Options{URL: server.URL + "/", TokenFile: token, CAFile: ca})
	if err != nil {
		t.Fatal(err)
	}
	send := func() error { return r.post.send(t.Context(), []ledger.Record{{ID: "x", At: noon}}) }
	if err := send(); err == nil || !strings.Contains(err.Error(), "certificates to trust") {
		t.Errorf("error %v without files", err)
	}
	pem := "-----BEGIN CERTIFICATE-----\n" + base64.StdEncoding.EncodeToString(server.Certificate().Raw) + "\n" + "-----END CERTIFICATE-----\n"
	if err := os.WriteFile(ca, []byte(pem), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := send(); err == nil || !strings.Contains(err.Error(), "reading the token") {
		t.Errorf("error %v without a token", err)
	}
	for _, text := range []string{"one\n", "two"} { // it is rotated
		if err := os.WriteFile(token, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := send(); err != nil || c.token != "Bearer "+strings.TrimSpace(text) {
			t.Errorf("error %v; %q was sent", err, c.token)
		}
	}
	for _, url := range []string{"", "ftp://x", "https://user:secret@x", "http://kubenergy-controller:9443", "https://x/%zz"} {
		if _, err := New(Options{URL: url, TokenFile: token}); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: error %v", url, err)
		}
	}
}

func TestOwner(t *testing.T) {
	owned := func(kind, name string, labels map[string]string) *v1.Pod {
		return &v1.Pod{ObjectMeta: metav1.ObjectMeta{
			Name: "pod", Labels: labels, OwnerReferences: []metav1.OwnerReference{{Kind: kind, Name: name, Controller: new(true)}},
		}}
	}
	for _, c := range []struct {
		pod  *v1.Pod
		want string
	}{
		{&v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pod"}}, "Pod/pod"},
		{owned("Job", "nightly", nil), "Job/nightly"},
		{owned("ReplicaSet", "web-5d4f", map[string]string{"pod-template-hash": "5d4f"}), "Deployment/web"},
		{owned("ReplicaSet", "web-5d4f", nil), "ReplicaSet/web-5d4f"},
		{owned("StatefulSet", "db", nil), "StatefulSet/db"},
	} {
		if kind, name := Owner(c.pod); kind+"/"+name != c.want {
			t.Errorf("%s/%s, want %s", kind, name, c.want)
		}
	}
}

func BenchmarkTell1000(b *testing.B) {
	r, err := New(Options{URL: "http://127.0.0.1:1"})
	if err != nil {
		b.Fatal(err)
	}
	d := decision(snapshot(b, 1000), "n0000")
	for _, n := range d.Snapshot.Nodes {
		d.Nodes = append(d.Nodes, *n)
	}
	b.ReportAllocs()
	for b.Loop() {
		r.Tell(d)
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
