package sched

import (
	"cmp"
	"container/heap"
	"math"
	"time"
)

// Allotment gives an elastic job replicas in pieces of time, in the order of what the next block of them costs for
// what it gets done.
type Allotment struct {
	Scaling *Scaling
	Pieces  []Piece
	Room    []int // by piece: how many replicas at most; of later ones as many as scaling allows

	got  []given // by piece
	cost float64 // value·seconds per replica
	open increments
}

// given is what a piece got: so many replicas for all of it, and more for a share of it, from its beginning.
type given struct {
	replicas, more int
	share          float64
}

// increment is one more unit of replicas in a piece.
type increment struct {
	piece, number, replicas int
	gain, cost              float64 // per second
	merit                   float64 // the least first
	rest                    float64 // share of the piece that is not given yet
}

// Fill gives replicas until so many seconds of work are done, those of due(i) by the end of piece i. It returns what
// is left because all replicas, all the time, are not enough.
//
// Of what can be had until a piece ends the cheapest is taken that work due by then needs. That is optimal for all of
// it: what is due early can be done by nothing later, and what was taken for it is what anything due later would take
// first, too.
func (a *Allotment) Fill(due func(i int) float64, work float64) (left float64) {
	a.got = make([]given, len(a.Pieces))
	done := 0.0
	for i := range a.Pieces {
		a.offer(i)
		need := work
		if i < len(a.Pieces)-1 {
			need = min(work, due(i))
		}
		done = a.takeUnits(done, need)
	}
	return max(0, work-done)
}

// offer makes what a piece has to give available. Units of a piece are taken one after the other, since gains do not
// rise.
func (a *Allotment) offer(i int) {
	value, most := a.Pieces[i].Rate, a.Scaling.Most()
	if i < len(a.Room) {
		most = min(most, a.Room[i])
	}
	least := a.Scaling.Least
	gain := 1.0
	for n := least; n <= most; n++ {
		o := &increment{piece: i, number: n, replicas: 1, gain: gain, cost: value, rest: 1}
		if n == least {
			o.replicas, o.cost = least, float64(least)*value
			gain = 1 / float64(least) // of each of them
		} else {
			gain = min(gain, a.Scaling.Rate(n)-a.Scaling.Rate(n-1)) // it may rise by rounding alone
			if o.gain = gain; gain <= 0 {
				return
			}
		}
		// Where energy is paid for being used, using it badly would be best; the order of units must stay as it is.
		if o.merit = value / gain; value < 0 {
			o.merit = value * gain
		}
		heap.Push(&a.open, o)
	}
}

// takeUnits takes the best units until so much work is done.
func (a *Allotment) takeUnits(done, need float64) float64 {
	for done < need*(1-1e-12) && len(a.open) > 0 {
		o := a.open[0]
		p := &a.Pieces[o.piece]
		length := p.End.Sub(p.Start).Seconds()
		share := min(o.rest, (need-done)/(o.gain*length))
		a.cost += share * o.cost * length
		done += share * o.gain * length
		o.rest -= share
		got := &a.got[o.piece]
		if o.rest > 1e-12 {
			got.more, got.share = o.replicas, 1-o.rest
			continue
		}
		got.replicas, got.more, got.share = got.replicas+o.replicas, 0, 0
		heap.Pop(&a.open)
	}
	return done
}

// Stretches returns what was given as times of so many replicas. Parts of pieces end later by so much, so that
// nothing is left over from rounding.
func (a *Allotment) Stretches(spare time.Duration) (plan []Stretch) {
	for i, p := range a.Pieces {
		got := a.got[i]
		if got.more > 0 {
			length := p.End.Sub(p.Start)
			if cut := p.Start.Add(time.Duration(math.Ceil(got.share*float64(length))) + spare); cut.Before(p.End) {
				plan = append(plan, Stretch{Window{p.Start, cut}, got.replicas + got.more},
					Stretch{Window{cut, p.End}, got.replicas})
				continue
			}
			got.replicas += got.more
		}
		plan = append(plan, Stretch{Window{p.Start, p.End}, got.replicas})
	}
	return plan
}

// increments is a heap: the best first, of equally good ones the earliest.
type increments []*increment

func (h increments) Len() int { return len(h) }

func (h increments) Less(i, j int) bool {
	a, b := h[i], h[j]
	return cmp.Or(cmp.Compare(a.merit, b.merit), cmp.Compare(a.piece, b.piece), cmp.Compare(a.number, b.number)) < 0
}

func (h increments) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

func (h *increments) Push(v any) { *h = append(*h, v.(*increment)) }

func (h *increments) Pop() any {
	last := len(*h) - 1
	v := (*h)[last]
	*h = (*h)[:last]
	return v
}
