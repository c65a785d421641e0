package strategy_test

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/schedtest"
)

// peaksNode returns a node with a profile that matches an exponential with the given constants, as in the
// configuration of PEAKS.
func peaksNode(name string, k0, k1, k2 float64, cores, used int64) *sched.Node {
	at := func(x float64) energy.Watts { return energy.Watts(k0 + k1*math.Exp(k2*x)) }
	capacity := sched.Resources{MilliCPU: 1000 * cores, Memory: 64 << 30}
	return &sched.Node{
		Name: name, Site: &sched.Site{Name: "s"}, Capacity: capacity,
		Free: capacity.Sub(sched.Resources{MilliCPU: 1000 * used}), Jobs: 1,
		Profile: &energy.Profile{
			Curve: []energy.Point{
				{Utilisation: 0, Power: at(0)}, {Utilisation: 0.5, Power: at(50)}, {Utilisation: 1, Power: at(100)},
			}, Sleep: at(0),
		},
	}
}

func peaksCosts(t rapid.TB, cores int64, nodes ...*sched.Node) []float64 {
	t.Helper()
	job := sched.Job{ID: "j", Request: sched.Resources{MilliCPU: 1000 * cores}}
	costs, ok := costsOf(t, "peaks", &sched.Snapshot{Now: schedtest.Day, Nodes: nodes, Queue: []sched.Job{job}}, &job)
	if !ok {
		t.Fatal("no opinion")
	}
	return costs
}

// TestPeaksIsTheExponentialModel checks that the model is recovered from its values at idle, half and full load,
// and that the cost matches the formula.
func TestPeaksIsTheExponentialModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k0 := rapid.Float64Range(0, 300).Draw(t, "k0")
		k1 := rapid.Float64Range(1, 200).Draw(t, "k1")
		k2 := rapid.SampledFrom([]float64{0.004, 0.01, 0.02, 0.03}).Draw(t, "k2")
		if rapid.Bool().Draw(t, "saturating") {
			k0, k1, k2 = k0+k1, -k1, -k2
		}
		cores := rapid.Int64Range(1, 64).Draw(t, "cores")
		used := rapid.Int64Range(0, cores-1).Draw(t, "used")
		request := rapid.Int64Range(1, cores-used).Draw(t, "request")
		before, after := 100*float64(used)/float64(cores), 100*float64(used+request)/float64(cores)
		want := k1 * (math.Exp(k2*after) - math.Exp(k2*before))
		if got := peaksCosts(t, request, peaksNode("n", k0, k1, k2, cores,
			used))[0]; math.Abs(got-want) > 1e-6*math.Abs(want) {
			t.Fatalf("cost = %v W, want %v", got, want)
		}
	})
}

// TestPeaksOnALine checks that a linear profile increases by its slope.
func TestPeaksOnALine(t *testing.T) {
	n := peaksNode("n", 0, 0, 0, 10, 3)
	n.Profile = &energy.Profile{Idle: 100, Max: 300, Sleep: 100}
	if got := peaksCosts(t, 2, n)[0]; math.Abs(got-40) > 1e-9 {
		t.Errorf("cost of 2 out of 10 cores = %v W, want 40 W", got)
	}
}

// TestPeaksUnknownNodeIsNeverBest covers a published defect: a node without a model uses (0, 0, 0), costs 0 and is
// preferred.
func TestPeaksUnknownNodeIsNeverBest(t *testing.T) {
	known := peaksNode("z", 50, 100, 0.02, 4, 3) // the highest possible cost
	for name, profile := range map[string]*energy.Profile{
		"none": nil, "zeros": {}, "falling": {Curve: []energy.Point{
			{Power: 100}, {Utilisation: 0.5, Power: 90}, {Utilisation: 1, Power: 120},
		}},
		"infinite": {Idle: 1, Max: energy.Watts(math.Inf(1))}, "no number": {Idle: energy.Watts(math.NaN()), Max: 100},
	} {
		unknown := *known
		unknown.Name, unknown.Profile, unknown.Free = "a", profile, known.Capacity
		if costs := peaksCosts(t, 1, &unknown, known); !(costs[0] > costs[1]) {
			t.Errorf("%s: cost = %v, but the known node costs %v", name, costs[0], costs[1])
		}
	}
	nobody := *known
	nobody.Profile = nil
	job := sched.Job{ID: "j"}
	if costs, ok := costsOf(t, "peaks", &sched.Snapshot{Now: schedtest.Day, Nodes: []*sched.Node{&nobody}}, &job); ok {
		t.Errorf("unexpected opinion on nodes without a profile: %v", costs)
	}
	noCPU := *known
	noCPU.Name, noCPU.Capacity.MilliCPU = "b", 0
	if costs := peaksCosts(t, 1, &noCPU, known); !(costs[0] > costs[1]) {
		t.Errorf("node of unknown size costs %v, but the known node costs %v", costs[0], costs[1])
	}
}

