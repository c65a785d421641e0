package plugin

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
	of     *request // whose it is; nil: nobody's
	names  []string // of the nodes, as PreScore was given them
	group  []int32  // by node: those of one group cost the same
	scores []int64  // by node

	points []int64 // by group
}

// begin prepares a ranking of so many nodes.
func (r *ranking) begin(nodes int) {
	r.of = nil
	r.names, r.group, r.scores = r.names[:0], r.group[:0], slices.Grow(r.scores[:0], nodes)[:nodes]
}

// rank turns the costs of groups into scores of nodes. The best node is the one of least cost, of equals the first by name.
// The others get at most bestScore − 1, in proportion to where their cost lies between the least and the largest. ok is false
// if costs cannot be compared.
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
	r.points = r.points[:0]
	for _, c := range costs {
		points := bestScore - 1
		if span != 0 {
			points = int64(float64(bestScore-1) * ((largest - c) / span))
		}
		r.points = append(r.points, points)
	}
	best := -1
	for i, g := range r.group {
		r.scores[i] = r.points[g]
		if costs[g] == least && (best < 0 || r.names[i] < r.names[best]) {
			best = i
		}
	}
	r.scores[best] = bestScore
	return true
}

// fill writes the scores. kube-scheduler hands over the nodes as PreScore was given them; it does not promise that, so each
// name is compared, which costs no more than comparing two addresses.
func (r *ranking) fill(scores fwk.NodeScoreList) {
	for i := range scores {
		at := i
		if i >= len(r.names) || r.names[i] != scores[i].Name {
			at = slices.Index(r.names, scores[i].Name)
		}
		if at >= 0 {
			scores[i].Score = r.scores[at]
		}
	}
}
