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

func costsOf(t rapid.TB, name string, s *sched.Snapshot, j *sched.Job) ([]float64, bool) {
	t.Helper()
	strategy, err := strategy.New(name)
	if err != nil {
		t.Fatal(err)
	}
	return strategy.Costs(s, j, nil)
}

// TestExecChoosesByCorrectedWatts checks that the node with the most remaining corrected power is selected for
// every order of nodes. The original scheduler compared corrected values but stored uncorrected ones.
func TestExecChoosesByCorrectedWatts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := schedtest.DrawSnapshot(t, anyIntensity)
		s.Queue = s.Queue[:1]
		s.Queue[0].HasExpected = true
		s.Queue[0].AllowedDelay = 0
		for _, n := range s.Nodes {
			n.HasLive, n.Jobs = true, max(n.Jobs, 1)
		}
		best, spare := "", math.Inf(-1)
		for _, n := range s.Nodes {
			exec := float64(n.Profile.Power(1)) - float64(n.Live+n.Provisional) - float64(s.Queue[0].Expected)
			if exec > spare+1e-9 || math.Abs(exec-spare) <= 1e-9 && n.Name < best {
				best, spare = n.Name, exec
			}
		}
		for range 3 {
			s.Nodes = rapid.Permutation(s.Nodes).Draw(t, "order")
			if got := plan(t, "exec", s)[0].Node; got != best {
				t.Fatalf("selected node %s, want %s with %v W remaining", got, best, spare)
			}
		}
	})
}

// TestExecFallsBackToEnergy checks that without valid live readings, exec and energy have equal costs.
func TestExecFallsBackToEnergy(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := schedtest.DrawSnapshot(t, anyIntensity)
		for _, n := range s.Nodes {
			n.HasLive = false
			if rapid.Bool().Draw(t, "nonsense") {
				n.HasLive = true
				n.Live = rapid.SampledFrom([]energy.Watts{
					-1, energy.Watts(math.NaN()), energy.Watts(math.Inf(1)),
				}).Draw(t, "reading")
			}
		}
		if rapid.Bool().Draw(t, "unknown hardware") {
			s.Nodes[0].Profile = nil
		}
		job := &s.Queue[0]
		got, ok := costsOf(t, "exec", s, job)
		want, wantOK := costsOf(t, "energy", s, job)
		if ok != wantOK || !slices.Equal(got, want) {
			t.Fatalf("costs of exec = %v, %v, but costs of energy = %v, %v", got, ok, want, wantOK)
		}
	})
}

// TestStaleWattsNeitherAttractNorRepel checks that a node with a stale reading has the cost given by its profile,
// as if it never had a reading.
func TestStaleWattsNeitherAttractNorRepel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := schedtest.DrawSnapshot(t, anyIntensity)
		s.Nodes = append(s.Nodes, new(*s.Nodes[0]))
		s.Nodes[0].Name, s.Nodes[0].HasLive = "a metered node", true
		stale := s.Nodes[len(s.Nodes)-1]
		stale.HasLive = false
		job := &s.Queue[0]
		before, ok := costsOf(t, "exec", s, job)
		if !ok {
			t.Fatal("no opinion")
		}
		stale.Live, stale.Provisional = energy.Watts(rapid.Float64Range(0, 1e5).Draw(t, "old reading")), 77
		if after, _ := costsOf(t, "exec", s, job); !slices.Equal(before, after) {
			t.Fatalf("costs = %v with a stale reading, want %v", after, before)
		}
		present := stale.Power()
		stale.HasLive, stale.Live, stale.Provisional = true, present, 0
		if stale.Jobs == 0 {
			return // an empty node with live power is awake
		}
		after, _ := costsOf(t, "exec", s, job)
		if last := len(after) - 1; math.Abs(after[last]-before[last]) > 1e-9 {
			t.Fatalf("cost = %v without a reading, but %v with a reading equal to the profile", before[last],
				after[last])
		}
	})
}

