package place

import (
	"math"
	"slices"

	fwk "k8s.io/kube-scheduler/framework"
)

// bestScore is the score of the cheapest node only. With the default configuration, a difference of one point
// outweighs all other score plugins, so the cheapest node wins instead of being one of many that are rounded to
// 100.
const bestScore = fwk.MaxScore

// ranking is the result of PreScore. Its memory is reused by the next cycle.
type ranking struct {
	of    *request // nil if there is no ranking
	names []string // node names in the order of PreScore
	group []int32  // by node; the nodes of a group have the same cost

	// The following slices are indexed by group.
	first  []int32 // first node by name
	points []int64

	best int // index of the node with the best score
}

// begin resets the ranking for the given number of nodes.
func (r *ranking) begin(nodes int) {
	r.of = nil
	r.names, r.group = slices.Grow(r.names[:0], nodes)[:nodes], slices.Grow(r.group[:0], nodes)[:nodes]
	r.first, r.points, r.best = r.first[:0], r.points[:0], -1
}

// single makes a node a separate group. It must be called for all nodes in order.
func (r *ranking) single(i int, name string) {
	r.names[i], r.group[i] = name, int32(i)
	r.first = append(r.first, int32(i))
}

// rank converts the costs of the groups to scores. The cheapest node gets bestScore, and the first one by name if
// there are several. The other nodes get at most bestScore − 1, depending linearly on their costs. ok is false if
// the costs are not comparable.
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

// score returns the score of the node with the given index.
func (r *ranking) score(i int) int64 {
	if i == r.best {
		return bestScore
	}
	return r.points[r.group[i]]
}

// fill writes the scores. The nodes are usually in the same order as for PreScore, but kube-scheduler does not
// guarantee this, so the names are compared, which is cheap for identical strings.
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
