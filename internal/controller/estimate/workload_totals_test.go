package estimate

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	kit "github.com/kubenergy/kubenergy/internal/controller/controllertest"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/sched"
)

const gpuClass = "compute-gardener-scheduler.kubernetes.io/gpu-workload-type"

// bookkeeping is a test fixture with nodes that have four cores, draw 100 to 200 W and have a PUE of 1.5. A kWh
// emits 500 g and costs 0.30 EUR in the first two hours, and 100 g and 0.10 EUR after that. Earlier rates are
// unknown.
type bookkeeping struct {
	*Workloads
	t     *testing.T
	clock time.Time
	lead  bool
	nodes map[string]*v1.Node
}

func testView(t *testing.T) *kube.View {
	t.Helper()
	view, err := (&kube.Contents{
		Profiles: []*kube.NodeProfile{{Profile: energy.Profile{
			Name: "server", Idle: 100, Max: 200, Sleep: 100, GPUIdle: 20, GPUMax: 200,
			GPUClasses: map[string]float64{"inference": 0.5},
		}, PUE: 1.5}},
		DefaultProfile: "server",
		Policies: []*v1alpha1.EnergyPolicy{
			kit.Policy("team", v1alpha1.ModeEnforce, time.Hour), kit.Policy("off", v1alpha1.ModeOff, time.Hour),
		},
		Defaults: policy.Defaults{Terms: policy.Terms{ExpectedDuration: time.Hour}, MaxDelay: 24 * time.Hour},
	}).View()
	if err != nil {
		t.Fatal(err)
	}
	return view
}

func testRates(_ string, from, _ time.Time) ledger.Rates {
	r := ledger.Rates{
		Site: "home", PUE: 1.5, Carbon: 100, Price: 0.1, Signal: "average", Currency: "EUR",
	}
	switch {
	case from.Before(kit.Noon):
		r.Carbon, r.Price = math.NaN(), math.NaN()
	case from.Before(kit.Noon.Add(2 * time.Hour)):
		r.Carbon, r.Price = 500, 0.3
	}
	return r
}

func newBookkeeping(t *testing.T, w *kit.World) *bookkeeping {
	t.Helper()
	view := testView(t)
	b := &bookkeeping{t: t, clock: kit.Noon, lead: true, nodes: map[string]*v1.Node{"n1": kit.Node("n1", "4")}}
	b.Workloads = NewWorkloads(WorkloadOptions{
		Client: w.Client, View: func() *kube.View { return view },
		Node: func(name string) *v1.Node { return b.nodes[name] }, Rates: testRates,
		Leads: func() bool { return b.lead }, Now: func() time.Time { return b.clock }, Log: kit.Silent,
		Registerer: prometheus.NewRegistry(),
	})
	b.tick(t.Context())
	return b
}

// settle counts the waiting pods after the maximum wait for their records.
func (b *bookkeeping) settle() {
	b.clock = b.clock.Add(bookedWithin + time.Second)
	b.tick(b.t.Context())
}

// book records the usage of pods on n1.
func (b *bookkeeping) book(from, to time.Time, q energy.Quality, used map[string]energy.Joules) {
	made := &batch.Batch{Stream: batch.Stream{Node: "n1"}, Start: from, End: to, Quality: q}
	for uid, joules := range used {
		made.Shares = append(made.Shares, energy.Share{
			ID: energy.ContainerID(uid, "c"), Dynamic: (joules / 2).Microjoules(), Idle: (joules / 2).Microjoules(),
		})
	}
	b.Booked(&ledger.Booking{Batch: made, Rates: testRates("n1", from, to)}, ledger.Receipt{Booked: true})
}

func (b *bookkeeping) want(what string, c prometheus.Collector, want float64) {
	b.t.Helper()
	got := testutil.ToFloat64(c)
	if math.Abs(got-want) > 1e-6*math.Max(1, math.Abs(want)) {
		b.t.Errorf("%s = %v, want %v", what, got, want)
	}
}

