package intake_test

import (
	"net/http"
	"strconv"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubenergy/kubenergy/controller/intake"
	"github.com/kubenergy/kubenergy/energy"
	"github.com/kubenergy/kubenergy/energy/batch"
	"github.com/kubenergy/kubenergy/kube"
)

func cpu(d time.Duration) func(*batch.Batch) {
	return func(b *batch.Batch) { b.Shares = []energy.Share{{ID: "system", CPU: d}} }
}

// A node of 200 W and 4 cores: what it can say of 15 s, and of all time.
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
	refused("all the slack and more", of("a", n+1, joules(1.2*200*15+200*60+1)))
	w.booked("token-a", of("a", next(), joules(1.2*200*15+200*60-2000)))
	refused("the slack is used up", of("a", n+1, joules(1.2*200*15+2000+1)))
	w.booked("token-a", of("a", next(), joules(0))) // 15 s of nothing: 3,600 J more
	w.booked("token-a", of("a", next(), joules(1.2*200*15+3600+1000)))
	refused("CPU time", of("a", n+1, joules(0), cpu(4*time.Minute+66*time.Second+1)))
	w.booked("token-a", of("a", next(), joules(0), cpu(4*time.Minute+65*time.Second)))
	refused("CPU time again", of("a", n+1, joules(0), cpu(68*time.Second)))
	refused("more than a lifetime", of("a", n+1, joules(0), lasting(401*24*time.Hour)))
	refused("centuries", of("a", n+1, joules(0), lasting(280*365*24*time.Hour)))
	w.booked("token-a", of("a", next(), joules(3000)))
}

// Many short batches have the slack of one together.
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
		t.Errorf("a second of a node of 200 W had %v", total)
	}
}

// Boots that never were cannot hold more time than a little more than a year.
func TestEnvelopeOfManyBoots(t *testing.T) {
	w := newWorld(t)
	w.limits["a"] = intake.Limits{MaxPower: 100}
	const month = 30 * 24 * time.Hour
	booked := 0
	for n := range 20 {
		b := of("a", 1, joules(100*2592000), lasting(month), func(b *batch.Batch) { b.Stream.Boot = strconv.Itoa(n) })
		if w.send("token-a", b).Code == http.StatusOK {
			booked++
		}
	}
	if booked != 13 {
		t.Errorf("%d months are booked", booked)
	}
	w.add(month) // real time goes on counting
	w.booked("token-a", of("a", 1, joules(1), lasting(month-time.Hour),
		func(b *batch.Batch) { b.Stream.Boot = "real" }))
}

// What is not booked takes nothing.
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
	says := func(j energy.Microjoules, change ...func(*batch.Batch)) bool {
		t.Helper()
		n++
		w.booked("token-a", of("a", n, append([]func(*batch.Batch){joules(j)}, change...)...))
		return w.handler.Implausible("a")
	}
	if says(1) || says(30_000) {
		t.Error("nobody knows the node, and it is implausible")
	}
	w.limits["a"] = intake.Limits{MaxPower: 200, Idle: 100, Modelled: true}
	if says(450+1) || says(3600) {
		t.Error("0.3 of idle to 1.2 of the maximum is plausible")
	}
	if !says(449) {
		t.Error("29.9 W of a node of 100 W idle")
	}
	if !says(3000, func(b *batch.Batch) { b.Quality = energy.Estimated }) {
		t.Error("an estimate says nothing")
	}
	if says(3000) {
		t.Error("still implausible")
	}
	if !says(3800) {
		t.Error("253 W of a node of 200 W")
	}
	if says(1000, func(b *batch.Batch) { b.Unmeasured = 10 * time.Second }) {
		t.Error("1,000 J in the 5 s that were measured are 200 W")
	}
	if w.handler.Implausible("nobody") {
		t.Error("a node that nobody knows")
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
			t.Errorf("%v was booked as %v to %v", c.said, b.Batch.Start, b.Batch.End)
		}
	}
}

func guest(host, vm string) func(*batch.Batch) {
	return func(b *batch.Batch) { b.Parent = &batch.Parent{Host: host, VM: vm} }
}

// A node is a guest of a host that speaks of it.
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
		t.Error("a host that there is not")
	}
	w.known["metal"] = true
	if !parent("metal", "vm") {
		t.Error("a node that sends nothing")
	}
	hears("vm/x")
	for range 5 { // the host may be about to say it
		if !parent("b", "y") || !parent("b", "x") {
			t.Error("not taken at first")
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
		t.Error("the host does not speak of it")
	}
	if !parent("b", "x") {
		t.Error("the host speaks of it")
	}
	hears("others") // not all are named
	if !parent("b", "y") {
		t.Error("the host may have folded it")
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
		if got := limits(name); got != want {
			t.Errorf("%s: have %+v, want %+v", name, got, want)
		}
	}
}
