package live

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubenergy/kubenergy/internal/apiclient/api"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/sched"
)

var noon = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

type watch struct{ now time.Time }

func (w *watch) Now() time.Time { return w.now }

// used is the power of a consumer in a test batch.
type used struct {
	id, pod, namespace, kind, owner, parent string
	watts, idle                             float64
	ended                                   bool
}

const tick = 15 * time.Second

// booking returns the record of a batch of one tick that ends now.
func booking(w *watch, node string, watts float64, all ...used) *ledger.Booking {
	micro := func(watts float64) energy.Microjoules { return energy.Joules(watts * tick.Seconds()).Microjoules() }
	b := &ledger.Booking{Received: w.now, Batch: &batch.Batch{
		Stream: batch.Stream{Node: node}, Start: w.now.Add(-tick), End: w.now, Source: "psys (rapl)",
		Quality: energy.Measured, Measured: micro(watts),
	}}
	for _, u := range all {
		b.Batch.Shares = append(b.Batch.Shares, energy.Share{
			ID: u.id, Dynamic: micro(u.watts), Idle: micro(u.idle), Ended: u.ended,
		})
		uid, _, _ := energy.PodOf(u.id)
		b.Consumers = append(b.Consumers, &ledger.Consumer{Key: "pod/" + uid, Pod: u.pod, Account: ledger.Account{
			Kind: ledger.Workload, Namespace: u.namespace, OwnerKind: u.kind, Owner: u.owner, Parent: u.parent,
		}})
	}
	return b
}

var booked = ledger.Receipt{Booked: true}

func replica(uid string, watts float64) used {
	return used{
		id: "pod/" + uid + "/c-" + uid, pod: "web-" + uid, namespace: "shop", kind: "Deployment", owner: "web",
		watts: watts,
	}
}

func nodes(s *State) map[string]api.NodePower {
	byName := map[string]api.NodePower{}
	for _, n := range s.Nodes().Nodes {
		byName[n.Node] = n
	}
	return byName
}

// state returns a State. By default no value is implausible and no container name is known.
func state(o Options) *State {
	if o.Implausible == nil {
		o.Implausible = func(string, energy.Watts) bool { return false }
	}
	if o.Container == nil {
		o.Container = func(string, string) string { return "" }
	}
	return New(o)
}

// nodeWatts returns the power of a node and its timestamp. It returns false if the value must not be used for
// decisions.
func (s *State) nodeWatts(name string) (power energy.Watts, asOf time.Time, ok bool) {
	now := s.o.Now()
	s.mu.RLock()
	defer s.mu.RUnlock()
	if n := s.nodes[name]; n != nil {
		v := n.best(now)
		return v.power, v.asOf, !v.asOf.IsZero() && !v.implausible && now.Sub(v.asOf) <= maxAge
	}
	return 0, time.Time{}, false
}

// TestMembersAreApart verifies that nodes of other clusters are listed separately and their pods are ignored.
func TestMembersAreApart(t *testing.T) {
	w := &watch{noon}
	s := state(Options{Now: w.Now})
	for range 3 {
		s.Booked(booking(w, "alpha/a", 50, replica("1", 30)), booked)
		s.Booked(booking(w, "z", 80), booked)
		w.now = w.now.Add(tick)
	}
	all := s.Nodes()
	if len(all.Nodes) != 1 || all.Nodes[0].Node != "z" || len(all.Members) != 1 || all.Members[0].Node != "alpha/a" ||
		all.Members[0].Watts != 50 || all.Members[0].Fresh != nil {
		t.Errorf("%+v", all)
	}
	if pods, expected := s.Pods("").Pods, s.Workloads().Workloads; len(pods)+len(expected) != 0 {
		t.Errorf("unexpected pods %+v and workloads %+v", pods, expected)
	}
}

