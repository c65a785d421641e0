package predict

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Run times are counted in bins of equal ratio from one second to two months. Each bin is 5 % longer than the
// previous one. Within a bin, run times are assumed to be evenly distributed.
const (
	binRatio = 1.05
	binCount = 320
)

// binOf returns the bin of a run time.
func binOf(d time.Duration) int {
	s := d.Seconds()
	if !(s > 1) {
		return 0
	}
	return min(binCount-1, 1+int(math.Log(s)/math.Log(binRatio)))
}

// binEdges returns the starts of all bins and the end of the last one, in seconds.
func binEdges() []float64 {
	edges := make([]float64, binCount+1)
	for i := range edges[1:] {
		edges[i+1] = math.Pow(binRatio, float64(i))
	}
	return edges
}

// histogram counts run times with weights that decrease with every later one.
type histogram struct {
	bins    []int32 // with at least one run time, sorted
	weights []float64
	unit    float64 // weight of the last run time; all weights are relative to it
	seen    int     // number of run times
	last    int     // number of run times of all jobs at the last one
}

// rescaleAt is the weight above which all weights are normalized.
const rescaleAt = 1e12

// add counts a run time, and multiplies the weights of all previous ones by keep.
func (h *histogram) add(bin int, keep float64) {
	h.unit = cmp.Or(h.unit, 1)
	h.seen++
	h.unit /= keep
	i, found := slices.BinarySearch(h.bins, int32(bin))
	if !found {
		h.bins, h.weights = slices.Insert(h.bins, i, int32(bin)), slices.Insert(h.weights, i, 0)
	}
	h.weights[i] += h.unit
	if h.seen%pruneEvery == 0 {
		h.prune()
	}
	if h.unit > rescaleAt {
		for i := range h.weights {
			h.weights[i] /= h.unit
		}
		h.unit = 1
	}
}

// negligible is the weight of a bin relative to the last run time below which the bin is removed.
const (
	negligible = 1e-5
	pruneEvery = 64
)

// prune removes bins with negligible weights, which limits the size of the histogram.
func (h *histogram) prune() {
	kept := 0
	for i, w := range h.weights {
		if w >= negligible*h.unit {
			h.bins[kept], h.weights[kept] = h.bins[i], w
			kept++
		}
	}
	h.bins, h.weights = h.bins[:kept], h.weights[:kept]
}

// mix replaces p by a mixture of p and h. The weight of h is its number of run times, and the weight of p is k.
func (h *histogram) mix(p *[binCount]float64, k float64) {
	if h.unit == 0 {
		return
	}
	total := 0.0
	for _, w := range h.weights {
		total += w
	}
	n := total / h.unit // effective number of run times in h
	share := n / (n + k)
	for i := range p {
		p[i] *= 1 - share
	}
	for i, bin := range h.bins {
		p[bin] += share * h.weights[i] / total
	}
}
