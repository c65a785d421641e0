package energy

import (
	"math"
	"slices"
	"time"
)

// A roster is who ran on a node, with the CPU time that has not been paid for yet.
type roster struct {
	entries []entry // sorted by ID
	spare   []entry // memory for the next sweep

	begun bool          // there was a sweep; use before the first is not charged
	swept time.Duration // when the last good sweep was
	busy  time.Duration // the node's CPU time then; 0 if unknown
	found time.Duration // what consumers were found to use since then: more than nothing only after a sweep that failed

	worked time.Duration // CPU time of the whole node that has not been paid for yet
	span   time.Duration // the time in which it was used
	gap    time.Duration // by how much it is more than that of all consumers; negative where their counters are ahead
}

type entry struct {
	id     string
	cpu    time.Duration // at the last sweep that saw it
	used   time.Duration // since it was paid for
	weight uint64
	absent uint8 // sweeps in a row that did not see it
	ended  bool
}

const (
	// A consumer that a sweep misses is not gone: reading one of a thousand files may fail. It is after so many.
	goneAfter = 5
	// A new consumer cannot have used more than the node did: if its counter says so, it is older than it
	// seems, and only what comes is counted. Counters are not read at one instant, hence the slack.
	newcomerSlack = 50 * time.Millisecond
)

// sweep books the CPU times of an observation and says if they tell who used what since the last ones. If the sweep
// failed, or makes no sense, only ended consumers are booked, or nothing.
func (r *roster) sweep(o *Observation) bool {
	if o.Usage == nil {
		if r.begun {
			r.merge(nil, o.Ended, r.maxOfOne(o), true)
		}
		return false
	}
	begun := r.begun
	if !r.merge(o.Usage, o.Ended, r.maxOfOne(o), false) {
		return false
	}
	if begun {
		worked := r.found
		if r.busy > 0 && o.Busy >= r.busy {
			worked = o.Busy - r.busy
		}
		r.worked = addClamped(r.worked, worked)
		r.gap = max(addClamped(r.gap, worked-r.found), -r.maxAhead(o))
		r.span = addClamped(r.span, o.At-r.swept)
	}
	r.begun, r.swept, r.busy, r.found = true, o.At, max(o.Busy, 0), 0
	return begun
}

// maxOfOne is more CPU time than one consumer can have used since the last good sweep.
func (r *roster) maxOfOne(o *Observation) time.Duration {
	most := time.Duration(math.MaxInt64)
	switch {
	case r.busy > 0 && o.Busy >= r.busy:
		most = o.Busy - r.busy
	case o.CPUs > 0 && o.CPUs < million && o.At > r.swept:
		if v := o.CPUs * float64(o.At-r.swept); v < math.MaxInt64/2 {
			most = time.Duration(v)
		}
	}
	return addClamped(most, most/8+newcomerSlack)
}

// maxAhead bounds by how much the consumers' counters may be ahead of the node's: a second of the whole node.
func (r *roster) maxAhead(o *Observation) time.Duration {
	if o.CPUs > 1 && o.CPUs < million {
		return time.Duration(o.CPUs * float64(time.Second))
	}
	return time.Second
}

// merge brings the lists, which are sorted by ID, into the entries. It is false, and changes nothing, if they are not
// sorted or hold a time below 0. Blind means that there is no usage, which says nothing of who is gone.
func (r *roster) merge(usage, ended []Usage, most time.Duration, blind bool) bool {
	old, into, found, last := r.entries, r.spare[:0], r.found, ""
	for len(old)+len(usage)+len(ended) > 0 {
		id := firstOf(old, usage, ended)
		e, fresh := entry{id: id}, true
		switch {
		case len(old) > 0 && old[0].id == id:
			e, fresh, old = old[0], old[0].ended, old[1:] // entries are sorted
		case id <= last:
			return false
		}
		last = id
		if len(ended) > 0 && ended[0].ID == id {
			if ended[0].CPU < 0 {
				return false
			}
			found = addClamped(found, r.account(&e, &ended[0], fresh, most))
			e.ended, fresh, ended = true, true, ended[1:]
		}
		switch {
		case len(usage) > 0 && usage[0].ID == id:
			if usage[0].CPU < 0 {
				return false
			}
			found = addClamped(found, r.account(&e, &usage[0], fresh, most))
			e.id, e.weight, e.absent, e.ended, usage = id, usage[0].Weight, 0, false, usage[1:]
		case !blind && !e.ended:
			e.absent++
			e.ended = e.absent >= goneAfter
		}
		if r.begun || !e.ended {
			into = append(into, e)
		}
	}
	r.entries, r.spare, r.found = into, r.entries, found
	return true
}

// firstOf returns the lowest ID at the head of the lists. Mostly the entry and the usage have the same, and even
// share its memory, which makes comparing cheap.
func firstOf(old []entry, usage, ended []Usage) string {
	var id string
	switch {
	case len(old) == 0 && len(usage) == 0:
		return ended[0].ID
	case len(old) == 0:
		id = usage[0].ID
	case len(usage) == 0 || old[0].id == usage[0].ID:
		id = old[0].id
	default:
		id = min(old[0].id, usage[0].ID)
	}
	if len(ended) > 0 {
		id = min(id, ended[0].ID)
	}
	return id
}

// account books the CPU time of a consumer and returns how much is new. A fresh one began since the last sweep, and so
// did one whose counter fell: it is another that took the name.
func (r *roster) account(e *entry, u *Usage, fresh bool, most time.Duration) time.Duration {
	used := u.CPU - e.cpu
	if fresh || used < 0 {
		used = u.CPU
		if used > most {
			used = 0
		}
	}
	if !r.begun {
		used = 0
	}
	e.cpu, e.used = u.CPU, addClamped(e.used, used)
	return used
}

// paid forgets what was used, and who ended.
func (r *roster) paid() {
	r.entries = slices.DeleteFunc(r.entries, func(e entry) bool { return e.ended })
	for i := range r.entries {
		r.entries[i].used = 0
	}
	r.worked, r.span, r.gap = 0, 0, min(r.gap, 0)
}

// bury reports the consumers that ended, without energy, and forgets them: their last use is charged to no consumer.
func (r *roster) bury(out *Attribution) {
	r.entries = slices.DeleteFunc(r.entries, func(e entry) bool {
		if e.ended {
			out.Shares = append(out.Shares, Share{ID: e.id, CPU: e.used, Ended: true})
			r.gap = addClamped(r.gap, e.used)
		}
		return e.ended
	})
}