// TestWorkIsNotHeldTime verifies that the work of a Job before a pause does not count as held time.
func TestWorkIsNotHeldTime(t *testing.T) {
	job := kit.Job("team", "job", kit.Noon)
	job.Annotations = map[string]string{
		v1alpha1.AnnotationReleasedAt: kit.Noon.Add(5 * time.Hour).Format(time.RFC3339),
		v1alpha1.AnnotationPaused:     string(job.UID), v1alpha1.AnnotationWorked: "2h",
	}
	b := newBookkeeping(t, kit.NewWorld(t, job))
	pod := kit.Pod("team", "job-1", kit.Noon)
	pod.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "batch/v1", Kind: "Job", Name: "job", UID: job.UID, Controller: new(true),
	}}
	if held := b.heldFor(t.Context(), pod); held != 3*time.Hour {
		t.Errorf("held for %v, want 3h", held)
	}
}

// TestHeldJobIsAccounted verifies the totals of a Job that was held for three hours and ran for one hour: the usage
// reported by the agent with the emissions and costs of that hour, and the counterfactual with those of three hours
// earlier.
func TestHeldJobIsAccounted(t *testing.T) {
	job := kit.Job("team", "job", kit.Noon)
	job.Annotations = map[string]string{v1alpha1.AnnotationReleasedAt: kit.Noon.Add(3 * time.Hour).Format(time.RFC3339)}
	b := newBookkeeping(t, kit.NewWorld(t, job))
	start, end := kit.Noon.Add(3*time.Hour), kit.Noon.Add(4*time.Hour)
	pod := kit.On(kit.Pod("team", "job-1", start), "n1", "1", start)
	pod.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "batch/v1", Kind: "Job", Name: "job", UID: job.UID, Controller: new(true),
	}}
	b.Saw(pod)
	b.book(start, start.Add(30*time.Minute), energy.Measured, map[string]energy.Joules{string(pod.UID): 60_000})
	b.clock = end
	b.Saw(kit.Ended(pod, start, end))
	b.Saw(kit.Ended(pod, start, end)) // duplicate update
	b.Lost(pod)                       // deletion
	b.tick(t.Context())
	b.want("pods before the last record", b.metrics.finished.WithLabelValues("team"), 0)
	b.book(start.Add(30*time.Minute), end, energy.Measured, map[string]energy.Joules{string(pod.UID): 30_000})
	b.tick(t.Context())
	const joules = 90_000 * 1.5
	m := &b.metrics
	b.want("energy", m.energy.WithLabelValues("team"), joules)
	b.want("derived energy", m.quality.WithLabelValues("team", "derived"), joules)
	b.want("estimated energy", m.quality.WithLabelValues("team", "estimated"), 0)
	b.want("emissions", m.carbon.WithLabelValues("team", "average"), joules/3.6e6*100)
	b.want("emissions without the hold", m.counterfactualCarbon.WithLabelValues("team", "average"), joules/3.6e6*500)
	b.want("cost", m.cost.WithLabelValues("team", "EUR"), joules/3.6e6*0.1)
	b.want("cost without the hold", m.counterfactualCost.WithLabelValues("team", "EUR"), joules/3.6e6*0.3)
	b.want("run time", m.runtime.WithLabelValues("team"), 3600)
	b.want("pods", m.finished.WithLabelValues("team"), 1)
	if len(b.pods) != 0 {
		t.Errorf("got %d stored pods, want none", len(b.pods))
	}
	b.Forget("team")
	for _, c := range []prometheus.Collector{
		m.energy, m.quality, m.carbon, m.counterfactualCarbon, m.cost, m.counterfactualCost, m.runtime, m.finished,
	} {
		if n := testutil.CollectAndCount(c); n != 0 {
			t.Errorf("got %d series of a deleted namespace", n)
		}
	}
}

// TestWhatNoBookingCoversIsEstimated verifies that the time before this replica became leader is estimated from
// requests.
func TestWhatNoBookingCoversIsEstimated(t *testing.T) {
	b := newBookkeeping(t, kit.NewWorld(t))
	pod := kit.On(kit.Pod("team", "p", kit.Noon), "n1", "1", kit.Noon)
	b.Saw(pod)
	b.clock = kit.Noon.Add(time.Hour)
	b.book(kit.Noon.Add(45*time.Minute), b.clock, energy.Measured, map[string]energy.Joules{string(pod.UID): 10_000})
	b.Saw(kit.Ended(pod, kit.Noon, b.clock))
	b.tick(t.Context())
	b.want("derived energy", b.metrics.quality.WithLabelValues("team", "derived"), 1.5*10_000)
	b.want("estimated energy", b.metrics.quality.WithLabelValues("team", "estimated"), 1.5*50*45*60)
}