func TestNodeWatts(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(b *ledger.Booking)
		want   energy.Watts
		lost   bool
	}{
		{name: "the mean of the batch", want: 80},
		{
			name: "not measured at all", change: func(b *ledger.Booking) {
				b.Batch.Measured = 0
				b.Batch.Start = b.Batch.End
			},
			lost: true,
		},
		{
			name: "partly unmeasured", change: func(b *ledger.Booking) {
				b.Batch.Unmeasured = 5 * time.Second
			},
			want: 120,
		},
		{name: "mostly unmeasured", change: func(b *ledger.Booking) {
			b.Batch.Unmeasured = 14 * time.Second
		}, lost: true},
		{name: "completely unmeasured", change: func(b *ledger.Booking) {
			b.Batch.Unmeasured, b.Batch.Measured = tick,
				0
		}, lost: true},
		{name: "delayed in a queue", change: func(b *ledger.Booking) {
			b.Batch.Start, b.Batch.End = b.Batch.Start.Add(-time.Minute), b.Batch.End.Add(-time.Minute)
		}, lost: true},
		{
			name: "merged batches", change: func(b *ledger.Booking) {
				b.Batch.Start = b.Batch.End.Add(-3 * time.Minute)
			},
			lost: true,
		},
		{name: "a clock that is ahead", change: func(b *ledger.Booking) {
			b.Batch.Start, b.Batch.End = b.Batch.Start.Add(time.Minute), b.Batch.End.Add(time.Minute)
		}, want: 80},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := &watch{noon}
			s := state(Options{Now: w.Now})
			b := booking(w, "a", 80)
			if tc.change != nil {
				tc.change(b)
			}
			s.Booked(b, booked)
			got, asOf, ok := s.nodeWatts("a")
			if ok == tc.lost || !tc.lost && (got != tc.want || asOf.After(noon)) {
				t.Fatalf("got %v W at %v, %v, want %v W", got, asOf, ok, tc.want)
			}
			if len(s.Nodes().Nodes) != 0 == tc.lost {
				t.Errorf("unexpected list of nodes: %+v", s.Nodes())
			}
			w.now = w.now.Add(46 * time.Second)
			if _, _, ok := s.nodeWatts("a"); ok {
				t.Error("an old value is still valid")
			}
		})
	}
}

// TestHostOfAGuest verifies that a virtual machine is listed with its host while its agent reports one.
func TestHostOfAGuest(t *testing.T) {
	w := &watch{noon}
	s := state(Options{Now: w.Now})
	for _, host := range []string{"iron", ""} {
		w.now = w.now.Add(tick)
		b := booking(w, "vm", 30)
		if host != "" {
			b.Batch.Parent = &batch.Parent{Host: host, VM: "vm-1"}
		}
		s.Booked(b, booked)
		if got := s.Nodes().Nodes[0]; got.Host != host {
			t.Errorf("got %+v, want host %q", got, host)
		}
	}
}

func TestABookingThatWasBookedBeforeChangesNothing(t *testing.T) {
	w := &watch{noon}
	s := state(Options{Now: w.Now})
	s.Booked(booking(w, "a", 80), ledger.Receipt{})
	if len(s.Nodes().Nodes) != 0 {
		t.Error(s.Nodes())
	}
}

func TestTheYoungestBatchCounts(t *testing.T) {
	w := &watch{noon}
	s := state(Options{Now: w.Now})
	late := booking(w, "a", 10)
	w.now = noon.Add(tick)
	s.Booked(booking(w, "a", 80), booked)
	s.Booked(late, booked)
	if got, _, _ := s.nodeWatts("a"); got != 80 {
		t.Errorf("unexpected power %v W", got)
	}
}

