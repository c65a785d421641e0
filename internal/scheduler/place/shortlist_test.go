package place

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/lru"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/kube/panics"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
	"github.com/kubenergy/kubenergy/internal/scheduler/record"
)

// narrowing is a plugin with shortlists and a sample size that is set by the test.
type narrowing struct {
	*Energy
	activated []string
}

func newNarrowing(t *testing.T, most, sample int) *narrowing {
	t.Helper()
	n := &narrowing{Energy: newEnergyPlugin(t, deps(knowledge(t, noon)), "")}
	n.retries = &retries{
		again: &atomic.Pointer[v1.Pod]{}, failed: lru.New(memorable), first: func() bool { return true },
		activate: func(pod *v1.Pod) { n.activated = append(n.activated, pod.Name) },
	}
	n.shortlists = &shortlists{most: most, sample: func(int) int { return sample }, decide: func() bool { return true }}
	return n
}

// roomy returns a farm of nodes that can run further pods.
func roomy(nodes int) []fwk.NodeInfo {
	f := farm(nodes)
	for _, n := range f {
		n.(*machine).allocatable.pods = 110
	}
	return f
}

func (n *narrowing) cycle(t *testing.T, pod *v1.Pod, nodes []fwk.NodeInfo) ([]fwk.NodeInfo, *cycle) {
	t.Helper()
	state := newCycle()
	result, status := n.PreFilter(t.Context(), state, pod, nodes)
	if status.IsSkip() || result.AllNodes() {
		return nil, state
	}
	var left []fwk.NodeInfo
	for _, info := range nodes {
		if result.NodeNames.Has(info.Node().Name) {
			left = append(left, info)
		}
	}
	if len(left) != len(result.NodeNames) {
		t.Fatalf("narrowed to %v, but %d of these nodes exist", result.NodeNames, len(left))
	}
	return left, state
}

// names returns the nodes to which the cycle of an ordinary pod is narrowed.
func (n *narrowing) names(t *testing.T, nodes []fwk.NodeInfo) (names []string) {
	t.Helper()
	left, _ := n.cycle(t, newPod(v1alpha1.AnnotationStrategy, "energy"), nodes)
	for _, info := range left {
		names = append(names, info.Node().Name)
	}
	return names
}

// fill increases the requested CPU of a node.
func fill(nodes []fwk.NodeInfo, name string, cpu int64) {
	for _, info := range nodes {
		if m := info.(*machine); m.node.Name == name {
			m.requested.cpu, m.generation = cpu, generations.Add(1)
		}
	}
}

// best returns the highest ranked of the given nodes.
func (n *narrowing) best(t *testing.T, state fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo) string {
	t.Helper()
	if status := n.PreScore(t.Context(), state, pod, nodes); !status.IsSuccess() {
		t.Fatal(status)
	}
	scores := make(fwk.NodeScoreList, len(nodes))
	for i, info := range nodes {
		scores[i].Name = info.Node().Name
	}
	n.NormalizeScore(t.Context(), state, pod, scores)
	return slices.MaxFunc(scores, func(a, b fwk.NodeScore) int { return int(a.Score - b.Score) }).Name
}

