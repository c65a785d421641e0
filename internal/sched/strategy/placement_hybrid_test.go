package strategy_test

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/schedtest"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
)

// TestHybridCosts checks that costs are between 0 and 1, and that a node without measurements never has a lower
// cost than a measured one.
func TestHybridCosts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := schedtest.DrawSnapshot(t, anyIntensity)
		strategy, err := strategy.New("hybrid")
		if err != nil {
			t.Fatal(err)
		}
		job := &s.Queue[0]
		costs, ok := strategy.Costs(s, job, nil)
		measured := func(n *sched.Node) bool { return job.Class != "" && n.Benchmarks[job.Class].Rate > 0 }
		if ok != slices.ContainsFunc(s.Nodes, measured) {
			t.Fatalf("ok = %v does not match the available benchmarks", ok)
		}
		for i, cost := range costs {
			switch {
			case !(cost >= 0 && cost <= 1):
				t.Fatalf("node %s costs %v, want a value from 0 to 1", s.Nodes[i].Name, cost)
			case !measured(s.Nodes[i]) && cost != 1:
				t.Fatalf("node %s without measurements costs %v, want 1", s.Nodes[i].Name, cost)
			case measured(s.Nodes[i]) && cost == 1:
				t.Fatalf("node %s with measurements costs as much as an unknown node", s.Nodes[i].Name)
			}
		}
	})
}

// TestHybridWithSenselessNumbers checks that negative readings and invalid weights are ignored.
func TestHybridWithSenselessNumbers(t *testing.T) {
	measured := map[string]energy.Benchmark{"training": {Rate: 10, Power: 100, Idle: 40}}
	slower := map[string]energy.Benchmark{"training": {Rate: 5, Power: 60, Idle: 40}}
	costs := func(live energy.Watts, hasLive bool, weight float64, hasWeight bool) []float64 {
		strategy, err := strategy.New("hybrid")
		if err != nil {
			t.Fatal(err)
		}
		s := &sched.Snapshot{Now: schedtest.Day, Nodes: []*sched.Node{
			{Name: "a", Benchmarks: measured, Live: live, HasLive: hasLive}, {Name: "b", Benchmarks: slower},
		}}
		job := &sched.Job{ID: "j", Class: "training", PerformanceWeight: weight, HasPerformanceWeight: hasWeight}
		costs, ok := strategy.Costs(s, job, nil)
		if !ok {
			t.Fatal("no opinion")
		}
		return costs
	}
	want := costs(0, false, 0, false)
	for _, got := range [][]float64{
		costs(-7, true, 0, false), costs(energy.Watts(math.NaN()), true, 0, false),
		costs(0, false, math.NaN(), true), costs(0, false, 30, true),
	} {
		if !slices.Equal(got, want) {
			t.Errorf("costs = %v, want %v", got, want)
		}
	}
	if same := costs(90, true, 0, false); slices.Equal(same, want) {
		t.Errorf("valid reading does not change the costs: %v", same)
	}
}

// TestHybridIdleCosts checks that in the hard form a busy node costs slightly more than 1, a node without
// measurements a little more than that, and every idle node less than 1.
func TestHybridIdleCosts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := schedtest.DrawSnapshot(t, anyIntensity)
		job := &s.Queue[0]
		costs, ok := costsOf(t, "hybrid-idle", s, job)
		measured := func(n *sched.Node) bool { return job.Class != "" && n.Benchmarks[job.Class].Rate > 0 }
		if ok != slices.ContainsFunc(s.Nodes, measured) {
			t.Fatalf("ok = %v does not match the available benchmarks", ok)
		}
		const lastResort = 1.000001
		for i, cost := range costs {
			n := s.Nodes[i]
			b := n.Benchmarks[job.Class]
			above := energy.Watts(5)
			if b.Power > b.Idle {
				above = min(above, (b.Power-b.Idle)/2)
			}
			busy := n.HasLive && n.Live+n.Provisional > b.Idle+above
			switch {
			case !measured(n) && cost != lastResort:
				t.Fatalf("node %s without measurements costs %v", n.Name, cost)
			case measured(n) && busy && !(cost >= 1 && cost <= lastResort):
				t.Fatalf("busy node %s costs %v", n.Name, cost)
			case measured(n) && !busy && !(cost >= 0 && cost < 1):
				t.Fatalf("idle node %s costs %v", n.Name, cost)
			}
		}
	})
}

// TestHybridsFallBackToBenchmarks checks that without live readings both forms are equal, because they only depend
// on the benchmarks.
func TestHybridsFallBackToBenchmarks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := schedtest.DrawSnapshot(t, anyIntensity)
		job := &s.Queue[0]
		for _, n := range s.Nodes {
			n.HasLive = false
		}
		hard, ok := costsOf(t, "hybrid-idle", s, job)
		soft, okSoft := costsOf(t, "hybrid", s, job)
		if ok != okSoft {
			t.Fatalf("ok = %v for hybrid-idle and %v for hybrid", ok, okSoft)
		}
		for i := range hard {
			if math.Abs(hard[i]-soft[i]) > 1e-5 {
				t.Fatalf("node %s costs %v with hybrid-idle and %v with hybrid", s.Nodes[i].Name, hard[i], soft[i])
			}
		}
	})
}
