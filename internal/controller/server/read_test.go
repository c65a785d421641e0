package server

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/apiclient/api"
	"github.com/kubenergy/kubenergy/internal/controller/access"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/ledger/ledgertest"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/test/kit/memtest"
)

func TestNodes(t *testing.T) {
	w := newWorld(t)
	w.live.nodes = append(w.live.nodes, api.NodePower{Node: "elsewhere", Watts: 7, AsOf: noon, Source: "shelly"})
	got := get[Nodes](t, w.handler(), "/api/v1/nodes").Nodes
	if len(got) != 3 || got[0].Node != "elsewhere" || got[0].Now.Watts != 7 || got[1].Node != "worker1" ||
		got[2].Node != "worker2" {
		t.Fatalf("%+v", got)
	}
	n := got[1]
	if n.Site != "de" || n.Zone != "DE" || n.PUE != 1.2 || n.Profile != "frugal" || n.Allocatable.CPU != 8 ||
		*n.ModelWatts != 50 || n.Efficiency == nil {
		t.Errorf("%+v, %v W", n, n.ModelWatts)
	}
	if n.Now == nil || n.Now.Watts != 123.5 || n.Now.Quality != energy.Measured || got[2].Now != nil {
		t.Errorf("%+v, %+v", n.Now, got[2].Now)
	}
}

// TestPowerStates verifies that both lists of nodes contain the power state, and that the shared slice is not
// modified.
func TestPowerStates(t *testing.T) {
	w := newWorld(t)
	var n v1.Node
	if err := w.client.Get(t.Context(), types.NamespacedName{Name: "worker1"}, &n); err != nil {
		t.Fatal(err)
	}
	n.Labels[v1alpha1.LabelPowerState] = v1alpha1.PowerAsleep
	if err := w.client.Update(t.Context(), &n); err != nil {
		t.Fatal(err)
	}
	nodes, power := get[Nodes](t, w.handler(), "/api/v1/nodes").Nodes,
		get[api.NodesPower](t, w.handler(), "/api/v1/nodes/power").Nodes
	if nodes[0].PowerState != "asleep" || nodes[1].PowerState != "" || len(power) != 1 ||
		power[0].PowerState != "asleep" || w.live.nodes[0].PowerState != "" {
		t.Errorf("%+v, %+v", nodes, power)
	}
}

func TestTemperatures(t *testing.T) {
	w := newWorld(t)
	celsius := energy.Celsius(71.5)
	for i, node := range []string{"worker1", "worker2"} {
		b := ledgertest.World{Nodes: 1, Pods: 1, Epoch: node}.Booking(0, 1)
		b.Batch.Stream.Node, b.Received, b.Temperature = node, noon.Add(-time.Minute-time.Duration(i)*time.Hour), &celsius
		ledgertest.MustBook(t, w.store, b)
	}
	w.live.nodes[0].Temperature = sched.Heat{Celsius: celsius, Limit: 70, AsOf: w.config.Now(), Hot: true}
	h := w.handler()
	now := get[Nodes](t, h, "/api/v1/nodes").Nodes[0].Now.Temperature
	if !now.Hot || now.Celsius != celsius {
		t.Errorf("now %+v", now)
	}
	all := get[api.NodesTemperature](t, h, "/api/v1/nodes/temperature").Hours
	if len(all) != 2 || all[0].Node != "worker2" || all[1].Mean != celsius || all[1].Max != celsius {
		t.Errorf("%+v", all)
	}
	if one := get[api.NodesTemperature](t, h, "/api/v1/nodes/temperature?from=-1d&node=worker1").Hours; len(one) != 1 {
		t.Errorf("of one node %+v", one)
	}
	if answer := ask(t, h, "GET", "/api/v1/nodes/temperature?from=yesterday", admin, ""); answer.Code != 400 {
		t.Errorf("%d %s", answer.Code, answer.Body)
	}
}

