package intake_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/controller/intake"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
	"github.com/kubenergy/kubenergy/internal/hardware"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/policy"
)

func cpu(d time.Duration) func(*batch.Batch) {
	return func(b *batch.Batch) { b.Shares = []energy.Share{{ID: "system", CPU: d}} }
}

// TestEnvelope checks the limits of a node of 200 W and 4 cores, for batches of 15 s and for its lifetime.
func TestEnvelope(t *testing.T) {
	w := newWorld(t)
	w.limits["a"] = intake.Limits{MaxPower: 200, Cores: 4}
	refused := func(what string, b *batch.Batch) {
		t.Helper()
		if text := w.refused("token-a", b, http.StatusUnprocessableEntity); t.Failed() {
			t.Fatal(what, text)
		}
	}
	n := uint64(0)
	next := func() uint64 { n++; return n }
	w.booked("token-a", of("a", next(), joules(3000)))
	refused("more than the slack", of("a", n+1, joules(1.2*200*15+200*60+1)))
	w.booked("token-a", of("a", next(), joules(1.2*200*15+200*60-2000)))
	refused("more than the rest of the slack", of("a", n+1, joules(1.2*200*15+2000+1)))
	w.booked("token-a", of("a", next(), joules(0))) // 15 s without energy permit another 3,600 J
	w.booked("token-a", of("a", next(), joules(1.2*200*15+3600+1000)))
	refused("CPU time", of("a", n+1, joules(0), cpu(4*time.Minute+66*time.Second+1)))
	w.booked("token-a", of("a", next(), joules(0), cpu(4*time.Minute+65*time.Second)))
	refused("CPU time again", of("a", n+1, joules(0), cpu(68*time.Second)))
	refused("more than a lifetime", of("a", n+1, joules(0), lasting(401*24*time.Hour)))
	refused("centuries", of("a", n+1, joules(0), lasting(280*365*24*time.Hour)))
	w.booked("token-a", of("a", next(), joules(3000)))
}

// Many short batches share the slack of a single one.
func TestEnvelopeOfManyShortBatches(t *testing.T) {
	w := newWorld(t)
	w.limits["a"] = intake.Limits{MaxPower: 200}
	var total energy.Joules
	for n := range 1000 {
		b := of("a", uint64(n+1), joules(1000), func(b *batch.Batch) {
			b.StartSinceBoot, b.EndSinceBoot = time.Duration(n)*time.Millisecond, time.Duration(n+1)*time.Millisecond
			b.SetWall(noon)
		})
		if w.send("token-a", b).Code == http.StatusOK {
			total += 1000
		}
	}
	if total > 200*60+1000 {
		t.Errorf("recorded %v in a second of a node of 200 W", total)
	}
}

// A node cannot report more time than has passed since it was created, even if it invents boots or the controller
// restarts.
func TestEnvelopeOfManyBoots(t *testing.T) {
	w := newWorld(t)
	const day = 24 * time.Hour
	w.limits["a"] = intake.Limits{MaxPower: 100, Since: noon.Add(-100 * day)}
	booked := 0
	forge := func() {
		t.Helper()
		for n := range 20 {
			b := of("a", 1, joules(100*864000), lasting(10*day),
				func(b *batch.Batch) { b.Stream.Boot = strconv.Itoa(booked) + "/" + strconv.Itoa(n) })
			if w.send("token-a", b).Code == http.StatusOK {
				booked++
			}
		}
	}
	forge()
	if booked != 10 {
		t.Errorf("recorded %d times ten days of a node that was created 100 days ago, want 10", booked)
	}
	w.restart()
	forge()
	w.limits["a"] = intake.Limits{MaxPower: 100, Since: noon} // the Node was recreated
	forge()
	if booked != 10 {
		t.Errorf("recorded %d times ten days after a restart of the controller, want 10", booked)
	}
	w.add(day) // time passes
	w.booked("token-a", of("a", 1, joules(1), lasting(day-time.Hour), func(b *batch.Batch) { b.Stream.Boot = "real" }))
}

