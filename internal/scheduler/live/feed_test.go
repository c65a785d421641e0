package live

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubenergy/kubenergy/internal/apiclient"
	"github.com/kubenergy/kubenergy/internal/apiclient/api"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/kube/panics"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/test/kit/bubble"
	"github.com/kubenergy/kubenergy/test/kit/memtest"
)

// unit is a fake controller with responses that are set by the test.
type unit struct {
	mu        sync.Mutex
	nodes     any
	workloads any
	etag      string
	status    int
	skew      time.Duration // time by which its clock is behind the local one
	asked     []*http.Request
}

func (u *unit) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.asked = append(u.asked, r)
	w.Header().Set("Date", time.Now().Add(-u.skew).UTC().Format(http.TimeFormat))
	if u.status != 0 {
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(u.status)
		return
	}
	body := u.nodes
	if strings.HasSuffix(r.URL.Path, "/workloads/power") {
		body = u.workloads
	}
	if u.etag != "" {
		w.Header().Set("ETag", u.etag)
		if r.Header.Get("If-None-Match") == u.etag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
	}
	if text, ok := body.(string); ok {
		w.Write([]byte(text))
		return
	}
	if err := json.NewEncoder(w).Encode(body); err != nil {
		panic(err)
	}
}

func (u *unit) requests(suffix string) (n int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, r := range u.asked {
		if strings.HasSuffix(r.URL.Path, suffix) {
			n++
		}
	}
	return n
}

var silent = slog.New(slog.DiscardHandler)