// TestBookingsOfTheSameTimeCountOnce verifies that an estimated interval is not counted again when an agent reports
// it.
func TestBookingsOfTheSameTimeCountOnce(t *testing.T) {
	b := newBookkeeping(t, kit.NewWorld(t))
	pod := kit.On(kit.Pod("team", "p", kit.Noon), "n1", "1", kit.Noon)
	b.Saw(pod)
	uid := string(pod.UID)
	half, end := kit.Noon.Add(30*time.Minute), kit.Noon.Add(time.Hour)
	b.book(kit.Noon, half, energy.Estimated, map[string]energy.Joules{uid: 1000})
	b.book(kit.Noon, half, energy.Measured, map[string]energy.Joules{uid: 5000})
	b.book(kit.Noon.Add(15*time.Minute), end, energy.Measured, map[string]energy.Joules{uid: 3000})
	b.clock = end
	b.Lost(pod)
	b.tick(t.Context())
	b.want("energy", b.metrics.energy.WithLabelValues("team"), 1.5*(1000+2000))
}

// TestClassOfGPUWork verifies that the power of a GPU depends on the class of work of its pod, in estimates of
// nodes and of pods.
func TestClassOfGPUWork(t *testing.T) {
	w := newWorld(t)
	w.view = testView(t)
	w.node("n1", "4", 4)
	inference := w.pod("n1", "inference", "1", 2)
	inference.Namespace, inference.Annotations = "team", map[string]string{gpuClass: "inference"}
	w.pod("n1", "training", "1", 1).Namespace = "team"
	e := w.estimator()
	w.tick(e)
	w.pass(5 * time.Minute)
	w.tick(e)
	made := w.booked[0]
	cpu := share(t, made, "training").Dynamic - energy.Joules(200*300).Microjoules()
	near(t, "GPUs of inference", share(t, made, "inference").Dynamic-cpu, 2*110*300)

	b := newBookkeeping(t, kit.NewWorld(t))
	b.nodes["n1"].Status.Allocatable["nvidia.com/gpu"] = resource.MustParse("4")
	pod := kit.On(kit.Pod("team", "p", kit.Noon), "n1", "1", kit.Noon)
	pod.Annotations = map[string]string{gpuClass: "inference"}
	pod.Spec.Containers[0].Resources.Requests["nvidia.com/gpu"] = resource.MustParse("2")
	b.Saw(pod)
	b.clock = kit.Noon.Add(time.Hour)
	b.Saw(kit.Ended(pod, kit.Noon, b.clock))
	b.settle()
	b.want("energy", b.metrics.energy.WithLabelValues("team"), 1.5*(50+2*110)*3600)
}

// TestPodsNeverPayMoreThanTheNodeDraws verifies with random pods that their total never exceeds the energy of the
// node.
func TestPodsNeverPayMoreThanTheNodeDraws(t *testing.T) {
	for seed := range uint64(10) {
		random := rand.New(rand.NewPCG(seed, 3))
		w := newWorld(t)
		w.view, w.clock = testView(t), kit.Noon
		w.node("n1", "8", 0)
		b := newBookkeeping(t, kit.NewWorld(t))
		b.nodes["n1"] = &w.nodes[0]
		e := w.estimator()
		e.queue.book = func(ctx context.Context, made *batch.Batch) error {
			w.booked = append(w.booked, made)
			return b.Estimated(ctx, made)
		}
		type planned struct{ start, end int }
		var plan []planned
		for range 16 {
			start := 5 + random.IntN(50)
			plan = append(plan, planned{start, start + 1 + random.IntN(60)})
		}
		for minute := range 125 {
			b.clock = w.clock
			for i, p := range plan {
				uid := strconv.Itoa(i)
				switch minute {
				case p.start:
					pod := w.pod("n1", uid, strconv.Itoa(1+random.IntN(3)), 0)
					pod.Namespace, pod.CreationTimestamp = "team", metav1.NewTime(w.clock)
					pod.Status.StartTime = &metav1.Time{Time: w.clock}
					b.Saw(pod.DeepCopy())
				case p.end:
					for k := range w.pods["n1"] {
						if pod := &w.pods["n1"][k]; string(pod.UID) == uid && pod.Status.Phase == v1.PodRunning {
							*pod = *kit.Ended(pod, pod.Status.StartTime.Time, w.clock)
							b.Saw(pod.DeepCopy())
						}
					}
				}
			}
			w.tick(e)
			b.tick(t.Context())
			w.pass(time.Minute)
		}
		b.clock = w.clock
		b.settle()
		var drawn energy.Microjoules
		for _, made := range w.booked {
			drawn += made.Measured - made.Idle
		}
		b.want(fmt.Sprint("pods with seed ", seed), b.metrics.finished.WithLabelValues("team"), 16)
		if got, most := testutil.ToFloat64(b.metrics.energy.WithLabelValues("team")), 1.5*float64(drawn.Joules()); got >
			most*1.001 || got < most*0.97 {
			t.Errorf("seed %d: pods are charged for %v J, node used %v J", seed, got, most)
		}
	}
}