// A machine outside the cluster may have measured for a week before its first batch.
func TestEnvelopeOfStrangers(t *testing.T) {
	w := newWorld(t)
	const day = 24 * time.Hour
	w.refused("token-a", of("a", 1, lasting(8*day)), http.StatusUnprocessableEntity)
	w.booked("token-a", of("a", 1, lasting(7*day)))
	w.refused("token-a", of("a", 2, lasting(day), func(b *batch.Batch) { b.Stream.Boot = "another" }),
		http.StatusUnprocessableEntity)
}

// A compromised agent forges a batch of 399 days at full power. It has too many consumers to be split and would be
// charged to a namespace in the last hour.
func TestForgedBatch(t *testing.T) {
	w := newWorld(t)
	const day = 24 * time.Hour
	w.limits["a"] = intake.Limits{MaxPower: 400, Since: noon.Add(-time.Hour)}
	forged := func(length time.Duration) *batch.Batch {
		b := of("a", 1, joules(energy.Microjoules(400*length.Seconds())), lasting(length))
		b.Shares, b.Unknown, b.Idle = nil, 0, 0
		for i := range 601 {
			b.Shares = append(b.Shares, energy.Share{ID: fmt.Sprintf("cgroup//%03d", i), Dynamic: b.Measured / 601})
		}
		b.Unknown = b.Measured - 601*(b.Measured/601)
		return b
	}
	w.refused("token-a", forged(399*day), http.StatusUnprocessableEntity)
	w.refused("token-a", forged(2*time.Hour), http.StatusUnprocessableEntity)
	w.limits["a"] = intake.Limits{MaxPower: 400, Since: noon.Add(-1000 * day)}
	text := w.refused("token-a", forged(399*day), http.StatusUnprocessableEntity)
	if !strings.Contains(text, "exceed the limits of the ledger") {
		t.Errorf("unexpected reason: %s", text)
	}
	w.limits["a"] = intake.Limits{MaxPower: 400, Since: noon.Add(-time.Hour)}
	w.booked("token-a", forged(time.Hour))
}

// Rejected batches do not use up the envelope.
func TestEnvelopeOfFailures(t *testing.T) {
	w := newWorld(t)
	w.limits["a"] = intake.Limits{MaxPower: 200}
	w.fail = errBroken
	for range 100 {
		w.refused("token-a", of("a", 1, joules(1.2*200*15+200*60-1)), http.StatusInternalServerError)
	}
	w.fail = nil
	w.booked("token-a", of("a", 1, joules(1.2*200*15+200*60-1)))
}

func TestImplausible(t *testing.T) {
	w := newWorld(t)
	n := uint64(0)
	description := func(j energy.Microjoules, change ...func(*batch.Batch)) bool {
		t.Helper()
		n++
		w.booked("token-a", of("a", n, append([]func(*batch.Batch){joules(j)}, change...)...))
		return w.handler.Implausible("a")
	}
	if description(1) || description(30_000) {
		t.Error("an unknown node is implausible")
	}
	w.limits["a"] = intake.Limits{MaxPower: 200, Idle: 100, Modelled: true}
	if description(450+1) || description(3600) {
		t.Error("power from 0.3 of idle to 1.2 of the maximum is implausible")
	}
	if !description(449) {
		t.Error("29.9 W of a node of 100 W idle")
	}
	if !description(3000, func(b *batch.Batch) { b.Quality = energy.Estimated }) {
		t.Error("an estimate changed the result")
	}
	if description(3000) {
		t.Error("still implausible")
	}
	if !description(3800) {
		t.Error("253 W of a node of 200 W")
	}
	if description(1000, func(b *batch.Batch) { b.Unmeasured = 10 * time.Second }) {
		t.Error("1,000 J in 5 measured seconds are 200 W, which is plausible")
	}
	if w.handler.Implausible("nobody") {
		t.Error("a node without a model is implausible")
	}
}