func TestZones(t *testing.T) {
	got := get[Zones](t, newWorld(t).handler(), "/api/v1/zones").Zones
	if len(got) != 1 || got[0].Name != "de" || got[0].Price != nil {
		t.Fatalf("%+v", got)
	}
	c := got[0].Carbon
	if *c.Now != 200 || !c.Fresh || c.Quality != energy.Measured || *c.AgeSeconds != 600 || c.Step != "1h0m0s" ||
		len(c.Values) != 4 {
		t.Errorf("%+v", c)
	}
}

// TestNothingKnown verifies that empty lists are encoded as [] rather than null.
func TestNothingKnown(t *testing.T) {
	w := newWorld(t)
	w.config.Ledger, w.config.Live, w.config.View = nothingBooked{}, new(fakeLive), kube.Unsettled
	w.config.Client = fake.NewClientBuilder().WithScheme(newScheme(t)).Build()
	h := w.handler()
	for target, want := range map[string]string{
		"/api/v1/nodes": `{"nodes":[]}`, "/api/v1/nodes/power": `{"nodes":[]}`,
		"/api/v1/nodes/temperature": `{"hours":[]}`,
		"/api/v1/workloads/power":   `{"workloads":[]}`, "/api/v1/pods": `{"pods":[]}`,
		"/api/v1/namespaces/a/pods": `{"pods":[]}`, "/api/v1/zones": `{"zones":[]}`, "/api/v1/jobs": `"jobs":[]`,
		"/api/v1/ledger": `"rows":[]`, "/api/v1/ledger?groupBy=day": `"rows":[]`,
		"/api/v1/decisions": `{"decisions":[]}`, "/api/v1/ledger/audit": `"problems":[]`,
		"/api/v1/namespaces/a/pods/p/power": `"points":[]`,
	} {
		if answer := ask(t, h, "GET", target, admin, ""); answer.Code != 200 ||
			!strings.Contains(answer.Body.String(), want) {
			t.Errorf("%s: %d %s, want %s", target, answer.Code, answer.Body, want)
		}
	}
}

// nothingBooked is an empty ledger that returns nil slices.
type nothingBooked struct{}

func (nothingBooked) Query(_ context.Context, q *ledger.Query) (*ledger.Answer, error) {
	return &ledger.Answer{From: q.From, To: q.To}, nil
}

func (nothingBooked) Series(context.Context, *ledger.Query) ([]ledger.Point, error) { return nil, nil }

func (nothingBooked) Temperatures(context.Context, time.Time, time.Time, string) ([]ledger.Temperature, error) {
	return nil, nil
}
func (nothingBooked) Record(context.Context, []ledger.Record) error { return nil }
func (nothingBooked) Records(context.Context, *ledger.RecordQuery) ([]ledger.Record, error) {
	return nil, nil
}

func (nothingBooked) Audit(context.Context, time.Time) (*ledger.Findings, error) {
	return &ledger.Findings{}, nil
}

func (nothingBooked) Statistics(context.Context) (ledger.Statistics, error) {
	return ledger.Statistics{}, nil
}

func TestETag(t *testing.T) {
	w := newWorld(t)
	h := w.handler()
	for _, target := range []string{"/api/v1/nodes/power", "/api/v1/workloads/power"} {
		first := ask(t, h, "GET", target, admin, "")
		tag := first.Header().Get("ETag")
		if first.Code != 200 || tag == "" || first.Header().Get("Cache-Control") != "private, no-cache" {
			t.Fatalf("%s: %d %v", target, first.Code, first.Header())
		}
		for _, match := range []string{tag, "W/" + tag, `"x", ` + tag, "*"} {
			again := ask(t, h, "GET", target, admin, "", "If-None-Match", match)
			if again.Code != http.StatusNotModified || again.Body.Len() != 0 || again.Header().Get("ETag") != tag {
				t.Errorf("%s with %s: %d %s", target, match, again.Code, again.Body)
			}
		}
		if other := ask(t, h, "GET", target, admin, "", "If-None-Match", `"x"`); other.Code != 200 {
			t.Errorf("%s with a different tag: %d", target, other.Code)
		}
		if other := ask(t, h, "GET", target, stranger, "", "If-None-Match", tag); other.Code != http.StatusForbidden {
			t.Errorf("%s with the tag but without permissions: %d", target, other.Code)
		}
	}
	tag := ask(t, h, "GET", "/api/v1/nodes/power", admin, "").Header().Get("ETag")
	w.live.nodes[0].Watts++
	if changed := ask(t, h, "GET", "/api/v1/nodes/power", admin, "", "If-None-Match", tag); changed.Code != 200 ||
		changed.Header().Get("ETag") == tag {
		t.Errorf("changed: %d", changed.Code)
	}
}

