package controller

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
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/energy"
	"github.com/kubenergy/kubenergy/grid"
	"github.com/kubenergy/kubenergy/kube"
	"github.com/kubenergy/kubenergy/policy"
	"github.com/kubenergy/kubenergy/sched"
)

func quantities(cpu string) v1.ResourceList {
	return v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse("1Gi")}
}

func newNode(name, cpu string) *v1.Node {
	return &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)},
		Status:     v1.NodeStatus{Allocatable: quantities(cpu), Capacity: quantities(cpu)},
	}
}

// on puts a pod of a request on a node.
func on(p *v1.Pod, node, cpu string, started time.Time) *v1.Pod {
	p.Spec.NodeName = node
	p.Spec.Containers = []v1.Container{{Resources: v1.ResourceRequirements{Requests: quantities(cpu)}}}
	start := metav1.NewTime(started)
	p.Status.StartTime, p.Status.Phase = &start, v1.PodRunning
	return p
}

// ended returns the pod as it is after its end.
func ended(p *v1.Pod, start, end time.Time) *v1.Pod {
	p = p.DeepCopy()
	p.Status.Phase = v1.PodSucceeded
	p.Status.ContainerStatuses = []v1.ContainerStatus{{State: v1.ContainerState{
		Terminated: &v1.ContainerStateTerminated{StartedAt: metav1.NewTime(start), FinishedAt: metav1.NewTime(end)},
	}}}
	return p
}

type bookkeeping struct {
	*accounts
	t     *testing.T
	clock time.Time
	lead  bool
}

// books accounts on a site of 500 g/kWh and 0.30 EUR/kWh in its first two hours, 100 g/kWh and 0.10 EUR/kWh
// afterwards, which have all been seen.
func books(t *testing.T, w *world) *bookkeeping {
	t.Helper()
	return booksOf(t, w, energy.Profile{Name: "server", Idle: 100, Max: 200, Sleep: 100})
}

func booksOf(t *testing.T, w *world, profile energy.Profile) *bookkeeping {
	t.Helper()
	carbon, price := make([]float64, 10), make([]float64, 10)
	for i := range carbon {
		carbon[i], price[i] = 100, 0.1
		if i < 2 {
			carbon[i], price[i] = 500, 0.3
		}
	}
	signal := func(values []float64) grid.Signal {
		s, err := grid.NewSeries(noon, time.Hour, values)
		if err != nil {
			t.Fatal(err)
		}
		return grid.Signal{Series: s}
	}
	contents := kube.Contents{
		Sites:          []*sched.Site{{Name: "home", Zone: "DE", Carbon: signal(carbon), Price: signal(price)}},
		Profiles:       []*kube.NodeProfile{{Profile: profile, PUE: 1.5}},
		DefaultProfile: "server",
		Policies: []*v1alpha1.EnergyPolicy{
			energyPolicy("team", v1alpha1.ModeEnforce, time.Hour), energyPolicy("off", v1alpha1.ModeOff, time.Hour),
		},
		Defaults: policy.Defaults{ExpectedDuration: time.Hour, MaxDelay: 24 * time.Hour},
	}
	view, err := contents.View()
	if err != nil {
		t.Fatal(err)
	}
	b := &bookkeeping{t: t, clock: noon, lead: true}
	b.accounts = newAccounts(w.Client, func() *kube.View { return view }, newHistory(), func() bool { return b.lead },
		newInstruments(prometheus.NewRegistry()), silent)
	b.now = func() time.Time { return b.clock }
	b.began = noon
	for at := noon; at.Before(noon.Add(8 * time.Hour)); at = at.Add(time.Minute) {
		b.history.sample(view, at)
	}
	return b
}

// settle accounts for what has been queued.
func (b *bookkeeping) settle() {
	for {
		select {
		case f := <-b.queue:
			b.account(context.Background(), f)
		default:
			return
		}
	}
}

func (b *bookkeeping) want(what string, c prometheus.Collector, want float64) {
	b.t.Helper()
	got := testutil.ToFloat64(c)
	if math.Abs(got-want) > 1e-6*math.Max(1, math.Abs(want)) {
		b.t.Errorf("%s is %v, want %v", what, got, want)
	}
}