// TestWall verifies that a network meter takes precedence over the agent while its readings are recent.
func TestWall(t *testing.T) {
	w := &watch{noon}
	s := state(Options{Now: w.Now})
	s.Booked(booking(w, "a", 80, replica("u1", 5)), booked)
	s.Wall("a", 130, noon, energy.Measured, "shelly")
	s.Wall("b", 55, noon, energy.Measured, "shelly")
	if got := nodes(s)["a"]; got.Watts != 130 || got.Source != "shelly" {
		t.Errorf("%+v", got)
	}
	if got := nodes(s)["b"]; got.Watts != 55 {
		t.Errorf("%+v", got)
	}
	if got, ok := s.AgentWatts("a"); !ok || got != 80 {
		t.Errorf("AgentWatts() = %v W, want 80", got)
	}
	if got, ok := s.AgentWatts("b"); ok {
		t.Errorf("AgentWatts() = %v W for a node without an agent", got)
	}
	if pods := s.Pods("shop").Pods; len(pods) != 1 || pods[0].Watts != 5 || pods[0].Source != "psys (rapl)" {
		t.Errorf("unexpected pods %+v", pods)
	}
	w.now = noon.Add(time.Minute)
	s.Booked(booking(w, "a", 90), booked)
	if got := nodes(s)["a"]; got.Watts != 90 {
		t.Errorf("after the meter stopped responding: %+v", got)
	}
	s.Wall("b", energy.Watts(math.NaN()), w.now, energy.Measured, "shelly")
	s.Wall("c", 1e9, w.now, energy.Measured, "shelly")
	w.now = w.now.Add(2 * time.Second)
	if got := nodes(s)["c"]; !got.Implausible {
		t.Errorf("%+v", got)
	}
	if got := nodes(s)["b"]; got.Watts != 55 {
		t.Errorf("%+v", got)
	}
}

func TestAgentsKnowBetterThanEstimates(t *testing.T) {
	w := &watch{noon}
	s := state(Options{Now: w.Now})
	estimate := func() *ledger.Booking {
		b := booking(w, "a", 200)
		b.Agentless = true
		return b
	}
	s.Booked(estimate(), booked)
	if got, _, ok := s.nodeWatts("a"); !ok || got != 200 {
		t.Errorf("unexpected power %v W", got)
	}
	s.Booked(booking(w, "a", 80), booked)
	w.now = noon.Add(30 * time.Second)
	s.Booked(estimate(), booked)
	if got, _, _ := s.nodeWatts("a"); got != 80 {
		t.Errorf("unexpected power %v W", got)
	}
	w.now = noon.Add(time.Minute)
	s.Booked(estimate(), booked)
	if got, _, _ := s.nodeWatts("a"); got != 200 {
		t.Errorf("got %v W without the agent, want 200", got)
	}
}

func TestImplausible(t *testing.T) {
	w := &watch{noon}
	s := state(Options{Now: w.Now, Implausible: func(node string, power energy.Watts) bool {
		return node == "liar" &&
			power < 10
	}})
	s.Booked(booking(w, "liar", 0), booked)
	s.Booked(booking(w, "honest", 0), booked)
	if all := nodes(s); !all["liar"].Implausible || all["honest"].Implausible {
		t.Errorf("%+v", all)
	}
	if _, _, ok := s.nodeWatts("liar"); ok {
		t.Error("an implausible value is valid")
	}
}

// TestReplicasAreAveraged verifies that the replicas on all nodes are averaged, in any order of batches.
func TestReplicasAreAveraged(t *testing.T) {
	w := &watch{noon}
	s := state(Options{Now: w.Now, Container: func(_, id string) string {
		return "server" + strings.TrimLeft(id, "c-u0123456789")
	}})
	for range 40 {
		w.now = w.now.Add(tick)
		s.Booked(booking(w, "a", 80, replica("u1", 10), replica("u2", 20)), booked)
		s.Booked(booking(w, "b", 80, replica("u3", 60)), booked)
	}
	w.now = w.now.Add(2 * time.Minute)
	want := api.WorkloadsPower{Workloads: []api.WorkloadPower{{
		Namespace: "shop", OwnerKind: "Deployment", Owner: "web", Watts: 30, Deviation: 21.602, Samples: 39 * 3,
		AsOf:       noon.Add(40 * tick),
		Containers: []api.ContainerPower{{Name: "server", Watts: 30, Deviation: 21.602}},
	}}}
	if diff := cmp.Diff(want, s.Workloads()); diff != "" {
		t.Error(diff)
	}
}

