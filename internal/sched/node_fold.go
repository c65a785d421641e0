package sched

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// loadParts is how finely the load of a node is told apart where many are folded into one.
const loadParts = 8

// foldKey is what nodes have in common that are folded into one.
type foldKey struct {
	site            *Site
	profile         *energy.Profile
	capacity        Resources
	speed, pue      float64
	benchmarks      string
	works, awake    bool
	parts           Resources // free loadParts of CPU and memory, and free GPUs
	hasLive         bool
	live, notInLive energy.Watts
}

// Fold returns few nodes that stand for many, as one cluster tells another of its room: those of the same site, power
// profile, capacity, speed, PUE, benchmarks and meter, all empty and asleep, all empty and awake, or all at work with
// about the same load, which is the same eighths of CPU and memory and the same GPUs. Each has the name of the first of
// its members, their Count, no labels, and as much room as the one that has least.
//
// Strategies that decide job by job place a job on one of the members, which from then on stands for itself; those
// that match a whole queue look at every member. A job that fits a folded node fits each member. What it costs there
// is what it costs on the member that has the least room, so between sites a strategy errs by at most twice what the
// job's cost differs between the members of a node: by nothing where power is linear in the load and where members are
// alike.
func Fold(nodes []*Node) []*Node {
	var folded []*Node
	of := map[foldKey]*Node{}
	for _, n := range NodesByName(nodes) {
		key := foldKey{
			site: n.Site, profile: n.Profile, capacity: n.Capacity, speed: n.Speed, pue: n.PUE,
			benchmarks: written(n.Benchmarks), works: n.Jobs > 0, awake: n.Awake,
			parts: Resources{
				MilliCPU: loadParts * n.Free.MilliCPU / max(n.Capacity.MilliCPU, 1),
				Memory:   loadParts * n.Free.Memory / max(n.Capacity.Memory, 1), GPU: n.Free.GPU,
			},
			hasLive: n.HasLive, live: n.Live, notInLive: n.Provisional,
		}
		one := of[key]
		if one == nil {
			one = new(*n)
			one.Labels, one.Count = nil, 0
			of[key] = one
			folded = append(folded, one)
		}
		one.Count += n.Multiplicity()
		one.Jobs = max(one.Jobs, n.Jobs)
		one.Free.MilliCPU = min(one.Free.MilliCPU, n.Free.MilliCPU)
		one.Free.Memory = min(one.Free.Memory, n.Free.Memory)
	}
	return folded
}

// written returns what makes two maps alike.
func written(m map[string]energy.Benchmark) string {
	if len(m) == 0 {
		return ""
	}
	return fmt.Sprint(m)
}

// Multiplicity returns how many nodes n stands for.
func (n *Node) Multiplicity() int { return cmp.Or(n.Count, 1) }

// PlaceOn places a job on the k-th of some nodes, or on one of those that it stands for. That one comes before the rest
// of them, as it does by name, unless another of them is like it by now.
func PlaceOn(nodes []Node, k int, j *Job) []Node {
	n := nodes[k]
	n.Provisional += n.Added(j)
	n = n.Place(j.Request)
	if n.Count <= 1 {
		nodes[k] = n
		return nodes
	}
	nodes[k].Count--
	n.Count = 1
	for i := range nodes {
		if o := &nodes[i]; o.Free == n.Free && o.Jobs == n.Jobs && o.Name == n.Name && o.Provisional == n.Provisional {
			o.Count++
			return nodes
		}
	}
	return slices.Insert(nodes, k, n)
}

// Unfold returns copies of all nodes that some stand for, in the order of their names.
func Unfold(nodes []*Node) (all []Node) {
	all = make([]Node, 0, len(nodes))
	for _, n := range NodesByName(nodes) {
		for i := range n.Multiplicity() {
			member := *n
			if member.Count = 0; i > 0 {
				member.Name = fmt.Sprintf("%s#%d", n.Name, i)
			}
			all = append(all, member)
		}
	}
	return all
}

// NodesByName returns the nodes in the order of their names, in a slice of its own. Nodes of one name keep their order.
func NodesByName(nodes []*Node) []*Node {
	sorted := slices.Clone(nodes)
	slices.SortStableFunc(sorted, func(a, b *Node) int { return cmp.Compare(a.Name, b.Name) })
	return sorted
}