// TestShortlistsHaveTheBest verifies that a narrowed cycle chooses the same node as a cycle over all nodes,
// regardless of the nodes that filters reject, while pods are added and removed, and nodes are full, crowded or
// tainted.
func TestShortlistsHaveTheBest(t *testing.T) {
	wheres, _ := strategy.Names()
	narrowed := 0
	for _, where := range wheres {
		rng := rand.New(rand.NewPCG(3, uint64(len(where))))
		n := newNarrowing(t, 8, 1000)
		nodes := make([]fwk.NodeInfo, 150)
		for i := range nodes {
			m := randomMachine(rng, fmt.Sprintf("n%03d", i))
			m.node.Annotations = nil
			m.allocatable.pods = 110
			nodes[i] = m
		}
		for range 30 {
			for range 10 {
				m := nodes[rng.IntN(len(nodes))].(*machine)
				m.fill(rng)
				m.allocatable.pods = 110 * rng.IntN(4)
				m.node.Spec.Taints = nil
				if rng.IntN(4) == 0 {
					m.node.Spec.Taints = []v1.Taint{{Key: "x", Effect: v1.TaintEffectNoSchedule}}
				}
			}
			pod := newPod(v1alpha1.AnnotationStrategy, where)
			pod.UID = types.UID(strconv.FormatUint(rng.Uint64(), 10))
			left, state := n.cycle(t, pod, nodes)
			if left == nil {
				continue
			}
			narrowed++
			for _, info := range left {
				if m := info.(*machine); len(m.pods) >= m.allocatable.pods ||
					m.requested.cpu+1000 > m.allocatable.cpu || len(m.node.Spec.Taints) > 0 {
					t.Fatalf("%s: %s is on the shortlist", where, m.node.Name)
				}
			}
			refused := map[string]bool{} // all but at least one
			for _, info := range left[1:] {
				refused[info.Node().Name] = rng.IntN(2) == 0
			}
			pass := func(from []fwk.NodeInfo) (passed []fwk.NodeInfo) {
				for _, info := range from {
					m := info.(*machine)
					if !refused[m.node.Name] && len(m.pods) < m.allocatable.pods &&
						m.requested.cpu+1000 <= m.allocatable.cpu && len(m.node.Spec.Taints) == 0 {
						passed = append(passed, info)
					}
				}
				return passed
			}
			got := n.best(t, state, pod, pass(left))
			scores := plainScores(t, n.Energy, state, pass(nodes))
			want := slices.MaxFunc(scores, func(a, b fwk.NodeScore) int { return int(a.Score - b.Score) }).Name
			if got != want {
				t.Fatalf("%s: %s is chosen from the shortlist, want %s", where, got, want)
			}
			if rng.IntN(2) == 0 {
				n.Reserve(context.Background(), state, pod, got)
			}
		}
	}
	if narrowed < 100 {
		t.Errorf("only %d cycles are narrowed", narrowed)
	}
}

// TestShortlistsOutsideOfPlans verifies that a pod that is not planned has the same costs under a planning strategy
// as under the strategy that defines its cost function.
func TestShortlistsOutsideOfPlans(t *testing.T) {
	for where, like := range map[string]string{
		"flow-energy": "energy", "flow-carbon": "carbon", "ecsched-energy": "energy", "ecsched-carbon": "carbon",
	} {
		names := func(where string) (names []string) {
			n := newNarrowing(t, 5, 50)
			left, _ := n.cycle(t, newPod(v1alpha1.AnnotationStrategy, where), roomy(200))
			for _, info := range left {
				names = append(names, info.Node().Name)
			}
			return names
		}
		got, want := names(where), names(like)
		if len(got) != 5 || !slices.Equal(got, want) {
			t.Errorf("%s narrows to %v, %s to %v", where, got, like, want)
		}
	}
}

func TestShortlistsAreOfTheSample(t *testing.T) {
	n := newNarrowing(t, 5, 50)
	nodes := roomy(200)
	pod := newPod(v1alpha1.AnnotationStrategy, "energy")
	seen := map[string]bool{}
	for range 4 {
		left, _ := n.cycle(t, pod, nodes)
		if len(left) != 5 {
			t.Fatalf("narrowed to %d nodes", len(left))
		}
		for _, m := range n.shortlists.members {
			seen[n.book.seats[m.seat].name] = true
		}
	}
	if len(seen) != 200 {
		t.Errorf("four samples of 50 nodes cover %d of 200 nodes", len(seen))
	}
}

