package sleep

import (
	"cmp"
	"math"
	"slices"
	"time"
)

const (
	rampWindow = time.Minute // that Policy.WakesPerMinute refers to
	// shareWindow is the period over which the limit is shared. It is longer than rampWindow, so that an owner that
	// used up a minute's wake-ups comes after the others in the next one.
	shareWindow = time.Hour
)

// Ramp returns how many machines may be ordered to wake now, given when machines were last ordered to wake, and when
// the next one may be if none may be now.
func (p *Policy) Ramp(now time.Time, woken []time.Time) (free int, next time.Time) {
	if p.WakesPerMinute <= 0 {
		return math.MaxInt, time.Time{}
	}
	free = p.WakesPerMinute
	for _, at := range woken {
		if !within(rampWindow, at, now) {
			continue
		}
		free--
		if end := at.Add(rampWindow); next.IsZero() || end.Before(next) {
			next = end
		}
	}
	return max(free, 0), next
}

// delay returns how long the limit delays the wake-up that comes after n others.
func (p *Policy) delay(n int) time.Duration {
	if p.WakesPerMinute <= 0 {
		return 0
	}
	return time.Duration(n/p.WakesPerMinute) * rampWindow
}

// within reports whether an instant is in a period that ends now. A later instant is in no such period: it comes from a
// clock that is ahead.
func within(period time.Duration, at, now time.Time) bool {
	age := now.Sub(at)
	return age >= 0 && age < period
}

// wakeUp is the wake-up of a machine by its index, with what orders it among others: the class of its reason, then how
// many machines were and are to be woken for its owner before.
type wakeUp struct{ machine, class, rank int }

// Classes of wake-ups, the first one first.
const (
	forWork = iota
	forHeadroom
	forWorkByHand
)

// limitWakes postpones wake-ups beyond Policy.WakesPerMinute: first those for work that was bound by hand, then those
// for headroom, and within each class those of the owners that machines were woken for most often in the last hour.
func (d *decision) limitWakes() {
	var times []time.Time
	shares := map[string]int{} // machines by owner
	for i := range d.Machines {
		m := &d.Machines[i]
		if times = append(times, m.Woken); within(shareWindow, m.Woken, d.Now) {
			shares[m.WokenFor]++
		}
	}
	free, next := d.Policy.Ramp(d.Now, times)
	if len(d.woken) <= free {
		return
	}
	for k := range d.woken {
		owner := d.plan.Verdicts[d.woken[k].machine].Owner
		d.woken[k].rank = shares[owner]
		shares[owner]++
	}
	slices.SortStableFunc(d.woken, func(a, b wakeUp) int {
		return cmp.Or(cmp.Compare(a.class, b.class), cmp.Compare(a.rank, b.rank))
	})
	if next.IsZero() {
		next = d.Now.Add(rampWindow)
	}
	for _, w := range d.woken[free:] {
		v := &d.plan.Verdicts[w.machine]
		v.Do, v.Reason, v.Until = Stay, WakeLimit, next
	}
	d.askAgain(next)
}