// TestRunsOfACronJob verifies that all Jobs of a CronJob share their statistics and that batches in which a pod
// starts or finishes are ignored.
func TestRunsOfACronJob(t *testing.T) {
	w := &watch{noon}
	s := state(Options{Now: w.Now})
	for run := range 3 {
		for step := range 4 {
			w.now = w.now.Add(tick)
			watts, ended := 40.0, step == 3
			if step == 0 || ended {
				watts = 3
			}
			uid := fmt.Sprint("u", run)
			s.Booked(booking(w, "a", 80, used{
				id: "pod/" + uid + "/x", pod: "nightly-" + uid, namespace: "lab", kind: "Job",
				owner: fmt.Sprint("nightly-", run), parent: "nightly", watts: watts, idle: 7, ended: ended,
			}), booked)
		}
	}
	got := s.Workloads().Workloads
	if len(got) != 1 || got[0].OwnerKind != "CronJob" || got[0].Owner != "nightly" || got[0].Watts != 40 ||
		got[0].Samples != 6 {
		t.Errorf("%+v", got)
	}
}

func TestPods(t *testing.T) {
	w := &watch{noon}
	s := state(Options{Now: w.Now})
	nameless := used{id: "pod/u0/x", watts: 1}
	s.Booked(booking(w, "a", 80, nameless, replica("u1", 10), used{
		id: "pod/u2", pod: "web-u2", namespace: "shop", kind: "Deployment", owner: "web", watts: 1, idle: 2,
	}, used{id: "pod/u2/c", pod: "web-u2", namespace: "shop", kind: "Deployment", owner: "web", watts: 4, idle: 1}),
		booked)
	want := api.PodsPower{Pods: []api.PodPower{
		{
			Namespace: "shop", Pod: "web-u1", UID: "u1", Node: "a", OwnerKind: "Deployment", Owner: "web", Watts: 10,
			AsOf: noon, Quality: energy.Derived, Source: "psys (rapl)",
		},
		{
			Namespace: "shop", Pod: "web-u2", UID: "u2", Node: "a", OwnerKind: "Deployment", Owner: "web", Watts: 8,
			IdleWatts: 3, AsOf: noon, Quality: energy.Derived, Source: "psys (rapl)",
		},
	}}
	if diff := cmp.Diff(want, s.Pods("shop")); diff != "" {
		t.Error(diff)
	}
	if len(s.Pods("").Pods) != 3 || len(s.Pods("other").Pods) != 0 || s.Pods("other").Pods == nil {
		t.Errorf("%+v", s.Pods(""))
	}
	// Names become known later, and pods are removed.
	w.now = w.now.Add(tick)
	nameless.pod, nameless.namespace, nameless.kind, nameless.owner = "late", "lab", "Job", "late"
	s.Booked(booking(w, "a", 80, nameless), booked)
	if pods := s.Pods("").Pods; len(pods) != 1 || pods[0].Pod != "late" {
		t.Errorf("%+v", pods)
	}
	w.now = w.now.Add(6 * time.Minute)
	if pods := s.Pods("").Pods; len(pods) != 0 {
		t.Errorf("unexpected pods of a silent node: %+v", pods)
	}
}

