package forecast

import (
	"math"
	"math/rand/v2"
	"slices"
)

// trees are the third stage: gradient-boosted decision trees for the residuals of the second one, with the
// percentage error as loss.
type trees []tree

// tree is a complete binary tree: node i has the children 2i+1 and 2i+2. A node without a split sends all rows to
// its left child.
type tree struct {
	feature   [1<<depth - 1]int32
	threshold [1<<depth - 1]float64
	leaf      [1 << depth]float64
}

const (
	treeCount   = 120
	depth       = 4
	minRows     = 150 // per leaf
	learnRate   = 0.05
	leafPenalty = 80
	treeBins    = 48
	treePairs   = 45_000
	rowShare    = 0.5
	columnShare = 0.3
	softness    = 0.05 // smoothing of the percentage error around zero
	treeWeight  = 0.5  // weight of the trees in the forecast
)

// leafOf returns the value of a leaf. right reports whether a node sends the example to its right child.
func (t *tree) leafOf(right func(node int) bool) float64 {
	i := 0
	for i < len(t.feature) {
		child := 2*i + 1
		if right(i) {
			child++
		}
		i = child
	}
	return t.leaf[i-len(t.feature)]
}

func (ts trees) of(x []float64) float64 {
	sum := 0.0
	for i := range ts {
		t := &ts[i]
		sum += t.leafOf(func(node int) bool { return x[t.feature[node]] > t.threshold[node] })
	}
	return sum
}

// examples are the training data of trees.
type examples struct {
	features int
	bins     [][]uint8   // by feature and row
	edges    [][]float64 // bin b of a feature contains the values above edge b-1, up to edge b
	targets  []float64
	scores   []float64 // current forecast for each row
}

// newExamples assigns the values of the rows, which have the given width, to bins.
func newExamples(rows []float64, width int, targets, scores []float64) *examples {
	n := len(targets)
	e := &examples{
		features: width, targets: targets, scores: scores, bins: make([][]uint8, width),
		edges: make([][]float64, width),
	}
	// The edges are quantiles of a sample of the rows, which are in random order.
	sample := make([]float64, min(n, 6000))
	for j := range width {
		for i := range sample {
			sample[i] = rows[i*width+j]
		}
		slices.Sort(sample)
		for b := 1; b < treeBins; b++ {
			edge := sample[b*(len(sample)-1)/treeBins]
			if have := e.edges[j]; len(have) == 0 || edge > have[len(have)-1] {
				e.edges[j] = append(have, edge)
			}
		}
		e.bins[j] = make([]uint8, n)
		for i := range n {
			b, _ := slices.BinarySearch(e.edges[j], rows[i*width+j])
			e.bins[j][i] = uint8(b) // at most treeBins
		}
	}
	return e
}

// binSum contains the sums of gradients and weights of the rows in a bin.
type binSum struct {
	g, u float64
	n    int
}

// boost trains trees and updates the scores of the examples.
func (e *examples) boost(random *rand.Rand) trees {
	n := len(e.targets)
	b := &booster{examples: e, g: make([]float64, n), u: make([]float64, n), random: random}
	b.rows = make([]int32, 0, n)
	b.spare = make([]int32, n)
	ts := make(trees, treeCount)
	for i := range ts {
		b.gradients()
		b.grow(&ts[i])
		for row := range n {
			e.scores[row] += ts[i].leafOf(func(node int) bool {
				return b.bins[ts[i].feature[node]][row] > b.split[node]
			})
		}
	}
	return ts
}

type booster struct {
	*examples
	g, u    []float64 // gradient and curvature of the loss of each row
	rows    []int32   // sampled rows
	spare   []int32
	columns []int
	split   [1<<depth - 1]uint8
	random  *rand.Rand
}

// gradients computes the gradient and curvature of the loss, which is the percentage error as a function of the
// logarithm, smoothed around zero.
func (b *booster) gradients() {
	for i, y := range b.targets {
		r := min(max(y-b.scores[i], -1), 1.5)
		q := math.Exp(-r)
		z := 1 - q
		d := math.Sqrt(z*z + softness*softness)
		b.g[i], b.u[i] = z*q/d, q*q/d
	}
}

