package place

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/apiclient"
	"github.com/kubenergy/kubenergy/internal/apiclient/api"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/scheduler/live"
)

// meters simulates a controller with measurements and provides the clock of the feed.
type meters struct {
	mu        sync.Mutex
	nodes     api.NodesPower
	workloads api.WorkloadsPower
	broken    bool
	now       time.Time
	feed      *live.Feed
}

func (m *meters) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var body any = m.nodes
	if strings.HasSuffix(r.URL.Path, "/workloads/power") {
		body = m.workloads
	}
	if m.broken {
		w.WriteHeader(http.StatusInternalServerError)
	} else if err := json.NewEncoder(w).Encode(body); err != nil {
		panic(err)
	}
}

func newMeters(t testing.TB) *meters {
	t.Helper()
	m := &meters{now: time.Now()}
	server := httptest.NewServer(m)
	t.Cleanup(server.Close)
	var err error
	m.feed, err = live.New(apiclient.Options{URL: server.URL, Now: func() time.Time { return m.now }},
		slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// notify updates the readings of the feed.
func (m *meters) notify(t testing.TB, nodes ...api.NodePower) {
	t.Helper()
	for i := range nodes {
		if nodes[i].AsOf.IsZero() {
			nodes[i].AsOf = m.now
		}
	}
	m.mu.Lock()
	m.nodes = api.NodesPower{Nodes: nodes}
	m.mu.Unlock()
	if !m.feed.Ask(t.Context()) {
		t.Fatal("the response was not accepted")
	}
}

func metered(t testing.TB, m *meters) *Energy {
	d := deps(knowledge(t, noon))
	if m != nil {
		d.Live = m.feed
	}
	return newEnergyPlugin(t, d, "")
}

func twoAlike() []fwk.NodeInfo {
	return []fwk.NodeInfo{
		newMachine("a", "coal", "frugal"), newMachine("b", "coal", "frugal"), newMachine("c", "coal", "hungry"),
	}
}

// bind runs the rest of the cycle of a pod.
func bind(t testing.TB, e *Energy, pod *v1.Pod, nodes []fwk.NodeInfo, node string) fwk.CycleState {
	t.Helper()
	state := newCycle()
	score(t.Context(), e, state, pod, nodes)
	e.nodes = func(name string) (fwk.NodeInfo, error) {
		for _, n := range nodes {
			if n.Node().Name == name {
				return n, nil
			}
		}
		return nil, fmt.Errorf("no node %s", name)
	}
	e.Reserve(t.Context(), state, pod, node)
	return state
}

func named(uid string, pod *v1.Pod) *v1.Pod {
	pod.UID = types.UID(uid)
	return pod
}

// TestLiveWattsDecide uses a pod with an expected increase of 6.25 W on the frugal machines of 100 W, and of 37.5 W
// on the hungry machine of 400 W.
func TestLiveWattsDecide(t *testing.T) {
	m := newMeters(t)
	e, nodes := metered(t, m), twoAlike()
	pod := func(uid string) *v1.Pod { return named(uid, newPod(v1alpha1.AnnotationStrategy, "exec")) }
	check := func(when, want string) {
		t.Helper()
		if got := play(t, e, pod("x"), nodes); got != want {
			t.Errorf("%s: %s, want %s", when, got, want)
		}
	}
	m.notify(t, api.NodePower{Node: "a", Watts: 80}, api.NodePower{Node: "b", Watts: 60},
		api.NodePower{Node: "c", Watts: 395})
	check("b draws less", "a=69 b=100 c=0")
	for i := range 4 {
		bind(t, e, pod(fmt.Sprint("p", i)), nodes, "b")
	}
	check("four pods were placed on b", "a=100 b=88 c=0")
	state := bind(t, e, pod("p9"), nodes, "a")
	check("one more on a", "a=96 b=100 c=0")
	e.Unreserve(t.Context(), state, pod("p9"), "a")
	check("which was not bound", "a=100 b=88 c=0")
	m.now = m.now.Add(15 * time.Second)
	m.notify(t, api.NodePower{Node: "a", Watts: 80},
		api.NodePower{Node: "b", Watts: 70, Fresh: []string{"p0", "p1", "p2", "p3"}},
		api.NodePower{Node: "c", Watts: 395})
	check("they were measured", "a=81 b=100 c=0")
	bind(t, e, newPod("team", "x"), nodes, "b")
	check("an unmarked pod is not reserved", "a=81 b=100 c=0")

	m.notify(t, api.NodePower{Node: "a", Watts: 80}, api.NodePower{Node: "b", Watts: 0, Implausible: true},
		api.NodePower{Node: "c", Watts: 395})
	want := play(t, e, pod("x"), nodes)
	m.notify(t, api.NodePower{Node: "a", Watts: 80}, api.NodePower{Node: "c", Watts: 395})
	check("an implausible reading is ignored", want)
}

// TestALiarIsNeutral verifies that a node with an implausible reading is scored as if it had no reading.
func TestALiarIsNeutral(t *testing.T) {
	m := newMeters(t)
	e := metered(t, m)
	rng := rand.New(rand.NewPCG(8, 9))
	for range 50 {
		nodes := farm(6)
		var honest []api.NodePower
		for _, n := range nodes[1:] {
			honest = append(honest, api.NodePower{Node: n.Node().Name, Watts: 50 + 50*rng.Float64()})
		}
		pod := newPod(v1alpha1.AnnotationStrategy, "exec")
		m.notify(t, honest...)
		before := play(t, e, pod, nodes)
		m.notify(t, append(honest, api.NodePower{Node: nodes[0].Node().Name, Watts: 0, Implausible: true})...)
		if after := play(t, e, pod, nodes); after != before {
			t.Fatalf("scores with an implausible reading are %s, without it %s", after, before)
		}
	}
}

// TestExpectedWattsOfAnOwner verifies that the expected power of a pod is based on measurements of its owner.
func TestExpectedWattsOfAnOwner(t *testing.T) {
	m := newMeters(t)
	e, nodes := metered(t, m), twoAlike()
	m.workloads = api.WorkloadsPower{Workloads: []api.WorkloadPower{{
		Namespace: "lab", OwnerKind: "Job", Owner: "hot", Watts: 30, Samples: 1e9,
	}}}
	m.notify(t, api.NodePower{Node: "a", Watts: 60}, api.NodePower{Node: "b", Watts: 69},
		api.NodePower{Node: "c", Watts: 395})
	hot := named("h", newPod(v1alpha1.AnnotationStrategy, "exec"))
	hot.OwnerReferences = []metav1.OwnerReference{{Kind: "Job", Name: "hot", Controller: new(true)}}
	bind(t, e, hot, nodes, "a") // the reading of this node is now 90 W
	// remaining power: 100 − 90 − 30 on a, 100 − 69 − 30 on b, 400 − 395 − 30 on c
	if got := play(t, e, hot, nodes); got != "a=19 b=100 c=0" {
		t.Errorf("got %s", got)
	}
}

// TestWithoutFreshWatts verifies that without valid live power, scores are the same as without a feed. The strategy
// exec then scores like energy, and hybrid uses only benchmarks.
func TestWithoutFreshWatts(t *testing.T) {
	nodes := append(farm(7), newMachine("z", "wind", "frugal"))
	everyone := func(watts float64, change func(*api.NodePower)) (all []api.NodePower) {
		for i, n := range nodes {
			p := api.NodePower{Node: n.Node().Name, Watts: watts * float64(i)}
			if change != nil {
				change(&p)
			}
			all = append(all, p)
		}
		return all
	}
	bare := metered(t, nil)
	for name, prepare := range map[string]func(t *testing.T, m *meters){
		"no response yet": func(*testing.T, *meters) {},
		"they age": func(t *testing.T, m *meters) {
			m.notify(t, everyone(10, nil)...)
			m.now = m.now.Add(46 * time.Second)
		},
		"the controller dies": func(t *testing.T, m *meters) {
			m.notify(t, everyone(10, nil)...)
			m.broken = true
			for range 4 {
				m.now = m.now.Add(15 * time.Second)
				m.feed.Ask(t.Context())
			}
		},
		"the response is empty":     func(t *testing.T, m *meters) { m.notify(t, everyone(10, nil)...); m.notify(t) },
		"the readings are negative": func(t *testing.T, m *meters) { m.notify(t, everyone(-1, nil)[1:]...) },
		"the readings are absurd":   func(t *testing.T, m *meters) { m.notify(t, everyone(2e5, nil)[1:]...) },
		"all readings are implausible": func(t *testing.T, m *meters) {
			m.notify(t, everyone(10, func(p *api.NodePower) { p.Implausible = true })...)
		},
		"the readings are in the future": func(t *testing.T, m *meters) {
			m.notify(t, everyone(10, func(p *api.NodePower) { p.AsOf = m.now.Add(168 * time.Hour) })...)
		},
		"the readings are of other nodes": func(t *testing.T, m *meters) {
			m.notify(t, everyone(10, func(p *api.NodePower) { p.Node = "x" + p.Node })...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMeters(t)
			e := metered(t, m)
			prepare(t, m)
			bind(t, e, named("p", newPod(v1alpha1.AnnotationStrategy, "exec")), nodes, "z")
			for _, strategy := range []string{"exec", "energy", "carbon", "hybrid", "hybrid-idle", "least-allocated"} {
				pod := newPod(v1alpha1.AnnotationStrategy, strategy)
				got, want := play(t, e, pod, nodes), play(t, bare, pod, nodes)
				if got != want {
					t.Errorf("%s: %s, without live watts %s", strategy, got, want)
				}
			}
			exec, energy := play(t, e, newPod(v1alpha1.AnnotationStrategy, "exec"), nodes),
				play(t, e, newPod(v1alpha1.AnnotationStrategy, "energy"), nodes)
			if exec != energy {
				t.Errorf("exec %s, energy %s", exec, energy)
			}
		})
	}
}

// TestAnnotatedWatts verifies that the power in node annotations is used if the controller provides none.
func TestAnnotatedWatts(t *testing.T) {
	nodes := twoAlike()
	at := noon.Add(time.Hour).Unix()
	for i, watts := range []string{"80", "60", "395"} {
		nodes[i].Node().Annotations = map[string]string{
			"energy.thesis.io/current-watts": watts, "energy.thesis.io/last-updated": strconv.FormatInt(at, 10),
		}
	}
	pod := newPod(v1alpha1.AnnotationStrategy, "exec")
	if got := play(t, metered(t, nil), pod, nodes); got != "a=69 b=100 c=0" {
		t.Errorf("without a feed: %s", got)
	}
	m := newMeters(t)
	e := metered(t, m)
	m.notify(t, api.NodePower{Node: "b", Watts: 95})
	if got := play(t, e, pod, nodes); got != "a=100 b=66 c=0" {
		t.Errorf("the feed does not take precedence over annotations: %s", got)
	}
}

// TestAnnotatedWattsWithoutTheirTime verifies that power annotations without a timestamp are valid for five minutes
// after each observed change.
func TestAnnotatedWattsWithoutTheirTime(t *testing.T) {
	nodes, bare := twoAlike(), twoAlike()
	now := noon.Add(time.Hour)
	d := deps(knowledge(t, noon))
	d.Clock = func() time.Time { return now }
	e := newEnergyPlugin(t, d, "")
	pod := newPod(v1alpha1.AnnotationStrategy, "exec")
	without := play(t, e, pod, bare)
	for i, watts := range []string{"80", "60", "395"} {
		nodes[i].Node().Annotations = map[string]string{"energy.thesis.io/current-watts": watts}
		e.seen.Handler(d.Clock).OnUpdate(bare[i].Node(), nodes[i].Node())
	}
	if got := play(t, e, pod, nodes); got != "a=69 b=100 c=0" {
		t.Errorf("just changed: %s", got)
	}
	now = now.Add(5*time.Minute + time.Second)
	if got := play(t, e, pod, nodes); got != without {
		t.Errorf("changed five minutes ago: %s, without watts %s", got, without)
	}
}

func TestLiveStrategiesAreNotSigned(t *testing.T) {
	e := metered(t, nil)
	for _, strategy := range []string{"exec", "hybrid", "hybrid-idle"} {
		if _, status := e.SignPod(t.Context(), newPod(v1alpha1.AnnotationStrategy, strategy)); status.IsSuccess() {
			t.Errorf("%s has a signature", strategy)
		}
	}
}

func TestScoringWithLiveWattsAllocatesNothing(t *testing.T) {
	m := newMeters(t)
	e, nodes, state, ctx := metered(t, m), farm(50), newCycle(), context.Background()
	m.notify(t, api.NodePower{Node: nodes[3].Node().Name, Watts: 70})
	pod := newPod(v1alpha1.AnnotationStrategy, "exec")
	if status := score(ctx, e, state, pod, nodes); !status.IsSuccess() {
		t.Fatal(status)
	}
	scores := points(t, e, state, pod, nodes)
	if n := testing.AllocsPerRun(100, func() { e.NormalizeScore(ctx, state, pod, scores) }); n != 0 {
		t.Errorf("NormalizeScore allocates %v times", n)
	}
}

// thousand returns nodes, readings for all of them, and reservations for 200 pods that have just been placed.
func thousand(t testing.TB) ([]fwk.NodeInfo, *meters) {
	nodes, m := farm(1000), newMeters(t)
	var all []api.NodePower
	for i, n := range nodes {
		all = append(all, api.NodePower{Node: n.Node().Name, Watts: float64(50 + i%100)})
	}
	m.notify(t, all...)
	for i := range 200 {
		m.feed.Reserve(fmt.Sprint("p", i), nodes[i*4].Node().Name, 10)
	}
	return nodes, m
}

// TestLiveWattsAreCheap verifies that live power of 1,000 nodes adds about a tenth to the duration of PreScore. It
// compares the minimum of many runs, because the machine may be busy.
func TestLiveWattsAreCheap(t *testing.T) {
	nodes, m := thousand(t)
	pod, state := newPod(v1alpha1.AnnotationStrategy, "energy"), newCycle()
	with, without := metered(t, m), metered(t, nil)
	fastest := func(e *Energy, before time.Duration) time.Duration {
		begin := time.Now()
		if status := score(t.Context(), e, state, pod, nodes); !status.IsSuccess() {
			t.Fatal(status)
		}
		return min(before, time.Since(begin))
	}
	slow, quick := time.Hour, time.Hour
	for range 200 {
		slow, quick = fastest(with, slow), fastest(without, quick)
	}
	t.Logf("PreScore of 1,000 nodes: %v with live watts, %v without: %+.1f%%", slow, quick,
		100*(slow.Seconds()/quick.Seconds()-1))
	if slow > quick*3/2 { // far above the ratio on an idle machine
		t.Errorf("live watts add %v to %v", slow-quick, quick)
	}
}

// BenchmarkLive1000Nodes measures PreScore with live power.
func BenchmarkLive1000Nodes(b *testing.B) {
	nodes, m := thousand(b)
	for _, bc := range []struct {
		name, strategy string
		m              *meters
	}{
		{"energy/without", "energy", nil},
		{"energy/with", "energy", m},
		{"exec/with", "exec", m},
		{"exec/without", "exec", nil},
	} {
		b.Run(bc.name, func(b *testing.B) {
			e, state, pod := metered(b, bc.m), newCycle(), newPod(v1alpha1.AnnotationStrategy, bc.strategy)
			b.ReportAllocs()
			for b.Loop() {
				if status := score(b.Context(), e, state, pod, nodes); !status.IsSuccess() {
					b.Fatal(status)
				}
			}
		})
	}
}

// TestHotNodesAreRefused verifies that nodes that are too hot reject marked pods until the reading expires, and
// accept all other pods.
func TestHotNodesAreRefused(t *testing.T) {
	m := newMeters(t)
	e, nodes := metered(t, m), twoAlike()
	passes := func(pod *v1.Pod) string {
		t.Helper()
		state := newCycle()
		_, status := e.PreFilter(t.Context(), state, pod, nodes)
		if !status.IsSuccess() && !status.IsSkip() {
			t.Fatal(status)
		}
		var pass []string
		for _, n := range nodes {
			status := status
			if !status.IsSkip() {
				status = e.Filter(t.Context(), state, pod, n)
			}
			if status.IsSuccess() || status.IsSkip() {
				pass = append(pass, n.Node().Name)
			} else if status.Code() != fwk.UnschedulableAndUnresolvable || !strings.Contains(status.Message(), "overheated: 91") {
				t.Errorf("refused: %v", status)
			}
		}
		return strings.Join(pass, " ")
	}
	ours := newPod(v1alpha1.AnnotationStrategy, "carbon")
	check := func(when, want string) {
		t.Helper()
		if got := passes(ours); got != want {
			t.Errorf("%s: %q pass, want %q", when, got, want)
		}
	}
	check("before the first answer", "a b c")
	hot := func(name string, asOf time.Time) api.NodePower {
		return api.NodePower{Node: name, Temperature: sched.Heat{Celsius: 91, Limit: 85, AsOf: asOf, Hot: true}}
	}
	warm := api.NodePower{Node: "b", Temperature: sched.Heat{Celsius: 99, AsOf: m.now}}
	m.notify(t, hot("a", m.now), warm, hot("c", m.now.Add(-4*time.Minute)))
	check("a is too hot, b has no limit, the reading of c is old", "b c")
	if got := passes(newPod("team", "x")); got != "a b c" {
		t.Errorf("%q pass for an unmarked pod", got)
	}
	m.broken = true
	m.now = m.now.Add(179 * time.Second)
	check("the controller is away", "b c")
	m.now = m.now.Add(2 * time.Second)
	check("for too long", "a b c")
	m.broken = false
	m.notify(t, hot("a", m.now), hot("b", m.now), hot("c", m.now))
	check("all are too hot", "")
	m.notify(t, warm)
	check("they have cooled down", "a b c")
}