func TestLedgerAnswers(t *testing.T) {
	h := newWorld(t).handler()
	sums := get[ledger.Answer](t, h, "/api/v1/ledger?from=-1d&groupBy=namespace&groupBy=kind")
	if len(sums.Rows) != 3 || sums.Total.Energy() != 1_000_000_000 {
		t.Fatalf("%+v", sums)
	}
	if got := sums.Rows[1].Key; got[0] != "a" || got[1] != "workload" || sums.Rows[1].Energy() != 500_000_000 {
		t.Errorf("%+v", sums.Rows[1])
	}
	one := get[ledger.Answer](t, h, "/api/v1/ledger?from=-1d&namespace=a&namespace=c&strategy=carbon%2Bwindow")
	if one.Total.Energy() != 500_000_000 {
		t.Errorf("%+v", one.Total)
	}
	limited := get[ledger.Answer](t, h, "/api/v1/ledger?from=-1d&groupBy=namespace,owner&limit=1")
	if len(limited.Rows) != 2 || limited.Rows[1].Key != nil {
		t.Errorf("%+v", limited.Rows)
	}
	for _, c := range []struct{ query, accept, want string }{
		{"&format=csv", "", "text/csv"},
		{"", "text/csv", "text/csv"},
		{"", "text/html, text/csv;q=0.9, */*;q=0.1", "text/csv"},
		{"&format=json", "text/csv", "application/json"},
		{"", "*/*", "application/json"},
		{"", "application/json, text/csv", "application/json"},
		{"", "nonsense//", "application/json"},
		{"&format=influx", "", "text/plain"},
	} {
		answer := ask(t, h, "GET", "/api/v1/ledger?from=-1d&groupBy=namespace"+c.query, admin, "", "Accept", c.accept)
		if answer.Code != 200 || !strings.HasPrefix(answer.Header().Get("Content-Type"), c.want) {
			t.Errorf("%q, %q: %d %s", c.query, c.accept, answer.Code, answer.Header().Get("Content-Type"))
		}
	}
	table, err := csv.NewReader(ask(t, h, "GET", "/api/v1/ledger?from=-1d&groupBy=namespace&format=csv", admin,
		"").Body).ReadAll()
	if err != nil || len(table) != 4 || table[2][0] != "a" {
		t.Errorf("%v, %v", table, err)
	}
}

func TestJobs(t *testing.T) {
	h := newWorld(t).handler()
	all := get[Jobs](t, h, "/api/v1/jobs?from=-1d")
	if len(all.Jobs) != 2 || all.Jobs[0].Job != "train" || all.Jobs[1].Job != "secret" {
		t.Fatalf("%+v", all)
	}
	j := all.Jobs[0]
	if j.Namespace != "a" || j.Parent != "CronJob/nightly" || j.Strategy != "carbon+window" ||
		j.Energy != 500_000_000 || j.Facility != 600_000_000 || j.CPUSeconds != 60 {
		t.Errorf("%+v", j)
	}
	if got, want := j.Emissions["average"], 300*600.0/3.6e6; got < want-1e-6 || got > want+1e-6 {
		t.Errorf("%v g, want %v", got, want)
	}
	if got, want := j.Costs["EUR"], 0.3*600/3.6e6; got < want-1e-8 || got > want+1e-8 {
		t.Errorf("%v EUR, want %v", got, want)
	}
	if all.Jobs[1].Parent != "" {
		t.Errorf("%+v", all.Jobs[1])
	}
	if one := get[Jobs](t, h, "/api/v1/namespaces/b/jobs?from=-1d"); len(one.Jobs) != 1 || one.Jobs[0].Job != "secret" {
		t.Errorf("%+v", one)
	}
	if one := get[Jobs](t, h, "/api/v1/jobs?from=-1d&limit=1"); len(one.Jobs) != 1 || one.Left != 1 {
		t.Errorf("%+v", one)
	}
	if one := get[Jobs](t, h, "/api/v1/jobs?from=-1d&owner=secret&owner=Job/nothing"); len(one.Jobs) != 1 {
		t.Errorf("%+v", one)
	}
}