// TestFresh verifies that a pod is fresh if it is new on its node, but not if it is in the first batch of the node
// after a restart of the controller.
func TestFresh(t *testing.T) {
	w := &watch{noon}
	s := state(Options{Now: w.Now})
	fresh := func() []string { return nodes(s)["a"].Fresh }
	s.Booked(booking(w, "a", 80, replica("u1", 10), replica("u3", 10)), booked)
	if got := fresh(); got != nil {
		t.Errorf("unexpected fresh pods after a restart: %v", got)
	}
	w.now = w.now.Add(tick)
	s.Booked(booking(w, "a", 80, replica("u1", 10), replica("u2", 10), replica("u3", 10)), booked)
	if got := fresh(); len(got) != 1 || got[0] != "u2" {
		t.Errorf("%v", got)
	}
	s.Wall("a", 100, noon, energy.Measured, "shelly") // read before u2 was reported
	w.now = w.now.Add(tick)
	if got := fresh(); len(got) != 0 {
		t.Errorf("unexpected fresh pods for an older value: %v", got)
	}
	s.Wall("a", 100, w.now, energy.Measured, "shelly")
	w.now = w.now.Add(2 * time.Second)
	if got := fresh(); len(got) != 1 {
		t.Errorf("%v", got)
	}
	w.now = w.now.Add(4 * time.Minute)
	s.Booked(booking(w, "a", 80, replica("u2", 10)), booked)
	if got := fresh(); len(got) != 0 {
		t.Errorf("unexpected fresh pods after several minutes: %v", got)
	}
	var many []used
	for i := range 1000 {
		many = append(many, replica(fmt.Sprintf("v%04d", i), 1))
	}
	w.now = w.now.Add(tick)
	s.Booked(booking(w, "a", 80, many...), booked)
	if got := fresh(); len(got) != maxFresh {
		t.Errorf("got %d fresh pods of 1,000", len(got))
	}
}

func TestSilentNodesAndOldOwnersAreForgotten(t *testing.T) {
	w := &watch{noon}
	s := state(Options{Now: w.Now})
	s.maxOwners = 100
	s.Booked(booking(w, "silent", 80, replica("u1", 10)), booked)
	s.Wall("plug", 10, w.now, energy.Measured, "shelly")
	for i := range 500 {
		w.now = w.now.Add(tick)
		for range 2 {
			s.Booked(booking(w, "a", 80, used{
				id: fmt.Sprint("pod/j", i, "/x"), pod: "p", namespace: "lab", kind: "Job", owner: fmt.Sprint("j", i),
				watts: 1,
			}), booked)
			w.now = w.now.Add(time.Second)
		}
	}
	s.Forget("unknown")
	if got := nodes(s); len(got) != 1 || got["a"].Node != "a" {
		t.Errorf("unexpected nodes %v", got)
	}
	got := s.Workloads().Workloads
	if len(got) == 0 || len(got) > 111 {
		t.Fatalf("got %d owners, want about 100", len(got))
	}
	for _, o := range got {
		if age := w.now.Sub(o.AsOf); age > 120*(tick+2*time.Second) {
			t.Errorf("owner %s is still stored after %v", o.Owner, age)
		}
	}
	s.Forget("a")
	w.now = w.now.Add(time.Minute)
	if len(s.Nodes().Nodes) != 0 || len(s.Pods("").Pods) != 0 {
		t.Error("a deleted node is still listed")
	}
}

func TestReadersNeverWaitForLong(t *testing.T) {
	w := &watch{noon}
	s := state(Options{Now: w.Now})
	var readers sync.WaitGroup
	stop := make(chan struct{})
	for range 4 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					s.Nodes()
					s.Workloads()
					s.Pods("shop")
					s.nodeWatts("a")
				}
			}
		})
	}
	for i := range 200 {
		s.Booked(booking(w, fmt.Sprint("n", i%7), 80, replica(fmt.Sprint("u", i), 10)), booked)
		s.Wall("a", 10, noon, energy.Measured, "shelly")
	}
	close(stop)
	readers.Wait()
}