// TestPeaksOverloadedNodeIsNeverBest covers a published defect: the cost above 100 % is 0, which is preferred.
func TestPeaksOverloadedNodeIsNeverBest(t *testing.T) {
	full, free := peaksNode("a", 50, 10, 0.02, 4, 4), peaksNode("z", 500, 100, 0.03, 4, 3)
	unknown := peaksNode("b", 0, 0, 0, 4, 0)
	unknown.Profile = nil
	costs := peaksCosts(t, 1, full, unknown, free)
	if !(costs[2] < costs[1] && costs[1] < costs[0]) {
		t.Errorf("cost when overloaded = %v, unknown = %v, known = %v, want descending order", costs[0], costs[1], costs[2])
	}
	if costs := peaksCosts(t, 1, full); len(costs) != 1 {
		t.Error("no opinion although the only node is overloaded")
	}
	brim := peaksNode("a", 50, 10, 0.02, 4, 3)
	if costs := peaksCosts(t, 1, brim, free); !(costs[0] < costs[1]) {
		t.Errorf("node with exactly full load is treated as overloaded: %v", costs)
	}
}

// TestPeaksNeedsNoReading covers a published defect: without a reading, the utilisation or the cost is 0. Here the
// utilisation is computed from requests, and meter readings have no effect.
func TestPeaksNeedsNoReading(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := schedtest.DrawSnapshot(t, anyIntensity)
		before, ok := costsOf(t, "peaks", s, &s.Queue[0])
		for _, n := range s.Nodes {
			n.HasLive, n.Live = rapid.Bool().Draw(t, "metered"),
				energy.Watts(rapid.Float64Range(-1, 1e6).Draw(t, "reading"))
		}
		after, okAfter := costsOf(t, "peaks", s, &s.Queue[0])
		if ok != okAfter || !slices.Equal(before, after) {
			t.Fatalf("costs = %v, %v, but with different readings %v, %v", before, ok, after, okAfter)
		}
	})
}

// TestPeaksWakesNodesAtTheirPriceAndDoesNotOverflow covers published defects: waking an empty node is free, and the
// scores overflow above 9 kW.
func TestPeaksWakesNodesAtTheirPriceAndDoesNotOverflow(t *testing.T) {
	awake, asleep := peaksNode("z", 50, 100, 0.01, 8, 1), peaksNode("a", 50, 100, 0.01, 8, 1)
	asleep.Jobs, asleep.Profile.Sleep = 0, 5
	costs := peaksCosts(t, 1, asleep, awake)
	if rise := float64(asleep.Profile.Power(0)) - 5; math.Abs(costs[0]-costs[1]-rise) > 1e-9 {
		t.Errorf("cost = %v asleep and %v awake, want a difference of %v", costs[0], costs[1], rise)
	}
	small, huge := peaksNode("z", 50, 10, 0.01, 8, 1), peaksNode("a", 1000, 40000, 0.03, 8, 1)
	if costs := peaksCosts(t, 4, huge, small); !(costs[0] > 9000 && costs[1] < costs[0]) {
		t.Errorf("cost of the large node = %v W, of the small node = %v W", costs[0], costs[1])
	}
}

// TestPeaksDoesNotDependOnTheOrderOfNodes checks that the selection does not depend on the order of the nodes.
func TestPeaksDoesNotDependOnTheOrderOfNodes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := schedtest.DrawSnapshot(t, anyIntensity)
		s.Queue = s.Queue[:1]
		for _, n := range s.Nodes {
			if rapid.Bool().Draw(t, "unknown") {
				n.Profile = nil
			}
		}
		want := plan(t, "peaks", s)[0].Node
		s.Nodes = rapid.Permutation(s.Nodes).Draw(t, "order")
		if got := plan(t, "peaks", s)[0].Node; got != want {
			t.Fatalf("selected %s, but %s in a different order", want, got)
		}
	})
}