func TestCyclesThatAreNotNarrowed(t *testing.T) {
	nodes := roomy(200)
	ours := func(change func(*v1.Pod)) *v1.Pod {
		pod := newPod(v1alpha1.AnnotationStrategy, "energy")
		pod.UID = "p"
		change(pod)
		return pod
	}
	for name, tc := range map[string]struct {
		pod   *v1.Pod
		setUp func(*narrowing)
		nodes []fwk.NodeInfo
	}{
		"another strategy": {pod: newPod(v1alpha1.AnnotationStrategy, "hybrid")},
		"not ours":         {pod: newPod()},
		"a host port": {pod: ours(func(p *v1.Pod) {
			p.Spec.Containers[0].Ports = []v1.ContainerPort{{HostPort: 80}}
		})},
		"a preference": {pod: ours(func(p *v1.Pod) {
			p.Spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []v1.PreferredSchedulingTerm{{Weight: 1}}}}
		})},
		"spread": {pod: ours(func(p *v1.Pod) {
			p.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{{MaxSkew: 1}}
		})},
		"a device": {pod: ours(func(p *v1.Pod) {
			p.Spec.Containers[0].Resources.Requests["nvidia.com/gpu"] = amount("1")
		})},
		"a ReplicaSet": {pod: ours(func(p *v1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Controller: new(true)}}
		})},
		"preemption": {pod: ours(func(p *v1.Pod) { p.Status.NominatedNodeName = "n0001" })},
		"has failed": {pod: ours(func(p *v1.Pod) {
			p.Status.Conditions = []v1.PodCondition{{
				Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: v1.PodReasonUnschedulable,
			}}
		})},
		"largest power": {pod: ours(func(p *v1.Pod) { p.Annotations[v1alpha1.AnnotationMaxPower] = "100" })},
		"too large": {pod: ours(func(p *v1.Pod) {
			p.Spec.Containers[0].Resources.Requests["cpu"] = amount("9")
		})},
		"no matching node": {pod: ours(func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{"x": "y"} })},
		"few nodes":        {pod: ours(func(*v1.Pod) {}), nodes: nodes[:100]},
		"insufficient weight": {pod: ours(func(*v1.Pod) {}), setUp: func(n *narrowing) {
			n.shortlists.decide = func() bool { return false }
		}},
		"not the first PostFilter plugin": {pod: ours(func(*v1.Pod) {}), setUp: func(n *narrowing) {
			n.retries.first = func() bool { return false }
		}},
		"switched off": {pod: ours(func(*v1.Pod) {}), setUp: func(n *narrowing) { n.shortlists = nil }},
	} {
		n := newNarrowing(t, 5, 100)
		if tc.setUp != nil {
			tc.setUp(n)
		}
		if tc.nodes == nil {
			tc.nodes = nodes
		}
		if left, _ := n.cycle(t, tc.pod, tc.nodes); left != nil {
			t.Errorf("%s: narrowed to %d nodes", name, len(left))
		}
	}
	n := newNarrowing(t, 5, 200)
	last := nodes[199].(*machine).node
	last.Spec.Taints = []v1.Taint{{Key: "slow", Effect: v1.TaintEffectPreferNoSchedule}}
	nodes[199].(*machine).generation = generations.Add(1)
	if left, _ := n.cycle(t, ours(func(*v1.Pod) {}), nodes); left != nil {
		t.Error("narrowed despite a PreferNoSchedule taint")
	}
	last.Spec.Taints = nil
	nodes[199].(*machine).generation = generations.Add(1)
	if left, _ := n.cycle(t, ours(func(*v1.Pod) {}), nodes); len(left) != 5 {
		t.Errorf("the cycle of an ordinary pod is narrowed to %d nodes", len(left))
	}
	job := ours(func(p *v1.Pod) { p.OwnerReferences = []metav1.OwnerReference{{Kind: "Job", Controller: new(true)}} })
	if left, _ := n.cycle(t, job, nodes); len(left) != 5 {
		t.Errorf("the cycle of a Job's pod is narrowed to %d nodes", len(left))
	}
}