func TestTimes(t *testing.T) {
	w := newWorld(t)
	at := func(end time.Time) func(*batch.Batch) { return func(b *batch.Batch) { b.SetWall(end) } }
	for i, c := range []struct{ said, booked time.Time }{
		{noon.Add(-time.Hour), noon.Add(-time.Hour)},
		{noon.Add(time.Minute), noon.Add(time.Minute)},
		{noon.Add(121 * time.Second), noon},
		{noon.Add(70 * 365 * 24 * time.Hour), noon},
		{noon.Add(-400 * 24 * time.Hour), noon.Add(-400 * 24 * time.Hour)},
		{noon.Add(-400*24*time.Hour - time.Second), noon},
		{time.Date(1970, 1, 1, 1, 0, 0, 0, time.UTC), noon},
		{time.Date(1900, 1, 1, 1, 0, 0, 0, time.UTC), noon},
	} {
		b, _ := w.booked("token-a", of("a", uint64(i+1), at(c.said)))
		if !b.Batch.End.Equal(c.booked) || b.Batch.End.Sub(b.Batch.Start) != 15*time.Second {
			t.Errorf("a batch that ends at %v was recorded as %v to %v", c.said, b.Batch.Start, b.Batch.End)
		}
	}
}

func guest(host, vm string) func(*batch.Batch) {
	return func(b *batch.Batch) { b.Parent = &batch.Parent{Host: host, VM: vm} }
}

// A node is a guest of a host only if the host reports it.
func TestParents(t *testing.T) {
	w := newWorld(t)
	var n, m uint64
	parent := func(host, vm string) bool {
		t.Helper()
		n++
		b, _ := w.booked("token-a", of("a", n, guest(host, vm)))
		return b.Batch.Parent != nil
	}
	hears := func(vms ...string) {
		t.Helper()
		m++
		w.booked("token-b", of("b", m, with(append(vms, "system")...)))
	}
	if parent("nowhere", "vm") {
		t.Error("a host that does not exist")
	}
	w.known["metal"] = true
	if !parent("metal", "vm") {
		t.Error("a host without batches")
	}
	hears("vm/x")
	for range 5 { // the host may still report it
		if !parent("b", "y") || !parent("b", "x") {
			t.Error("the claim was not accepted at first")
		}
		w.add(time.Minute)
		hears("vm/x")
	}
	for range 12 {
		parent("b", "y")
		w.add(time.Minute)
		hears("vm/x")
	}
	if parent("b", "y") || parent("b", "z") {
		t.Error("the host does not report the guest")
	}
	if !parent("b", "x") {
		t.Error("the host reports the guest")
	}
	hears("others") // the list of guests is incomplete
	if !parent("b", "y") {
		t.Error("the list of the host is incomplete")
	}
}

func TestNodesAsProfilesSay(t *testing.T) {
	profile := &energy.Profile{Name: "p", Idle: 100, Max: 300, Sleep: 100, GPUIdle: 20, GPUMax: 250}
	view, err := kube.NewView(nil, []*energy.Profile{profile}, "p")
	if err != nil {
		t.Fatal(err)
	}
	node := func(resources v1.ResourceList) *v1.Node {
		return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: v1.NodeStatus{Capacity: resources}}
	}
	nodes := map[string]*v1.Node{
		"plain": node(v1.ResourceList{v1.ResourceCPU: resource.MustParse("8")}),
		"gpus": node(v1.ResourceList{
			v1.ResourceCPU: resource.MustParse("8"), "nvidia.com/gpu": resource.MustParse("4"),
		}),
	}
	limits := intake.Nodes(func() *kube.View { return view }, func(name string) *v1.Node { return nodes[name] }, nil,
		1234)
	for name, want := range map[string]intake.Limits{
		"plain": {MaxPower: 300, Idle: 100, Cores: 8, Modelled: true},
		"gpus":  {MaxPower: 1300, Idle: 180, Cores: 8, Modelled: true},
		"other": {MaxPower: 1234},
	} {
		got := limits(name, ledger.Seen{})
		got.Says, got.Since = ledger.Seen{}, time.Time{}
		if got != want {
			t.Errorf("%s: limits = %+v, want %+v", name, got, want)
		}
	}
}

