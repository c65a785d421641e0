package sched

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// loadParts is the number of load levels that are distinguished when nodes are folded.
const loadParts = 8

// foldKey contains the properties that nodes must have in common to be folded into one.
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

// Fold groups similar nodes and returns one representative per group. Clusters use it to report their free capacity
// to each other. Nodes of a group have the same site, power profile, capacity, speed, PUE, benchmarks and meter
// reading. They are either all empty and asleep, all empty and awake, or all busy with about the same load, meaning
// the same eighth of CPU and memory and the same number of free GPUs. A representative has the name of the first
// node of its group, the number of nodes as Count, no labels, and the least free capacity within the group.
//
// Strategies that decide job by job place a job on one member of the group, and this member becomes a separate
// node. Strategies that match the whole queue consider every member. A job that fits the representative fits each
// member. Its cost is computed for the smallest free capacity in the group, so when sites are compared the error is
// at most twice the difference in the job's cost between members of a group. There is no error if power is linear
// in the load, or if the members are identical.
func Fold(nodes []*Node) []*Node {
	var folded []*Node
	of := map[foldKey]*Node{}
	for _, n := range NodesByName(nodes) {
		key := foldKey{
			site: n.Site, profile: n.Profile, capacity: n.Capacity, speed: n.Speed, pue: n.PUE,
			benchmarks: written(n.Benchmarks), works: n.Jobs > 0, awake: n.Awake,
			parts: Resources{
				MilliCPU: loadParts * n.Free.MilliCPU / max(n.Capacity.MilliCPU, 1),
				Memory:   loadParts * n.Free.Memory / max(n.Capacity.Memory, 1),
				GPU:      n.Free.GPU, MilliGPU: n.Free.MilliGPU,
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

// written returns a string that is equal for maps with equal contents.
func written(m map[string]energy.Benchmark) string {
	if len(m) == 0 {
		return ""
	}
	return fmt.Sprint(m)
}

// Multiplicity returns the number of nodes that n represents.
func (n *Node) Multiplicity() int { return cmp.Or(n.Count, 1) }

// PlaceOn places a job on the k-th node, or on one of the nodes that it represents. In the latter case, this node
// becomes a separate entry in front of its group, as in the order of names, unless another member of the group
// already has the same state.
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

// Unfold returns copies of all nodes that the given nodes represent, ordered by name.
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

// NodesByName returns the nodes in a new slice, sorted by name. Nodes with the same name keep their relative order.
func NodesByName(nodes []*Node) []*Node {
	sorted := slices.Clone(nodes)
	slices.SortStableFunc(sorted, func(a, b *Node) int { return cmp.Compare(a.Name, b.Name) })
	return sorted
}