// TestNodesChangeMeanwhile verifies that a node of the shortlist is scored with its costs at that time.
func TestNodesChangeMeanwhile(t *testing.T) {
	n := newNarrowing(t, 5, 200)
	nodes := roomy(200)
	pod := newPod(v1alpha1.AnnotationStrategy, "most-allocated")
	left, state := n.cycle(t, pod, nodes)
	before := n.best(t, state, pod, left)
	for _, info := range left {
		if m := info.(*machine); m.node.Name == before {
			m.requested, m.generation = amounts{}, generations.Add(1)
		}
	}
	scores := plainScores(t, n.Energy, state, left)
	want := slices.MaxFunc(scores, func(a, b fwk.NodeScore) int { return int(a.Score - b.Score) }).Name
	if got := n.best(t, state, pod, left); got != want || got == before {
		t.Errorf("the best node is %s, want %s; it was %s before", got, want, before)
	}
}

// TestNodesGo verifies that shortlists are valid if nodes of a full cluster are deleted.
func TestNodesGo(t *testing.T) {
	n := newNarrowing(t, 5, 200)
	nodes := roomy(200)
	slices.Reverse(nodes) // the cheapest nodes are the last
	if left, _ := n.cycle(t, newPod(v1alpha1.AnnotationStrategy, "energy"), nodes); len(left) != 5 {
		t.Fatalf("narrowed to %d", len(left))
	}
	nodes = nodes[:120]
	fill := func(cpu int64) {
		for _, info := range nodes {
			info.(*machine).requested.cpu, info.(*machine).generation = cpu, generations.Add(1)
		}
	}
	fill(8000)
	if left, _ := n.cycle(t, newPod(v1alpha1.AnnotationStrategy, "energy"), nodes); left != nil {
		t.Fatalf("narrowed to %d full nodes", len(left))
	}
	fill(1000)
	if left, _ := n.cycle(t, newPod(v1alpha1.AnnotationStrategy, "energy"), nodes); len(left) != 5 {
		t.Errorf("narrowed to %d nodes after capacity was freed", len(left))
	}
}

// TestManyShortlistsInVain verifies that narrowing is suspended after many failures, and that a successful
// shortlist resets the count.
func TestManyShortlistsInVain(t *testing.T) {
	n := newNarrowing(t, 5, 200)
	now, nodes := noon, roomy(200)
	n.clock = func() time.Time { return now }
	try := func(inVain bool) (narrowed bool) {
		pod := newPod(v1alpha1.AnnotationStrategy, "energy")
		pod.UID = types.UID(strconv.FormatInt(generations.Add(1), 10))
		left, state := n.cycle(t, pod, nodes)
		switch {
		case left == nil:
			return false
		case inVain:
			n.PostFilter(t.Context(), state, pod, nil)
		default:
			n.Reserve(t.Context(), state, pod, left[0].Node().Name)
		}
		return true
	}
	for i := range maxFailures {
		if !try(true) {
			t.Fatalf("not narrowed after %d failures", i)
		}
	}
	if try(true) {
		t.Error("still narrowed")
	}
	now = now.Add(firstPause)
	if !try(true) || try(true) {
		t.Error("not narrowed exactly once after the pause")
	}
	now = now.Add(firstPause)
	if try(true) {
		t.Error("the second pause is not longer than the first")
	}
	now = now.Add(firstPause)
	if !try(false) || !try(true) || !try(true) {
		t.Error("not narrowed after a successful shortlist")
	}
}

// TestTheViewChangesMeanwhile verifies that the plugin ends a failed narrowed cycle even if the pod is no longer
// marked.
func TestTheViewChangesMeanwhile(t *testing.T) {
	n := newNarrowing(t, 5, 200)
	pod := newPod(v1alpha1.AnnotationStrategy, "energy")
	_, state := n.cycle(t, pod, roomy(200))
	n.view = kube.Unsettled
	pod.Annotations = nil
	if _, status := n.PostFilter(t.Context(), state, pod, nil); status.Code() != fwk.UnschedulableAndUnresolvable {
		t.Errorf("other pods may be evicted: %v", status)
	}
}