// A Job of one core on a node of four ran for an hour after it had been held for three: 25 W more, 1.5 times at the
// meter.
func TestHeldJobIsAccounted(t *testing.T) {
	job := newJob("team", "job", noon)
	job.Annotations = map[string]string{v1alpha1.AnnotationReleasedAt: noon.Add(3 * time.Hour).Format(time.RFC3339)}
	zone := zoneNamed("home", 1)
	zone.Spec.Price = &v1alpha1.PriceSpec{Currency: "EUR"}
	zone.Spec.Carbon.Signal, zone.Status.ObservedGeneration = "Marginal", 1
	w := newWorld(t, newNode("n1", "4"), job)
	b := books(t, w)
	b.history.zones["home"] = &zoneUnits{units: unitsOf(zone)}
	pod := on(newPod("team", "job-1", noon.Add(3*time.Hour)), "n1", "1", noon.Add(3*time.Hour))
	pod.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "batch/v1", Kind: "Job", Name: "job", UID: job.UID, Controller: new(true),
	}}
	b.saw(pod)
	b.clock = noon.Add(4 * time.Hour)
	b.saw(ended(pod, noon.Add(3*time.Hour), noon.Add(4*time.Hour)))
	b.saw(ended(pod, noon.Add(3*time.Hour), noon.Add(4*time.Hour))) // it is told twice
	b.lost(pod)                                                     // and deleted
	b.settle()
	const joules = 25 * 1.5 * 3600
	m := b.metrics
	b.want("energy", m.energy.WithLabelValues("team"), joules)
	b.want("emissions", m.carbon.WithLabelValues("team", signalMarginal), joules/3.6e6*100)
	b.want("emissions without the hold", m.counterfactualCarbon.WithLabelValues("team", signalMarginal),
		joules/3.6e6*500)
	b.want("cost", m.cost.WithLabelValues("team", "EUR"), joules/3.6e6*0.1)
	b.want("cost without the hold", m.counterfactualCost.WithLabelValues("team", "EUR"), joules/3.6e6*0.3)
	b.want("run time", m.runtime.WithLabelValues("team"), 3600)
	b.want("pods", m.finished.WithLabelValues("team"), 1)
	b.metrics.forget("team")
	for _, c := range []prometheus.Collector{
		m.energy, m.carbon, m.counterfactualCarbon, m.cost, m.counterfactualCost, m.runtime, m.finished,
	} {
		if n := testutil.CollectAndCount(c); n != 0 {
			t.Errorf("%d series of a namespace that is gone", n)
		}
	}
}

// Ten pods on a node that is awake anyway do not pay its idle power ten times: nobody pays it.
func TestIdlePowerIsNotChargedToEachPod(t *testing.T) {
	w := newWorld(t, newNode("n1", "10"))
	b := books(t, w)
	for i := range 10 {
		p := on(newPod("team", fmt.Sprint("pod-", i), noon), "n1", "1", noon)
		if err := w.Create(t.Context(), p.DeepCopy()); err != nil {
			t.Fatal(err)
		}
		b.saw(p)
		b.clock = noon.Add(time.Hour)
		b.saw(ended(p, noon, noon.Add(time.Hour)))
	}
	b.settle()
	b.want("energy", b.metrics.energy.WithLabelValues("team"), 100*1.5*3600)
	b.want("emissions", b.metrics.carbon.WithLabelValues("team", signalAverage), 100*1.5*3600/3.6e6*500)
	b.want("emissions without holds", b.metrics.counterfactualCarbon.WithLabelValues("team", signalAverage),
		100*1.5*3600/3.6e6*500)
}

