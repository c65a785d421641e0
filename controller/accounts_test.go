package controller

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubenergy/kubenergy/energy"
	"github.com/kubenergy/kubenergy/grid"
	"github.com/kubenergy/kubenergy/kube"
	"github.com/kubenergy/kubenergy/kube/api/v1alpha1"
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

// books accounts on a site of 500 g/kWh and 0.30 EUR/kWh in its first two hours, 100 g/kWh and 0.10 EUR/kWh afterwards, which
// have all been seen.
func books(t *testing.T, w *world) *bookkeeping {
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
		Profiles:       []*kube.NodeProfile{{Profile: energy.Profile{Name: "server", Idle: 100, Max: 200, Sleep: 100}, PUE: 1.5}},
		DefaultProfile: "server",
		Policies:       []*v1alpha1.EnergyPolicy{policy("team", v1alpha1.ModeEnforce, time.Hour), policy("off", v1alpha1.ModeOff, time.Hour)},
		Defaults:       kube.Defaults{ExpectedDuration: time.Hour, MaxDelay: 24 * time.Hour},
	}
	view, err := contents.View()
	if err != nil {
		t.Fatal(err)
	}
	b := &bookkeeping{t: t, clock: noon, lead: true}
	b.accounts = newAccounts(w.Client, func() *kube.View { return view }, newHistory(), func() bool { return b.lead }, newInstruments(prometheus.NewRegistry()), silent)
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

// A Job of one core on a node of four ran for an hour after it had been held for three: 25 W more, 1.5 times at the meter.
func TestHeldJobIsAccounted(t *testing.T) {
	job := newJob("team", "job", noon)
	job.Annotations = map[string]string{kube.AnnotationReleasedAt: noon.Add(3 * time.Hour).Format(time.RFC3339)}
	zone := zoneNamed("home", 1)
	zone.Spec.Price = &v1alpha1.PriceSpec{Currency: "EUR"}
	w := newWorld(t, newNode("n1", "4"), job, zone)
	b := books(t, w)
	pod := on(newPod("team", "job-1", noon.Add(3*time.Hour)), "n1", "1", noon.Add(3*time.Hour))
	pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "job", UID: job.UID, Controller: new(true)}}
	b.saw(pod)
	b.clock = noon.Add(4 * time.Hour)
	b.saw(ended(pod, noon.Add(3*time.Hour), noon.Add(4*time.Hour)))
	b.saw(ended(pod, noon.Add(3*time.Hour), noon.Add(4*time.Hour))) // it is told twice
	b.lost(pod)                                                     // and deleted
	b.settle()
	const joules = 25 * 1.5 * 3600
	m := b.metrics
	b.want("energy", m.energy.WithLabelValues("team"), joules)
	b.want("emissions", m.carbon.WithLabelValues("team"), joules/3.6e6*100)
	b.want("emissions without the hold", m.counterfactualCarbon.WithLabelValues("team"), joules/3.6e6*500)
	b.want("cost", m.cost.WithLabelValues("team", "EUR"), joules/3.6e6*0.1)
	b.want("cost without the hold", m.counterfactualCost.WithLabelValues("team", "EUR"), joules/3.6e6*0.3)
	b.want("run time", m.runtime.WithLabelValues("team"), 3600)
	b.want("pods", m.finished.WithLabelValues("team"), 1)
	b.metrics.forget("team")
	for _, c := range []prometheus.Collector{m.energy, m.carbon, m.counterfactualCarbon, m.cost, m.counterfactualCost, m.runtime, m.finished} {
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
	b.want("emissions", b.metrics.carbon.WithLabelValues("team"), 100*1.5*3600/3.6e6*500)
	b.want("emissions without holds", b.metrics.counterfactualCarbon.WithLabelValues("team"), 100*1.5*3600/3.6e6*500)
}

func TestWhatIsNotAccounted(t *testing.T) {
	unknown := newNode("unknown", "4")
	unknown.Labels = map[string]string{kube.LabelPowerProfile: "nobody-wrote-it"}
	w := newWorld(t, newNode("n1", "4"), unknown)
	for _, tc := range []struct {
		name   string
		pod    *v1.Pod
		end    time.Duration
		lacks  string // "" as well where it is none of our business
		joules float64
	}{
		{name: "of a namespace that never asked", pod: on(newPod("elsewhere", "p", noon), "n1", "1", noon), end: time.Hour},
		{name: "of a namespace where we are off", pod: on(newPod("off", "p", noon), "n1", "1", noon), end: time.Hour},
		{name: "of a node that is gone", pod: on(newPod("team", "p", noon), "n2", "1", noon), end: time.Hour, lacks: lacksNode},
		{name: "of a node that nobody knows", pod: on(newPod("team", "p", noon), "unknown", "1", noon), end: time.Hour, lacks: lacksProfile},
		{name: "without a duration", pod: on(newPod("team", "p", noon), "n1", "1", noon), lacks: lacksTime},
		{name: "before anything was recorded", pod: on(newPod("team", "p", noon), "n1", "1", noon), end: -time.Hour, lacks: lacksGrid, joules: 25 * 1.5 * 3600},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := books(t, w)
			b.saw(tc.pod)
			b.clock = noon.Add(max(tc.end, 0))
			b.saw(ended(tc.pod, noon.Add(min(tc.end, 0)), noon.Add(max(tc.end, 0))))
			b.settle()
			b.want("energy", b.metrics.energy.WithLabelValues(tc.pod.Namespace), tc.joules)
			b.want("emissions", b.metrics.carbon.WithLabelValues(tc.pod.Namespace), 0)
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
	if n := testutil.CollectAndCount(b.metrics.energy); n != 0 || len(b.running) != 0 {
		t.Errorf("%d namespaces were accounted, %d pods are remembered", n, len(b.running))
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
		"before": {-time.Hour, time.Minute}, "after": {50 * time.Minute, 2 * time.Hour}, "reversed": {time.Minute * 30, time.Minute * 20},
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
