package strategy_test

import (
	"cmp"
	"fmt"
	"math"
	"slices"
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

// batches contains the strategies that consider the whole queue, and some that serve it in a different order.
var batches = []string{
	"ecsched-dp", "ecsched-ml", "ecsched-energy", "ecsched-carbon", "flow-dp", "flow-ml", "flow-energy", "flow-carbon",
	"min-min", "max-min", "balanced+now/shortest", "ecsched-k8s+now/fifo", "energy+now/smallest",
	"random+now/least-work",
}

// drawQueue generates more jobs than fit on the nodes, many of them equivalent.
func drawQueue(t *rapid.T) *sched.Snapshot {
	s := schedtest.DrawSnapshot(t, anyIntensity)
	s.Queue = nil
	for i := range rapid.IntRange(2, 24).Draw(t, "jobs") {
		s.Queue = append(s.Queue, sched.Job{
			ID: fmt.Sprintf("job%02d", i), Submitted: s.Now.Add(-time.Duration(rapid.IntRange(0, 3).Draw(t, "age")) *
				time.Minute),
			Duration: time.Duration(rapid.IntRange(1, 5).Draw(t, "duration")) * time.Minute,
			Request: sched.Resources{
				MilliCPU: rapid.Int64Range(0, 8).Draw(t, "cpu") * 1000,
				Memory:   rapid.Int64Range(0, 16).Draw(t, "memory") << 30,
				GPU:      int64(rapid.SampledFrom([]int{0, 0, 0, 1}).Draw(t, "gpu")),
			},
		})
	}
	for _, n := range s.Nodes {
		n.Capacity.GPU = rapid.Int64Range(0, 2).Draw(t, "gpus")
		n.Free.GPU = n.Capacity.GPU
	}
	return s
}

func TestBatches(t *testing.T) {
	for _, name := range batches {
		if strategy, err := strategy.New(name); err != nil || !strategy.Batches() {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{"energy", "carbon+window", "fcfs", "ecsched-k8s"} {
		if strategy, err := strategy.New(name); err != nil || strategy.Batches() {
			t.Errorf("%s: unexpected batch strategy, error = %v", name, err)
		}
	}
	for _, name := range []string{
		"energy/shortest", "energy+now/", "energy+now/tallest", "min-min+now/shortest", "energy+/shortest",
	} {
		if _, err := strategy.New(name); err == nil {
			t.Errorf("New(%s) succeeded, want an error", name)
		}
	}
	if when := strategy.When("carbon+window/shortest"); when != "window" {
		t.Errorf("When() = %q, want window", when)
	}
}

// TestBatchKeepsToCapacityAndOrder checks that every job is placed at most once and where it fits, that no node is
// overcommitted, that remaining jobs fit on no node, and that the plan does not depend on the order of nodes or
// jobs.
func TestBatchKeepsToCapacityAndOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, name := drawQueue(t), rapid.SampledFrom(batches).Draw(t, "strategy")
		got := plan(t, name, s)
		if len(got) != len(s.Queue) {
			t.Fatalf("got %d decisions for %d jobs", len(got), len(s.Queue))
		}
		_, left := carriedOut(t, s, got)
		for i, d := range got {
			for _, n := range left {
				if d.Node == "" && d.Reason.Kind != sched.NoFreshSignal && s.Queue[i].Fits(&n) {
					t.Fatalf("%s: job %s would fit on node %s: %v", name, d.Job, n.Name, d.Reason)
				}
			}
		}
		other := *s
		other.Nodes = rapid.Permutation(s.Nodes).Draw(t, "nodeOrder")
		other.Queue = rapid.Permutation(s.Queue).Draw(t, "queueOrder")
		turned := plan(t, name, &other)
		slices.SortFunc(turned, func(a, b sched.Decision) int { return cmp.Compare(a.Job, b.Job) })
		if diff := gocmp.Diff(got, turned); diff != "" {
			t.Fatalf("%s: plan depends on the order of nodes or jobs:\n%s", name, diff)
		}
	})
}

// flowCost is an independent implementation of the cost of ECSched.
func flowCost(name string, s *sched.Snapshot, j *sched.Job, n *sched.Node) (cost float64) {
	var most sched.Resources
	for _, n := range s.Nodes {
		most = sched.Resources{
			MilliCPU: max(most.MilliCPU, n.Capacity.MilliCPU), Memory: max(most.Memory, n.Capacity.Memory),
			GPU: max(most.GPU, n.Capacity.GPU),
		}
	}
	for _, k := range [][3]int64{
		{j.Request.MilliCPU, n.Free.MilliCPU, most.MilliCPU},
		{j.Request.Memory, n.Free.Memory, most.Memory},
		{j.Request.GPU, n.Free.GPU, most.GPU},
	} {
		switch {
		case k[0] == 0 || k[2] == 0:
		case name == "ecsched-dp":
			cost -= float64(k[0]) * float64(k[1]) / float64(k[2]) / float64(k[2])
		default:
			cost -= float64(k[0]) / float64(k[1])
		}
	}
	return cost
}