// profile is a handle with the same additional methods as that of kube-scheduler.
type profile struct {
	fwk.Handle
	percentage *int32
	extenders  int
	plugins    struct {
		Score, PostFilter struct {
			Enabled []struct {
				Name   string
				Weight int32
			}
		}
	}
}

func (p *profile) PercentageOfNodesToScore() *int32 { return p.percentage }
func (p *profile) Extenders() []fwk.Extender        { return make([]fwk.Extender, p.extenders) }
func (p *profile) ListPlugins() any                 { return &p.plugins }

func TestWhatProfilesSay(t *testing.T) {
	with := func(weights ...any) *profile {
		p := &profile{}
		for i := 0; i < len(weights); i += 2 {
			p.plugins.Score.Enabled = append(p.plugins.Score.Enabled, struct {
				Name   string
				Weight int32
			}{weights[i].(string), int32(weights[i+1].(int))})
		}
		return p
	}
	extended := with(EnergyName, 300)
	extended.extenders = 1
	for name, tc := range map[string]struct {
		profile  *profile
		want     bool
		replaced []string
	}{
		"default": {profile: with("TaintToleration", 3, "NodeResourcesFit", 1, "NodeResourcesBalancedAllocation", 1,
			"ImageLocality", 1, EnergyName, 300), want: true},
		"second scheduler": {
			profile:  with(EnergyName, 100, "TaintToleration", 3, "NodeAffinity", 2, "NodeResourcesFit", 1),
			replaced: []string{"NodeResourcesFit"}, want: true,
		},
		"second scheduler without replaced plugins": {profile: with(EnergyName, 100, "NodeResourcesFit", 1,
			"NodeResourcesBalancedAllocation", 1)},
		"second scheduler before": {profile: with(EnergyName, 100, "TaintToleration", 3, "NodeAffinity", 2), want: true},
		"one scorer among many":   {profile: with("NodeResourcesFit", 1, EnergyName, 99)},
		"an unknown scorer": {profile: with("Somebody", 1, "NodeResourcesFit", 1, "NodeResourcesBalancedAllocation", 1,
			"ImageLocality", 1, EnergyName, 300)},
		"without us":       {profile: with("NodeResourcesFit", 1)},
		"no scorer":        {profile: with()},
		"with an extender": {profile: extended},
	} {
		if got := newShortlists(32, tc.replaced, tc.profile).decide(); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	all := with()
	all.percentage = new(int32(100))
	for p, want := range map[*profile]int{with(): 500, all: 5000} {
		if got := newShortlists(32, nil, p).sample(5000); got != want {
			t.Errorf("a sample of %d, want %d", got, want)
		}
	}
	if newShortlists(0, nil, all) != nil {
		t.Error("there are shortlists although they are disabled")
	}
}

// TestAfterAShortlistInVain verifies that after a failed shortlist, no other plugin attempts preemption, and the
// pod is immediately retried on all nodes.
func TestAfterAShortlistInVain(t *testing.T) {
	n := newNarrowing(t, 5, 100)
	nodes := roomy(200)
	pod := newPod(v1alpha1.AnnotationStrategy, "energy")
	pod.UID, pod.Name = "x", "x"
	left, state := n.cycle(t, pod, nodes)
	if len(left) != 5 {
		t.Fatalf("narrowed to %d", len(left))
	}
	if _, status := n.PostFilter(t.Context(), state, pod, nil); status.Code() != fwk.UnschedulableAndUnresolvable {
		t.Errorf("after a failed shortlist: %v", status)
	}
	n.cycle(t, newPod(), nodes) // an unmarked pod
	if !slices.Equal(n.activated, []string{"x", "x"}) {
		t.Errorf("activated %v", n.activated)
	}
	left, state = n.cycle(t, pod, nodes)
	if left != nil {
		t.Error("narrowed again")
	}
	if _, status := n.PostFilter(t.Context(), state, pod, nil); status.Code() != fwk.Unschedulable {
		t.Errorf("after an ordinary cycle: %v", status)
	}
}

// TestTrust verifies that nodes on the shortlist are read again immediately, and other nodes only after a while.
func TestTrust(t *testing.T) {
	n := newNarrowing(t, 5, 200)
	now := noon
	n.clock = func() time.Time { return now }
	n.shortlists.trust = trust
	nodes := roomy(200)
	names := func() []string { return n.names(t, nodes) }
	fill := func(name string, cpu int64) { fill(nodes, name, cpu) }
	first := names()
	for _, name := range first {
		fill(name, 8000)
	}
	second := names()
	if slices.ContainsFunc(second, func(name string) bool { return slices.Contains(first, name) }) || len(second) != 5 {
		t.Errorf("%v are full, but narrowed to %v", first, second)
	}
	fill(first[0], 0)
	if slices.Contains(names(), first[0]) {
		t.Error("a freed node is listed immediately, so no cached state is used")
	}
	fill(first[0], 2000)
	now = now.Add(trust)
	if got := names(); !slices.Contains(got, first[0]) {
		t.Errorf("%s has capacity again, but narrowed to %v", first[0], got)
	}
	// The list contains other nodes, but has the same length.
	nodes = roomy(200)
	for i, info := range nodes {
		m := info.(*machine)
		m.node.Name, m.allocatable.pods = fmt.Sprintf("other%d", i), 110
	}
	if got := names(); len(got) != 5 || slices.ContainsFunc(got,
		func(name string) bool { return !strings.HasPrefix(name, "other") }) {
		t.Errorf("narrowed to %v", got)
	}
}

// TestSamplesServeForAWhile verifies that pods within a short time share a sample, which is extended for pods that
// do not find enough feasible nodes in it, and that the next sample contains other nodes.
func TestSamplesServeForAWhile(t *testing.T) {
	n := newNarrowing(t, 5, 50)
	now := noon
	n.clock = func() time.Time { return now }
	n.shortlists.trust = trust
	nodes := roomy(200)
	for i, info := range nodes {
		info.(*machine).requested.cpu = int64(4000 * (i % 2)) // of 8000
	}
	from := func(cpu string, seen, members int) (first int32) {
		t.Helper()
		pod := newPod(v1alpha1.AnnotationStrategy, "energy")
		pod.Spec.Containers[0].Resources.Requests["cpu"] = amount(cpu)
		left, _ := n.cycle(t, pod, nodes)
		l := n.shortlists
		if len(left) != 5 || l.seen != seen || len(l.members) != members {
			t.Fatalf("narrowed to %d nodes of a sample of %d with %d members, want 5 of %d with %d", len(left), l.seen,
				len(l.members), seen, members)
		}
		return l.members[0].at
	}
	small := from("1", 50, 50)
	if large, again := from("5", 99, 99), from("1", 50, 99); large != small || again != small {
		t.Errorf("concurrent pods have samples that start at the nodes %d, %d and %d", small, large, again)
	}
	now = now.Add(trust)
	if next := from("1", 50, 50); next != small+50 {
		t.Errorf("the next sample starts at node %d, but small pods examined 50 nodes from node %d", next, small)
	}
}

// TestPodsThatFindRoomNowhere verifies that a pod that examines all nodes does not affect the sample of other pods.
func TestPodsThatFindRoomNowhere(t *testing.T) {
	n := newNarrowing(t, 5, 50)
	now := noon
	n.clock = func() time.Time { return now }
	n.shortlists.trust = trust
	nodes, begins := roomy(200), map[int32]bool{}
	for range 4 {
		large := newPod(v1alpha1.AnnotationStrategy, "energy")
		large.Spec.Containers[0].Resources.Requests["cpu"] = amount("9")
		if left, _ := n.cycle(t, large, nodes); left != nil {
			t.Fatalf("narrowed to %d", len(left))
		}
		n.cycle(t, newPod(v1alpha1.AnnotationStrategy, "energy"), nodes)
		begins[n.shortlists.members[0].at] = true
		now = now.Add(trust)
	}
	if len(begins) != 4 {
		t.Errorf("four samples start at %v", begins)
	}
}

// TestAfterOneInVainComeOthers verifies that other nodes are listed after a filter of another plugin has rejected
// the cheapest nodes, which remain unchanged.
func TestAfterOneInVainComeOthers(t *testing.T) {
	n := newNarrowing(t, 5, 50)
	n.clock = func() time.Time { return noon }
	n.shortlists.trust = trust
	nodes := roomy(200)
	first, state := n.cycle(t, newPod(v1alpha1.AnnotationStrategy, "energy"), nodes)
	n.PostFilter(t.Context(), state, newPod(v1alpha1.AnnotationStrategy, "energy"), nil)
	other := newPod(v1alpha1.AnnotationStrategy, "energy")
	other.UID = "other"
	next, _ := n.cycle(t, other, nodes)
	if len(next) != 5 || slices.ContainsFunc(next, func(info fwk.NodeInfo) bool {
		return slices.Contains(first, info)
	}) {
		t.Errorf("narrowed to %v, and then to %v", first, next)
	}
}

// TestSamplesThatHoldNoLonger verifies that a sample is discarded if positions of nodes change, the view changes or
// the clock is set back.
func TestSamplesThatHoldNoLonger(t *testing.T) {
	n := newNarrowing(t, 5, 200)
	now := noon
	n.clock = func() time.Time { return now }
	n.shortlists.trust = trust
	nodes := roomy(200)
	names := func() []string { return n.names(t, nodes) }
	fill := func(name string, cpu int64) { fill(nodes, name, cpu) }
	best := names()

	others := slices.IndexFunc(nodes, func(info fwk.NodeInfo) bool { return !slices.Contains(best, info.Node().Name) })
	nodes[others], nodes[others+1] = nodes[others+1], nodes[others]
	for _, name := range best {
		fill(name, 8000)
	}
	second := names()
	for _, name := range second {
		if slices.Contains(best, name) {
			t.Errorf("%s is full", name)
		}
	}

	fill(best[0], 2000) // no cycle notices the change while the sample is valid
	if slices.Contains(names(), best[0]) {
		t.Fatal("the node was read again")
	}
	now = now.Add(-time.Hour)
	if !slices.Contains(names(), best[0]) {
		t.Error("the sample is still used after the clock was set back")
	}

	fill(best[1], 2000)
	other := knowledge(t, noon)
	n.view = func() *kube.View { return other }
	if !slices.Contains(names(), best[1]) {
		t.Error("the sample is still used after the view has changed")
	}
}

func TestSampleSize(t *testing.T) {
	for _, tc := range []struct{ nodes, percentage, want int }{
		{101, 0, 100},
		{1000, 0, 420},
		{5000, 0, 500},
		{15_000, 0, 750},
		{1000, 100, 1000},
		{5000, 3, 150},
		{500, 1, 100},
	} {
		if got := sampleSize(tc.nodes, tc.percentage); got != tc.want {
			t.Errorf("sampleSize(%d, %d) = %d, want %d", tc.nodes, tc.percentage, got, tc.want)
		}
	}
}

// TestShortlistsAreRecorded verifies that a record contains more nodes than the shortlist, and that replaying the
// decision yields the same node.
func TestShortlistsAreRecorded(t *testing.T) {
	nodes, chosen := roomy(200), ""
	got := recorded(t, func(r *record.Recorder) {
		n := newNarrowing(t, 5, 120)
		n.recorder = r
		pod := newPod(v1alpha1.AnnotationStrategy, "energy")
		pod.UID = "p"
		left, state := n.cycle(t, pod, nodes)
		chosen = n.best(t, state, pod, left[2:]) // two nodes are rejected by a filter of another plugin
		n.Reserve(t.Context(), state, pod, chosen)
		n.PostBind(t.Context(), state, pod, chosen)
	})
	if len(got) != 1 {
		t.Fatalf("%d records", len(got))
	}
	s := unpacked(t, got[0].Snapshot)
	if len(s.Nodes) < 50 { // capacity of a record
		t.Errorf("%d of 120 sampled nodes are recorded", len(s.Nodes))
	}
	if plan, err := replay(s, got[0].Strategy); err != nil || plan[0].Node != chosen {
		t.Errorf("the replayed decision is %+v, error %v, want %s", plan, err, chosen)
	}
}

// TestNarrowedWithoutAnOpinion verifies that a pod with a narrowed cycle is retried on all nodes if the strategy
// has no opinion at a later point. The default scores would otherwise choose only among the cheapest nodes.
func TestNarrowedWithoutAnOpinion(t *testing.T) {
	t.Cleanup(panics.Reset)
	broken := func() *kube.View { panic("planted") }
	unopted := func() *kube.View { return &kube.View{} }
	for _, tc := range []struct {
		name      string
		preScored bool // the opinion is missing only after PreScore
		view      func() *kube.View
		nodes     int // number of nodes in the cluster
		want      fwk.Code
	}{
		{"PreScore panics", false, broken, 200, fwk.UnschedulableAndUnresolvable},
		{"PreScore sees another view", false, unopted, 200, fwk.UnschedulableAndUnresolvable},
		{"NormalizeScore panics", true, broken, 200, fwk.UnschedulableAndUnresolvable},
		{"NormalizeScore sees another view", true, unopted, 200, fwk.UnschedulableAndUnresolvable},
		{"PreScore panics, not narrowed", false, broken, 50, fwk.Skip},
		{"PreScore sees another view, not narrowed", false, unopted, 50, fwk.Skip},
		{"NormalizeScore panics, not narrowed", true, broken, 50, fwk.Success},
		{"NormalizeScore sees another view, not narrowed", true, unopted, 50, fwk.Success},
	} {
		t.Run(tc.name, func(t *testing.T) {
			panics.Reset()
			n := newNarrowing(t, 5, 100)
			// The pod has no annotation, and is only marked by its namespace in the second view.
			optedIn := optedInView(t)
			n.view = func() *kube.View { return optedIn }
			pod, state, nodes := newPod(), newCycle(), roomy(tc.nodes)
			pod.UID = "x"
			if left, s := n.cycle(t, pod, nodes); left != nil {
				nodes, state = left, s
			} else if state = s; tc.nodes > fewNodes {
				t.Fatal("not narrowed")
			}
			scores := fwk.NodeScoreList{{Name: nodes[0].Node().Name}}
			var status *fwk.Status
			if tc.preScored {
				if status = n.PreScore(t.Context(), state, pod, nodes); !status.IsSuccess() {
					t.Fatal(status)
				}
				n.view = tc.view
				status = n.NormalizeScore(t.Context(), state, pod, scores)
				if n.unrecorded.of != nil {
					t.Error("the opinion is recorded as the reason")
				}
			} else {
				n.view = tc.view
				status = n.PreScore(t.Context(), state, pod, nodes)
			}
			if status.Code() != tc.want || scores[0].Score != 0 {
				t.Errorf("status %v, score %d", status, scores[0].Score)
			}
			n.view = func() *kube.View { return optedIn }
			if left, _ := n.cycle(t, pod, roomy(tc.nodes)); left != nil {
				t.Error("the next cycle is narrowed too")
			}
		})
	}
}

// optedInView returns a view in which the pods of the namespace lab are marked.
func optedInView(t *testing.T) *kube.View {
	t.Helper()
	c := kube.Contents{
		Profiles: []*kube.NodeProfile{
			{Profile: energy.Profile{Name: "frugal", Idle: 50, Max: 100, Sleep: 50}},
			{Profile: energy.Profile{Name: "hungry", Idle: 100, Max: 400, Sleep: 100}},
		},
		Namespaces: []policy.NamespaceMarks{{Name: "lab", Labels: map[string]string{v1alpha1.LabelMode: "enforce"}}},
	}
	c.Defaults.Where = "energy"
	v, err := c.View()
	if err != nil {
		t.Fatal(err)
	}
	return v
}