func TestPodPower(t *testing.T) {
	h := newWorld(t).handler()
	for _, pod := range []string{"train-x", "uid-a"} {
		got := get[PodPower](t, h, "/api/v1/namespaces/a/pods/"+pod+"/power?from=-2h")
		joules := 0.0
		for _, p := range got.Points {
			joules += p.Watts * 300
		}
		if len(got.Points) == 0 || joules < 499 || joules > 501 {
			t.Errorf("%s: %v: %v J", pod, got.Points, joules)
		}
	}
	many := make([]ledger.Point, 20_000)
	for i := range many {
		many[i] = ledger.Point{At: noon.Add(time.Duration(i) * time.Minute), Watts: float64(i % 7)}
	}
	w := newWorld(t)
	w.config.Ledger = series{nothingBooked{}, many}
	h = w.handler()
	for how, samples := range map[string]int{"lttb": 500, "timeBased": 100, "minMax": 50} {
		got := get[PodPower](t, h, fmt.Sprintf("/api/v1/namespaces/a/pods/p/power?samples=%d&downsample=%s", samples,
			how))
		if len(got.Points) > samples || len(got.Points) < samples/3 {
			t.Errorf("%s: %d points, want %d", how, len(got.Points), samples)
		}
	}
	if got := get[PodPower](t, h, "/api/v1/namespaces/a/pods/p/power"); len(got.Points) != 500 {
		t.Errorf("%d points by default, want 500", len(got.Points))
	}
	for _, query := range []string{"samples=501", "samples=1", "samples=-1", "samples=1e2", "downsample=none"} {
		wantStatus(t, ask(t, h, "GET", "/api/v1/namespaces/a/pods/p/power?"+query, admin, ""), http.StatusBadRequest,
			query)
	}
	wantStatus(t, ask(t, h, "GET", "/api/v1/namespaces/a/pods/P_/power", admin, ""), http.StatusBadRequest, "no pod")
}

type series struct {
	nothingBooked
	points []ledger.Point
}

func (s series) Series(context.Context, *ledger.Query) ([]ledger.Point, error) { return s.points, nil }