func newFeed(t testing.TB, u *unit, now func() time.Time, log *slog.Logger) *Feed {
	t.Helper()
	server := httptest.NewServer(u)
	t.Cleanup(server.Close)
	f, err := New(apiclient.Options{URL: server.URL + "/", Now: now}, log)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func drawn(f *Feed, names ...string) string {
	var nodes []sched.Node
	for _, name := range names {
		nodes = append(nodes, sched.Node{Name: name})
	}
	f.Fill(nodes)
	var parts []string
	for _, n := range nodes {
		text := "-"
		if n.HasLive {
			text = fmt.Sprint(float64(n.Live))
			if n.Provisional != 0 {
				text += fmt.Sprint("+", float64(n.Provisional))
			}
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, " ")
}

func power(name string, watts float64, age time.Duration) api.NodePower {
	return api.NodePower{Node: name, Watts: watts, AsOf: time.Now().Add(-age), Quality: energy.Measured}
}

// TestFill verifies that invalid values are excluded without affecting the other values of a response.
func TestFill(t *testing.T) {
	liar := power("liar", 0, 0)
	liar.Implausible = true
	u := &unit{nodes: api.NodesPower{Nodes: []api.NodePower{
		power("a", 80, 10*time.Second), power("old", 80, 50*time.Second), power("negative", -1, 0),
		power("huge", 1e6, 0),
		power("future", 80, -5*time.Minute), power("soon", 80, -10*time.Second), power("", 80, 0),
		power(strings.Repeat("x", 300), 80, 0), liar,
	}}, workloads: api.WorkloadsPower{}}
	f := newFeed(t, u, nil, silent)
	if got := drawn(f, "a"); got != "-" {
		t.Errorf("before the first response: %s", got)
	}
	if !f.Ask(t.Context()) {
		t.Fatal("the response was not accepted")
	}
	if got := drawn(f, "a", "old", "negative", "huge", "future", "soon", "liar",
		"unheard-of"); got != "80 - - - - 80 - -" {
		t.Errorf("the power of the nodes is %s", got)
	}
	nodes := []sched.Node{{Name: "liar", Live: 70, HasLive: true}, {Name: "other", Live: 70, HasLive: true}}
	f.Fill(nodes)
	if nodes[0].HasLive || !nodes[1].HasLive {
		t.Errorf("live power from another source is used incorrectly: %+v", nodes)
	}
	var none *Feed
	if _, ok := none.Expected(nil, 1); ok {
		t.Error("a nil feed returns an expected power")
	}
}

func TestWattsAge(t *testing.T) {
	now := time.Now()
	u := &unit{
		nodes: api.NodesPower{Nodes: []api.NodePower{power("a", 80, 0)}}, workloads: api.WorkloadsPower{}, etag: `"1"`,
	}
	f := newFeed(t, u, func() time.Time { return now }, silent)
	f.Ask(t.Context())
	now = now.Add(40 * time.Second)
	if !f.Ask(t.Context()) { // the response has not changed
		t.Error("status 304 is treated as a failure")
	}
	if got := drawn(f, "a"); got != "80" {
		t.Errorf("after 40 s: %s", got)
	}
	now = now.Add(6 * time.Second)
	if got := drawn(f, "a"); got != "-" {
		t.Errorf("after 46 s: %s", got)
	}
	if n := u.requests("/nodes/power"); n != 2 {
		t.Errorf("%d requests", n)
	}
}

// TestClocksApart verifies that ages are computed by the local clock, regardless of the clock of the controller.
func TestClocksApart(t *testing.T) {
	for _, skew := range []time.Duration{-time.Hour, -5 * time.Minute, 5 * time.Minute, 26 * time.Hour} {
		u := &unit{
			skew: skew, workloads: api.WorkloadsPower{},
			nodes: api.NodesPower{Nodes: []api.NodePower{
				power("a", 80, 20*time.Second+skew), power("old", 80, time.Minute+skew),
			}},
		}
		f := newFeed(t, u, nil, silent)
		f.Ask(t.Context())
		if got := drawn(f, "a", "old"); got != "80 -" {
			t.Errorf("clocks %v apart: %s", skew, got)
		}
	}
}

// TestBadAnswers verifies that earlier readings remain in use until they expire if a response is invalid.
func TestBadAnswers(t *testing.T) {
	var log bytes.Buffer
	u := &unit{nodes: api.NodesPower{Nodes: []api.NodePower{power("a", 80, 0)}}, workloads: api.WorkloadsPower{}}
	f := newFeed(t, u, nil, slog.New(slog.NewTextHandler(&log, nil)))
	f.Ask(t.Context())
	for _, status := range []int{401, 403, 404, 301, 500, 503} {
		u.status = status
		if f.Ask(t.Context()) {
			t.Errorf("status %d is treated as a success", status)
		}
	}
	if got := strings.Count(log.String(), "what=nodes"); got != 1 {
		t.Errorf("the failure was logged %d times:\n%s", got, &log)
	}
	if u.requests("/elsewhere") > 0 {
		t.Error("a redirect was followed unexpectedly")
	}
	u.status = 0
	for _, body := range []string{
		"", "{", `{"nodes":[{"watts":"80"}]}`, `{"nodes":[{"node":"a","watts":1e999}]}`, `[]`, "<html>",
		strings.Repeat(" ", maxBody+2),
	} {
		u.nodes = body
		if f.Ask(t.Context()) {
			t.Errorf("%.40q is accepted as a response", body)
		}
	}
	if got := drawn(f, "a"); got != "80" {
		t.Errorf("the power of the nodes is %s", got)
	}
	u.nodes = api.NodesPower{}
	if !f.Ask(t.Context()) || drawn(f, "a") != "-" {
		t.Error("a response without nodes is not accepted")
	}
	u.workloads = "nonsense"
	if !f.Ask(t.Context()) {
		t.Error("nodes are not updated without workloads")
	}
}

// TestProvisionalWatts verifies that the expected power of placed pods is added until a reading includes it.
func TestProvisionalWatts(t *testing.T) {
	now := time.Now()
	node := power("a", 80, 0)
	u := &unit{workloads: api.WorkloadsPower{}}
	f := newFeed(t, u, func() time.Time { return now }, silent)
	notify := func(fresh ...string) {
		node.AsOf, node.Fresh = now, fresh
		u.mu.Lock()
		u.nodes = api.NodesPower{Nodes: []api.NodePower{node, power("b", 50, 0)}}
		u.mu.Unlock()
		answer := &api.NodesPower{Nodes: []api.NodePower{node, {Node: "b", Watts: 50, AsOf: now}}}
		f.reserved.update(readNodes(answer, 0, now), now)
	}
	check := func(when, want string) {
		t.Helper()
		if got := drawn(f, "a", "b"); got != want {
			t.Errorf("%s: %s, want %s", when, got, want)
		}
	}
	notify()
	f.Reserve("p1", "a", 10)
	f.Reserve("p2", "a", 5)
	f.Reserve("p3", "b", 7)
	check("placed", "80+15 50+7")
	f.Reserve("p1", "b", 10) // placed on another node in a retry
	check("moved", "80+5 50+17")
	f.Release("p1")
	f.Release("unheard-of")
	check("one was not bound", "80+5 50+7")
	now = now.Add(15 * time.Second)
	notify("p2", "somebody")
	check("p2 was seen", "80 50+7")
	now = now.Add(30 * time.Second)
	notify()
	check("p3 is not listed", "80 50+7")
	now = now.Add(30 * time.Second)
	notify()
	check("readings are a minute newer", "80 50")
	for _, w := range []float64{0, -1, math.NaN(), math.Inf(1), 1e9} {
		f.Reserve("odd", "a", energy.Watts(w))
	}
	check("invalid power", "80 50")
	f.Reserve("p4", "silent", 7)
	now = now.Add(6 * time.Minute)
	notify()
	if len(f.reserved.nodeOf)+len(f.reserved.byNode) != 0 {
		t.Errorf("remaining reservations: %+v", f.reserved.byNode)
	}
	for i := range maxReserved + 10 {
		f.Reserve(fmt.Sprint("p", i), fmt.Sprint("n", i%7), 1)
	}
	if n := len(f.reserved.nodeOf); n != maxReserved {
		t.Errorf("%d are reserved", n)
	}
}

func TestExpected(t *testing.T) {
	u := &unit{nodes: api.NodesPower{}, workloads: api.WorkloadsPower{Workloads: []api.WorkloadPower{
		{Namespace: "shop", OwnerKind: "Deployment", Owner: "web", Watts: 20, Samples: 97},
		{Namespace: "lab", OwnerKind: "CronJob", Owner: "nightly", Watts: 20, Samples: 1},
		{Namespace: "lab", OwnerKind: "Job", Owner: "absurd", Watts: -4, Samples: 1},
		{Namespace: "lab", OwnerKind: "Job", Owner: "never", Watts: 4},
	}}}
	f := newFeed(t, u, nil, silent)
	if _, ok := f.Expected([]Owner{{"shop", "Deployment", "web"}}, 4); ok {
		t.Error("before the first answer")
	}
	f.Ask(t.Context())
	for _, tc := range []struct {
		owners []Owner
		want   energy.Watts
		ok     bool
	}{
		{[]Owner{{"shop", "Deployment", "web"}}, 19.52, true},
		{[]Owner{{"lab", "CronJob", "nightly"}, {"lab", "Job", "nightly-29012345"}}, 8, true},
		{[]Owner{{"lab", "Job", "absurd"}}, 0, false},
		{[]Owner{{"lab", "Job", "never"}}, 0, false},
		{nil, 0, false},
		{[]Owner{{"other", "Deployment", "web"}}, 0, false},
	} {
		if got, ok := f.Expected(tc.owners, 4); ok != tc.ok || math.Abs(float64(got-tc.want)) > 1e-9 {
			t.Errorf("%v: %v, %v", tc.owners, got, ok)
		}
	}
}

func TestOwnersOf(t *testing.T) {
	pod := func(kind, name string) *v1.Pod {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "p",
			Labels: map[string]string{appsv1.DefaultDeploymentUniqueLabelKey: "6d4cf56db6"},
		}}
		if kind != "" {
			p.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: name, Controller: new(true)}}
		}
		return p
	}
	for _, tc := range []struct {
		pod  *v1.Pod
		want []Owner
	}{
		{pod("", ""), []Owner{{"shop", "Pod", "p"}}},
		{pod("Job", "report"), []Owner{{"shop", "Job", "report"}}},
		{pod("Job", "report-2"), []Owner{{"shop", "Job", "report-2"}}},
		{pod("Job", "nightly-29012345"), []Owner{{"shop", "CronJob", "nightly"}, {"shop", "Job", "nightly-29012345"}}},
		{pod("ReplicaSet", "web-6d4cf56db6"), []Owner{
			{"shop", "Deployment", "web"}, {"shop", "ReplicaSet", "web-6d4cf56db6"},
		}},
		{pod("ReplicaSet", "web-else"), []Owner{{"shop", "ReplicaSet", "web-else"}}},
		{pod("StatefulSet", "db"), []Owner{{"shop", "StatefulSet", "db"}}},
		{pod("Node", "worker1"), []Owner{{"shop", "Pod", "p"}}}, // a static pod
	} {
		if diff := cmp.Diff(tc.want, OwnersOf(tc.pod)); diff != "" {
			t.Error(diff)
		}
	}
}