// endTogether lets ten pods of a core run for an hour on a node of ten, update by update as they come.
func (b *bookkeeping) endTogether(w *world, deleted bool) {
	b.t.Helper()
	var pods []*v1.Pod
	for i := range 10 {
		p := on(newPod("team", fmt.Sprint("pod-", i), noon), "n1", "1", noon)
		if err := w.Create(b.t.Context(), p.DeepCopy()); err != nil {
			b.t.Fatal(err)
		}
		b.saw(p)
		pods = append(pods, p)
	}
	b.clock = noon.Add(time.Hour)
	for i, p := range pods {
		over := ended(p, noon, b.clock)
		stored := get(b.t, w.Client, client.ObjectKeyFromObject(p), &v1.Pod{})
		stored.Status = over.Status
		if err := w.Update(b.t.Context(), stored); err != nil {
			b.t.Fatal(err)
		}
		b.saw(over)
		if deleted {
			if err := w.Delete(b.t.Context(), stored); err != nil {
				b.t.Fatal(err)
			}
			b.lost(over)
		}
		if i%2 == 0 {
			b.settle()
		}
	}
	b.settle()
}

// A node that would sleep without them draws 200 W for ten pods that fill it, 195 W more than asleep, and was woken
// once.
func TestASleepyNodeIsPaidOnce(t *testing.T) {
	for _, deleted := range []bool{false, true} {
		w := newWorld(t, newNode("n1", "10"))
		b := booksOf(t, w, energy.Profile{Name: "server", Idle: 100, Max: 200, Sleep: 5, WakeUp: 3600})
		b.endTogether(w, deleted)
		b.want("energy", b.metrics.energy.WithLabelValues("team"), 1.5*(195*3600+3600))
		if n := len(b.past.beside("n1")); n > 10 || deleted && n != 0 {
			t.Errorf("%d runs are remembered", n)
		}
	}
}

// Whatever runs beside whatever, in whatever order it ends: together the pods pay for no more than the node can draw,
// and on a node that was never empty for all that it drew more than asleep.
func TestPodsNeverPayMoreThanTheNodeDraws(t *testing.T) {
	for seed := range uint64(30) {
		random := rand.New(rand.NewPCG(seed, 3))
		w := newWorld(t, newNode("n1", "8"))
		profile := energy.Profile{
			Name: "server", Idle: 100, Max: 300, Sleep: 5, WakeUp: 500, Exponent: 1 + 2*random.Float64(),
		}
		b := booksOf(t, w, profile)
		const pods = 16
		type planned struct {
			pod        *v1.Pod
			start, end time.Time
		}
		var plan []planned
		first, last := noon.Add(time.Hour), noon
		for i := range pods {
			start := noon.Add(time.Duration(random.IntN(50)) * time.Minute)
			end := start.Add(time.Duration(1+random.IntN(60)) * time.Minute)
			plan = append(plan, planned{on(newPod("team", fmt.Sprint("pod-", i), start), "n1",
				strconv.Itoa(1+random.IntN(3)), start), start, end})
			if start.Before(first) {
				first = start
			}
			if end.After(last) {
				last = end
			}
		}
		var want float64 // integrated minute by minute
		empty := true
		for at := first; at.Before(last); at = at.Add(time.Minute) {
			var cpu int64
			jobs := 0
			for _, p := range plan {
				if !at.Before(p.start) && at.Before(p.end) {
					cpu += p.pod.Spec.Containers[0].Resources.Requests.Cpu().MilliValue()
					jobs++
				}
			}
			if jobs > 0 {
				want += 60 * float64(profile.Power(float64(cpu)/8000)-profile.Sleep)
				if empty {
					want += 500
				}
			}
			empty = jobs == 0
		}
		for at := first; !at.After(last); at = at.Add(time.Minute) {
			b.clock = at
			for _, p := range plan {
				switch {
				case p.start.Equal(at):
					if err := w.Create(t.Context(), p.pod.DeepCopy()); err != nil {
						t.Fatal(err)
					}
					b.saw(p.pod)
				case p.end.Equal(at):
					if err := w.Delete(t.Context(), p.pod.DeepCopy()); err != nil {
						t.Fatal(err)
					}
					b.lost(p.pod)
				}
			}
			if random.IntN(3) == 0 {
				b.settle()
			}
		}
		b.settle()
		b.want(fmt.Sprint("energy with seed ", seed), b.metrics.energy.WithLabelValues("team"), 1.5*want)
		if n := len(b.past.beside("n1")); n != 0 || b.past.count != 0 {
			t.Errorf("%d of %d runs are remembered after the last pod", n, b.past.count)
		}
	}
}