func TestDecisions(t *testing.T) {
	w := newWorld(t)
	var hooked []ledger.Record
	w.config.Recorded = func(r []ledger.Record) { hooked = append(hooked, r...) }
	h := w.handler()
	all := get[api.Decisions](t, h, "/api/v1/decisions").Decisions
	if len(all) != 2 || all[0].Snapshot != nil {
		t.Fatalf("%+v", all)
	}
	if one := get[api.Decisions](t, h,
		"/api/v1/namespaces/b/decisions?snapshots=true&owner=Job/job-of-b&uid=uid-b&strategy=carbon%2Bwindow").Decisions; len(one) != 1 || string(one[0].Snapshot) != "snapshot" {
		t.Errorf("%+v", one)
	}
	// Snapshots contain data of all nodes, so a tenant can only read decisions without them.
	for _, target := range []string{
		"/api/v1/namespaces/b/decisions", "/api/v1/namespaces/b/decisions?snapshots=false",
	} {
		wantStatus(t, ask(t, h, "GET", target, tenantB, ""), http.StatusOK, target)
	}
	for token, target := range map[string]string{
		tenantB: "/api/v1/namespaces/b/decisions?snapshots=true", everywhere: "/api/v1/decisions?snapshots=true",
	} {
		answer := ask(t, h, "GET", target, token, "")
		wantStatus(t, answer, http.StatusForbidden, target)
		if text := answer.Body.String(); !strings.Contains(text, "list nodeenergy.kubenergy.io in all namespaces") ||
			strings.Contains(text, "uid-b") {
			t.Errorf("%s: %s", target, text)
		}
	}
	wantStatus(t, ask(t, h, "GET", "/api/v1/decisions", everywhere, ""), http.StatusOK, "all decisions")
	record := `{"id":"n1","at":"2026-11-03T11:00:00Z","action":"place","namespace":"a","owner":"j","uid":"u","strategy":"carbon","energyJoules":1,"carbonGrams":2,"cost":3,"reason":"r","digest":"d","quality":"derived","later":1}`
	for i, body := range []string{
		`{"decisions":[` + record + `]}`, "[" + record + "]", " \n[" + strings.Replace(record, "n1", "n2", 1) + "]",
		packed(`{"decisions":[` + record + `]}`), `{}`, `[]`,
	} {
		headers := []string{}
		if i == 3 {
			headers = []string{"Content-Encoding", "gzip"}
		}
		if answer := ask(t, h, "POST", "/api/v1/decisions", admin, body,
			headers...); answer.Code != http.StatusNoContent || answer.Body.Len() > 0 {
			t.Errorf("%d: %d %s", i, answer.Code, answer.Body)
		}
	}
	if all := get[api.Decisions](t, h, "/api/v1/namespaces/a/decisions").Decisions; len(all) != 3 {
		t.Errorf("got %d decisions, want 3 without duplicate IDs", len(all))
	}
	if len(hooked) != 4 {
		t.Errorf("the hook received %d decisions, want 4", len(hooked))
	}
	many := "[" + strings.Repeat(record+",", 256) + record + "]"
	for what, c := range map[string]struct {
		body string
		want int
	}{
		"no JSON": {"{", 400}, "a number": {"1", 400}, "two": {"{} {}", 400}, "too many": {many, 413},
		"long":         {strings.Repeat(" ", 5<<20), 413},
		"no action":    {`[{"id":"x","namespace":"a","quality":"derived"}]`, 422},
		"no namespace": {`[{"id":"x","action":"place","quality":"derived"}]`, 422},
		"control":      {strings.ReplaceAll("["+record+"]", `"reason":"r"`, `"reason":"\u0007"`), 422},
		"no id":        {strings.ReplaceAll("["+record+"]", `"n1"`, `""`), 422},
		"infinite":     {strings.ReplaceAll("["+record+"]", `"cost":3`, `"cost":1e300`), 422},
		"quality":      {strings.ReplaceAll("["+record+"]", "derived", "perfect"), 400},
	} {
		wantStatus(t, ask(t, h, "POST", "/api/v1/decisions", admin, c.body), c.want, what)
	}
	bomb := strings.Repeat(packed(strings.Repeat(" ", 64<<10)), 1000) // gzip readers concatenate streams
	wantStatus(t, ask(t, h, "POST", "/api/v1/decisions", admin, bomb, "Content-Encoding", "gzip"),
		http.StatusRequestEntityTooLarge, "a bomb")
	wantStatus(t, ask(t, h, "POST", "/api/v1/decisions", admin, "x", "Content-Encoding", "gzip"), http.StatusBadRequest,
		"no gzip")
	wantStatus(t, ask(t, h, "POST", "/api/v1/decisions", admin, "x", "Content-Encoding", "br"),
		http.StatusUnsupportedMediaType, "br")
	wantStatus(t, ask(t, h, "POST", "/api/v1/decisions", tenantA, "[]"), http.StatusForbidden, "a tenant")
	w.store.Fail = func() error { return fmt.Errorf("full: %w", ledger.ErrReadOnly) }
	answer := ask(t, h, "POST", "/api/v1/decisions", admin, "["+record+"]")
	wantStatus(t, answer, http.StatusServiceUnavailable, "read-only")
	if answer.Header().Get("Retry-After") == "" || len(hooked) != 4 {
		t.Errorf("%v, hooked %d", answer.Header(), len(hooked))
	}
}