// TestCredentials verifies that the token is read before each request and sent only over TLS, and that certificates
// may be created later and change.
func TestCredentials(t *testing.T) {
	dir := t.TempDir()
	token, ca := filepath.Join(dir, "token"), filepath.Join(dir, "ca.crt")
	u := &unit{nodes: api.NodesPower{Nodes: []api.NodePower{power("a", 80, 0)}}, workloads: api.WorkloadsPower{}}
	server := httptest.NewTLSServer(u)
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	defer server.Close()
	var log bytes.Buffer
	f, err := New(apiclient.Options{URL: server.URL, TokenFile: token, CAFile: ca},
		slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer f.client.Close()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ask := func(when string, want bool) {
		t.Helper()
		if got := f.Ask(t.Context()); got != want {
			t.Errorf("%s: accepted = %v\n%s", when, got, &log)
		}
	}
	ask("no token yet", false)
	write(token, "secret-1\n")
	ask("no certificates yet", false)
	write(ca, "none")
	ask("an invalid certificate", false)
	write(ca, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
	ask("all there", true)
	write(token, "secret-2")
	ask("another token", true)
	var shown []string
	for _, r := range u.asked {
		shown = append(shown, strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
	}
	if got := strings.Join(shown, " "); got != "secret-1 secret-1 secret-2 secret-2" {
		t.Errorf("tokens sent: %s", got)
	}
	write(token, "two words")
	ask("an invalid token", false)
	if strings.Contains(log.String(), "secret") || strings.Contains(log.String(), "two words") {
		t.Errorf("a token is in the log:\n%s", &log)
	}
}

func TestConfig(t *testing.T) {
	for _, tc := range []struct {
		c    apiclient.Options
		want string
	}{
		{apiclient.Options{URL: "https://controller:9443", TokenFile: "t"}, ""},
		{apiclient.Options{URL: "http://127.0.0.1:9443", TokenFile: "t"}, ""},
		{apiclient.Options{URL: "http://controller:9443"}, "use https"},
		{apiclient.Options{URL: "http://controller:9443", TokenFile: "t"}, "use https"},
		{apiclient.Options{URL: "ftp://controller"}, "want http or https"},
		{apiclient.Options{URL: "controller:9443"}, "want http or https"},
		{apiclient.Options{URL: "https://me:secret@controller"}, "contains a password"},
		{apiclient.Options{URL: "https://me:secret@contr oller"}, "is invalid"},
	} {
		_, err := New(tc.c, silent)
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: %v", tc.c.URL, err)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("the error contains the password: %v", err)
		}
	}
}

// TestRun verifies that a request is sent about once per period, less often after failures, and none after the
// context is done.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var at []time.Duration
		answers, begin := false, time.Now()
		f, err := New(apiclient.Options{
			URL: "https://controller",
			Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
				mu.Lock()
				defer mu.Unlock()
				if strings.HasSuffix(r.URL.Path, "/nodes/power") {
					at = append(at, time.Since(begin))
				}
				if !answers {
					return nil, context.DeadlineExceeded
				}
				recorder := httptest.NewRecorder()
				recorder.WriteString(`{}`)
				return recorder.Result(), nil
			}),
		}, silent)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- f.Run(ctx) }()
		times := func(within time.Duration) int {
			mu.Lock()
			at = nil
			mu.Unlock()
			bubble.Advance(within)
			mu.Lock()
			defer mu.Unlock()
			return len(at)
		}
		if n := times(10 * time.Minute); n < 12 || n > 30 {
			t.Errorf("%d requests in 10 minutes without a response", n)
		}
		mu.Lock()
		answers = true
		mu.Unlock()
		times(2 * time.Minute)
		if n := times(10 * time.Minute); n < 36 || n > 45 {
			t.Errorf("%d requests in 10 minutes", n)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestPanicsAreSurvived verifies that a panic only affects a single response.
func TestPanicsAreSurvived(t *testing.T) {
	t.Cleanup(panics.Reset)
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		left := 3
		f, err := New(apiclient.Options{
			URL: "https://controller",
			Transport: roundTrip(func(*http.Request) (*http.Response, error) {
				if left > 0 {
					left--
					panic("a mistake")
				}
				recorder := httptest.NewRecorder()
				body, err := json.Marshal(api.NodesPower{Nodes: []api.NodePower{power("a", 80, 0)}})
				recorder.Write(body)
				return recorder.Result(), err
			}),
		}, slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- f.Run(ctx) }()
		bubble.Advance(time.Minute)
		if got := drawn(f, "a"); got != "80" || left != 0 {
			t.Errorf("the power of the nodes is %s; %d panics did not happen", got, left)
		}
		cancel()
		if err := <-done; err != nil || strings.Count(log.String(), "panic=") != 2 {
			t.Errorf("%v\n%s", err, &log)
		}
		if again := panics.Note("live"); again != 4 || panics.Open() {
			t.Errorf("%d panics are counted, or the circuit breaker is open", again-1)
		}
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (r roundTrip) RoundTrip(request *http.Request) (*http.Response, error) { return r(request) }

// TestConcurrentUse verifies that the feed is safe for concurrent use.
func TestConcurrentUse(t *testing.T) {
	u := &unit{nodes: api.NodesPower{Nodes: []api.NodePower{power("a", 80, 0)}}, workloads: api.WorkloadsPower{}}
	f := newFeed(t, u, nil, silent)
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			for k := range 200 {
				uid := fmt.Sprint(i, "-", k)
				f.Reserve(uid, "a", 1)
				drawn(f, "a", "b")
				f.Expected([]Owner{{"a", "b", "c"}}, 1)
				f.Release(uid)
			}
		})
	}
	for range 10 {
		f.Ask(t.Context())
	}
	all.Wait()
}