// The limit of a node with GPUs is higher, even if its hardware is unknown.
func TestGPUsOfUnknownPower(t *testing.T) {
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", CreationTimestamp: metav1.NewTime(noon)}}
	node.Status.Capacity = v1.ResourceList{
		v1.ResourceCPU: resource.MustParse("8"), "nvidia.com/gpu": resource.MustParse("8"),
	}
	for name, profile := range map[string]string{"none": "", "of CPUs alone": "p"} {
		view, err := kube.NewView(nil, []*energy.Profile{{Name: "p", Idle: 50, Max: 100, Sleep: 50}}, profile)
		if err != nil {
			t.Fatal(err)
		}
		l := intake.Nodes(func() *kube.View { return view }, func(string) *v1.Node { return node }, nil, 0)("a",
			ledger.Seen{})
		if want := 8 * intake.DefaultGPUPower; l.MaxPower < want || l.MaxPower > want+intake.DefaultMaxPower {
			t.Errorf("profile %s: limit = %v W, want at least %v", name, l.MaxPower, want)
		}
	}
}

// The kubelet reports the number of GPUs and cores of its node. The first report remains valid, also after a
// restart of the controller, until the Node is deleted and created again, which a kubelet may not do.
func TestMoreHardwareThanAtFirst(t *testing.T) {
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", CreationTimestamp: metav1.NewTime(noon.Add(-time.Hour))}}
	description := func(cores, gpus string) {
		node = node.DeepCopy()
		node.Status.Capacity = v1.ResourceList{
			v1.ResourceCPU: resource.MustParse(cores), "nvidia.com/gpu": resource.MustParse(gpus),
		}
	}
	view, err := kube.NewView(nil, []*energy.Profile{{Name: "p", Idle: 50, Max: 100, Sleep: 50, GPUMax: 400}}, "p")
	if err != nil {
		t.Fatal(err)
	}
	use := func(c *intake.Config) {
		c.Envelope = intake.Nodes(func() *kube.View { return view }, func(string) *v1.Node { return node }, nil, 0)
	}
	w := newWorld(t, use)
	number := uint64(0)
	notify := func(watts, cores float64) *batch.Batch {
		number++
		const length = 2 * time.Minute
		b := of("a", number, joules(energy.Microjoules(watts*length.Seconds())), lasting(length),
			cpu(time.Duration(cores*float64(length))))
		b.StartSinceBoot, b.EndSinceBoot = time.Duration(number)*length, time.Duration(number+1)*length
		return b
	}
	forged := func(what string, watts, cores float64) {
		t.Helper()
		if text := w.refused("token-a", notify(watts, cores), http.StatusUnprocessableEntity); !strings.Contains(text, what) {
			t.Errorf("error = %s, want %s", text, what)
		}
		number--
	}
	description("8", "0")
	forged("draws at most 100", 4000, 8) // hardware of a rejected batch is not stored and is added to the next booking
	w.booked("token-a", notify(100, 8))
	description("8", "2") // the device plugin starts later
	w.booked("token-a", notify(900, 8))
	description("64", "16")
	forged("draws at most 900", 4000, 8)
	forged("has 8 cores", 900, 64)
	w.restart(use)
	forged("draws at most 900", 4000, 8)
	forged("has 8 cores", 900, 64)
	w.booked("token-a", notify(900, 8))
	node.CreationTimestamp = metav1.NewTime(noon)
	w.booked("token-a", notify(4000, 64))
}