// grow trains one tree on a sample of rows and columns.
func (b *booster) grow(t *tree) {
	b.rows = b.rows[:0]
	for i := range b.targets {
		if b.random.Float64() < rowShare {
			b.rows = append(b.rows, int32(i)) // at most treePairs
		}
	}
	b.columns = b.random.Perm(b.features)[:max(1, int(columnShare*float64(b.features)))]
	slices.Sort(b.columns)
	b.node(t, 0, b.rows, b.histogram(b.rows))
}

// histogram sums up the rows by bin of each sampled column.
func (b *booster) histogram(rows []int32) []binSum {
	h := make([]binSum, len(b.columns)*treeBins)
	for c, column := range b.columns {
		bins, sums := b.bins[column], h[c*treeBins:(c+1)*treeBins]
		for _, i := range rows {
			s := &sums[bins[i]]
			s.g += b.g[i]
			s.u += b.u[i]
			s.n++
		}
	}
	return h
}

// node grows the subtree of node i for the given rows.
func (b *booster) node(t *tree, i int, rows []int32, h []binSum) {
	if i >= len(t.feature) {
		var total binSum
		for _, s := range h[:treeBins] {
			total.g += s.g
			total.u += s.u
		}
		t.leaf[i-len(t.feature)] = learnRate * total.g / (total.u + leafPenalty)
		return
	}
	column, bin := b.best(h)
	if column < 0 {
		t.threshold[i], t.feature[i], b.split[i] = math.Inf(1), 0, math.MaxUint8
		b.node(t, 2*i+1, rows, h)
		return
	}
	feature := b.columns[column]
	t.feature[i] = int32(feature) // the number of features is small
	t.threshold[i] = b.edges[feature][bin]
	b.split[i] = uint8(bin) // at most treeBins
	left, right := b.divide(rows, b.bins[feature], b.split[i])
	// The histogram of the larger child is the difference between the parent and the smaller child.
	small := left
	if len(right) < len(left) {
		small = right
	}
	hs := b.histogram(small)
	for j := range h {
		h[j].g -= hs[j].g
		h[j].u -= hs[j].u
		h[j].n -= hs[j].n
	}
	if len(right) < len(left) {
		h, hs = hs, h
	}
	b.node(t, 2*i+1, left, hs)
	b.node(t, 2*i+2, right, h)
}

// best returns the column and the bin after which to split, or -1 if no split is useful.
func (b *booster) best(h []binSum) (column, bin int) {
	column = -1
	most := 0.0
	for c := range b.columns {
		sums := h[c*treeBins : (c+1)*treeBins]
		var total, left binSum
		for _, s := range sums {
			total.g += s.g
			total.u += s.u
			total.n += s.n
		}
		if total.n < 2*minRows {
			return -1, 0
		}
		base := total.g * total.g / (total.u + leafPenalty)
		for k := range len(b.edges[b.columns[c]]) {
			left.g += sums[k].g
			left.u += sums[k].u
			left.n += sums[k].n
			if left.n < minRows {
				continue
			}
			if total.n-left.n < minRows {
				break
			}
			g, u := total.g-left.g, total.u-left.u
			if gain := left.g*left.g/(left.u+leafPenalty) + g*g/(u+leafPenalty) - base; gain > most+1e-12 {
				most, column, bin = gain, c, k
			}
		}
	}
	return column, bin
}

// divide moves the rows up to the bin to the front, in their order, followed by the other rows.
func (b *booster) divide(rows []int32, bins []uint8, bin uint8) (left, right []int32) {
	n := 0
	spare := b.spare[:0]
	for _, i := range rows {
		if bins[i] <= bin {
			rows[n] = i
			n++
		} else {
			spare = append(spare, i)
		}
	}
	copy(rows[n:], spare)
	return rows[:n], rows[n:]
}