// bestRound evaluates every matching of jobs with nodes.
func bestRound(name string, s *sched.Snapshot, job int, used map[string]bool) (size int, cost float64) {
	if job == len(s.Queue) {
		return 0, 0
	}
	size, cost = bestRound(name, s, job+1, used)
	for _, n := range s.Nodes {
		if used[n.Name] || !s.Queue[job].Fits(n) {
			continue
		}
		used[n.Name] = true
		placed, rest := bestRound(name, s, job+1, used)
		used[n.Name] = false
		if here := rest + flowCost(name, s, &s.Queue[job], n); placed+1 > size || placed+1 == size && here < cost {
			size, cost = placed+1, here
		}
	}
	return size, cost
}

// TestFirstRoundIsOptimal checks that the first round places as many jobs as possible, at most one on each node, at
// the lowest cost.
func TestFirstRoundIsOptimal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, name := drawQueue(t), rapid.SampledFrom([]string{"ecsched-dp", "ecsched-ml"}).Draw(t, "strategy")
		s.Queue = s.Queue[:min(len(s.Queue), 5)]
		s.Nodes = s.Nodes[:min(len(s.Nodes), 4)]
		for i := range s.Queue { // so that only one job fits on a node and there is no second round
			s.Queue[i].Request.MilliCPU += 5000
		}
		for _, n := range s.Nodes {
			n.Free.MilliCPU = min(n.Free.MilliCPU, 9000)
		}
		placed, total := 0, 0.0
		for i, d := range plan(t, name, s) {
			if d.Node != "" {
				k := slices.IndexFunc(s.Nodes, func(n *sched.Node) bool { return n.Name == d.Node })
				placed++
				total += flowCost(name, s, &s.Queue[i], s.Nodes[k])
			}
		}
		if size, cost := bestRound(name, s, 0, map[string]bool{}); placed != size || math.Abs(total-cost) > 1e-6 {
			t.Fatalf("%s placed %d jobs at a cost of %v, want %d jobs at %v", name, placed, total, size, cost)
		}
	})
}

// TestMinMinAndMaxMinAreTheTextbooks compares min-min and max-min with the textbook algorithms, which evaluate all
// pairs after each placement.
func TestMinMinAndMaxMinAreTheTextbooks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawQueue(t)
		greatest := rapid.Bool().Draw(t, "max-min")
		name := map[bool]string{false: "min-min", true: "max-min"}[greatest]
		got := plan(t, name, s)
		order := make([]int, len(s.Queue))
		for i := range order {
			order[i] = i
		}
		slices.SortFunc(order, func(a, b int) int {
			x, y := &s.Queue[a], &s.Queue[b]
			return cmp.Or(x.Submitted.Compare(y.Submitted), cmp.Compare(x.ID, y.ID))
		})
		nodes := slices.Clone(s.Nodes)
		slices.SortFunc(nodes, func(a, b *sched.Node) int { return cmp.Compare(a.Name, b.Name) })
		for i, n := range nodes {
			nodes[i] = new(*n)
		}
		want := make([]string, len(s.Queue))
		for {
			type choice struct {
				job  int
				node *sched.Node
				runs time.Duration
			}
			var next *choice
			for _, i := range order {
				if want[i] != "" {
					continue
				}
				job := &s.Queue[i]
				var best *choice
				least := energy.Joules(math.Inf(1))
				for _, n := range nodes {
					if !job.Fits(n) {
						continue
					}
					runs := n.Runtime(job)
					joules := s.Estimate(job, n, sched.Window{Start: s.Now, End: s.Now.Add(runs)}).Energy
					if best == nil || runs < best.runs || runs == best.runs && joules < least {
						best, least = &choice{i, n, runs}, joules
					}
				}
				if best != nil && (next == nil || !greatest && best.runs < next.runs ||
					greatest && best.runs > next.runs) {
					next = best
				}
			}
			if next == nil {
				break
			}
			want[next.job] = next.node.Name
			*next.node = next.node.Place(s.Queue[next.job].Request)
		}
		for i, d := range got {
			if d.Node != want[i] {
				t.Fatalf("%s: job %s is placed on %q, want %q", name, d.Job, d.Node, want[i])
			}
		}
	})
}

