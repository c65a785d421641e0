package estimate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/policy"
)

// world is a fake cluster with clocks, meters and usage that are set by a test.
type world struct {
	t     *testing.T
	up    time.Duration
	clock time.Time

	nodes  []v1.Node
	pods   map[string][]v1.Pod
	view   *kube.View
	usage  Usage
	walls  map[string]*wall
	agents map[string]time.Time

	booked []*batch.Batch
	refuse func(*batch.Batch) error
}

// wall is a fake power meter.
type wall struct {
	total  energy.Microjoules
	at     time.Duration
	run    uint32
	silent bool
}

const noon = 12 * 60 * 60

func newWorld(t *testing.T) *world {
	p := &energy.Profile{Name: "box", Idle: 50, Max: 150, Exponent: 1, Sleep: 50, GPUIdle: 20, GPUMax: 200}
	v, err := kube.NewView(nil, []*energy.Profile{p}, "box")
	if err != nil {
		t.Fatal(err)
	}
	return &world{
		t: t, up: time.Hour, clock: time.Unix(1_770_000_000+noon, 0), pods: map[string][]v1.Pod{}, view: v,
		walls: map[string]*wall{}, agents: map[string]time.Time{},
	}
}

func (w *world) estimator() *Estimator {
	return New(Options{
		Nodes: func(context.Context) ([]v1.Node, error) { return w.nodes, nil },
		Pods: func(_ context.Context, node string) ([]v1.Pod, error) {
			if pods, ok := w.pods[node]; ok {
				return pods, nil
			}
			return nil, nil
		},
		View: func() *kube.View { return w.view },
		Usage: func(context.Context, func(string, string) bool) (Usage, error) {
			return w.usage, nil
		},
		Readings: func(node string) ([]energy.Reading, string, bool) {
			m := w.walls[node]
			if m == nil || m.silent {
				return nil, "", false
			}
			return []energy.Reading{{
				Domain: energy.Domain{Kind: energy.Wall, Name: "plug"}, At: m.at, Total: m.total, Run: m.run,
				Quality: energy.Measured,
			}}, "wall (test)", true
		},
		HasAgent: func(node string) time.Time { return w.agents[node] },
		Book: func(_ context.Context, b *batch.Batch) error {
			if w.refuse != nil {
				if err := w.refuse(b); err != nil {
					return err
				}
			}
			w.booked = append(w.booked, b)
			return nil
		},
		Permanent: func(err error) bool { return errors.Is(err, errWrong) },
		Clock:     func() time.Time { return w.clock },
		Uptime:    func() time.Duration { return w.up },
		Log:       slog.New(slog.DiscardHandler),
	})
}

// unknown returns the metric of nodes with unknown energy.
func unknown(e *Estimator) float64 {
	return testutil.ToFloat64(e.queue.metrics.nodes.WithLabelValues("unknown"))
}

var errWrong = errors.New("wrong")

// pass advances both clocks.
func (w *world) pass(d time.Duration) {
	w.up += d
	w.clock = w.clock.Add(d)
}

// tick runs one estimate and records the queued batches sequentially.
func (w *world) tick(e *Estimator) {
	w.t.Helper()
	if err := e.estimate(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	for _, l := range e.queue.nodes {
		e.queue.bookAll(w.t.Context(), l)
	}
}

func (w *world) node(name string, cores string, gpus int64) {
	capacity := v1.ResourceList{
		v1.ResourceCPU: resource.MustParse(cores), "nvidia.com/gpu": *resource.NewQuantity(gpus, resource.DecimalSI),
	}
	w.nodes = append(w.nodes, v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Status: v1.NodeStatus{Capacity: capacity, Allocatable: capacity},
	})
}

// pod adds a pod that has been running for an hour.
func (w *world) pod(node, uid, cpu string, gpus int64) *v1.Pod {
	request := v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)}
	if gpus > 0 {
		request["nvidia.com/gpu"] = *resource.NewQuantity(gpus, resource.DecimalSI)
	}
	p := v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: uid, Namespace: "shop", UID: types.UID(uid)},
		Spec: v1.PodSpec{
			NodeName: node, Containers: []v1.Container{{Resources: v1.ResourceRequirements{Requests: request}}},
		},
		Status: v1.PodStatus{Phase: v1.PodRunning, StartTime: &metav1.Time{Time: w.clock.Add(-time.Hour)}},
	}
	w.pods[node] = append(w.pods[node], p)
	return &w.pods[node][len(w.pods[node])-1]
}

