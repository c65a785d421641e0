package server

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/test/kit/memtest"
)

// counters returns the request body of a sidecar.
func counters(energy uint64, more ...string) string {
	return fmt.Sprintf("# TYPE %s counter\n%s %d\n%s\n", hostEnergy, hostEnergy, energy, strings.Join(more, "\n"))
}

func (w *world) post(t testing.TB, h http.Handler, node, body string, status int) SidecarAnswer {
	t.Helper()
	target := "/metrics-ingest"
	if node != "" {
		target += "?node=" + node
	}
	answer := ask(t, h, "POST", target, admin, body)
	wantStatus(t, answer, status, node+" "+shortened(body))
	var got SidecarAnswer
	if status == http.StatusOK {
		decode(t, answer.Body.Bytes(), &got)
	}
	return got
}

// TestSidecar verifies that exact differences of the counter are recorded and divided in proportion to the gauges.
func TestSidecar(t *testing.T) {
	w := newWorld(t)
	w.config.Sidecar.PodUID = func(namespace, name string) (string, bool) {
		return "uid-of-" + name, namespace == "shop"
	}
	h := w.handler()
	process := func(pid, namespace, pod string, microwatts int) string {
		labels := ""
		if pod != "" {
			labels = fmt.Sprintf(
				`,container_scheduler="kubernetes",kubernetes_pod_name="%s",kubernetes_pod_namespace="%s",kubernetes_node_name="worker1"`, pod, namespace)
		}
		return fmt.Sprintf(`%s{exe="x",cmdline="a \"b,c\" {d}",pid="%s"%s} %d`, processPower, pid, labels, microwatts)
	}
	gauges := []string{
		hostPower + " 50000000", process("1", "shop", "web", 10_000_000), process("2", "shop", "web", 5_000_000),
		process("3", "else", "where", 10_000_000), process("4", "", "", 15_000_000),
		`scaph_process_memory_bytes{pid="1"} 5`, `scaph_self_memory_bytes 1`, `other{x="y"} NaN`,
	}
	first := w.post(t, h, "worker1", counters(1_000_000_000, gauges...), 200)
	if len(w.booked) != 0 || first.Nodes[0].Booked != 0 || !strings.Contains(first.Nodes[0].Note, "first") {
		t.Fatalf("first request: %+v, %d batches", first, len(w.booked))
	}
	w.now = w.now.Add(10 * time.Second)
	second := w.post(t, h, "worker1", counters(1_500_000_007, gauges...), 200)
	if len(w.booked) != 1 || second.Nodes[0].Booked != 500_000_007 {
		t.Fatalf("%+v", second)
	}
	b := w.booked[0]
	if b.Measured != 500_000_007 || b.Quality != energy.Derived || b.EndSinceBoot-b.StartSinceBoot != 10*time.Second ||
		!b.End.Equal(w.now) || b.First != 1 || b.Last != 1 {
		t.Errorf("%+v", b)
	}
	want := map[string]energy.Microjoules{"pod/uid-of-web": 150_000_002, "system": 150_000_002}
	for _, s := range b.Shares {
		if want[s.ID] != s.Dynamic {
			t.Errorf("%s: %d", s.ID, s.Dynamic)
		}
	}
	if len(b.Shares) != 2 || b.Unknown != 200_000_003 {
		t.Errorf("%+v, unknown %d", b.Shares, b.Unknown)
	}
	// Each node has its own counter.
	w.post(t, h, "worker2", counters(7), 200)
	if len(w.booked) != 1 {
		t.Error("the first request of worker2 was recorded")
	}
}

