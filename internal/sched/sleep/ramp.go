package sleep

import (
	"cmp"
	"math"
	"slices"
	"time"
)

const (
	rampWindow = time.Minute // period of Policy.WakesPerMinute
	// shareWindow is the period over which the limit is shared. It is longer than rampWindow, so that an owner that
	// used all wake-ups of one minute comes after the other owners in the next one.
	shareWindow = time.Hour
)

// MaxWakes returns the maximum number of machines that are woken within a minute.
func (p *Policy) MaxWakes() int {
	if p.WakesPerMinute <= 0 {
		return math.MaxInt
	}
	return p.WakesPerMinute
}

// Ramp returns the number of machines that may be woken now, given the times of previous wake orders, and the time
// when more machines may be woken.
func (p *Policy) Ramp(now time.Time, woken []time.Time) (free int, next time.Time) {
	free, next = p.MaxWakes(), now.Add(rampWindow)
	for _, at := range woken {
		if !within(rampWindow, at, now) {
			continue
		}
		free--
		if end := at.Add(rampWindow); end.Before(next) {
			next = end
		}
	}
	return max(free, 0), next
}

// within reports whether at is less than period away from now. Times in the future are included, because they may
// have been recorded by a replica with a clock that is ahead.
func within(period time.Duration, at, now time.Time) bool { return now.Sub(at).Abs() < period }

// class returns the rank of a machine's reason to wake, lowest first: work, then headroom, then work that was bound
// manually.
func (d *decision) class(i int) int {
	switch v := &d.plan.Verdicts[i]; {
	case v.Reason == ForHeadroom:
		return 1
	case d.Machines[i].ByHand && v.For == "":
		return 2
	}
	return 0
}

// limitWakes postpones wake-ups beyond Policy.WakesPerMinute: first for manually bound work, then for headroom, and
// within each class first for the owners with the most wake-ups in the last hour.
func (d *decision) limitWakes() {
	var times []time.Time
	shares := map[string]int{} // wake-ups by owner
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
	rank := map[int]int{} // by machine: number of earlier wake-ups for the same owner
	for _, i := range d.woken {
		owner := d.plan.Verdicts[i].Owner
		rank[i] = shares[owner]
		shares[owner]++
	}
	slices.SortStableFunc(d.woken, func(a, b int) int {
		return cmp.Or(cmp.Compare(d.class(a), d.class(b)), cmp.Compare(rank[a], rank[b]))
	})
	for _, i := range d.woken[free:] {
		v := &d.plan.Verdicts[i]
		v.Do, v.Reason, v.Until = Stay, WakeLimit, next
	}
	d.askAgain(next)
}