// used sets the CPU usage from metrics-server in cores, by pod name or by node name with a leading slash.
func (w *world) used(cores map[string]float64) {
	w.usage = Usage{}
	for name, v := range cores {
		if name[0] == '/' {
			w.usage[podName{"", name[1:]}] = Used{Cores: v}
		} else {
			w.usage[podName{"shop", name}] = Used{Cores: v}
		}
	}
}

func share(t *testing.T, b *batch.Batch, uid string) energy.Share {
	t.Helper()
	for _, s := range b.Shares {
		if s.ID == uid || s.ID == "pod/"+uid {
			return s
		}
	}
	t.Fatalf("no share of %s in %+v", uid, b.Shares)
	return energy.Share{}
}

func near(t *testing.T, what string, got energy.Microjoules, want energy.Joules) {
	t.Helper()
	if math.Abs(float64(got.Joules()-want)) > 0.01+math.Abs(float64(want))*1e-4 {
		t.Errorf("%s: got %v J, want %v J", what, float64(got.Joules()), float64(want))
	}
}

// TestModelAtMeasuredUsage verifies that the energy of a node without a meter is modeled from its measured CPU
// usage. Pods are charged for the dynamic energy of their CPU time, and the system for the rest.
func TestModelAtMeasuredUsage(t *testing.T) {
	w := newWorld(t)
	w.node("n", "10", 0)
	w.pod("n", "a", "2", 0)
	w.pod("n", "b", "1", 0)
	w.used(map[string]float64{"/n": 5, "a": 3, "b": 1})
	e := w.estimator()
	w.tick(e)
	for range 3 { // no estimate is recorded before agents had time to connect
		w.pass(time.Minute)
		w.tick(e)
	}
	if len(w.booked) != 2 {
		t.Fatalf("got %d batches, want one of the first two minutes and one of the last", len(w.booked))
	}
	b := w.booked[0]
	if b.EndSinceBoot-b.StartSinceBoot != 2*time.Minute || b.Quality != energy.Estimated || b.Source != "model (box)" ||
		b.First != 1 ||
		b.Stream.Boot != "central" || b.IdlePolicy != "requests" || !b.End.Equal(w.clock.Add(-time.Minute)) {
		t.Errorf("%+v", b)
	}
	near(t, "node", b.Measured, 100*120)
	a, other, system := share(t, b, "a"), share(t, b, "b"), share(t, b, energy.System)
	near(t, "dynamic energy of a", a.Dynamic, 50*120*3/5.)
	near(t, "dynamic energy of b", other.Dynamic, 50*120/5.)
	near(t, "dynamic energy of the system", system.Dynamic, 50*120/5.)
	near(t, "idle energy of a", a.Idle, 50*120*0.2)
	near(t, "unrequested idle energy", b.Idle, 50*120*0.7)
	if b.Unknown != 0 || a.CPU != 6*time.Minute || w.booked[1].First != 2 ||
		w.booked[1].StartSinceBoot != b.EndSinceBoot {
		t.Errorf("%+v", w.booked)
	}
}