// TestMemory measures the memory per container and the time to process batches with 100 pods each.
func TestMemory(t *testing.T) {
	const perNode = 100
	count := 500
	w := &watch{noon}
	names := []string{"server", "proxy", "init"}
	s := state(Options{Now: w.Now, Container: func(_, id string) string { return names[len(id)%3] }})
	batches := make([]*ledger.Booking, count)
	fill := func() {
		for n := range count {
			all := make([]used, perNode)
			for i := range all {
				uid := fmt.Sprintf("%08x-0000-4000-8000-%012x", i, n)
				owner := fmt.Sprintf("owner-%05d", (n*perNode+i)%(4*count))
				all[i] = used{
					id: "pod/" + uid + "/" + strings.Repeat("c", 64), pod: owner + "-6d4cf56db6-abcde",
					namespace: "shop", kind: "Deployment", owner: owner, watts: 1,
				}
			}
			batches[n] = booking(w, fmt.Sprint("node-", n), 200, all...)
		}
	}
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	var spent time.Duration
	for range 3 {
		w.now = w.now.Add(tick)
		fill()
		begin := time.Now()
		for _, b := range batches {
			s.Booked(b, booked)
		}
		spent += time.Since(begin)
		clear(batches)
	}
	each := float64(heap()-before) / float64(count*perNode)
	t.Logf("%.0f bytes per container (one per pod), %v for a batch of %d", each, spent/time.Duration(3*count), perNode)
	if each > 600 {
		t.Errorf("got %.0f bytes per container, want at most 600", each)
	}
	runtime.KeepAlive(s)
}

func BenchmarkNodes5000(b *testing.B) {
	w := &watch{noon}
	s := state(Options{Now: w.Now})
	for i := range 5000 {
		s.Booked(booking(w, fmt.Sprint("node-", i), 80, replica("u1", 10)), booked)
	}
	b.Run("changed", func(b *testing.B) {
		for b.Loop() {
			w.now = w.now.Add(2 * time.Second)
			s.Wall("node-1", 10, w.now, energy.Measured, "shelly")
			s.Nodes()
		}
	})
	b.Run("unchanged", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			s.Nodes()
		}
	})
}

// TestHotNodes verifies that a node above the temperature limit of its profile is reported as hot until it is well
// below the limit.
func TestHotNodes(t *testing.T) {
	w := &watch{noon}
	s := state(Options{Now: w.Now, Hottest: func(node string) energy.Celsius {
		return map[string]energy.Celsius{"limited": 80}[node]
	}})
	notify := func(celsius energy.Celsius) (limited, free sched.Heat) {
		t.Helper()
		w.now = w.now.Add(tick)
		for _, node := range []string{"limited", "free"} {
			b := booking(w, node, 80)
			b.Temperature = &celsius
			s.Booked(b, booked)
		}
		s.Booked(booking(w, "silent", 80), booked)
		all := nodes(s)
		if !all["silent"].Temperature.AsOf.IsZero() {
			t.Error("unexpected temperature of a node without one")
		}
		return all["limited"].Temperature, all["free"].Temperature
	}
	for _, step := range []struct {
		celsius energy.Celsius
		hot     bool
	}{{79, false}, {81, true}, {77, true}, {75, false}} {
		limited, free := notify(step.celsius)
		want := sched.Heat{Celsius: step.celsius, Limit: 80, AsOf: w.now, Hot: step.hot}
		if diff := cmp.Diff(want, limited); diff != "" || free.Hot || free.Celsius != step.celsius {
			t.Errorf("at %v °C: %+v, %s", step.celsius, free, diff)
		}
	}
	w.now = w.now.Add(tick)
	b := booking(w, "limited", 0) // no power is measured, but the temperature is still used
	b.Batch.Unmeasured, b.Temperature = tick, new(energy.Celsius(82))
	s.Booked(b, booked)
	w.now = w.now.Add(tick)
	if heat := nodes(s)["limited"].Temperature; !heat.Hot {
		t.Errorf("without power at 82 °C: %+v", heat)
	}
}

// TestFindings verifies that the findings of an agent are listed with its node until it reports others.
func TestFindings(t *testing.T) {
	w := &watch{noon}
	s := state(Options{Now: w.Now})
	for _, want := range [][]string{{"a"}, nil} {
		w.now = w.now.Add(tick)
		s.Found("n", want)
		s.Booked(booking(w, "n", 80), booked)
		if got := nodes(s)["n"].Findings; !slices.Equal(got, want) {
			t.Errorf("findings %q, want %q", got, want)
		}
	}
}
