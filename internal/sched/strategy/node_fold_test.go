package strategy_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/codec"
	"github.com/kubenergy/kubenergy/internal/sched/schedtest"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
)

// clustersOf generates clusters with a few kinds of nodes. If alike is true, nodes of a kind have the same load.
func clustersOf(t *testing.T, rnd *rand.Rand, alike bool) *sched.Snapshot {
	t.Helper()
	s := &sched.Snapshot{Now: schedtest.Day.Add(time.Duration(rnd.IntN(600)) * time.Minute)}
	for c := range 2 + rnd.IntN(4) {
		site := &sched.Site{
			Name: fmt.Sprint("c", c), PUE: 1 + rnd.Float64(), Carbon: grid.Signal{Series: aDayOf(t, rnd)},
		}
		s.Sites = append(s.Sites, site)
		for kind := range 1 + rnd.IntN(4) {
			idle := energy.Watts(20 + 100*rnd.Float64())
			n := sched.Node{
				Site: site, Capacity: sched.Resources{MilliCPU: 16000, Memory: 64 << 30, GPU: int64(rnd.IntN(2))},
				Jobs: rnd.IntN(2), Awake: rnd.IntN(2) == 0, Speed: 0.5 + rnd.Float64(),
				Labels: map[string]string{"host": strconv.Itoa(rnd.Int())},
				Profile: &energy.Profile{
					Idle: idle, Max: idle * energy.Watts(2+rnd.Float64()), Sleep: idle / 10,
					Exponent: 0.5 + rnd.Float64(), WakeUp: energy.Joules(1e5 * rnd.Float64()), GPUIdle: 10, GPUMax: 100,
				},
			}
			used := sched.Resources{MilliCPU: int64(rnd.IntN(12000)), Memory: int64(rnd.IntN(48)) << 30}
			for i := range 1 + rnd.IntN(6) {
				member := n
				member.Name = fmt.Sprintf("c%d-k%d-%d", c, kind, i)
				member.Free = n.Capacity
				if n.Jobs > 0 && alike {
					member.Free = n.Capacity.Sub(used)
				} else if n.Jobs > 0 {
					member.Free.MilliCPU = int64(rnd.IntN(16000))
				}
				s.Nodes = append(s.Nodes, &member)
			}
		}
	}
	for i := range 1 + rnd.IntN(40) {
		j := sched.Job{
			ID: fmt.Sprint("j", i), Submitted: s.Now, Duration: time.Duration(1+rnd.IntN(300)) * time.Minute,
			Request: sched.Resources{
				MilliCPU: int64(500 * (1 + rnd.IntN(12))), Memory: int64(1+rnd.IntN(8)) << 30, GPU: int64(rnd.IntN(8) / 7),
			},
			AllowedDelay: time.Duration(rnd.IntN(2)*rnd.IntN(12)) * time.Hour,
		}
		if rnd.IntN(3) == 0 {
			j.Sites = []string{s.Sites[rnd.IntN(len(s.Sites))].Name}
		}
		s.Queue = append(s.Queue, j)
	}
	return s
}

func folded(s *sched.Snapshot) *sched.Snapshot {
	few := *s
	few.Nodes = sched.Fold(s.Nodes)
	return &few
}

func siteOf(s *sched.Snapshot, node string) string {
	for _, n := range s.Nodes {
		if n.Name == node {
			return n.Site.Name
		}
	}
	return ""
}

// TestFoldedNodesDecideAsAllNodesDo checks that if the nodes of a kind are identical, folded nodes result in the
// same cluster, time and cost for each job as all nodes, and that encoding and decoding the folded nodes does not
// change this.
func TestFoldedNodesDecideAsAllNodesDo(t *testing.T) {
	rnd := rand.New(rand.NewPCG(22, 2))
	all, few := 0, 0
	for range 200 {
		s := clustersOf(t, rnd, true)
		f := folded(s)
		all, few = all+len(s.Nodes), few+len(f.Nodes)
		for _, name := range []string{"carbon", "energy", "peaks", "carbon+window", "carbon+now/least-work", "home"} {
			want, got := plan(t, name, s), plan(t, name, f)
			for i := range want {
				w, g := &want[i], &got[i]
				if siteOf(s, w.Node) != siteOf(f, g.Node) || w.Window != g.Window ||
					math.Abs(float64(w.Cost.Carbon-g.Cost.Carbon)) > 1e-9*float64(w.Cost.Carbon) {
					t.Fatalf("%s: got %+v with all nodes, but %+v with folded nodes", name, *w, *g)
				}
			}
			again, err := codec.Decode(schedtest.Encode(t, f))
			if err != nil {
				t.Fatal(err)
			}
			for i, g := range plan(t, name, again) {
				if g.Node != got[i].Node {
					t.Fatalf("%s: after decoding, job %s is on node %q instead of %q", name, g.Job, g.Node, got[i].Node)
				}
			}
		}
		// Strategies that match the whole queue consider every member.
		want, got := plan(t, "flow-carbon", s), plan(t, "flow-carbon", f)
		for i := range want {
			if (want[i].Node == "") != (got[i].Node == "") {
				t.Fatalf("flow-carbon: got %+v with all nodes, but %+v with folded nodes", want[i], got[i])
			}
		}
	}
	if few*2 > all {
		t.Errorf("folded %d nodes into %d, want at most half", all, few)
	}
}

// TestFoldedLoadsCostLittleMore checks that with different loads, the cost in the selected cluster exceeds the
// lowest cost by at most twice the error of the folded nodes, and that a job that fits a folded node fits each
// member.
func TestFoldedLoadsCostLittleMore(t *testing.T) {
	rnd := rand.New(rand.NewPCG(22, 3))
	differ := 0
	for range 2000 {
		s := clustersOf(t, rnd, false)
		s.Queue = s.Queue[:1]
		job := &s.Queue[0]
		s.Nodes = slices.DeleteFunc(s.Nodes, func(n *sched.Node) bool { return !job.Fits(n) })
		f := folded(s)
		strategy, err := strategy.New("carbon")
		if err != nil {
			t.Fatal(err)
		}
		truth, _ := strategy.Costs(s, job, nil)
		reported, _ := strategy.Costs(f, job, nil)
		// The maximum cost difference between members of a folded node, and the minimum cost at each site.
		bend, least := 0.0, map[string]float64{}
		for i, n := range s.Nodes {
			if v, ok := least[n.Site.Name]; !ok || truth[i] < v {
				least[n.Site.Name] = truth[i]
			}
			apart := math.Inf(1)
			for k, one := range f.Nodes {
				if one.Profile == n.Profile && (one.Jobs > 0) == (n.Jobs > 0) && job.Fits(one) {
					apart = min(apart, math.Abs(reported[k]-truth[i]))
				}
			}
			if !math.IsInf(apart, 1) {
				bend = max(bend, apart)
			}
		}
		site := siteOf(f, strategy.Plan(f)[0].Node)
		best := math.Inf(1)
		for _, v := range least {
			best = min(best, v)
		}
		if site == "" {
			continue
		}
		if least[site] > best {
			differ++
		}
		if least[site] > best+2*bend+1e-9 {
			t.Fatalf("site %s costs %v, but the best one costs %v and members differ by %v", site, least[site], best, bend)
		}
	}
	t.Logf("selected a different cluster in %d of 2000 cases", differ)
	if differ == 0 {
		t.Error("no case selects a different cluster, so the bound was not tested")
	}
}
