package predict

import (
	"cmp"
	"math"
	"time"
)

// Run times are counted in bins of equal ratio: from a second to two months, each a twentieth longer than the one
// before. Within a bin they are taken to be spread evenly.
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

// binEdges returns where bins begin, in seconds, and where the last one ends.
func binEdges() []float64 {
	edges := make([]float64, binCount+1)
	for i := range edges[1:] {
		edges[i+1] = math.Pow(binRatio, float64(i))
	}
	return edges
}

// histogram counts run times, of which one weighs less the more there were after it.
type histogram struct {
	bins  [binCount]float64
	total float64
	unit  float64 // what the last one weighs; all weights are relative to it
	seen  int     // how many there were
}

// rescaleAt is when weights are brought back to ordinary size.
const rescaleAt = 1e12

// add counts one, after which all before it weigh keep times as much as they did.
func (h *histogram) add(bin int, keep float64) {
	h.unit = cmp.Or(h.unit, 1)
	h.seen++
	h.unit /= keep
	h.bins[bin] += h.unit
	h.total += h.unit
	if h.unit > rescaleAt {
		for i := range h.bins {
			h.bins[i] /= h.unit
		}
		h.total /= h.unit
		h.unit = 1
	}
}

// mix replaces p by a mixture of p and h, in which h weighs as much as it has run times and p as much as k.
func (h *histogram) mix(p *[binCount]float64, k float64) {
	if h.unit == 0 {
		return
	}
	n := h.total / h.unit // run times of full weight that h amounts to
	share := n / (n + k)
	for i := range p {
		p[i] = (1-share)*p[i] + share*h.bins[i]/h.total
	}
}
