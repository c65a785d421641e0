package strategy

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/mincost"
	"github.com/kubenergy/kubenergy/internal/sched"
)

// unlike returns a queue of jobs that all differ, and empty sleeping nodes of the given number of kinds.
func unlike(jobs, nodes, kinds int) *sched.Snapshot {
	random := rand.New(rand.NewPCG(7, 1))
	s := &sched.Snapshot{Now: time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC)}
	var profiles []*energy.Profile
	for range kinds {
		idle := energy.Watts(40 + random.IntN(80))
		profiles = append(profiles, &energy.Profile{
			Idle: idle, Max: idle + energy.Watts(60+random.IntN(250)), Sleep: 5,
		})
	}
	for k := range nodes {
		capacity := sched.Resources{MilliCPU: 32000, Memory: 64 << 30}
		s.Nodes = append(s.Nodes, &sched.Node{
			Name: fmt.Sprintf("n%04d", k), Capacity: capacity, Free: capacity, Profile: profiles[k%kinds],
		})
	}
	for k := range jobs {
		s.Queue = append(s.Queue, sched.Job{
			ID: fmt.Sprintf("j%05d", k), Submitted: s.Now, Duration: time.Duration(60+random.IntN(36000)) * time.Second,
			Request: sched.Resources{MilliCPU: int64(100 + random.IntN(7900)), Memory: int64(128+random.IntN(16000)) << 20},
		})
	}
	return s
}

// carried returns the number of jobs placed by a plan and their expected energy. It fails the test if a job does
// not fit on its node.
func carried(t *testing.T, s *sched.Snapshot, plan sched.Plan) (placed int, joules float64) {
	t.Helper()
	nodes := map[string]sched.Node{}
	for _, n := range s.Nodes {
		nodes[n.Name] = *n
	}
	for i, d := range plan {
		if d.Node == "" {
			continue
		}
		n := nodes[d.Node]
		if !s.Queue[i].Fits(&n) {
			t.Fatalf("job %s does not fit on node %s", d.Job, d.Node)
		}
		nodes[d.Node] = n.Place(s.Queue[i].Request)
		placed++
		joules += float64(d.Cost.Energy)
	}
	return placed, joules
}

// byPrices plans a queue with a limit on the pairs of jobs and nodes that are solved as one problem.
func byPrices(t *testing.T, s *sched.Snapshot, pairs int) (sched.Plan, Optimality) {
	t.Helper()
	g, err := New("flow-energy")
	if err != nil {
		t.Fatal(err)
	}
	b := newBatch(s, g.cost, mincost.NeverStop)
	b.maxNodePairs = pairs
	g.planBatch(s, b)
	return b.plan, b.proof
}

// TestPricesOfAQueueInParts checks that a queue with too many different jobs for one problem is still placed by
// prices, in parts. A single additional job must not switch to placing jobs one by one.
func TestPricesOfAQueueInParts(t *testing.T) {
	const jobs, nodes = 400, 60
	s := unlike(jobs, nodes, nodes)
	greedy, err := New("energy")
	if err != nil {
		t.Fatal(err)
	}
	all, oneByOne := carried(t, s, greedy.Plan(s))
	plan, proof := byPrices(t, s, jobs*nodes)
	if !proof.Whole || !proof.HasGap {
		t.Fatalf("plan as a whole: %+v", proof)
	}
	_, whole := carried(t, s, plan)
	for _, parts := range []int{2, 4, jobs} {
		plan, proof := byPrices(t, s, jobs*nodes/parts)
		placed, joules := carried(t, s, plan)
		t.Logf("%d parts: %.3f of the energy of a single problem, one by one %.3f", parts, joules/whole, oneByOne/whole)
		if !proof.Whole || proof.HasGap {
			t.Errorf("%d parts: unexpected optimality %+v", parts, proof)
		}
		if placed < all || joules-whole > (oneByOne-whole)/2 {
			t.Errorf("%d parts: %d jobs with %.0f J, want about %.0f J; one by one %d jobs with %.0f J",
				parts, placed, joules, whole, all, oneByOne)
		}
	}
}

// TestPricesOfNodesThatAreAlike checks that equivalent nodes reduce the size of the problem.
func TestPricesOfNodesThatAreAlike(t *testing.T) {
	const jobs, nodes = 100, 500
	if _, proof := byPrices(t, unlike(jobs, nodes, 2), jobs*nodes/2); !proof.Whole || !proof.HasGap {
		t.Errorf("optimality with two kinds of nodes = %+v, want a bound for the whole problem", proof)
	}
}