// TestExecOnNothing checks the edge cases without nodes and with a power of zero.
func TestExecOnNothing(t *testing.T) {
	if costs, ok := costsOf(t, "exec", &sched.Snapshot{Now: schedtest.Day}, &sched.Job{ID: "j"}); !ok || len(costs) != 0 {
		t.Errorf("Costs() without nodes = %v, %v", costs, ok)
	}
	s := &sched.Snapshot{
		Now: schedtest.Day, Nodes: []*sched.Node{{Name: "a", Profile: &energy.Profile{}, HasLive: true}},
		Queue: []sched.Job{{ID: "j"}},
	}
	s.Nodes[0].Site = &sched.Site{}
	if costs, ok := costsOf(t, "exec", s, &s.Queue[0]); !ok || costs[0] != 0 {
		t.Errorf("Costs() of a node without power = %v, %v", costs, ok)
	}
	if d := plan1(t, s); d.Node != "a" {
		t.Errorf("job was not placed: %+v", d)
	}
}

func plan1(t *testing.T, s *sched.Snapshot) sched.Decision {
	t.Helper()
	strategy, err := strategy.New("exec")
	if err != nil {
		t.Fatal(err)
	}
	return strategy.Plan(s)[0]
}

// TestSenselessWattsDoNotCount checks that invalid readings and invalid expected power are ignored.
func TestSenselessWattsDoNotCount(t *testing.T) {
	for _, w := range []float64{-1, math.NaN(), math.Inf(1)} {
		s := &sched.Snapshot{Now: schedtest.Day, Nodes: []*sched.Node{
			{
				Name: "a", Site: &sched.Site{}, Profile: &energy.Profile{Idle: 50, Max: 100}, Jobs: 1, HasLive: true,
				Live: 60, Capacity: sched.Resources{MilliCPU: 1000},
			},
		}}
		job := sched.Job{ID: "j"}
		want, _ := costsOf(t, "exec", s, &job)
		s.Nodes[0].Provisional = energy.Watts(w)
		job.Expected, job.HasExpected = energy.Watts(w), true
		if got, ok := costsOf(t, "exec", s, &job); !ok || got[0] != want[0] {
			t.Errorf("with %v W: cost = %v, want %v", w, got, want)
		}
	}
}

func TestReadsLive(t *testing.T) {
	wheres, _ := strategy.Names()
	for _, name := range wheres {
		s := &sched.Snapshot{Now: schedtest.Day, Nodes: []*sched.Node{
			{
				Name: "a", Site: &sched.Site{}, Profile: &energy.Profile{Idle: 50, Max: 100}, Jobs: 1,
				Benchmarks: map[string]energy.Benchmark{"c": {Rate: 1, Power: 90, Idle: 50}},
			},
			{
				Name: "b", Site: &sched.Site{}, Profile: &energy.Profile{Idle: 50, Max: 100}, Jobs: 1,
				Benchmarks: map[string]energy.Benchmark{"c": {Rate: 1, Power: 90, Idle: 50}},
			},
		}}
		job := sched.Job{ID: "j", Class: "c"}
		before, _ := costsOf(t, name, s, &job)
		s.Nodes[1].HasLive, s.Nodes[1].Live = true, 80
		after, _ := costsOf(t, name, s, &job)
		strategy, err := strategy.New(name + "+window")
		if err != nil {
			t.Fatal(err)
		}
		if changed := !slices.Equal(before, after); strategy.ReadsLive() != changed {
			t.Errorf("%s: ReadsLive() = %v, but changed costs = %v", name, strategy.ReadsLive(),
				changed)
		}
	}
}

// TestAddedToAnEmptyNode checks that the first job on an awake node only adds its own power, and on a sleeping node
// also the idle power.
func TestAddedToAnEmptyNode(t *testing.T) {
	room := sched.Resources{MilliCPU: 10_000, Memory: 1 << 40}
	n := sched.Node{
		Name: "n", Capacity: room, Free: room, Profile: &energy.Profile{Idle: 100, Max: 200, Sleep: 10},
	}
	job := sched.Job{ID: "j", Request: sched.Resources{MilliCPU: 5000}}
	if added := n.Added(&job); added != 140 {
		t.Errorf("Added() on a sleeping node = %v, want 140 W", added)
	}
	n.Awake = true
	if added := n.Added(&job); added != 50 {
		t.Errorf("Added() on an awake node = %v, want 50 W", added)
	}
	n.Live, n.HasLive = 130, true // the meter reading exceeds the idle power of the profile
	if added := n.Added(&job); added != 50 {
		t.Errorf("Added() on an awake node with a meter = %v, want 50 W", added)
	}
}