// A pod that ends within a minute, and is updated again and again until its deletion, is one pod.
func TestShortPodsCountOnce(t *testing.T) {
	b := books(t, newWorld(t, newNode("n1", "4")))
	created := noon.Add(time.Second)
	b.clock = created.Add(20 * time.Second)
	short := ended(on(newPod("team", "short", created), "n1", "1", created), created, b.clock) // never seen running
	for range 5 {
		b.saw(short)
		b.clock = b.clock.Add(2 * time.Second)
	}
	b.lost(short)
	b.settle()
	b.want("pods", b.metrics.finished.WithLabelValues("team"), 1)
	b.want("energy", b.metrics.energy.WithLabelValues("team"), 25*1.5*20)
	if len(b.known) != 0 {
		t.Errorf("%d pods are remembered", len(b.known))
	}
}

// The last start of a container that was started again says nothing of what it did before.
func TestRestartedContainers(t *testing.T) {
	b := books(t, newWorld(t, newNode("n1", "4")))
	pod := on(newPod("team", "restarted", noon), "n1", "1", noon)
	b.saw(pod)
	b.clock = noon.Add(time.Hour)
	pod = ended(pod, b.clock.Add(-time.Minute), b.clock)
	pod.Status.ContainerStatuses[0].RestartCount = 3
	if _, err := transform(newPodTrimmer(func(*v1.Pod) {}).trim)(pod); err != nil {
		t.Fatal(err)
	}
	b.saw(pod)
	b.settle()
	b.want("run time", b.metrics.runtime.WithLabelValues("team"), 3600)
}

// What ended just before we led, and perhaps nobody counted, is not passed over in silence.
func TestPodsThatEndWhileNobodyLeads(t *testing.T) {
	b := books(t, newWorld(t, newNode("n1", "4")))
	b.lead = false
	for i, after := range []time.Duration{time.Minute, 3 * time.Minute, 3*time.Minute + 5*time.Second} {
		p := on(newPod("team", fmt.Sprint("pod-", i), noon), "n1", "1", noon)
		b.saw(p)
		b.clock = noon.Add(after)
		b.saw(ended(p, noon, b.clock))
	}
	other := on(newPod("elsewhere", "pod", noon), "n1", "1", noon)
	b.saw(other)
	b.saw(ended(other, noon, b.clock))
	elected := make(chan struct{})
	b.elected, b.lead = elected, true
	close(elected)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- b.run(ctx) }()
	eventually(t, 10*time.Second, "they are counted", func() bool {
		return testutil.ToFloat64(b.metrics.unaccounted.WithLabelValues(lacksLeader)) >= 2
	})
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	b.want("lacks", b.metrics.unaccounted.WithLabelValues(lacksLeader), 2)
	if n := testutil.CollectAndCount(b.metrics.finished); n != 0 {
		t.Errorf("%d namespaces were accounted", n)
	}
}

func TestPastRunsAreBounded(t *testing.T) {
	r := newPastRuns()
	for i := range 2 * maxRuns {
		r.add(fmt.Sprint("node-", i%50), podRun{uid: types.UID(strconv.Itoa(i))})
	}
	total := 0
	for _, runs := range r.byNode {
		total += len(runs)
		if len(runs) > maxRunsPerNode {
			t.Errorf("%d runs of a node", len(runs))
		}
	}
	if total != r.count || total > maxRuns || total < maxRuns/2 {
		t.Errorf("%d runs are remembered, %d counted", total, r.count)
	}
}

