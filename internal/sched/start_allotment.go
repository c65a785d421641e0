package sched

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Allotment assigns replicas to an elastic job per time interval, in the order of the cost of the next block of
// replicas relative to the work that it adds.
type Allotment struct {
	Scaling *Scaling
	Pieces  []Piece
	Room    []int // maximum replicas per piece; later pieces are only limited by Scaling

	got  []given      // per piece
	cost float64      // in value·seconds per replica
	open []*increment // not yet used up, the best one last
}

// given is the assignment of one piece: replicas for the whole piece, and more replicas for a fraction of it, from
// its start.
type given struct {
	replicas, more int
	share          float64
}

// increment is the next block of replicas in a piece.
type increment struct {
	piece, number, replicas int
	gain, cost              float64 // per second
	merit                   float64 // lowest first
	rest                    float64 // fraction of the piece that is not yet assigned
}

// Fill assigns replicas until work seconds of work are done, including the work that is due(i) by the end of each
// piece i. It returns the remaining work if all replicas at all times are not sufficient.
//
// For the work due by the end of a piece, the cheapest increments until then are used. The result is optimal: work
// that is due early cannot be done later, and the increments chosen for it are also the first choice for work that
// is due later.
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

// offer adds the increments of a piece. Increments of a piece are used one after the other, because
// gains do not increase.
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
			gain = 1 / float64(least) // gain per replica
		} else {
			gain = min(gain, a.Scaling.Rate(n)-a.Scaling.Rate(n-1)) // may only increase by rounding
			if o.gain = gain; gain <= 0 {
				return
			}
		}
		// If the value is negative, energy use is paid for and inefficient use would be best. The order of
		// increments must not change.
		if o.merit = value / gain; value < 0 {
			o.merit = value * gain
		}
		at, _ := slices.BinarySearchFunc(a.open, o, (*increment).compare)
		a.open = slices.Insert(a.open, at, o)
	}
}

// takeUnits uses the best increments until the needed work is done.
func (a *Allotment) takeUnits(done, need float64) float64 {
	for done < need*(1-1e-12) && len(a.open) > 0 {
		o := a.open[len(a.open)-1]
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
		a.open = a.open[:len(a.open)-1]
	}
	return done
}

// Stretches returns the assignment as consecutive intervals with a number of replicas. Parts of pieces are extended
// by spare, so that no work remains because of rounding.
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

// compare sorts the best increment last. Of equally good increments, the earliest one comes last.
func (o *increment) compare(p *increment) int {
	return cmp.Or(cmp.Compare(p.merit, o.merit), cmp.Compare(p.piece, o.piece), cmp.Compare(p.number, o.number))
}
