package strategy_test

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/schedtest"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
)

// flows maps the strategies that match the whole queue by a flow to the placement that defines their cost.
var flows = map[string]string{
	"ecsched-carbon": "carbon", "ecsched-dp": "ecsched-dp", "ecsched-energy": "energy", "ecsched-ml": "ecsched-ml",
	"flow-carbon": "carbon", "flow-dp": "ecsched-dp", "flow-energy": "energy", "flow-ml": "ecsched-ml",
}

func drawFlow(t *rapid.T) string {
	names := make([]string, 0, len(flows))
	for name := range flows {
		names = append(names, name)
	}
	slices.Sort(names)
	return rapid.SampledFrom(names).Draw(t, "strategy")
}

func mustStrategy(t rapid.TB, name string) *strategy.Greedy {
	t.Helper()
	g, err := strategy.New(name)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// carriedOut checks that a plan does not exceed any capacity. It returns the number of placed jobs and the
// resulting nodes.
func carriedOut(t rapid.TB, s *sched.Snapshot, plan sched.Plan) (placed int, nodes map[string]sched.Node) {
	t.Helper()
	nodes = map[string]sched.Node{}
	for _, n := range s.Nodes {
		nodes[n.Name] = *n
	}
	for i, d := range plan {
		if d.Job != s.Queue[i].ID {
			t.Fatalf("decision %d is for job %q", i, d.Job)
		}
		if d.Node == "" {
			continue
		}
		n, ok := nodes[d.Node]
		if !ok || !s.Queue[i].Fits(&n) {
			t.Fatalf("job %s does not fit on node %s", d.Job, d.Node)
		}
		nodes[d.Node] = n.Place(s.Queue[i].Request)
		placed++
	}
	return placed, nodes
}

// added returns the total cost of a plan according to a placement if it is applied in order of submission, given
// the state of the nodes at each step.
func added(t rapid.TB, where string, s *sched.Snapshot, plan sched.Plan) (sum float64) {
	t.Helper()
	g := mustStrategy(t, where)
	work := *s
	work.Nodes = nil
	for _, n := range s.Nodes {
		work.Nodes = append(work.Nodes, new(*n))
	}
	order := make([]int, len(plan))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return s.Queue[a].Submitted.Compare(s.Queue[b].Submitted) })
	for _, i := range order {
		k := slices.IndexFunc(work.Nodes, func(n *sched.Node) bool { return n.Name == plan[i].Node })
		if k < 0 {
			continue
		}
		alone := work
		alone.Nodes = work.Nodes[k : k+1]
		costs, ok := g.Costs(&alone, &s.Queue[i], nil)
		if !ok {
			t.Fatalf("%s has no opinion on a placed job", where)
		}
		sum += costs[0]
		*work.Nodes[k] = work.Nodes[k].Place(s.Queue[i].Request)
	}
	return sum
}

// TestPricesAreNotWorseThanOneByOne checks that placement by prices never places fewer jobs than placement one by
// one, and never costs more for the same number of jobs.
func TestPricesAreNotWorseThanOneByOne(t *testing.T) {
	saved := 0
	rapid.Check(t, func(t *rapid.T) {
		s := drawQueue(t)
		where := rapid.SampledFrom([]string{"energy", "carbon"}).Draw(t, "where")
		got, greedy := plan(t, "flow-"+where, s), plan(t, where+"+now/fifo", s)
		placed, _ := carriedOut(t, s, got)
		byOne, _ := carriedOut(t, s, greedy)
		if placed < byOne {
			t.Fatalf("placed %d jobs by prices, but %d one by one", placed, byOne)
		}
		mine, other := added(t, where, s, got), added(t, where, s, greedy)
		if placed == byOne && mine > other+1e-6*math.Abs(other) {
			t.Fatalf("cost by prices = %v, but %v one by one", mine, other)
		}
		if placed > byOne || mine < other-1e-6*math.Abs(other) {
			saved++
		}
	})
	if saved == 0 {
		t.Error("placement by prices is never better than placing jobs one by one")
	}
}