// When a GridZone asks for another kind of carbon intensity, or another currency, what was recorded is of no use any
// more, and nothing is recorded until status and view are of that kind.
func TestHistoryNeverMixesUnits(t *testing.T) {
	signalOf := func(value float64) grid.Signal {
		s, err := grid.Constant(noon.Add(-time.Hour), 100*time.Hour, value)
		if err != nil {
			t.Fatal(err)
		}
		return grid.Signal{Series: s}
	}
	viewOf := func(value float64) *kube.View {
		v,
			err := (&kube.Contents{Sites: []*sched.Site{{
			Name: "home", Carbon: signalOf(value), Price: signalOf(value),
		}}}).View()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	h := newHistory()
	zone := zoneNamed("home", 1)
	zone.Spec.Price = &v1alpha1.PriceSpec{Currency: "EUR"}
	zone.Status.ObservedGeneration = 1
	h.sawZone(zone, noon)
	h.sample(viewOf(100), noon)
	now := noon.Add(10 * time.Minute)
	h.sample(viewOf(100), now)
	if _, ok := h.carbon("home", noon, now); !ok || h.signal() != signalAverage {
		t.Fatalf("not recorded; the signal is %s", h.signal())
	}
	zone = zone.DeepCopy()
	zone.Generation, zone.Spec.Carbon.Signal = 2, "Marginal"
	h.sawZone(zone, now)
	h.sample(viewOf(100), now.Add(time.Second)) // the view still has the average
	if _, ok := h.carbon("home", now, now.Add(time.Second)); ok {
		t.Error("the average was recorded as marginal")
	}
	if _, ok := h.price("home", noon, now); !ok {
		t.Error("prices were forgotten with the carbon intensity")
	}
	zone = zone.DeepCopy()
	zone.Status.ObservedGeneration = 2
	h.sawZone(zone, now.Add(30*time.Second))
	h.sample(viewOf(100), now.Add(31*time.Second))
	if _, ok := h.carbon("home", now, now.Add(31*time.Second)); ok {
		t.Error("the average was recorded as marginal")
	}
	now = now.Add(10 * time.Minute)
	h.sample(viewOf(700), now)
	if s, ok := h.carbon("home", now, now.Add(time.Second)); !ok || s.Series.At(now) != 700 {
		t.Error("the marginal intensity is not recorded")
	}
	if _, ok := h.carbon("home", noon, now); ok {
		t.Error("one track holds both")
	}
	if u := h.units("home"); u.signal != signalMarginal || u.currency != "EUR" {
		t.Errorf("the units are %+v", u)
	}
	other := zoneNamed("other", 1)
	h.sawZone(other, now)
	if h.signal() != signalMixed {
		t.Errorf("together the zones are %s", h.signal())
	}
	h.lostZone(other)
	zone = zone.DeepCopy()
	zone.Generation, zone.Status.ObservedGeneration, zone.Spec.Price.Currency = 3, 3, "USD"
	h.sawZone(zone, now)
	if _, ok := h.price("home", noon, now.Add(-10*time.Minute)); ok || h.signal() != signalMarginal {
		t.Error("prices in euros are believed to be dollars")
	}
}

func TestWhatIsNotAccounted(t *testing.T) {
	unknown := newNode("unknown", "4")
	unknown.Labels = map[string]string{v1alpha1.LabelPowerProfile: "nobody-wrote-it"}
	w := newWorld(t, newNode("n1", "4"), unknown)
	for _, tc := range []struct {
		name   string
		pod    *v1.Pod
		end    time.Duration
		lacks  string // "" as well where it is none of our business
		joules float64
	}{
		{
			name: "of a namespace that never asked", pod: on(newPod("elsewhere", "p", noon), "n1", "1", noon),
			end: time.Hour,
		},
		{name: "of a namespace where we are off", pod: on(newPod("off", "p", noon), "n1", "1", noon), end: time.Hour},
		{
			name: "of a node that is gone", pod: on(newPod("team", "p", noon), "n2", "1", noon), end: time.Hour,
			lacks: lacksNode,
		},
		{
			name: "of a node that nobody knows", pod: on(newPod("team", "p", noon), "unknown", "1", noon),
			end:   time.Hour,
			lacks: lacksProfile,
		},
		{name: "without a duration", pod: on(newPod("team", "p", noon), "n1", "1", noon), lacks: lacksTime},
		{
			name: "before anything was recorded", pod: on(newPod("team", "p", noon), "n1", "1", noon), end: -time.Hour,
			lacks: lacksGrid, joules: 25 * 1.5 * 3600,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := books(t, w)
			b.saw(tc.pod)
			b.clock = noon.Add(max(tc.end, 0))
			b.saw(ended(tc.pod, noon.Add(min(tc.end, 0)), noon.Add(max(tc.end, 0))))
			b.settle()
			b.want("energy", b.metrics.energy.WithLabelValues(tc.pod.Namespace), tc.joules)
			b.want("emissions", b.metrics.carbon.WithLabelValues(tc.pod.Namespace, signalAverage), 0)
			if tc.lacks != "" {
				b.want("lacks", b.metrics.unaccounted.WithLabelValues(tc.lacks), 1)
			} else if n := testutil.CollectAndCount(b.metrics.unaccounted); n != 0 {
				t.Errorf("%d reasons were counted", n)
			}
		})
	}
}

