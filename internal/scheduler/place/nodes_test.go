package place

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
)

// plainScores computes the expected scores without any caching: every node is converted and priced separately. It
// returns nil if the strategy has no opinion.
func plainScores(t *testing.T, e *Energy, state fwk.CycleState, nodes []fwk.NodeInfo) fwk.NodeScoreList {
	t.Helper()
	data, err := state.Read(requestKey)
	if err != nil {
		t.Fatal(err)
	}
	r, now := data.(*request), e.clock()
	s := sched.Snapshot{
		Now: now, Queue: []sched.Job{r.job}, Sites: r.view.Sites(),
		Policy: sched.Policy{
			Weights: r.settings.Weights, MaxSignalAge: e.args.MaxSignalAge.Duration, Seed: e.args.Seed,
		},
	}
	if last := e.last.Load(); last != nil {
		s.Last = *last
	}
	for _, n := range nodes {
		node := coreNode(r.view, n)
		e.annotated(&node, n, now)
		s.Nodes = append(s.Nodes, &node)
	}
	costs, ok := e.wheres[r.settings.Where].Costs(&s, &s.Queue[0], nil)
	if !ok || len(costs) == 0 {
		return nil
	}
	best, largest := 0, costs[0]
	for i, c := range costs {
		largest = max(largest, c)
		if c < costs[best] || c == costs[best] && s.Nodes[i].Name < s.Nodes[best].Name {
			best = i
		}
	}
	scores := make(fwk.NodeScoreList, len(nodes))
	for i, c := range costs {
		points := int64(99)
		if i == best {
			points = 100
		} else if largest > costs[best] {
			points = int64(99 * ((largest - c) / (largest - costs[best])))
		}
		scores[i] = fwk.NodeScore{Name: s.Nodes[i].Name, Score: points}
	}
	return scores
}

// randomView returns a view with two sites, three profiles, and training benchmarks of a few nodes.
func randomView(t *testing.T, rng *rand.Rand) *kube.View {
	t.Helper()
	var sites []*sched.Site
	for _, name := range []string{"coal", "wind"} {
		series, err := grid.Constant(noon, 24*time.Hour, 50+float64(rng.IntN(500)))
		if err != nil {
			t.Fatal(err)
		}
		sites = append(sites, &sched.Site{
			Name: name, PUE: 1 + rng.Float64(), Carbon: grid.Signal{Series: series, AsOf: noon},
		})
	}
	profiles := []*kube.NodeProfile{
		{Profile: energy.Profile{Name: "frugal", Idle: 50, Max: 100, Sleep: 50}},
		{Profile: energy.Profile{Name: "hungry", Idle: 100, Max: 400, Sleep: 20, WakeUp: 5000}},
		{
			Profile: energy.Profile{Name: "benched", Idle: 80, Max: 200, Sleep: 80},
			Benchmarks: map[string]energy.Benchmark{
				"training": {Rate: 1 + float64(rng.IntN(9)), Power: 150, Idle: 80},
			},
		},
	}
	c := kube.Contents{Sites: sites, DefaultSite: "coal", Profiles: profiles}
	v, err := c.View()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// randomMachine returns a node with one of a few sizes and utilizations, so that some nodes are equal.
func randomMachine(rng *rand.Rand, name string) *machine {
	pick := func(from ...string) string { return from[rng.IntN(len(from))] }
	m := newMachine(name, pick("coal", "wind", "nowhere"), pick("frugal", "frugal", "hungry", "benched"))
	if rng.IntN(5) == 0 {
		m.node.Annotations = map[string]string{
			"energy.thesis.io/current-watts": strconv.Itoa(rng.IntN(300)),
			"energy.thesis.io/last-updated":  strconv.FormatInt(noon.Add(time.Hour).Unix(), 10),
		}
	}
	m.fill(rng)
	return m
}

func (m *machine) fill(rng *rand.Rand) {
	m.generation = generations.Add(1)
	m.requested.cpu = int64(rng.IntN(4)) * 2000
	if m.pods = m.pods[:0]; m.requested.cpu > 0 {
		m.pods = append(m.pods, runningPod{pod: newPod()})
	}
}

// TestScoresAreThePlainOnes verifies that neither caching of nodes nor grouping by kind changes a score under any
// strategy, while pods are added and removed, nodes are replaced, and the view changes.
func TestScoresAreThePlainOnes(t *testing.T) {
	wheres, _ := strategy.Names()
	for _, where := range wheres {
		t.Run(where, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, uint64(len(where))))
			view := randomView(t, rng)
			d := deps(view)
			d.View = func() *kube.View { return view }
			e := newEnergyPlugin(t, d, "")
			cluster := make([]fwk.NodeInfo, 60)
			for i := range cluster {
				cluster[i] = randomMachine(rng, fmt.Sprintf("n%02d", i))
			}
			scored := 0
			for turn := range 300 {
				switch rng.IntN(10) {
				case 0:
					view = randomView(t, rng)
				case 1:
					i := rng.IntN(len(cluster))
					cluster[i] = randomMachine(rng, cluster[i].Node().Name)
				default:
					for range rng.IntN(3) {
						cluster[rng.IntN(len(cluster))].(*machine).fill(rng)
					}
				}
				if turn%3 == 0 {
					rng.Shuffle(len(cluster), func(i, k int) { cluster[i], cluster[k] = cluster[k], cluster[i] })
				}
				pod := newPod(v1alpha1.AnnotationStrategy, where)
				pod.Name, pod.UID = fmt.Sprint("p", turn), types.UID(fmt.Sprint("p", turn))
				pod.Labels = map[string]string{v1alpha1.LabelWorkloadClass: "training"}
				state, nodes := newCycle(), cluster[:1+rng.IntN(len(cluster))]
				status := score(t.Context(), e, state, pod, nodes)
				want := plainScores(t, e, state, nodes)
				if status.IsSkip() != (want == nil) {
					t.Fatalf("turn %d: PreScore() = %v, but opinion = %v", turn, status, want != nil)
				}
				if want == nil {
					continue
				}
				scored++
				if diff := cmp.Diff(want, points(t, e, state, pod, nodes)); diff != "" {
					t.Fatalf("turn %d: %s", turn, diff)
				}
				e.Reserve(t.Context(), state, pod, nodes[0].Node().Name)
			}
			if scored < 200 {
				t.Errorf("only %d pods were scored", scored)
			}
		})
	}
}

// TestBookIsBounded verifies that the size of the node book does not grow with pods and nodes that no longer exist.
func TestBookIsBounded(t *testing.T) {
	e := newEnergyPlugin(t, deps(knowledge(t, noon)), "")
	rng, pod := rand.New(rand.NewPCG(3, 3)), newPod(v1alpha1.AnnotationStrategy, "energy")
	nodes := farm(20)
	for turn := range 4000 {
		i := rng.IntN(len(nodes))
		if turn%2 == 0 {
			nodes[i] = newMachine(fmt.Sprint("n", turn), "coal", "frugal")
		}
		nodes[i].(*machine).fill(rng)
		nodes[i].(*machine).requested.cpu = int64(turn)
		if status := score(t.Context(), e, newCycle(), pod, nodes); !status.IsSuccess() {
			t.Fatal(status)
		}
		if most := 3*len(nodes) + slackStates; len(e.book.nodes) > most || len(e.book.seats) > most ||
			len(e.book.ofKind) > most {
			t.Fatalf("of %d nodes, the book has %d nodes of %d kinds", len(nodes), len(e.book.nodes), len(e.book.ofKind))
		}
	}
}