// TestOrders checks which job each order serves first if only one fits.
func TestOrders(t *testing.T) {
	jobs := []sched.Job{
		{ID: "first", Duration: 9 * time.Minute, Request: sched.Resources{MilliCPU: 2000, Memory: 2 << 30}},
		{ID: "short", Duration: time.Minute, Request: sched.Resources{MilliCPU: 4000, Memory: 32 << 30}},
		{ID: "small", Duration: 8 * time.Minute, Request: sched.Resources{MilliCPU: 1900, Memory: 1 << 30}},
		{ID: "light", Duration: 2 * time.Minute, Request: sched.Resources{MilliCPU: 3000, Memory: 2 << 30}},
	}
	for i := range jobs {
		jobs[i].Submitted = schedtest.Day.Add(time.Duration(i) * time.Second)
	}
	node := &sched.Node{
		Name: "n", Site: &sched.Site{}, Capacity: sched.Resources{MilliCPU: 16000, Memory: 64 << 30},
		Free: sched.Resources{MilliCPU: 4000, Memory: 40 << 30},
	}
	first := map[string]string{
		"fifo": "first", "shortest": "short", "smallest": "small", "least-work": "light", "aging": "short",
	}
	if orders := sched.Orders(); len(orders) != len(first) {
		t.Fatalf("unexpected orders: %v", orders)
	}
	for order, want := range first {
		s := &sched.Snapshot{Now: schedtest.Day.Add(time.Minute), Queue: jobs, Nodes: []*sched.Node{node}}
		served := ""
		for _, d := range plan2(t, "balanced+now/"+order, s) {
			if d.Node != "" && served == "" {
				served = d.Job
			}
			if d.Job == want && d.Node == "" {
				t.Errorf("%s: job %s was not served", order, want)
			}
		}
	}
}

func plan2(t *testing.T, name string, s *sched.Snapshot) sched.Plan {
	t.Helper()
	strategy, err := strategy.New(name)
	if err != nil {
		t.Fatal(err)
	}
	return strategy.Plan(s)
}

// TestBatchHolds checks that held jobs use no capacity and that a batch places the other jobs.
func TestBatchHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawQueue(t)
		for i := range s.Queue {
			s.Queue[i].AllowedDelay = time.Duration(rapid.IntRange(0, 8).Draw(t, "delay")) * time.Hour
		}
		name := rapid.SampledFrom([]string{"ecsched-ml+window", "min-min+window", "energy+window/shortest"}).Draw(t,
			"strategy")
		for i, d := range plan(t, name, s) {
			alone := *s
			alone.Queue = s.Queue[i : i+1]
			if one := plan(t, "energy+window", &alone)[0]; one.Held(s.Now) != d.Held(s.Now) ||
				d.Held(s.Now) && d.Node != "" {
				t.Fatalf("%s: decision = %+v, but alone %+v", name, d, one)
			}
		}
	})
}

// TestNodesWithoutSite checks that a node without a site has no carbon intensity, but a known energy.
func TestNodesWithoutSite(t *testing.T) {
	room := sched.Resources{MilliCPU: 8000, Memory: 1 << 40}
	n := &sched.Node{Name: "n", Capacity: room, Free: room, Profile: &energy.Profile{Idle: 100, Max: 300}}
	for _, name := range schedtest.Each {
		s := &sched.Snapshot{Now: schedtest.Day, Nodes: []*sched.Node{n}, Queue: []sched.Job{
			{ID: "a", Submitted: schedtest.Day, Duration: time.Hour, Request: sched.Resources{MilliCPU: 1000}},
			{ID: "b", Submitted: schedtest.Day, Duration: time.Hour, Request: sched.Resources{MilliCPU: 1000}},
		}}
		for _, d := range plan(t, name, s) {
			switch where, _, _ := strings.Cut(name, "+"); {
			case strings.HasSuffix(where, "carbon"):
				if d.Node != "" || d.Reason.Kind != sched.NoFreshSignal {
					t.Errorf("%s: placed on %q, unexpected reason: %v", name, d.Node, d.Reason)
				}
			case d.Cost.Carbon != 0 || d.Node != "" && (d.Cost.Energy <= 0 || d.Cost.Finish.Sub(schedtest.Day) != time.Hour):
				t.Errorf("%s: unexpected decision: %+v", name, d)
			case d.Node == "" && (strings.HasSuffix(where, "energy") || where == "min-min"):
				t.Errorf("%s: job was not placed: %v", name, d.Reason)
			}
		}
	}
}