// TestPodPowerOfMemory verifies that the CPU power depends on the requested cores and the memory power on the
// requested bytes.
func TestPodPowerOfMemory(t *testing.T) {
	n := &sched.Node{
		Capacity: sched.Resources{MilliCPU: 10_000, Memory: 100}, Profile: &energy.Profile{Idle: 50, Max: 120, Memory: 20},
	}
	for request, want := range map[sched.Resources]energy.Watts{
		{MilliCPU: 10_000, Memory: 100}: 120, {MilliCPU: 1000}: 10, {Memory: 50}: 10, {MilliCPU: 1000, Memory: 500}: 30,
	} {
		if got := PodPower(n, &sched.Job{Request: request}); math.Abs(float64(got-want)) > 1e-9 {
			t.Errorf("PodPower(%+v) = %v, want %v", request, got, want)
		}
	}
	n.Capacity.Memory = 0 // unknown
	if got := PodPower(n, &sched.Job{Request: sched.Resources{MilliCPU: 5000}}); math.Abs(float64(got-60)) > 1e-9 {
		t.Errorf("PodPower() of half a node = %v, want 60", got)
	}
}

// TestShortPodsCountOnce verifies that a short pod with repeated updates until its deletion is counted once.
func TestShortPodsCountOnce(t *testing.T) {
	b := newBookkeeping(t, kit.NewWorld(t))
	created := kit.Noon.Add(time.Second)
	b.clock = created.Add(20 * time.Second)
	short := kit.Ended(kit.On(kit.Pod("team", "short", created), "n1", "1", created), created, b.clock)
	for range 5 {
		b.Saw(short)
		b.clock = b.clock.Add(2 * time.Second)
	}
	b.Lost(short)
	b.settle()
	b.want("pods", b.metrics.finished.WithLabelValues("team"), 1)
	b.want("energy", b.metrics.energy.WithLabelValues("team"), 50*1.5*20)
	if len(b.pods) != 0 || len(b.waiting) != 0 {
		t.Errorf("got %d stored and %d waiting pods, want none", len(b.pods), len(b.waiting))
	}
}

// TestRestartedContainers verifies that the whole running time of a pod with restarted containers is used.
func TestRestartedContainers(t *testing.T) {
	end := kit.Noon.Add(time.Hour)
	pod := kit.Ended(kit.On(kit.Pod("team", "p", kit.Noon), "n1", "1", kit.Noon), end.Add(-time.Minute), end)
	pod.Status.ContainerStatuses[0].RestartCount = 3
	if w := ran(pod, end); w.End.Sub(w.Start) != time.Hour {
		t.Errorf("got a running time of %v, want 1h", w.End.Sub(w.Start))
	}
}

// TestPodsThatEndWhileNoReplicaLeads verifies that pods are counted as unaccounted if they finished while there was
// no leader.
func TestPodsThatEndWhileNoReplicaLeads(t *testing.T) {
	b := newBookkeeping(t, kit.NewWorld(t))
	b.lead = false
	b.tick(t.Context())
	for i, after := range []time.Duration{time.Minute, 3 * time.Minute, 3*time.Minute + 5*time.Second} {
		p := kit.On(kit.Pod("team", fmt.Sprint("pod-", i), kit.Noon), "n1", "1", kit.Noon)
		b.Saw(p)
		b.clock = kit.Noon.Add(after)
		b.Saw(kit.Ended(p, kit.Noon, b.clock))
		b.tick(t.Context())
	}
	other := kit.On(kit.Pod("elsewhere", "pod", kit.Noon), "n1", "1", kit.Noon)
	b.Saw(other)
	b.Saw(kit.Ended(other, kit.Noon, b.clock))
	b.lead = true
	b.tick(t.Context())
	b.settle()
	b.want("lacks", b.metrics.unaccounted.WithLabelValues(lacksLeader), 2)
	if n := testutil.CollectAndCount(b.metrics.finished); n != 0 {
		t.Errorf("got %d accounted namespaces, want none", n)
	}
}