// TestModelAtRequests verifies that requests are used without metrics-server, and that a node without a profile is
// not estimated.
func TestModelAtRequests(t *testing.T) {
	w := newWorld(t)
	w.node("n", "10", 0)
	w.pod("n", "a", "4", 0)
	w.pod("n", "b", "1", 0)
	e := w.estimator()
	w.tick(e)
	w.pass(3 * time.Minute)
	w.tick(e)
	b := w.booked[0]
	near(t, "node", b.Measured, 100*180)
	near(t, "dynamic energy of a", share(t, b, "a").Dynamic, 50*180*0.8)
	if b.Unknown != 0 {
		t.Errorf("got %v of unknown energy", b.Unknown)
	}
	v, err := kube.NewView(nil, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	w.view = v
	w.pass(time.Minute)
	w.tick(e)
	w.pass(time.Minute)
	w.tick(e)
	if len(w.booked) != 1 || unknown(e) != 1 {
		t.Errorf("got %d batches, %v nodes are unknown, want 1 and 1", len(w.booked), unknown(e))
	}
}

// TestDefaultOfUnknownHardware verifies that nodes with the default profile are counted separately from nodes with
// their own profile.
func TestDefaultOfUnknownHardware(t *testing.T) {
	w := newWorld(t)
	any400 := &energy.Profile{Name: policy.UnknownHardware, Idle: 100, Max: 400, Sleep: 100}
	v, err := (&kube.Contents{Defaults: policy.Defaults{AnyPower: any400}}).View()
	if err != nil {
		t.Fatal(err)
	}
	w.view = v
	w.node("n", "10", 0)
	w.pod("n", "a", "5", 0)
	e := w.estimator()
	w.tick(e)
	w.pass(3 * time.Minute)
	w.tick(e)
	b := w.booked[0]
	near(t, "node", b.Measured, 250*180)
	if by := testutil.ToFloat64(e.queue.metrics.nodes.WithLabelValues("default")); by != 1 || unknown(e) != 0 ||
		b.Source != "model (unknown-hardware)" || b.Quality != energy.Estimated {
		t.Errorf("got %v by default, %v unknown, source %s, quality %v", by, unknown(e), b.Source, b.Quality)
	}
}

// TestUsageOfSomePods verifies that the requests of pods without measured usage are scaled to the usage of the
// node.
func TestUsageOfSomePods(t *testing.T) {
	w := newWorld(t)
	w.node("n", "10", 0)
	for _, uid := range []string{"known", "new", "other"} {
		w.pod("n", uid, "2", 0)
	}
	w.used(map[string]float64{"/n": 4, "known": 3})
	e := w.estimator()
	w.tick(e)
	w.pass(4 * time.Minute)
	w.tick(e)
	b := w.booked[0]
	for uid, cpu := range map[string]time.Duration{
		"known": 12 * time.Minute, "new": 2 * time.Minute, "other": 2 * time.Minute,
	} {
		if got := share(t, b, uid).CPU; got != cpu {
			t.Errorf("%s: got CPU time %v, want %v", uid, got, cpu)
		}
	}
}

// TestGPUs verifies that pods are charged for their GPUs and that unused GPUs are idle.
func TestGPUs(t *testing.T) {
	w := newWorld(t)
	w.node("n", "10", 4)
	w.pod("n", "a", "1", 1)
	w.pod("n", "b", "1", 0)
	w.used(map[string]float64{"/n": 0, "a": 0, "b": 0})
	e := w.estimator()
	w.tick(e)
	w.pass(5 * time.Minute)
	w.tick(e)
	b := w.booked[0]
	near(t, "node", b.Measured, (50+200+3*20)*300)
	near(t, "GPU of a", share(t, b, "a").Dynamic, 200*300)
	near(t, "idle", b.Idle, (50*0.8+3*20)*300)
}

// TestMemory verifies that memory is charged by usage or request, independently of the CPU, and that the remaining
// usage of the node is idle.
func TestMemory(t *testing.T) {
	for what, c := range map[string]struct {
		used    Usage
		a, b    energy.Joules // power of the memory of each pod in watts
		idle    energy.Joules // power of the remaining memory in use
		cpuPart energy.Joules // CPU utilization of the node
	}{
		"requests": {a: 20 * 0.25, b: 20 * 0.5, cpuPart: 0.2},
		"usage": {
			used: Usage{{"shop", "a"}: {0, 48 << 30}, {"shop", "b"}: {0, 0}, {"", "n"}: {0, 88 << 30}},
			a:    20 * 0.75, b: 20 * 0.25, // the memory that remains for b's request
		},
		"remaining memory": {
			used: Usage{{"shop", "a"}: {0, 8 << 30}, {"shop", "b"}: {0, 8 << 30}, {"", "n"}: {0, 32 << 30}},
			a:    20 * 0.125, b: 20 * 0.125, idle: 20 * 0.25,
		},
	} {
		w := newWorld(t)
		v, err := kube.NewView(nil, []*energy.Profile{{Name: "box", Idle: 50, Max: 120, Sleep: 50, Memory: 20}}, "box")
		if err != nil {
			t.Fatal(err)
		}
		w.view = v
		w.node("n", "10", 0)
		w.nodes[0].Status.Capacity[v1.ResourceMemory] = resource.MustParse("64Gi")
		for uid, memory := range map[string]string{"a": "16Gi", "b": "32Gi"} {
			w.pod("n", uid, "1", 0).Spec.Containers[0].Resources.Requests[v1.ResourceMemory] = resource.MustParse(memory)
		}
		w.usage = c.used
		e := w.estimator()
		w.tick(e)
		w.pass(5 * time.Minute)
		w.tick(e)
		b := w.booked[0]
		near(t, what+": node", b.Measured, (50+50*c.cpuPart+c.a+c.b+c.idle)*300)
		near(t, what+": a", share(t, b, "a").Dynamic, (50*c.cpuPart/2+c.a)*300)
		near(t, what+": b", share(t, b, "b").Dynamic, (50*c.cpuPart/2+c.b)*300)
	}
}

// TestWallAndModel verifies that the energy of the meter is attributed to the microjoule, and that the model
// replaces the meter without a gap or an overlap while the meter does not respond.
func TestWallAndModel(t *testing.T) {
	w := newWorld(t)
	w.node("n", "10", 0)
	w.pod("n", "a", "2", 0)
	w.used(map[string]float64{"/n": 5, "a": 5})
	m := &wall{total: 1e9, at: w.up - 7*time.Second}
	w.walls["n"] = m
	e := w.estimator()
	w.tick(e)
	count := func(used energy.Microjoules) { // advances one minute, with a reading 7 s before its end
		w.pass(time.Minute)
		if !m.silent {
			m.total += used
			m.at = w.up - 7*time.Second
		}
		w.tick(e)
	}
	for range 3 {
		count(6_000_000_001)
	}
	if len(w.booked) != 2 || w.booked[0].Measured+w.booked[1].Measured != 3*6_000_000_001 ||
		w.booked[0].Quality != energy.Measured ||
		w.booked[0].Source != "wall (test)" {
		t.Fatalf("%+v", w.booked)
	}
	m.silent = true
	count(0)
	last := w.booked[2]
	if last.Quality != energy.Estimated || last.StartSinceBoot != w.booked[1].EndSinceBoot ||
		last.EndSinceBoot != w.up {
		t.Fatalf("after the meter stopped responding: %+v", last)
	}
	near(t, "model", last.Measured, 100*67)
	m.silent = false
	m.total += 77e9 // already covered by estimates
	count(0)
	count(5_000_000_003)
	back, wall := w.booked[3], w.booked[4]
	if back.Quality != energy.Estimated || back.StartSinceBoot != last.EndSinceBoot ||
		back.EndSinceBoot != w.up-time.Minute-7*time.Second {
		t.Errorf("after the meter responded again: %+v", back)
	}
	near(t, "model", back.Measured, 100*53)
	if wall.Measured != 5_000_000_003 || wall.Quality != energy.Measured || wall.StartSinceBoot != back.EndSinceBoot {
		t.Errorf("after the recovery: %+v", wall)
	}
	m.run++ // reset of the meter
	count(1)
	if b := w.booked[5]; b.Measured != 0 || b.Unmeasured != b.EndSinceBoot-b.StartSinceBoot ||
		b.Unmeasured != time.Minute {
		t.Errorf("after a reset: %+v", b)
	}
	count(4_000_000_000)
	if got := w.booked[6].Measured; got != 4_000_000_000 {
		t.Errorf("got %v J after a reset, want 4000", got)
	}
}

// TestWallAlone verifies that no energy is lost if the meter of a node without a profile is temporarily
// unavailable.
func TestWallAlone(t *testing.T) {
	w := newWorld(t)
	v, err := kube.NewView(nil, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	w.view = v
	w.node("n", "10", 0)
	w.pod("n", "a", "2", 0)
	m := &wall{at: w.up}
	w.walls["n"] = m
	e := w.estimator()
	w.tick(e)
	for i := range 10 {
		w.pass(time.Minute)
		if m.silent = i >= 3 && i < 7; !m.silent {
			m.total, m.at = energy.Microjoules(w.up-time.Hour), w.up
		}
		w.tick(e)
	}
	var sum energy.Microjoules
	for _, b := range w.booked {
		sum += b.Measured
		if b.Unmeasured != 0 {
			t.Errorf("got %v unmeasured, want none", b.Unmeasured)
		}
	}
	if sum != m.total {
		t.Errorf("got %d µJ, meter counted %d µJ", sum, m.total)
	}
}

// TestAgentsTakeOver verifies that a node is not estimated while its agent reports. After the agent has been
// missing for five minutes, estimates resume with another epoch and cover the whole time since its last batch.
func TestAgentsTakeOver(t *testing.T) {
	w := newWorld(t)
	w.node("n", "10", 0)
	w.pod("n", "a", "2", 0)
	w.used(map[string]float64{"/n": 5, "a": 5})
	e := w.estimator()
	minutes := func(n int, agent bool) {
		for range n {
			w.pass(time.Minute)
			if agent {
				w.agents["n"] = w.clock
			}
			w.tick(e)
		}
	}
	w.tick(e)
	minutes(3, false)
	before := len(w.booked)
	if before == 0 {
		t.Fatal("expected an estimate")
	}
	gone := w.up
	minutes(10, true)
	if len(w.booked) != before {
		t.Fatalf("got %d batches while an agent reports", len(w.booked)-before)
	}
	minutes(4, false)
	if len(w.booked) != before {
		t.Fatal("an agent that is late was considered missing")
	}
	minutes(2, false)
	if len(w.booked) != before+2 {
		t.Fatalf("got %d batches after the agent was gone, want 2", len(w.booked)-before)
	}
	again := w.booked[before]
	if again.Stream.Epoch == w.booked[0].Stream.Epoch || again.First != 1 ||
		again.StartSinceBoot != gone+10*time.Minute || again.EndSinceBoot != w.up-time.Minute {
		t.Errorf("%+v", again)
	}
	if want := energy.Watts(100).For(again.EndSinceBoot - again.StartSinceBoot).Microjoules(); again.Measured != want {
		t.Errorf("got %d µJ, want %d µJ for half of the cores", again.Measured, want)
	}
	// A restarted controller does not know the agents and records no estimate in its first minutes.
	second := w.estimator()
	w.tick(second)
	w.pass(time.Minute)
	w.agents["n"] = w.clock
	n := len(w.booked)
	w.tick(second)
	if len(w.booked) != n {
		t.Error("an estimate was recorded before the agent had time to connect")
	}
}

// TestBacklog verifies that failed batches are merged, that a batch is retried unchanged after the first attempt,
// and that a batch with a permanent error is dropped and counted.
func TestBacklog(t *testing.T) {
	w := newWorld(t)
	w.node("n", "10", 0)
	w.pod("n", "a", "2", 0)
	w.used(map[string]float64{"/n": 5, "a": 5})
	e := w.estimator()
	var tried []*batch.Batch
	w.refuse = func(b *batch.Batch) error { tried = append(tried, b); return errors.New("no space left on device") }
	w.tick(e)
	for range 60 {
		w.pass(time.Minute)
		w.tick(e)
	}
	for _, b := range tried {
		if b.First != 1 || b.Last != 1 {
			t.Fatalf("unexpected attempt with batches %d to %d", b.First, b.Last)
		}
	}
	if testutil.ToFloat64(e.queue.metrics.failures) == 0 || len(e.queue.nodes) != 1 {
		t.Errorf("got %v failures, %d waiting", testutil.ToFloat64(e.queue.metrics.failures), len(e.queue.nodes))
	}
	w.refuse = nil
	w.pass(time.Minute)
	w.tick(e)
	if len(w.booked) != 2 || w.booked[0] != tried[0] || w.booked[1].First != 2 || w.booked[1].Last != 60 {
		t.Fatalf("got %d batches, the last with numbers %d to %d", len(w.booked), w.booked[1].First, w.booked[1].Last)
	}
	near(t, "total", w.booked[0].Measured+w.booked[1].Measured, 61*60*100)
	w.refuse = func(*batch.Batch) error { return fmt.Errorf("booking: %w", errWrong) }
	w.pass(time.Minute)
	w.tick(e)
	if batches, joules := testutil.ToFloat64(e.queue.metrics.batches.WithLabelValues(dropped)),
		testutil.ToFloat64(e.queue.metrics.joules.WithLabelValues(dropped)); batches != 1 ||
		math.Abs(joules-6000) > 1e-3 {
		t.Errorf("got %v dropped batches of %v J", batches, joules)
	}
	w.refuse = nil
	w.pass(time.Minute)
	w.tick(e)
	if last := w.booked[2]; last.First != 62 {
		t.Errorf("got batch number %d, want 62", last.First)
	}
}

// TestEndedPods verifies that pods that finish, are deleted, or run only between two ticks are reported once and as
// ended.
func TestEndedPods(t *testing.T) {
	w := newWorld(t)
	w.node("n", "10", 0)
	for _, uid := range []string{"stays", "ends", "deleted", "past"} {
		w.pod("n", uid, "2", 0)
	}
	finish := func(p *v1.Pod, at time.Time) {
		p.Status.Phase = v1.PodSucceeded
		p.Status.ContainerStatuses = []v1.ContainerStatus{{State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
			StartedAt: metav1.Time{Time: at.Add(-time.Second)}, FinishedAt: metav1.Time{Time: at},
		}}}}
	}
	finish(&w.pods["n"][3], w.clock.Add(-10*time.Second))
	w.used(map[string]float64{"/n": 8, "stays": 2, "ends": 2, "deleted": 2})
	e := w.estimator()
	w.tick(e)
	w.pass(2 * time.Minute)
	w.tick(e)
	w.pass(time.Minute)
	pods := w.pods["n"]
	finish(&pods[1], w.clock.Add(-15*time.Second))
	w.pods["n"] = []v1.Pod{pods[0], pods[1], pods[3]}
	brief := w.pod("n", "brief", "4", 0)
	brief.Status.StartTime = &metav1.Time{Time: w.clock.Add(-30 * time.Second)}
	finish(brief, w.clock.Add(-20*time.Second))
	w.tick(e)
	b := w.booked[1]
	for uid, cpu := range map[string]time.Duration{
		"ends": 90 * time.Second, "deleted": time.Minute, "brief": 40 * time.Second,
	} {
		if s := share(t, b, uid); s.CPU != cpu || !s.Ended {
			t.Errorf("got %+v, want CPU time %v", s, cpu)
		}
	}
	for range 3 {
		w.pass(time.Minute)
		w.tick(e)
	}
	for _, b := range w.booked[2:] {
		if len(b.Shares) != 2 {
			t.Errorf("unexpected shares: %+v", b.Shares)
		}
	}
	for _, b := range w.booked {
		if slices.ContainsFunc(b.Shares, func(s energy.Share) bool { return s.ID == "pod/past" }) {
			t.Errorf("unexpected share of a finished pod: %+v", b.Shares)
		}
	}
}

