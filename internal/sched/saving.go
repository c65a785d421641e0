package sched

import (
	"math"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// Saving returns what a start of j saves on the forecast: the share of the cost of starting at once, and the emissions
// where carbon counts. Of the start that the when "window" chooses these are what its reason names. Both are negative
// where the start costs more. ok is false where a forecast that counts does not tell of it.
func (s *Snapshot) Saving(j *Job, start time.Time) (share float64, carbon energy.Grams, ok bool) {
	now := j.window(s.Now)
	search := windowSearch{s: s, j: j, weights: s.weights(j), power: expectedPower(j)}
	if _, ok := search.mayHold(now, s.Policy.latestStart(j)); !ok {
		return 0, 0, false
	}
	was, atOnce := search.best(now)
	is, then := search.best(j.window(start))
	if math.IsInf(then, 0) {
		return 0, 0, false
	}
	if search.weights.countCarbon() {
		carbon = was.Carbon - is.Carbon
	}
	return (atOnce - then) / max(math.Abs(atOnce), math.SmallestNonzeroFloat64), carbon, true
}