// TestPlanWithin checks that the plan is valid and reproducible whenever the time is up, and that no remaining job
// would fit.
func TestPlanWithin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawQueue(t)
		g := mustStrategy(t, rapid.SampledFrom([]string{drawFlow(t), "min-min"}).Draw(t, "which"))
		limit := rapid.IntRange(0, 30).Draw(t, "questions")
		within := func() (sched.Plan, strategy.Optimality) {
			asked := 0
			plan, proof := g.PlanWithin(s, func() bool { asked++; return asked > limit })
			if proof.Whole != (asked <= limit) || asked > limit+1 {
				t.Fatalf("stop was called %d times with a limit of %d: Whole = %v", asked, limit, proof.Whole)
			}
			return plan, proof
		}
		plan, proof := within()
		_, nodes := carriedOut(t, s, plan)
		for i, d := range plan {
			for _, n := range nodes {
				if d.Node == "" && d.Reason.Kind == sched.NoRoom && s.Queue[i].Fits(&n) {
					t.Fatalf("job %s would fit on node %s: %v", d.Job, n.Name, d.Reason)
				}
			}
		}
		again, proof2 := within()
		if diff := gocmp.Diff(plan, again); diff != "" || proof != proof2 || proof.HasGap && !(proof.Gap >= 0) {
			t.Fatalf("plans differ: %v, %v: %s", proof, proof2, diff)
		}
	})
}

// TestNoTimeAtAll checks that without any time, a queue is placed job by job as by the placement with the same
// cost, and that strategies that place jobs one by one have no opinion on the remaining jobs.
func TestNoTimeAtAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawQueue(t)
		where := rapid.SampledFrom([]string{"energy", "carbon"}).Draw(t, "where")
		want, _ := mustStrategy(t, where+"+now/fifo").PlanWithin(s, func() bool { return false })
		for _, name := range []string{"ecsched-" + where, "flow-" + where} {
			got, proof := mustStrategy(t, name).PlanWithin(s, func() bool { return true })
			for i := range got {
				if got[i].Node != want[i].Node {
					t.Fatalf("%s: job %s is on node %q, but on %q one by one (%+v)",
						name, got[i].Job, got[i].Node, want[i].Node, proof)
				}
			}
		}
		none, proof := mustStrategy(t, where).PlanWithin(s, func() bool { return true })
		for _, d := range none {
			if d.Node != "" || d.Held(s.Now) || d.Reason.Kind != sched.NoOpinion || proof.Whole {
				t.Fatalf("unexpected decision: %+v", d)
			}
		}
	})
}

// TestPlanWithinAsksWhatFits checks that feasibility is also verified for a queue of one job.
func TestPlanWithinAsksWhatFits(t *testing.T) {
	nodes := threeNodes()
	s := &sched.Snapshot{Now: schedtest.Day, Nodes: nodes, Queue: []sched.Job{{
		ID: "j", Request: sched.Resources{MilliCPU: 12000},
	}}}
	for name := range flows {
		if strings.HasSuffix(name, "carbon") {
			continue // no signal is available
		}
		if plan, _ := mustStrategy(t, name).PlanWithin(s, func() bool { return false }); plan[0].Node != "a" {
			t.Errorf("%s selected node %q, but only a has enough capacity", name, plan[0].Node)
		}
	}
}