// TestSidecarCounters verifies increases, resets and wraparounds of a counter.
func TestSidecarCounters(t *testing.T) {
	for name, c := range map[string]struct {
		values     []int64 // -1 is a pause of one hour
		booked     energy.Microjoules
		unmeasured time.Duration
	}{
		"rises":                    {[]int64{100, 200, 200, 350}, 250, 0},
		"is reset":                 {[]int64{1000, 1100, 50, 80, 90}, 140, 10 * time.Second},
		"is reset twice":           {[]int64{1000, 1100, 50, 20, 90}, 170, 20 * time.Second},
		"an old post":              {[]int64{100, 200, 150, 250, 300}, 200, 0},
		"an old post, then a wrap": {[]int64{100, 200, 150, 250, 10, 30}, 170, 10 * time.Second},
		"stays after a fall":       {[]int64{100, 200, 0, 0, 5}, 105, 10 * time.Second},
		"a pause":                  {[]int64{100, 200, -1, 900, 1000}, 200, time.Hour + 10*time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			h := w.handler()
			for _, v := range c.values {
				if v < 0 {
					w.now = w.now.Add(time.Hour)
					continue
				}
				w.post(t, h, "worker1", counters(uint64(v)), 200)
				w.now = w.now.Add(10 * time.Second)
			}
			var booked energy.Microjoules
			var unmeasured, end time.Duration
			for i, b := range w.booked {
				if err := b.Validate(); err != nil {
					t.Error(err)
				}
				if b.First != uint64(i+1) || i > 0 && b.StartSinceBoot != end {
					t.Errorf("batch %d: number %d, start %v, end of the previous batch %v", i, b.First,
						b.StartSinceBoot, end)
				}
				end = b.EndSinceBoot
				booked, unmeasured = booked+b.Measured, unmeasured+b.Unmeasured
			}
			if booked != c.booked || unmeasured != c.unmeasured {
				t.Errorf("%d µJ, %v unmeasured; want %d, %v", booked, unmeasured, c.booked, c.unmeasured)
			}
		})
	}
}

// TestSidecarIsExact posts at random times with delayed requests, counter resets, and failures before and after a
// booking took effect. The recorded energy must never exceed the used energy, and must equal it without resets.
func TestSidecarIsExact(t *testing.T) {
	seeds := uint64(12)
	if os.Getenv("KUBENERGY_LONG") != "" {
		seeds = 2000
	}
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 5))
		w := newWorld(t)
		store := &unsure{t: t, rng: rng, booked: map[batch.Stream]map[uint64]energy.Microjoules{}}
		w.config.Sidecar.Book = store.book
		h := w.handler()
		post := func(counter uint64) bool {
			w.now = w.now.Add(time.Duration(1+rng.IntN(30)) * time.Second)
			return ask(t, h, "POST", "/metrics-ingest?node=worker1", admin, counters(counter)).Code == http.StatusOK
		}
		counter, used, resets := rng.Uint64N(1000), uint64(0), seed%2 == 1
		before, calm := counter, 0 // value of the post before the last one; posts since the last anomaly
		post(counter)
		for range 100 {
			calm++
			switch odd := calm > 3 && rng.IntN(5) == 0; { //nolint:mnd // posts between anomalies
			case odd && resets:
				counter, calm = rng.Uint64N(10), 0
			case odd:
				post(before) // a delayed post
				calm = 0
			}
			before = counter
			step := rng.Uint64N(1000)
			counter, used = counter+step, used+step
			post(counter)
		}
		for range 2 { // the pending batch, then the remaining energy
			for !post(counter) {
			}
		}
		if sum := store.sum(); sum > used || !resets && sum != used {
			t.Fatalf("seed %d: recorded %d µJ, used %d µJ", seed, sum, used)
		}
	}
}

// unsure is a ledger that loses requests and responses.
type unsure struct {
	t      *testing.T
	rng    *rand.Rand
	booked map[batch.Stream]map[uint64]energy.Microjoules
}

func (u *unsure) book(_ context.Context, b *batch.Batch) error {
	if err := b.Validate(); err != nil {
		u.t.Fatal(err)
	}
	fate := u.rng.IntN(10)
	if fate == 0 {
		return errors.New("away, before")
	}
	numbers := u.booked[b.Stream]
	if numbers == nil {
		numbers = map[uint64]energy.Microjoules{}
		u.booked[b.Stream] = numbers
	}
	if before, ok := numbers[b.First]; ok && before != b.Measured {
		u.t.Fatalf("batch %d was sent again with %d µJ, want %d µJ", b.First, b.Measured, before)
	}
	numbers[b.First] = b.Measured
	if fate == 1 {
		return context.DeadlineExceeded // recorded, but the response is lost
	}
	return nil
}

func (u *unsure) sum() (sum uint64) {
	for _, numbers := range u.booked {
		for _, e := range numbers {
			sum += uint64(e)
		}
	}
	return sum
}

