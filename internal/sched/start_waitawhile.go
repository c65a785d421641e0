package sched

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/kubenergy/kubenergy/internal/grid"
)

// waitAwhile is the when "wait-awhile" (Wiesner et al., Middleware 2021; GAIA's WaitAwhile): the work that is left of
// a job of known length goes into the cheapest parts of the time that its delay leaves for it, of equally cheap ones
// into the earliest. With a perfect forecast that is what a clairvoyant who may suspend at no cost does. A job that
// may not be suspended gets its cheapest window instead.
func waitAwhile(s *Snapshot, j *Job, o Outlook) (Window, Reason, time.Time) {
	if !j.Interruptible {
		return rollingKnown(s, j, o)
	}
	left := j.Remaining()
	if left <= 0 || j.Done >= j.Duration { // its length is told, so there is nothing to expect beyond it
		return j.Window(s.Now), Reason{Kind: NothingToSave}, time.Time{}
	}
	deadline := s.latest(j).Add(left)
	var buffer [128]Piece
	pieces := o.pieces(buffer[:0], deadline)
	slices.SortFunc(pieces, func(a, b Piece) int {
		return cmp.Or(cmp.Compare(a.Rate, b.Rate), a.Start.Compare(b.Start))
	})
	// The dearest piece that is needed is used from its beginning.
	n, cost := 0, 0.0
	for rest := left; rest > 0 && n < len(pieces); n++ {
		p := &pieces[n]
		if used := p.End.Sub(p.Start); used > rest {
			p.End = p.Start.Add(rest)
		}
		rest -= p.End.Sub(p.Start)
		cost += p.Rate * p.End.Sub(p.Start).Seconds()
	}
	pieces = pieces[:n]
	slices.SortFunc(pieces, func(a, b Piece) int { return a.Start.Compare(b.Start) })
	costNow := o.Over(s.Now, s.Now.Add(left))
	saved := costNow - cost
	if first := pieces[0].Start; first.After(s.Now) && saved > max(Tolerance, s.Policy.MinSaving)*math.Abs(costNow) {
		return j.Window(first), o.later(s, j, first, costNow, cost), o.nextStep(s.Now, first)
	}
	return j.Window(s.Now), Reason{Kind: NothingToSave}, o.nextStep(s.Now, pieces[0].End)
}

// Piece is a time of constant cost.
type Piece struct {
	Start, End time.Time
	Rate       float64
}

// piecesOf appends the values of a series between two instants.
func piecesOf(dst []Piece, series *grid.Series, from, until time.Time) []Piece {
	for t := range series.Steps(from, until) {
		dst = append(dst, Piece{from, t, series.At(from)})
		from = t
	}
	if from.Before(until) {
		dst = append(dst, Piece{from, until, series.At(from)})
	}
	return dst
}

// pieces cuts the time from now until an instant where signals change, in what is forecast and beyond.
func (o *Outlook) pieces(dst []Piece, until time.Time) []Piece {
	for from := o.now; from.Before(until); {
		to := o.change(from, until)
		dst = append(dst, Piece{from, to, o.Over(from, to) / to.Sub(from).Seconds()})
		from = to
	}
	return dst
}