// TestCostsBeyondMeasure checks that invalid or extreme costs neither abort a plan nor overcommit a node.
func TestCostsBeyondMeasure(t *testing.T) {
	odd := []float64{math.NaN(), math.Inf(1), math.Inf(-1), 1e18, -1e18, math.MaxFloat64, 5e-324, 0, 100}
	rapid.Check(t, func(t *rapid.T) {
		s, name := drawQueue(t), drawFlow(t)
		for _, n := range s.Nodes {
			value := func(label string) energy.Watts { return energy.Watts(rapid.SampledFrom(odd).Draw(t, label)) }
			n.Profile = &energy.Profile{
				Idle: value("idle"), Max: value("max"), Sleep: value("sleep"), WakeUp: energy.Joules(value("wake-up")),
				GPUMax: value("gpu"),
			}
			n.Speed = rapid.SampledFrom([]float64{0, 1, 2}).Draw(t, "speed")
		}
		got, proof := mustStrategy(t, name).PlanWithin(s, func() bool { return false })
		carriedOut(t, s, got)
		if proof.HasGap && !(proof.Gap >= 0) {
			t.Fatalf("gap = %v, want at least 0", proof.Gap)
		}
	})
}

// TestAbsurdRequestsChangeNothing checks that jobs that fit on no node do not affect the plan or its bound, no
// matter how large their requests are.
func TestAbsurdRequestsChangeNothing(t *testing.T) {
	s := &sched.Snapshot{Now: schedtest.Day, Nodes: threeNodes()}
	for i := range 6 {
		s.Queue = append(s.Queue, sched.Job{
			ID: fmt.Sprint("j", i), Submitted: schedtest.Day, Duration: time.Hour,
			Request: sched.Resources{MilliCPU: 3000, Memory: 1 << 20},
		})
	}
	g := mustStrategy(t, "flow-energy")
	want, proof := g.PlanWithin(s, func() bool { return false })
	if !proof.Whole || !proof.HasGap {
		t.Fatalf("unexpected optimality: %+v", proof)
	}
	for i := range 2 {
		s.Queue = append(s.Queue, sched.Job{
			ID: fmt.Sprint("absurd", i), Submitted: schedtest.Day, Duration: time.Hour,
			Request: sched.Resources{MilliCPU: 1 << 62, Memory: 1 << 62, GPU: 1 << 62},
		})
	}
	got, proof2 := g.PlanWithin(s, func() bool { return false })
	if diff := gocmp.Diff(want, got[:6]); diff != "" || proof2 != proof {
		t.Errorf("optimality = %+v, without the large jobs %+v: %s", proof2, proof, diff)
	}
}

// TestOptions checks that the further nodes of a planned job have capacity for it after the plan has been applied,
// or otherwise before, and that the former come first.
func TestOptions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, g := drawQueue(t), mustStrategy(t, drawFlow(t))
		most := rapid.IntRange(0, 4).Draw(t, "most")
		got := plan(t, g.String(), s)
		_, after := carriedOut(t, s, got)
		for i, names := range g.Options(s, got, most) {
			job := &s.Queue[i]
			var room, before []string
			for _, n := range s.Nodes {
				if left := after[n.Name]; job.Fits(&left) {
					room = append(room, n.Name)
				}
				if job.Fits(n) {
					before = append(before, n.Name)
				}
			}
			if got[i].Node == "" {
				if names != nil {
					t.Fatalf("job %s is not planned but has options %v", job.ID, names)
				}
				continue
			}
			if len(names) != min(most, len(before)) {
				t.Fatalf("job %s: options = %v, capacity on %v after and %v before", job.ID, names, room, before)
			}
			for k, name := range names {
				if hasRoom := slices.Contains(room, name); hasRoom != (k < len(room)) ||
					!slices.Contains(before, name) || slices.Contains(names[:k], name) {
					t.Fatalf("job %s: options = %v, capacity on %v after and %v before", job.ID, names, room, before)
				}
			}
		}
	})
}