// Hardware recognition reads memory, GPUs and cores. None of them may exceed the first report of the node.
func TestHardwareIsThatOfTheBeginning(t *testing.T) {
	view, err := kube.NewView(nil, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	node := func(cores, memory, gpus string) *v1.Node {
		return &v1.Node{
			ObjectMeta: metav1.ObjectMeta{
				Name: "n", CreationTimestamp: metav1.NewTime(noon),
				Labels: map[string]string{"node.kubernetes.io/cpu-model": "AMD EPYC 7763 64-Core Processor"},
			},
			Status: v1.NodeStatus{Capacity: v1.ResourceList{
				v1.ResourceCPU: resource.MustParse(cores), v1.ResourceMemory: resource.MustParse(memory),
				"amd.com/gpu": resource.MustParse(gpus),
			}},
		}
	}
	now := node("64", "256Gi", "0")
	limits := intake.Nodes(func() *kube.View { return view }, func(string) *v1.Node { return now }, nil, 2000)
	first := limits("n", ledger.Seen{})
	if !first.Modelled || first.MaxPower > 1000 {
		t.Fatalf("hardware not recognised: %+v", first)
	}
	seen := first.Says
	for what, forged := range map[string]*v1.Node{
		"memory": node("64", "100Ti", "0"), "cores": node("6400", "256Gi", "0"),
	} {
		if now = forged; limits("n", seen).MaxPower != first.MaxPower {
			t.Errorf("%s: limit of a node of %v = %v", what, first.MaxPower, limits("n", seen).MaxPower)
		}
	}
	now, seen.GPUs = node("64", "256Gi", "16"), 1
	if got, want := limits("n", seen), limits("n", limits("n", ledger.Seen{}).Says); got.MaxPower > want.MaxPower {
		t.Errorf("GPUs: limit = %v, and %v with all of them", got.MaxPower, want.MaxPower)
	}
}

// A pod is charged at most for the maximum since its creation, and a pod created after the batch is not charged.
func TestPodsAreChargedFromTheirStart(t *testing.T) {
	w := newWorld(t)
	const hours = 10
	w.limits["a"] = intake.Limits{MaxPower: 100, Cores: 4, Since: noon.Add(-hours * time.Hour)}
	made := func(at time.Time) func(*v1.Pod) {
		return func(p *v1.Pod) { p.CreationTimestamp = metav1.NewTime(at) }
	}
	w.directory.Saw(pod("shop", "young", uidNumber(1), "a", made(noon.Add(-time.Hour))))
	w.directory.Saw(pod("shop", "future", uidNumber(2), "a", made(noon.Add(time.Hour))))
	w.directory.Saw(pod("shop", "old", uidNumber(3), "a", made(noon.Add(-hours*time.Hour))))
	const each = 1_000_000 * 1e6
	b := of("a", 1, lasting(hours*time.Hour), joules(3_000_000))
	b.Idle = 0
	for i := range 3 {
		b.Shares = append(b.Shares, energy.Share{ID: "pod/" + uidNumber(i+1), Dynamic: each, CPU: 10 * time.Hour})
	}
	booked, _ := w.booked("token-a", b)
	if err := booked.Validate(); err != nil {
		t.Error(err)
	}
	const most = 1.2 * 100 * 75 * 60 * 1e6 // one hour plus 15 min of tolerance for clocks
	s := booked.Batch.Shares
	if s[0].Dynamic != most || booked.Batch.Unknown != each-most || s[0].CPU > 6*time.Hour ||
		booked.Consumers[0].Pod != "young" {
		t.Errorf("of 1 MJ, the pod is charged %v and CPU time of %v, and %v are unknown", s[0].Dynamic, s[0].CPU,
			booked.Batch.Unknown)
	}
	if c := booked.Consumers[1]; c.Account != (ledger.Account{Kind: ledger.Foreign}) || c.Pod != "" {
		t.Errorf("a pod created after the batch is charged: %+v", c)
	}
	if s[2].Dynamic != each || booked.Consumers[2].Account.Namespace != "shop" {
		t.Errorf("the older pod is charged %v", s[2].Dynamic)
	}
}

// If the first container of a pod has used the maximum of the pod, the second container is charged nothing.
func TestContainersShareTheirPodsAllowance(t *testing.T) {
	w := newWorld(t)
	w.limits["a"] = intake.Limits{MaxPower: 100, Cores: 4, Since: noon.Add(-10 * time.Hour)}
	w.directory.Saw(pod("shop", "young", uidNumber(1), "a",
		func(p *v1.Pod) { p.CreationTimestamp = metav1.NewTime(noon.Add(-time.Hour)) }))
	const each = 1_000_000 * 1e6
	b := of("a", 1, lasting(10*time.Hour), joules(3_000_000))
	b.Idle = each
	for _, c := range []string{"/c1", "/c2"} {
		b.Shares = append(b.Shares, energy.Share{ID: "pod/" + uidNumber(1) + c, Dynamic: each, CPU: 10 * time.Hour})
	}
	booked, _ := w.booked("token-a", b)
	if err := booked.Validate(); err != nil {
		t.Error(err)
	}
	const most = 1.2 * 100 * 75 * 60 * 1e6
	if s := booked.Batch.Shares; s[0].Dynamic+s[1].Dynamic != most {
		t.Errorf("the pod is charged %v, want at most %v", s[0].Dynamic+s[1].Dynamic, energy.Microjoules(most))
	}
}

// Failed bookings do not count towards the time of a node, however often they are retried and for whatever reason
// they fail.
func TestTimeOfFailures(t *testing.T) {
	for _, fail := range []error{errBroken, fmt.Errorf("%w: %w", ledger.ErrReadOnly, context.DeadlineExceeded)} {
		w := newWorld(t)
		w.limits["a"] = intake.Limits{MaxPower: 200, Since: noon.Add(-time.Hour)}
		w.fail = fail
		for range 100 {
			if code := w.send("token-a", of("a", 1, joules(3000), lasting(50*time.Minute))).Code; code < 500 {
				t.Fatalf("%v: %d", fail, code)
			}
		}
		w.fail = nil
		w.booked("token-a", of("a", 1, joules(3000), lasting(50*time.Minute)))
	}
}

// Usage that is reported more than an hour late is charged to the pod with a kind that budgets ignore.
func TestLate(t *testing.T) {
	w, registry := newWorld(t), prometheus.NewRegistry()
	w.restart(func(c *intake.Config) { c.Registerer = registry })
	w.directory.Saw(pod("shop", "web", uidNumber(1), "a"))
	for i, c := range []struct {
		late, long time.Duration
		kind       ledger.Kind
	}{
		{0, 15 * time.Second, ledger.Workload},
		{time.Hour - 15*time.Second, 15 * time.Second, ledger.Workload},
		{time.Hour, 15 * time.Second, ledger.Late},
		{0, 61 * time.Minute, ledger.Late}, // an interval that started long ago is late, too
	} {
		b := of("a", uint64(i+1), with("pod/"+uidNumber(1)), func(b *batch.Batch) {
			b.Stream.Boot = strconv.Itoa(i)
			b.EndSinceBoot = b.StartSinceBoot + c.long
		})
		b.SetWall(noon.Add(-c.late))
		booked, _ := w.booked("token-a", b)
		if got := booked.Consumers[0]; got.Account.Kind != c.kind || got.Account.Namespace != "shop" || got.Pod != "web" {
			t.Errorf("%v late: consumer = %+v", c.late, got)
		}
	}
	if err := testutil.GatherAndCompare(registry, strings.NewReader(`
		# HELP kubenergy_ingest_late_total Batches that started more than an hour before their receipt. Budgets ignore their usage.
		# TYPE kubenergy_ingest_late_total counter
		kubenergy_ingest_late_total 2
	`), "kubenergy_ingest_late_total"); err != nil {
		t.Error(err)
	}
}

// Hardware reported by an agent does not raise the limit of its node, and the default profile of all nodes does not
// lower it.
func TestHardwareThatIsToldBoundsNothing(t *testing.T) {
	any400 := &energy.Profile{Name: "default", Idle: 100, Max: 400, Sleep: 100}
	view, err := (&kube.Contents{
		Defaults: policy.Defaults{AnyPower: any400},
		Profiles: []*kube.NodeProfile{{
			Profile:  energy.Profile{Name: "mine", Idle: 100, Max: 9000, Sleep: 100},
			Selector: map[string]string{v1alpha1.LabelMachine: "Large"},
		}},
	}).View()
	if err != nil {
		t.Fatal(err)
	}
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Status: v1.NodeStatus{Capacity: v1.ResourceList{
		v1.ResourceCPU: resource.MustParse("1024"),
	}}}
	limits := intake.Nodes(func() *kube.View { return view }, func(string) *v1.Node { return node }, nil, 1234)
	for _, reported := range []batch.Hardware{
		{}, {CPU: "Intel(R) Xeon(R) Platinum 8480+", Sockets: 64}, {Vendor: "Large"},
	} {
		node = node.DeepCopy()
		node.Labels = hardware.Labels(&reported)
		if got := limits("a", ledger.Seen{}); got.MaxPower != 1234 || got.Modelled || got.Idle != 0 {
			t.Errorf("%+v: %+v", reported, got)
		}
		if known, _ := view.Hardware(node); known == nil || (known == any400) != (reported.CPU == "" && reported.Vendor == "") {
			t.Errorf("%+v: %+v", reported, known)
		}
	}
	node.Labels = map[string]string{"node.kubernetes.io/cpu-model": "Intel-Xeon-Gold-6148"}
	if got := limits("a", ledger.Seen{}); !got.Modelled {
		t.Errorf("hardware from other senders was accepted: %+v", got)
	}
}

