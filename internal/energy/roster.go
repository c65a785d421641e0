package energy

import (
	"math"
	"slices"
	"time"
)

// A roster contains the consumers of a node with their CPU time that has not been charged yet.
type roster struct {
	entries []entry // sorted by ID
	spare   []entry // reusable memory for the next sweep

	begun bool          // a sweep has taken place; usage before the first sweep is not charged
	swept time.Duration // time of the last successful sweep
	busy  time.Duration // the node's CPU time then; 0 if unknown
	found time.Duration // CPU time of consumers accounted since then; above 0 only after a failed sweep

	worked time.Duration // CPU time of the whole node that has not been charged yet
	span   time.Duration // period of the usage
	gap    time.Duration // excess of worked over the CPU time of all consumers; negative if their counters are ahead
}

type entry struct {
	id     string
	cpu    time.Duration // as of the last sweep that included it
	used   time.Duration // since it was last charged
	weight uint64
	absent uint8 // number of consecutive sweeps without it
	ended  bool
}

const (
	// A consumer counts as ended after it was missing from this many consecutive sweeps, because reading one of a
	// thousand files may fail temporarily.
	goneAfter = 5
	// A new consumer cannot have used more CPU time than the node. If its counter is higher, the consumer is older
	// than it appears, and only later usage is counted. The slack is required because the counters are not read at
	// the same time.
	newcomerSlack = 50 * time.Millisecond
)

// sweep accounts the CPU times of an observation and reports whether they cover all consumers since the last sweep.
// If the sweep failed or is invalid, only ended consumers are accounted, or none.
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

// maxOfOne returns an upper bound for the CPU time of one consumer since the last successful sweep.
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

// maxAhead limits how far the consumers' counters may be ahead of the node's: one second of all CPUs.
func (r *roster) maxAhead(o *Observation) time.Duration {
	if o.CPUs > 1 && o.CPUs < million {
		return time.Duration(o.CPUs * float64(time.Second))
	}
	return time.Second
}

// merge merges the lists, which must be sorted by ID, into the entries. It returns false and changes nothing if
// they are not sorted or contain a negative time. If blind is set, usage is missing, and consumers that are absent
// from it are not considered ended.
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

// firstOf returns the lowest ID at the head of the lists. In most cases the entry and the usage have the same ID
// and share its memory, which makes the comparison cheap.
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

// account adds the CPU time of a consumer and returns the increase. A fresh consumer started after the last sweep.
// A consumer with a decreased counter is treated as a new consumer of the same name.
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

// paid resets the usage of all entries and removes the ended ones.
func (r *roster) paid() {
	r.entries = slices.DeleteFunc(r.entries, func(e entry) bool { return e.ended })
	for i := range r.entries {
		r.entries[i].used = 0
	}
	r.worked, r.span, r.gap = 0, 0, min(r.gap, 0)
}

// bury reports the ended consumers, without energy, and removes them. Their last usage is not charged to any
// consumer.
func (r *roster) bury(out *Attribution) {
	r.entries = slices.DeleteFunc(r.entries, func(e entry) bool {
		if e.ended {
			out.Shares = append(out.Shares, Share{ID: e.id, CPU: e.used, Ended: true})
			r.gap = addClamped(r.gap, e.used)
		}
		return e.ended
	})
}