// TestOptionsKnowNoOrder checks that the further nodes do not depend on the order of the queue, even if run times
// are rounded to the same value.
func TestOptionsKnowNoOrder(t *testing.T) {
	thrifty, awake := energy.Profile{Max: 90, WakeUp: 850}, energy.Profile{Max: 110}
	s := &sched.Snapshot{Now: schedtest.Day, Nodes: []*sched.Node{
		{
			Name: "asleep", Capacity: sched.Resources{MilliCPU: 1e7}, Free: sched.Resources{MilliCPU: 1e7},
			Profile: &thrifty,
		},
		{
			Name: "awake", Capacity: sched.Resources{MilliCPU: 1e7}, Free: sched.Resources{MilliCPU: 1e7},
			Profile: &awake,
			Jobs:    1,
		},
	}}
	for i := range 300 {
		s.Queue = append(s.Queue, sched.Job{
			ID: strconv.Itoa(i), Submitted: schedtest.Day, Duration: time.Hour + time.Duration(i*i)*time.Second,
			Request: sched.Resources{MilliCPU: 10000},
		})
	}
	g := mustStrategy(t, "energy")
	options := func() map[string][]string {
		plan := make(sched.Plan, len(s.Queue))
		byJob := map[string][]string{}
		for i := range plan {
			plan[i] = sched.Decision{Job: s.Queue[i].ID, Node: "awake"}
		}
		for i, names := range g.Options(s, plan, 1) {
			byJob[s.Queue[i].ID] = names
		}
		return byJob
	}
	want := options()
	slices.Reverse(s.Queue)
	if diff := gocmp.Diff(want, options()); diff != "" {
		t.Error(diff)
	}
}

// TestManyKinds checks that many different jobs can be planned.
func TestManyKinds(t *testing.T) {
	s := &sched.Snapshot{Now: schedtest.Day, Nodes: threeNodes()}
	for i := range 600 {
		s.Queue = append(s.Queue, sched.Job{
			ID: strconv.Itoa(i), Submitted: schedtest.Day, Duration: time.Duration(i+1) * time.Second,
			Request: sched.Resources{MilliCPU: int64(20 + i%7), Memory: int64(i%5) << 20},
		})
	}
	const inRounds = 50 * 3 // rounds of ECSched with one job per node
	for name, want := range map[string]int{
		"energy": 600, "flow-energy": 600, "flow-dp": 600, "ecsched-energy": inRounds,
	} {
		got, _ := mustStrategy(t, name).PlanWithin(s, func() bool { return false })
		if placed, _ := carriedOut(t, s, got); placed != want {
			t.Errorf("%s placed %d of 600 jobs, want %d", name, placed, want)
		}
	}
}

// TestManyKindsWithinATime checks that if the jobs differ too much to be placed one by one quickly, only as many
// jobs are placed as time permits, and there is no opinion on the others.
func TestManyKindsWithinATime(t *testing.T) {
	const jobs, placed = 2100, 10
	s := &sched.Snapshot{Now: schedtest.Day}
	for i := range 2000 {
		n := *threeNodes()[0]
		n.Name = strconv.Itoa(i)
		s.Nodes = append(s.Nodes, &n)
	}
	for i := range jobs {
		s.Queue = append(s.Queue, sched.Job{
			ID: strconv.Itoa(i), Submitted: schedtest.Day, Duration: time.Hour, Request: sched.Resources{MilliCPU: int64(i + 1)},
		})
	}
	for _, name := range []string{"flow-energy", "ecsched-energy"} {
		for limit, want := range map[int]int{0: 0, jobs + placed: placed} { // each kind is checked once before
			if limit > 0 && name == "ecsched-energy" {
				continue // places complete rounds before it checks the time again
			}
			asked := 0
			plan, proof := mustStrategy(t, name).PlanWithin(s, func() bool { asked++; return asked > limit })
			got, _ := carriedOut(t, s, plan)
			if got != want || proof.Whole || asked != limit+1 {
				t.Errorf("%s placed %d jobs, want %d, after %d calls of stop: %+v", name, got, want, asked, proof)
			}
			for _, d := range plan {
				if d.Node == "" && d.Reason.Kind != sched.NoOpinion {
					t.Fatalf("%s: unexpected decision: %+v", name, d)
				}
			}
		}
	}
}