func TestWhatIsNotAccounted(t *testing.T) {
	unknown := kit.Node("unknown", "4")
	unknown.Labels = map[string]string{v1alpha1.LabelPowerProfile: "not-written"}
	on := func(namespace, node string) *v1.Pod {
		return kit.On(kit.Pod(namespace, "p", kit.Noon), node, "1", kit.Noon)
	}
	claiming := on("team", "n1")
	claiming.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: new("one-gpu")}}
	for _, tc := range []struct {
		name   string
		pod    *v1.Pod
		end    time.Duration
		lacks  string // also empty if the pod is not accounted for
		joules float64
	}{
		{name: "in a namespace without a policy", pod: on("elsewhere", "n1"), end: time.Hour},
		{name: "in a namespace with mode Off", pod: on("off", "n1"), end: time.Hour},
		{name: "on a deleted node", pod: on("team", "n2"), end: time.Hour, lacks: lacksNode},
		{name: "on a node without a profile", pod: on("team", "unknown"), end: time.Hour, lacks: lacksProfile},
		{name: "with a resource claim", pod: claiming, end: time.Hour, lacks: lacksGPUs},
		{name: "without a duration", pod: on("team", "n1"), lacks: lacksTime},
		{
			name: "before the first recorded intensity", pod: on("team", "n1"), end: -time.Hour, lacks: lacksGrid,
			joules: 50 * 1.5 * 3600,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBookkeeping(t, kit.NewWorld(t))
			b.nodes["unknown"] = unknown
			b.Saw(tc.pod)
			b.clock = kit.Noon.Add(max(tc.end, 0))
			b.Saw(kit.Ended(tc.pod, kit.Noon.Add(min(tc.end, 0)), kit.Noon.Add(max(tc.end, 0))))
			b.settle()
			b.want("energy", b.metrics.energy.WithLabelValues(tc.pod.Namespace), tc.joules)
			b.want("emissions", b.metrics.carbon.WithLabelValues(tc.pod.Namespace, "average"), 0)
			if tc.lacks != "" {
				b.want("lacks", b.metrics.unaccounted.WithLabelValues(tc.lacks), 1)
			} else if n := testutil.CollectAndCount(b.metrics.unaccounted); n != 0 {
				t.Errorf("got %d counted reasons, want none", n)
			}
		})
	}
}

// TestPodsOfAnotherProcess verifies that pods are ignored if they finished before this process started or while
// another replica was the leader.
func TestPodsOfAnotherProcess(t *testing.T) {
	b := newBookkeeping(t, kit.NewWorld(t))
	before := kit.Noon.Add(-time.Hour)
	old := kit.On(kit.Pod("team", "old", before), "n1", "1", before)
	b.Saw(kit.Ended(old, before, kit.Noon))
	b.Lost(old)
	b.lead = false
	other := kit.On(kit.Pod("team", "other", kit.Noon), "n1", "1", kit.Noon)
	b.Saw(other)
	b.clock = kit.Noon.Add(time.Hour)
	b.Saw(kit.Ended(other, kit.Noon, b.clock))
	b.settle()
	b.lead = true
	b.settle()
	b.Lost(other)
	if n := testutil.CollectAndCount(b.metrics.energy); n != 0 || len(b.pods) != 0 {
		t.Errorf("got %d accounted namespaces and %d stored pods, want none", n, len(b.pods))
	}
	// A running pod is finished when it is deleted.
	start := b.clock
	killed := kit.On(kit.Pod("team", "killed", start), "n1", "1", start)
	killed.UID = types.UID("killed")
	b.Saw(killed)
	b.clock = start.Add(30 * time.Minute)
	b.Lost(killed)
	b.settle()
	b.want("energy", b.metrics.energy.WithLabelValues("team"), 50*1.5*1800)
}