// Hardware is accepted from agents of nodes of the cluster only, and invalid hardware does not affect the batch.
func TestHardwareOfAnAgent(t *testing.T) {
	reported := map[string]*batch.Hardware{}
	w := newWorld(t, func(c *intake.Config) { c.Hardware = func(node string, h *batch.Hardware) { reported[node] = h } })
	send := func(token, node, value string, status int) {
		t.Helper()
		r := post(token, bytes.NewReader(w.encoded(of(node, 1))), "")
		r.Header.Set(batch.HardwareHeader, value)
		if answer := w.do(r); answer.Code != status {
			t.Errorf("%d %s", answer.Code, answer.Body)
		}
	}
	send("token-a", "a", `{"cpu":"AMD EPYC 7763"}`, http.StatusOK)
	send("token-b", "b", `{"cpu":"`+strings.Repeat("x", 5000)+`"}`, http.StatusOK)
	send("token-b", "c", `{"cpu":"of b, though the batch is of c"}`, http.StatusForbidden)
	send("no token", "c", `{"cpu":"AMD EPYC 7763"}`, http.StatusUnauthorized)
	if len(reported) != 2 || reported["a"].CPU != "AMD EPYC 7763" || reported["b"] == nil {
		t.Errorf("reported hardware = %v", reported)
	}
	if !strings.Contains(w.logged.String(), "Ignored invalid hardware") {
		t.Error(w.logged.String())
	}
}