func TestSidecarPowerAlone(t *testing.T) {
	w := newWorld(t)
	h := w.handler()
	for _, watts := range []int{10, 20, 20} {
		w.post(t, h, "worker1", fmt.Sprintf("%s %d\n", hostPower, watts*1_000_000), 200)
		w.now = w.now.Add(10 * time.Second)
	}
	if len(w.booked) != 2 || w.booked[0].Measured != 150_000_000 || w.booked[1].Measured != 200_000_000 ||
		w.booked[0].Quality != energy.Estimated {
		t.Errorf("%+v", w.booked)
	}
	// The energy between a gauge and a counter is unknown.
	w.post(t, h, "worker1", counters(5), 200)
	if b := w.booked[2]; b.Measured != 0 || b.Unmeasured != 10*time.Second {
		t.Errorf("%+v", b)
	}
}

// TestSidecarNames verifies how the node of metrics is determined.
func TestSidecarNames(t *testing.T) {
	w := newWorld(t)
	h := w.handler()
	labelled := func(labels string) string { return hostEnergy + "{" + labels + "} 5\n" }
	for labels, want := range map[string]string{
		`instance="worker7:8080"`: "worker7", `instance="worker7"`: "worker7", `node="n1",instance="x:1"`: "n1",
		`kubernetes_node_name="n2"`: "n2",
	} {
		if got := w.post(t, h, "", labelled(labels), 200); got.Nodes[0].Node != want {
			t.Errorf("%s: %+v", labels, got)
		}
	}
	both := w.post(t, h, "", labelled(`node="x1"`)+labelled(`node="x2"`), 200)
	if len(both.Nodes) != 2 || both.Nodes[1].Node != "x2" {
		t.Errorf("%+v", both)
	}
	for _, body := range []string{
		labelled(`instance="10.0.0.5:8080"`), labelled(`instance="[::1]:80"`), counters(5),
		labelled(`node="Not A Name"`), labelled(`node="n"`) + labelled(`node="n",x="y"`),
		hostEnergy + `{node="n"} NaN`, hostEnergy + `{node="n"} -1`, hostEnergy + `{node="n"} 1e300`,
		hostEnergy + `{node="n"} +Inf`, hostEnergy + `{node="n"`, hostEnergy + `{node="n"} x`,
		processPower + `{node="n",kubernetes_pod_name="a/b",kubernetes_pod_namespace="c"} 1`,
		hostPower + `{node="n"} 1e13`,
	} {
		w.post(t, h, "", body, http.StatusUnprocessableEntity)
	}
	w.post(t, h, "worker1", labelled(`kubernetes_node_name="worker2"`), http.StatusUnprocessableEntity)
	for _, body := range []string{"", "up 1\n", "scaph_host_load_avg_one 1\n", hostEnergy + "_total 1\n"} {
		w.post(t, h, "worker1", body, http.StatusNoContent)
	}
	wantStatus(t, ask(t, h, "POST", "/metrics-ingest?node=..%2Fx", admin, counters(1)), http.StatusBadRequest,
		"no node")
	wantStatus(t, ask(t, h, "POST", "/metrics-ingest", admin, strings.Repeat("x", 5<<20)),
		http.StatusRequestEntityTooLarge, "long")
	// The token of a pod can only report metrics of the node of the pod.
	wantStatus(t, ask(t, h, "POST", "/metrics-ingest", sidecar1, counters(1)), http.StatusOK, "own node")
	wantStatus(t, ask(t, h, "POST", "/metrics-ingest?node=worker1", sidecar1, counters(1)), http.StatusOK,
		"own node by name")
	wantStatus(t, ask(t, h, "POST", "/metrics-ingest?node=worker2", sidecar1, counters(1)), http.StatusForbidden,
		"another node")
	wantStatus(t, ask(t, h, "POST", "/metrics-ingest", sidecar1, labelled(`node="worker2"`)),
		http.StatusUnprocessableEntity, "another node in labels")
	for _, token := range []string{tenantA, stranger} {
		wantStatus(t, ask(t, h, "POST", "/metrics-ingest?node=worker1", token, counters(1)), http.StatusForbidden,
			token)
	}
}

