package sched

import (
	"math"
	"time"
)

// Saving returns what a start of j saves on the forecast, as a share of the cost of starting at once: of the start
// that the when "window" chooses it is the saving that its reason names. It is negative where the start costs more.
// ok is false where a forecast that counts does not tell of it.
func (s *Snapshot) Saving(j *Job, start time.Time) (share float64, ok bool) {
	now := j.window(s.Now)
	search := windowSearch{s: s, j: j, weights: s.weights(j), power: expectedPower(j)}
	if _, ok := search.mayHold(now, s.Policy.latestStart(j)); !ok {
		return 0, false
	}
	_, atOnce := search.best(now)
	_, then := search.best(j.window(start))
	if math.IsInf(then, 0) {
		return 0, false
	}
	return (atOnce - then) / max(math.Abs(atOnce), math.SmallestNonzeroFloat64), true
}
