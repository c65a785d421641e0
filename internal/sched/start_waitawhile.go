package sched

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/kubenergy/kubenergy/internal/grid"
)

// waitAwhile implements the start rule "wait-awhile" (Wiesner et al., Middleware 2021; WaitAwhile in GAIA). The
// remaining work of a job of known length is assigned to the cheapest parts of the time until its deadline, and to
// the earliest of equally cheap parts. With a perfect forecast this is optimal for jobs that can be suspended
// without cost. A job that is not interruptible gets its cheapest window instead.
func waitAwhile(s *Snapshot, j *Job, o Outlook) (Window, Reason, time.Time) {
	if !j.Interruptible {
		return rollingKnown(s, j, o)
	}
	left := j.Remaining()
	if left <= 0 || j.Done >= j.Duration { // the length is exact, so no work remains beyond it
		return j.Window(s.Now), Reason{Kind: NothingToSave}, time.Time{}
	}
	deadline := s.latest(j).Add(left)
	var buffer [128]Piece
	pieces := o.pieces(buffer[:0], deadline)
	slices.SortFunc(pieces, func(a, b Piece) int {
		return cmp.Or(cmp.Compare(a.Rate, b.Rate), a.Start.Compare(b.Start))
	})
	// The most expensive piece that is needed is used from its start.
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
	if j.Running {
		cost += j.RestartCost.Seconds() * pieces[0].Rate // if it is suspended
	}
	costNow := o.Over(s.Now, s.Now.Add(left))
	saved := costNow - cost
	if first := pieces[0].Start; first.After(s.Now) && saved > max(Tolerance, s.Policy.MinSaving)*math.Abs(costNow) {
		return j.Window(first), o.later(s, j, first, costNow, cost), o.nextStep(s.Now, first)
	}
	return j.Window(s.Now), Reason{Kind: NothingToSave}, o.nextStep(s.Now, pieces[0].End)
}

// Piece is a time interval with constant cost.
type Piece struct {
	Start, End time.Time
	Rate       float64
}

// PiecesOf appends the pieces of a series between two times.
func PiecesOf(dst []Piece, series *grid.Series, from, until time.Time) []Piece {
	for t := range series.Steps(from, until) {
		dst = append(dst, Piece{from, t, series.At(from)})
		from = t
	}
	if from.Before(until) {
		dst = append(dst, Piece{from, until, series.At(from)})
	}
	return dst
}

// pieces appends the pieces of the outlook from now to until, split where the signals change, including the time
// beyond the forecast.
func (o *Outlook) pieces(dst []Piece, until time.Time) []Piece {
	for from := o.now; from.Before(until); {
		to := o.change(from, until)
		dst = append(dst, Piece{from, to, o.Over(from, to) / to.Sub(from).Seconds()})
		from = to
	}
	return dst
}
