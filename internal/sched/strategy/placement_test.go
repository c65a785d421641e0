package strategy_test

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/schedtest"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
)

func TestEveryWhereIsDescribed(t *testing.T) {
	wheres, _ := strategy.Names()
	for _, name := range wheres {
		if strategy.Describe(name) == "" {
			t.Errorf("placement %s has no description", name)
		}
	}
}

// threeNodes returns nodes of the same size: a is empty, b is half full, and c is nearly full with more CPU than
// memory in use.
func threeNodes() []*sched.Node {
	capacity := sched.Resources{MilliCPU: 16000, Memory: 64 << 30}
	node := func(name string, cpu, memory int64) *sched.Node {
		return &sched.Node{
			Name: name, Site: &sched.Site{Name: "s"}, Capacity: capacity,
			Free:    sched.Resources{MilliCPU: 1000 * cpu, Memory: memory << 30},
			Profile: &energy.Profile{Idle: 50, Max: 150, Sleep: 50}, Jobs: 1,
		}
	}
	return []*sched.Node{node("a", 16, 64), node("b", 8, 32), node("c", 2, 28)}
}

func TestWheres(t *testing.T) {
	for _, c := range []struct {
		strategy    string
		cpu, memory int64
		want        string
	}{
		{"fcfs", 1, 1, "a"},
		{"most-allocated", 1, 4, "c"},
		{"balanced", 1, 4, "a"},  // remains balanced; the first of two equal nodes
		{"balanced", 1, 26, "c"}, // uses the remaining memory
		{"ecsched-dp", 1, 1, "a"},
		{"ecsched-ml", 1, 1, "c"},
		{"ecsched-k8s", 1, 1, "a"},
		{"peaks", 1, 1, "a"}, // equal costs for a linear profile
		{"min-min", 1, 1, "a"},
	} {
		s := &sched.Snapshot{
			Now: schedtest.Day, Nodes: threeNodes(), Queue: []sched.Job{{
				ID: "j", Request: sched.Resources{MilliCPU: 1000 * c.cpu, Memory: c.memory << 30},
			}},
		}
		if got := plan2(t, c.strategy, s)[0].Node; got != c.want {
			t.Errorf("%s placed %d cores and %d GiB on %s, want %s", c.strategy, c.cpu, c.memory, got, c.want)
		}
	}
}

// TestECSchedCosts checks the formulas of ECSched with values that can be verified manually.
func TestECSchedCosts(t *testing.T) {
	nodes := threeNodes()[1:2] // 8 of 16 cores and 32 of 64 GiB are free
	job := sched.Job{ID: "j", Request: sched.Resources{MilliCPU: 4000, Memory: 8 << 30}}
	for name, want := range map[string]float64{
		"ecsched-dp":  -(0.5*0.25 + 0.5*0.125),
		"ecsched-ml":  -(0.5 + 0.25),
		"ecsched-k8s": -(0.5 + 0.75 + 2*(1-0.25)),
	} {
		costs, ok := costsOf(t, name, &sched.Snapshot{Now: schedtest.Day, Nodes: nodes, Queue: []sched.Job{job}}, &job)
		if !ok || math.Abs(costs[0]-want) > 1e-12 {
			t.Errorf("%s: costs = %v, want %v", name, costs, want)
		}
	}
}

// TestRandomIsPure checks that a seed always selects the same node regardless of the other candidates, and that
// nodes are selected equally often over many seeds.
func TestRandomIsPure(t *testing.T) {
	count := map[string]int{}
	for seed := range uint64(3000) {
		s := &sched.Snapshot{
			Now: schedtest.Day, Nodes: threeNodes(), Queue: []sched.Job{{ID: "j"}}, Policy: sched.Policy{Seed: seed},
		}
		first := plan2(t, "random", s)[0].Node
		count[first]++
		for i := range s.Nodes {
			if s.Nodes[i].Name != first {
				s.Nodes = append(s.Nodes[:i:i], s.Nodes[i+1:]...)
				break
			}
		}
		if again := plan2(t, "random", s)[0].Node; again != first {
			t.Fatalf("seed %d: selected %s, but %s without another node", seed, first, again)
		}
	}
	for name, n := range count {
		if n < 900 || n > 1100 {
			t.Errorf("node %s was selected %d times out of 3000", name, n)
		}
	}
}

// TestProfileIsStatic checks that profile only depends on benchmarks: live power and load do not change the cost,
// and without meter readings hybrid-idle returns the same costs.
func TestProfileIsStatic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := schedtest.DrawSnapshot(t, anyIntensity)
		job := &s.Queue[0]
		job.Class = "training"
		before, ok := costsOf(t, "profile", s, job)
		for _, n := range s.Nodes {
			n.HasLive, n.Free, n.Jobs = false, n.Capacity, 0
		}
		after, okAfter := costsOf(t, "profile", s, job)
		idle, okIdle := costsOf(t, "hybrid-idle", s, job)
		if ok != okAfter || ok != okIdle {
			t.Fatalf("ok = %v, without load %v, with hybrid-idle %v", ok, okAfter, okIdle)
		}
		for i := range before {
			if _, measured := s.Nodes[i].Benchmarks["training"]; before[i] != after[i] ||
				measured && before[i] != idle[i] || !measured && before[i] != 1 {
				t.Fatalf("cost of node %d = %v, without load %v, with hybrid-idle %v", i, before[i], after[i], idle[i])
			}
		}
	})
}

// TestMemoryDraws checks that the power of memory depends on the requested memory.
func TestMemoryDraws(t *testing.T) {
	capacity := sched.Resources{MilliCPU: 10_000, Memory: 100}
	n := sched.Node{
		Capacity: capacity, Free: capacity, Jobs: 1, Profile: &energy.Profile{Idle: 50, Max: 170, Sleep: 50, Memory: 20},
	}
	for request, want := range map[sched.Resources]energy.Watts{
		{MilliCPU: 1000}: 10, {Memory: 50}: 10, {MilliCPU: 1000, Memory: 100}: 30,
	} {
		placed := n.Place(request)
		if got := n.Added(&sched.Job{Request: request}); math.Abs(float64(got-want)) > 1e-9 ||
			math.Abs(float64(placed.Power()-n.Power()-want)) > 1e-9 {
			t.Errorf("Added() for %+v = %v, want %v", request, got, want)
		}
	}
	n.Capacity.Memory = 0
	if got := n.Added(&sched.Job{Request: sched.Resources{MilliCPU: 5000, Memory: 50}}); math.Abs(float64(got-60)) > 1e-9 {
		t.Errorf("Added() for half of a node with unknown memory = %v, want 60 W", got)
	}
}