// A pod that had ended before we came was somebody else's, as is one that ends while another replica leads.
func TestPodsOfAnotherProcess(t *testing.T) {
	b := books(t, newWorld(t, newNode("n1", "4")))
	old := on(newPod("team", "old", noon.Add(-time.Hour)), "n1", "1", noon.Add(-time.Hour))
	b.saw(ended(old, noon.Add(-time.Hour), noon))
	b.lost(old)
	b.lead = false
	other := on(newPod("team", "other", noon), "n1", "1", noon)
	b.saw(other)
	b.clock = noon.Add(time.Hour)
	b.saw(ended(other, noon, noon.Add(time.Hour)))
	b.lead = true
	b.settle()
	b.lost(other)
	if n := testutil.CollectAndCount(b.metrics.energy); n != 0 || len(b.known) != 0 {
		t.Errorf("%d namespaces were accounted, %d pods are remembered", n, len(b.known))
	}
	// One that is deleted while it runs ends with that.
	killed := on(newPod("team", "killed", noon), "n1", "1", noon)
	b.saw(killed)
	b.clock = noon.Add(30 * time.Minute)
	b.lost(killed)
	b.settle()
	b.want("energy", b.metrics.energy.WithLabelValues("team"), 25*1.5*1800)
}

func TestHistory(t *testing.T) {
	var track track
	signalOf := func(value float64) grid.Signal {
		s, err := grid.Constant(noon.Add(-100*time.Hour), 1000*time.Hour, value)
		if err != nil {
			t.Fatal(err)
		}
		return grid.Signal{Series: s}
	}
	for i := range 12 {
		track.note(signalOf(float64(i)), noon.Add(time.Duration(i)*slot))
	}
	got, ok := track.during(noon.Add(10*time.Minute), noon.Add(20*time.Minute))
	if !ok || got.Series.At(noon.Add(12*time.Minute)) != 2 || got.Series.At(noon.Add(19*time.Minute)) != 3 {
		t.Errorf("known %v: %v", ok, got.Series)
	}
	for name, w := range map[string][2]time.Duration{
		"before": {-time.Hour, time.Minute}, "after": {50 * time.Minute, 2 * time.Hour},
		"reversed": {time.Minute * 30, time.Minute * 20},
	} {
		if _, ok := track.during(noon.Add(w[0]), noon.Add(w[1])); ok {
			t.Errorf("%s: known", name)
		}
	}
	// A short gap is bridged, a long one is a gap.
	track.note(signalOf(20), noon.Add(70*time.Minute))
	if got, ok := track.during(noon, noon.Add(70*time.Minute)); !ok || got.Series.At(noon.Add(65*time.Minute)) != 11 {
		t.Errorf("after a short gap: known %v", ok)
	}
	track.note(grid.Signal{}, noon.Add(75*time.Minute))
	track.note(signalOf(30), noon.Add(3*time.Hour))
	if _, ok := track.during(noon, noon.Add(3*time.Hour)); ok {
		t.Error("a gap of two hours is known")
	}
	if _, ok := track.during(noon.Add(3*time.Hour), noon.Add(3*time.Hour+time.Minute)); !ok {
		t.Error("what follows the gap is not known")
	}
	// However long it runs, it remembers no more than three days.
	for i := range 3 * most {
		track.note(signalOf(1), noon.Add(4*time.Hour).Add(time.Duration(i)*slot))
	}
	if int64(len(track.values)) != most {
		t.Errorf("%d values are remembered", len(track.values))
	}
	track.note(signalOf(1), noon.Add(1000*time.Hour).Add(-remembered))
	track.note(signalOf(1), noon.Add(20000*time.Hour)) // outside of the signal
	if n := len(track.values); int64(n) > most {
		t.Errorf("%d values are remembered", n)
	}
}
