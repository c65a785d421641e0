package sim_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
	"github.com/kubenergy/kubenergy/internal/sim"
)

// unnarrowed is a strategy that is offered every node that fits.
type unnarrowed struct{ *strategy.Greedy }

func (unnarrowed) Symmetry(*sched.Policy) strategy.Symmetry { return strategy.Asymmetric }

// drawFleet returns a random cluster with many identical nodes. Strategies may require a site, and machines sleep
// and wake up while a job waits, so every site has a node of the kind that some jobs select.
func drawFleet(t *rapid.T) *sim.Scenario {
	s := drawScenario(t, func(i int) float64 { return 200 + float64(i%24)*10 })
	kinds := s.Nodes
	for i := range kinds {
		kind := i % 2
		if i < len(s.Sites) {
			kind = 0
		}
		kinds[i].Labels = map[string]string{"kind": strconv.Itoa(kind)}
		kinds[i].Profile.BootSeconds = rapid.SampledFrom([]float64{0, 90}).Draw(t, "boot")
	}
	s.Nodes = nil
	for i := range rapid.IntRange(len(s.Sites), 14).Draw(t, "fleet") {
		n := kinds[i%len(kinds)]
		n.Name = fmt.Sprintf("n%x", (i*7)%15) // the order of names differs from the order of nodes
		n.Speed = []float64{0, 0.5}[i/len(kinds)%2]
		s.Nodes = append(s.Nodes, n)
	}
	for i := range s.Jobs {
		s.Jobs[i].Interruptible = i%3 == 0
		s.Jobs[i].RestartCost = time.Minute
		if i%5 == 4 {
			s.Jobs[i].Selector = map[string]string{"kind": "0"}
		}
	}
	return s
}

// Every job of a random fleet can run at every site.
func TestDrawnFleetsHaveRoom(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawFleet(t)
		for i := range s.Jobs {
			j := &s.Jobs[i]
			for _, site := range s.Sites {
				if !slices.ContainsFunc(s.Nodes, func(n sched.Node) bool {
					kind, selects := j.Selector["kind"]
					return n.Site == site && j.Request.CountIn(n.Capacity) > 0 && (!selects || n.Labels["kind"] == kind)
				}) {
					t.Fatalf("job %s does not fit on any node of site %s", j.ID, site.Name)
				}
			}
		}
	})
}

// Offering only one of several indistinguishable nodes does not change the result of any strategy.
func TestNarrowedCandidatesChangeNothing(t *testing.T) {
	wheres, whens := strategy.Names()
	wheres = slices.DeleteFunc(append(wheres, strategy.Clusters()...), func(name string) bool {
		return mustNew(t, name).Symmetry(&sched.Policy{}) == strategy.Asymmetric // it is offered all nodes anyway
	})
	rapid.Check(t, func(t *rapid.T) {
		s := drawFleet(t)
		name := rapid.SampledFrom(wheres).Draw(t, "where") + "+" + rapid.SampledFrom(whens).Draw(t, "when")
		greedy := mustNew(t, name)
		want, err := sim.Run(context.Background(), s, name, unnarrowed{greedy})
		if err != nil {
			t.Fatal(err)
		}
		got, err := sim.Run(context.Background(), s, name, greedy)
		if err != nil {
			t.Fatal(err)
		}
		ignore := cmp.Options{
			cmpopts.IgnoreUnexported(sim.Result{}), cmpopts.IgnoreFields(sim.Result{}, "Elapsed", "Scenario"),
		}
		if diff := cmp.Diff(want, got, ignore); diff != "" {
			t.Fatalf("%s: results differ (-all nodes +narrowed):\n%s", name, diff)
		}
	})
}

// The property test above must not pass because no strategy is narrowed.
func TestSymmetry(t *testing.T) {
	for name, want := range map[string]strategy.Symmetry{
		"energy": strategy.Interchangeable, "carbon+window": strategy.Interchangeable,
		"least-allocated": strategy.Interchangeable,
		"round-robin":     strategy.InTurn, "round-robin+wait-awhile": strategy.Asymmetric, "exec": strategy.Asymmetric,
		"hybrid": strategy.Asymmetric,
	} {
		greedy, err := strategy.New(name)
		if err != nil {
			t.Fatal(err)
		}
		if got := greedy.Symmetry(&sched.Policy{}); got != want {
			t.Errorf("Symmetry() of %s = %d, want %d", name, got, want)
		}
	}
	greedy, err := strategy.New("least-allocated")
	if err != nil {
		t.Fatal(err)
	}
	if got := greedy.Symmetry(&sched.Policy{Seed: 1}); got != strategy.Asymmetric {
		t.Errorf("Symmetry() of least-allocated with a seed = %d, want Asymmetric because it breaks ties by name", got)
	}
	asked := 0
	s := fleet(t, 40, 1, 1)
	play(t, s, &spied{Greedy: mustNew(t, "energy"), seen: func(s *sched.Snapshot) { asked = len(s.Nodes) }})
	if asked != 1 {
		t.Errorf("%d of 40 identical nodes were offered, want 1", asked)
	}
}

type spied struct {
	*strategy.Greedy
	seen func(*sched.Snapshot)
}

func (p *spied) Plan(s *sched.Snapshot) sched.Plan {
	p.seen(s)
	return p.Greedy.Plan(s)
}

func mustNew(t rapid.TB, name string) *strategy.Greedy {
	t.Helper()
	g, err := strategy.ByName(name)
	if err != nil {
		t.Fatal(err)
	}
	return g.(*strategy.Greedy)
}

// A result does not depend on the number of CPUs.
func TestRunDoesNotDependOnProcessors(t *testing.T) {
	s := fleet(t, 12, 3, 300)
	for _, name := range []string{"energy", "round-robin", "carbon+window", "least-allocated"} {
		var results [2]*sim.Result
		for i, processors := range []int{1, 4} {
			before := runtime.GOMAXPROCS(processors)
			results[i] = run(t, s, name)
			runtime.GOMAXPROCS(before)
		}
		ignore := cmp.Options{
			cmpopts.IgnoreUnexported(sim.Result{}), cmpopts.IgnoreFields(sim.Result{}, "Elapsed", "Scenario"),
		}
		if diff := cmp.Diff(results[0], results[1], ignore); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
}