func TestSidecarRefused(t *testing.T) {
	w := newWorld(t)
	var fails error
	w.config.Sidecar.Book = func(_ context.Context, b *batch.Batch) error {
		if fails == nil {
			w.booked = append(w.booked, b)
		}
		return fails
	}
	errEnvelope := errors.New("beyond the envelope")
	w.config.Sidecar.Final = func(err error) bool { return errors.Is(err, errEnvelope) }
	h := w.handler()
	w.post(t, h, "worker1", counters(0), 200)
	tick := func() { w.now = w.now.Add(10 * time.Second) }
	tick()
	fails = errEnvelope
	if got := w.post(t, h, "worker1", counters(1e12), 200); !strings.Contains(got.Nodes[0].Note, "rejected") ||
		got.Nodes[0].Booked != 0 {
		t.Errorf("%+v", got)
	}
	tick()
	fails = fmt.Errorf("full: %w", ledger.ErrReadOnly)
	w.post(t, h, "worker1", counters(1e12+5), 503)
	tick()
	w.post(t, h, "worker1", counters(1e12+6), 503)
	tick()
	fails = nil
	if got := w.post(t, h, "worker1", counters(1e12+9), 200); got.Nodes[0].Booked != 9 {
		t.Errorf("%+v", got)
	}
	tick()
	w.config.Sidecar.Leads = func() bool { return false }
	w.post(t, w.handler(), "worker1", counters(5), 503)
}

func TestSidecarsAreBounded(t *testing.T) {
	now := noon
	s := &sidecar{began: now, nodes: map[string]*sidecarNode{}}
	for i := range maxSidecarNodes {
		if _, err := s.of(fmt.Sprint("n", i), now); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.of("one-more", now); err == nil {
		t.Error("the number of nodes is not limited")
	}
	now = now.Add(2 * forgetSidecar)
	if _, err := s.of("one-more", now); err != nil || len(s.nodes) != 1 {
		t.Errorf("%v, %d", err, len(s.nodes))
	}
}

// TestScaphandreFixture parses a sample that follows Scaphandre's documentation.
func TestScaphandreFixture(t *testing.T) {
	data, err := os.ReadFile("../../../../shared/data/api/scaphandre_metrics_constructed.prom")
	if err != nil {
		t.Skipf("sample is not available: %v", err)
	}
	nodes, err := readScaphandre(data, "worker1")
	if err != nil {
		t.Fatal(err)
	}
	n := nodes["worker1"]
	if n == nil || n.energy != 240422366267 || n.power != 42150000 || n.system != 8230000+410000 || len(n.pods) != 0 {
		t.Errorf("%+v", n)
	}
	w := newWorld(t)
	h := w.handler()
	w.post(t, h, "worker1", string(data), 200)
	w.now = w.now.Add(time.Second)
	later := strings.Replace(string(data), "240422366267", "240464516267", 1)
	if got := w.post(t, h, "worker1", later, 200); got.Nodes[0].Booked != 42150000 ||
		w.booked[0].Shares[0].Dynamic != 8640000 {
		t.Errorf("%+v, %+v", got, w.booked[0])
	}
	// The documentation must list all supported metrics.
	reference, err := os.ReadFile("../../../../shared/data/api/scaphandre_metrics_reference.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{hostEnergy, hostPower, processPower} {
		if !strings.Contains(string(reference), "`"+name) {
			t.Errorf("Scaphandre's documentation does not contain %s", name)
		}
	}
}

func FuzzScaphandre(f *testing.F) {
	f.Add([]byte(counters(5)), "worker1")
	f.Add(
		[]byte(
			hostPower+" 1e6\n"+processPower+`{exe="a",cmdline="b \"c\"",pid="1",kubernetes_pod_name="p",kubernetes_pod_namespace="n"} 5 1700000000000`), "")
	f.Add([]byte(hostEnergy+`{node="a"} 5`+"\n"+hostEnergy+`{instance="b:1"} 7`), "")
	f.Add([]byte(hostEnergy+"{"), "n")
	s := &server{Config: Config{Sidecar: SidecarConfig{PodUID: func(string, string) (string, bool) {
		return "uid", true
	}}}}
	f.Fuzz(func(t *testing.T, data []byte, whose string) {
		defer memtest.Limit(t, 100*(len(data)+len(whose)))()
		nodes, err := readScaphandre(data, whose)
		if err != nil {
			return
		}
		for name, post := range nodes {
			if !isNode(name) {
				t.Fatalf("node %q", name)
			}
			n := &sidecarNode{epoch: "e"}
			n.base(post, 0)
			next := *post
			next.energy += 1_000_003
			i := n.next(&next, 10*time.Second)
			n.sent++
			b := (&sidecar{began: noon, boot: "b"}).batch(name, n, &i, s.shares(&next, i.energy), noon)
			if err := b.Validate(); err != nil {
				t.Fatal(err)
			}
		}
	})
}