// TestNodeThatIsGone verifies that the energy of a node that is not Ready is unknown and not modeled.
func TestNodeThatIsGone(t *testing.T) {
	w := newWorld(t)
	w.node("n", "10", 0)
	w.nodes[0].Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionUnknown}}
	w.pod("n", "a", "2", 0)
	e := w.estimator()
	w.tick(e)
	w.pass(5 * time.Minute)
	w.tick(e)
	if len(w.booked) != 0 || unknown(e) != 1 {
		t.Errorf("%+v", w.booked)
	}
}

// TestConservation verifies with random clusters that energy is conserved to the microjoule: batches are valid and
// consecutive, and the energy of measured batches matches the counters of the meters.
func TestConservation(t *testing.T) {
	for seed := range uint64(runs()) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) { conserve(t, rand.New(rand.NewPCG(seed, 1))) })
	}
}

func conserve(t *testing.T, r *rand.Rand) {
	w := newWorld(t)
	silences := r.IntN(2) == 0
	for i := range 1 + r.IntN(4) {
		name := fmt.Sprint("n", i)
		w.node(name, strconv.Itoa(1+r.IntN(64)), r.Int64N(3))
		if r.IntN(2) == 0 {
			w.walls[name] = &wall{total: energy.Microjoules(r.Int64N(1e12)), at: w.up}
		}
	}
	counted, uid := map[string]energy.Microjoules{}, 0
	e := w.estimator()
	step := func() {
		for _, n := range w.nodes {
			switch pods := w.pods[n.Name]; {
			case r.IntN(3) == 0 && len(pods) < 30:
				uid++
				w.pod(n.Name, fmt.Sprint("u", uid), fmt.Sprint(r.IntN(3000), "m"), r.Int64N(2))
			case len(pods) > 0 && r.IntN(4) == 0:
				pods[r.IntN(len(pods))].Status.Phase = v1.PodFailed
			case len(pods) > 0 && r.IntN(4) == 0:
				w.pods[n.Name] = slices.Delete(pods, 0, 1)
			}
			if m := w.walls[n.Name]; m != nil {
				m.silent = silences && r.IntN(5) == 0
				if at := w.up - time.Duration(r.Int64N(int64(20*time.Second))); at > m.at {
					used := energy.Microjoules(r.Int64N(20e9))
					m.total += used
					m.at = at
					counted[n.Name] += used
				}
			}
		}
		w.usage = nil
		if r.IntN(4) > 0 {
			cores := map[string]float64{}
			for _, n := range w.nodes {
				if r.IntN(5) > 0 {
					cores["/"+n.Name] = r.Float64() * 80
				}
				for i := range w.pods[n.Name] {
					if r.IntN(5) > 0 {
						cores[w.pods[n.Name][i].Name] = r.Float64() * 4
					}
				}
			}
			w.used(cores)
		}
		w.tick(e)
		d := 50*time.Second + time.Duration(r.Int64N(int64(20*time.Second)))
		w.up += d
		switch r.IntN(10) {
		case 0: // step of the wall clock
			w.clock = w.clock.Add(time.Duration(r.Int64N(int64(4*time.Hour))) - 2*time.Hour)
		default:
			w.clock = w.clock.Add(d)
		}
	}
	for range 60 {
		step()
	}
	ends, numbers, sums := map[string]time.Duration{}, map[string]uint64{}, map[string]energy.Microjoules{}
	measured := map[string]energy.Microjoules{}
	for _, b := range w.booked {
		if err := b.Validate(); err != nil {
			t.Fatal(err)
		}
		if node := b.Stream.Node; b.StartSinceBoot < ends[node] || b.First != numbers[node]+1 ||
			ends[node] != 0 && b.StartSinceBoot != ends[node] {
			t.Fatalf("batch %d of %v to %v after %d until %v", b.First, b.StartSinceBoot, b.EndSinceBoot, numbers[node],
				ends[node])
		}
		ends[b.Stream.Node], numbers[b.Stream.Node] = b.EndSinceBoot, b.Last
		sums[b.Stream.Node] += b.Measured
		var cpu time.Duration
		for i := range b.Shares {
			cpu += b.Shares[i].CPU
		}
		if most := time.Duration(64 * 1.1 * float64(b.EndSinceBoot-b.StartSinceBoot+90*time.Second)); cpu > most {
			t.Errorf("got CPU time %v in %v", cpu, b.EndSinceBoot-b.StartSinceBoot)
		}
		if b.Quality == energy.Measured {
			measured[b.Stream.Node] += b.Measured
		}
	}
	if len(w.booked) == 0 {
		t.Fatal("expected batches")
	}
	for name, m := range w.walls {
		switch got := sums[name]; {
		case measured[name] > counted[name]:
			t.Errorf("%s: got %d µJ as measured, meter counted only %d µJ", name, measured[name], counted[name])
		case silences: // partly modeled
		case got != counted[name] && e.books[name].reported == m.at:
			t.Errorf("%s: got %d µJ, meter counted %d µJ", name, got, counted[name])
		case got > counted[name]:
			t.Errorf("%s: got %d µJ, meter counted only %d µJ", name, got, counted[name])
		}
	}
}

// runs returns the number of random clusters, more for long test runs.
func runs() int {
	if os.Getenv("KUBENERGY_LONG") != "" {
		return 2000
	}
	return 24
}