// The temperature of a node is recorded with its batch, and an invalid temperature does not affect the batch.
func TestTemperatureOfAnAgent(t *testing.T) {
	w := newWorld(t)
	send := func(number uint64, value string) *energy.Celsius {
		t.Helper()
		r := post("token-a", bytes.NewReader(w.encoded(of("a", number))), "")
		r.Header.Set(batch.TemperatureHeader, value)
		if answer := w.do(r); answer.Code != http.StatusOK {
			t.Fatalf("%d %s", answer.Code, answer.Body)
		}
		booked := w.store.Booked()
		return booked[len(booked)-1].Temperature
	}
	if got := send(1, "71.5"); got == nil || *got != 71.5 {
		t.Errorf("unexpected temperature: %v", got)
	}
	if got := send(2, ""); got != nil {
		t.Errorf("temperature = %v without a report, want none", *got)
	}
	if got := send(3, "999"); got != nil || !strings.Contains(w.logged.String(), "Ignored invalid temperature") {
		t.Errorf("temperature = %v; log: %s", got, w.logged)
	}
}

// The findings of an agent are passed on with each batch, and invalid findings do not affect the batch.
func TestFindingsOfAnAgent(t *testing.T) {
	w := newWorld(t)
	got := map[string][]string{}
	w.restart(func(c *intake.Config) { c.Findings = func(node string, all []string) { got[node] = all } })
	for i, tt := range []struct {
		header string
		want   []string
	}{{`["a","b"]`, []string{"a", "b"}}, {`["c"`, []string{"a", "b"}}, {"", nil}} {
		r := post("token-a", bytes.NewReader(w.encoded(of("a", uint64(i+1)))), "")
		r.Header.Set(batch.FindingsHeader, tt.header)
		if answer := w.do(r); answer.Code != http.StatusOK {
			t.Fatalf("%d %s", answer.Code, answer.Body)
		}
		if !slices.Equal(got["a"], tt.want) {
			t.Errorf("with %q, the findings are %q, want %q", tt.header, got["a"], tt.want)
		}
	}
}