func packed(text string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write([]byte(text))
	_ = w.Close()
	return b.String()
}

func TestInstants(t *testing.T) {
	for text, want := range map[string]time.Time{
		"now": noon, "-24h": noon.Add(-24 * time.Hour), "-90m": noon.Add(-90 * time.Minute),
		"-7d": noon.AddDate(0, 0, -7), "-2w": noon.AddDate(0, 0, -14),
		"2026-11-03": noon.Add(-12 * time.Hour), "2026-11-03T13:00:00+01:00": noon, "2026-11-03T13:00:00 01:00": noon,
		"2026-11-03T12:00:00.5Z": noon.Add(time.Second / 2),
	} {
		q := &query{values: url.Values{"from": {text}}, now: noon}
		if got := q.instant("from", noon); q.err() != nil || !got.Equal(want) {
			t.Errorf("%s is %v, %v; want %v", text, got, q.err(), want)
		}
	}
	for _, text := range []string{
		"-", "--1h", "-1", "1h", "-1x", "-1e9d", "-99999w", "1999-01-01", "2300-01-01", "12:00", "yesterday",
		"-1000000h", "２026-11-03",
	} {
		q := &query{values: url.Values{"from": {text}}, now: noon}
		if got := q.instant("from", noon); q.err() == nil {
			t.Errorf("%s is %v", text, got)
		}
	}
	h := newWorld(t).handler()
	for query, want := range map[string]string{
		"from=-1h&to=-2h": "not before", "from=now": "not before", "from=-3000d": "at most",
		"from=x&to=y&limit=z&color=red": "color",
	} {
		answer := ask(t, h, "GET", "/api/v1/ledger?"+query, admin, "")
		wantStatus(t, answer, http.StatusBadRequest, query)
		if !strings.Contains(answer.Body.String(), want) {
			t.Errorf("%s: %s", query, answer.Body)
		}
	}
}

// failing is a ledger that returns an error, panics, or hangs if err is nil.
type failing struct {
	nothingBooked
	err   error
	panic bool
}

func (f failing) Query(ctx context.Context, _ *ledger.Query) (*ledger.Answer, error) {
	if f.panic {
		panic("unexpected failure: " + f.err.Error())
	}
	if f.err == nil {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return nil, f.err
}

func TestFailures(t *testing.T) {
	for _, c := range []struct {
		ledger      failing
		status      int
		description string
	}{
		{failing{err: errors.New("disk of the secret host")}, 500, "internal error"},
		{failing{err: errors.New("secret"), panic: true}, 500, "internal error"},
		{failing{err: fmt.Errorf("no such dimension: %w", ledger.ErrQuery)}, 400, "no such dimension"},
		{failing{err: fmt.Errorf("narrow it: %w", ledger.ErrTooLarge)}, 400, "narrow it"},
		{failing{err: ledger.ErrReadOnly}, 503, "read-only"},
	} {
		w := newWorld(t)
		w.config.Ledger = c.ledger
		h := w.handler()
		for range maxQueries { // a leaked slot would block the next request
			ask(t, h, "GET", "/api/v1/ledger?limit=100000", admin, "")
		}
		answer := ask(t, h, "GET", "/api/v1/ledger", admin, "")
		wantStatus(t, answer, c.status, c.description)
		if !strings.Contains(answer.Body.String(), c.description) || strings.Contains(answer.Body.String(), "secret") {
			t.Errorf("%s", answer.Body)
		}
		if c.status == 500 && !strings.Contains(w.log.String(), "secret") {
			t.Errorf("the log does not contain the cause: %s", w.log)
		}
	}
}

// TestSlowLedger verifies that hanging queries time out and that the number of concurrent queries is limited.
func TestSlowLedger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.config.Ledger = failing{}
		// The gate uses the fake clock of the synctest bubble.
		h := w.handler()
		const asked = 2*maxQueries + 1
		answers := make(chan *httptest.ResponseRecorder, asked)
		for range asked {
			go func() { answers <- ask(t, h, "GET", "/api/v1/ledger", admin, "") }()
		}
		begun := time.Now()
		for range asked {
			answer := <-answers
			wantStatus(t, answer, http.StatusServiceUnavailable, "a slow query")
			if answer.Header().Get("Retry-After") == "" {
				t.Errorf("%v", answer.Header())
			}
		}
		if took := time.Since(begun); took != usualPatience {
			t.Errorf("the queries took %v, want %v", took, usualPatience)
		}
	})
}

