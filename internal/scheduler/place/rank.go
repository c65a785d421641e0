package place

import (
	"math"
	"slices"

	fwk "k8s.io/kube-scheduler/framework"
)

// bestScore is reserved for the node of least cost. What others say about it is worth less than the step below, at the
// weight that our configuration gives this plugin: so the best node wins, and is not one of many that round to 100.
const bestScore = fwk.MaxScore

// ranking is the outcome of PreScore, in memory that the next cycle uses again.
type ranking struct {
	of    *request // nil: no ranking is there
	names []string // of the nodes, as PreScore was given them
	group []int32  // by node: those of one group cost the same

	// By group.
	first  []int32 // its first node by name
	points []int64

	best int // node that has the best score instead of its group's points
}

// begin prepares a ranking of so many nodes, to be filled in.
func (r *ranking) begin(nodes int) {
	r.of = nil
	r.names, r.group = slices.Grow(r.names[:0], nodes)[:nodes], slices.Grow(r.group[:0], nodes)[:nodes]
	r.first, r.points, r.best = r.first[:0], r.points[:0], -1
}

// single makes a node a group of its own. Nodes come in their order.
func (r *ranking) single(i int, name string) {
	r.names[i], r.group[i] = name, int32(i)
	r.first = append(r.first, int32(i))
}

// rank turns the costs of groups into their points. The best node is the one of least cost, of equals the first by
// name. The others get at most bestScore − 1, in proportion to where their cost lies between the least and the
// largest. ok is false if costs cannot be compared.
func (r *ranking) rank(costs []float64) (ok bool) {
	least, largest := math.Inf(1), math.Inf(-1)
	for _, c := range costs {
		if math.IsNaN(c) || math.IsInf(c, 0) {
			return false
		}
		least, largest = min(least, c), max(largest, c)
	}
	span := largest - least
	if len(r.group) == 0 || math.IsInf(span, 0) {
		return false
	}
	for g, c := range costs {
		points := bestScore - 1
		if span != 0 {
			points = int64(float64(bestScore-1) * ((largest - c) / span))
		}
		r.points = append(r.points, points)
		if first := int(r.first[g]); c == least && (r.best < 0 || r.names[first] < r.names[r.best]) {
			r.best = first
		}
	}
	return true
}

// score is that of the node at a place.
func (r *ranking) score(i int) int64 {
	if i == r.best {
		return bestScore
	}
	return r.points[r.group[i]]
}

// fill writes the scores. kube-scheduler hands over the nodes as PreScore was given them; it does not promise that,
// so each name is compared, which costs no more than comparing two addresses.
func (r *ranking) fill(scores fwk.NodeScoreList) {
	for i := range scores {
		at := i
		if i >= len(r.names) || r.names[i] != scores[i].Name {
			at = slices.Index(r.names, scores[i].Name)
		}
		if at >= 0 {
			scores[i].Score = r.score(at)
		}
	}
}