// FuzzAnswers verifies that all values accepted from an arbitrary response are valid.
func FuzzAnswers(f *testing.F) {
	f.Add(
		`{"nodes":[{"node":"a","watts":80,"asOf":"2026-06-01T12:00:00Z","quality":"measured","source":"psys","fresh":["u"]}]}`)
	f.Add(
		`{"nodes":[{"node":"a","watts":-1},{"node":"a","watts":1e300,"implausible":true},{}],"workloads":[{"namespace":"a","ownerKind":"Job","owner":"x","watts":3,"samples":-1}]}`)
	f.Add(`{"nodes":null,"workloads":[{"watts":1e309}]}`)
	now := time.Date(2026, 6, 1, 12, 0, 20, 0, time.UTC)
	f.Fuzz(func(t *testing.T, body string) {
		defer memtest.Limit(t, 100*len(body))()
		var nodes api.NodesPower
		if json.Unmarshal([]byte(body), &nodes) == nil {
			table, _ := newNodeTable(&nodes, clockSkew("Mon, 01 Jun 2026 12:00:00 GMT", now), now)
			for name, r := range table.byName {
				if age := now.Sub(time.Unix(0, r.asOf)); name == "" || !(r.power >= 0 && r.power <= maxWatts) ||
					age < 0 || age > maxAge || len(r.fresh) > maxFresh {
					t.Errorf("%q: %+v", name, r)
				}
			}
		}
		var workloads api.WorkloadsPower
		if json.Unmarshal([]byte(body), &workloads) == nil {
			for o, w := range newWorkloadTable(&workloads) {
				if got, ok := newWorkloadTable(&workloads).expected([]Owner{o}, 4); !ok ||
					!(got >= 0 && got <= maxWatts) {
					t.Errorf("%v: %+v, expected %v", o, w, got)
				}
			}
		}
	})
}