func TestAudit(t *testing.T) {
	w := newWorld(t)
	if got := get[Audit](t, w.handler(), "/api/v1/ledger/audit?from=-2d"); !got.Balanced || len(got.Problems) != 0 {
		t.Errorf("%+v", got)
	}
	w.config.Ledger = unbalanced{}
	if got := get[Audit](t, w.handler(), "/api/v1/ledger/audit"); got.Balanced || len(got.Problems) != 1000 ||
		got.More != 500 {
		t.Errorf("%v, %d, %d", got.Balanced, len(got.Problems), got.More)
	}
}

type unbalanced struct{ nothingBooked }

func (unbalanced) Audit(context.Context, time.Time) (*ledger.Findings, error) {
	return &ledger.Findings{Checked: 1, Problems: make([]string, 1500)}, nil
}

func TestBatchesAreHandedOver(t *testing.T) {
	w := newWorld(t)
	var user *access.User
	w.config.Batches = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user = access.UserOf(r.Context())
		w.WriteHeader(http.StatusTeapot)
	})
	if answer := ask(t, w.handler(), "POST", "/api/v1/batches", "", "x"); answer.Code != http.StatusTeapot ||
		user != nil {
		t.Errorf("%d, %v", answer.Code, user)
	}
}

func FuzzQuery(f *testing.F) {
	for _, seed := range []string{
		"from=-24h&to=now&groupBy=namespace,day&limit=3", "from=2026-11-03T12:00:00+01:00", "kind=workload&kind=idle",
		"a=%zz", "format=csv;x", "namespace=a&namespace=",
		"samples=3&downsample=lttb", "snapshots=true&uid=x", "node=worker1", "from=-99999999999999h", "to=-5w&from=-6w",
	} {
		f.Add(seed)
	}
	h := newWorld(f).handler()
	targets := []string{
		"/api/v1/ledger", "/api/v1/namespaces/a/ledger", "/api/v1/jobs", "/api/v1/decisions",
		"/api/v1/namespaces/a/pods/p/power", "/api/v1/ledger/audit", "/api/v1/pods",
	}
	f.Fuzz(func(t *testing.T, query string) {
		defer memtest.Limit(t, 100*len(query))()
		for i, target := range targets {
			r := httptest.NewRequest("GET", target, nil)
			r.URL.RawQuery = query
			token := admin
			if i == 1 || i == 4 {
				token = tenantA
			}
			r.Header.Set("Authorization", "Bearer "+token)
			answer := httptest.NewRecorder()
			h.ServeHTTP(answer, r)
			if answer.Code >= 500 || token == tenantA && answer.Code == 200 &&
				leaks(answer.Body.String(), []string{"secret"}) {
				t.Fatalf("%s?%s: %d %s", target, query, answer.Code, answer.Body)
			}
			if answer.Code != 200 && !json.Valid(answer.Body.Bytes()) {
				t.Fatalf("%s", answer.Body)
			}
			if values, err := url.ParseQuery(query); err == nil && values.Has("nonsense") && answer.Code != 400 &&
				answer.Code != 414 {
				t.Fatalf("status %d for an unknown parameter, want 400 or 414", answer.Code)
			}
		}
	})
}
