package hold

import (
	"cmp"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/kubenergy/kubenergy/internal/timeutil"
)

// deadlines are holds in the order of their deadlines; of equal ones, the older first. What comes and goes within a
// turn is sorted in when the order is asked for, so that a hundred thousand additions cost one sort, and a release no
// more than a search.
type deadlines struct {
	sorted []deadline
	fresh  map[*hold]struct{}
	gone   int // of sorted, which have no hold any longer
}

type deadline struct {
	latest int64 // Unix nanoseconds
	rank   int64
	by     int64 // when it is to be released, such that it and all after it start in time
	hold   *hold
}

func deadlineOf(h *hold) deadline {
	return deadline{latest: h.latest.UnixNano(), rank: h.rank, hold: h}
}

func (d deadline) compare(o deadline) int {
	if c := cmp.Or(cmp.Compare(d.latest, o.latest), cmp.Compare(d.rank, o.rank)); c != 0 || d.hold == nil ||
		o.hold == nil {
		return c
	}
	return cmp.Compare(d.hold.UID, o.hold.UID)
}

func (d *deadlines) add(h *hold) {
	if d.fresh == nil {
		d.fresh = map[*hold]struct{}{}
	}
	d.fresh[h] = struct{}{}
}

// drop takes out a hold, if it is there. Its deadline and rank must be those that it was added with.
func (d *deadlines) drop(h *hold) bool {
	if _, ok := d.fresh[h]; ok {
		delete(d.fresh, h)
		return true
	}
	// Released holds have no name to compare: find the first entry of equal time, then compare pointers.
	want := deadlineOf(h)
	want.hold = nil
	at, _ := slices.BinarySearchFunc(d.sorted, want, deadline.compare)
	for ; at < len(d.sorted) && d.sorted[at].compare(want) == 0; at++ {
		if d.sorted[at].hold == h {
			d.sorted[at].hold = nil
			d.gone++
			return true
		}
	}
	return false
}

// sort brings the order up to date. It leaves a few of those behind that are gone: closing up costs more than
// passing over.
func (d *deadlines) sort() {
	if d.gone > len(d.sorted)/8 || d.gone > 0 && len(d.fresh) > 0 {
		d.sorted = slices.DeleteFunc(d.sorted, func(e deadline) bool { return e.hold == nil })
		d.gone = 0
	}
	if len(d.fresh) == 0 {
		return
	}
	known := len(d.sorted)
	for h := range d.fresh {
		d.sorted = append(d.sorted, deadlineOf(h))
	}
	clear(d.fresh)
	added := d.sorted[known:]
	slices.SortFunc(added, deadline.compare)
	if known > 0 && d.sorted[known-1].compare(added[0]) > 0 {
		d.merge(slices.Clone(added))
	}
}

// merge sorts in what was added at the end, from the end.
func (d *deadlines) merge(added []deadline) {
	i, j := len(d.sorted)-len(added)-1, len(added)-1
	for k := len(d.sorted) - 1; j >= 0; k-- {
		if i >= 0 && d.sorted[i].compare(added[j]) > 0 {
			d.sorted[k] = d.sorted[i]
			i--
		} else {
			d.sorted[k] = added[j]
			j--
		}
	}
}

// spread computes when each must be released: a lead before its deadline, and a gap before the one after it.
func (d *deadlines) spread(lead, gap time.Duration) {
	next := int64(math.MaxInt64)
	for i := len(d.sorted) - 1; i >= 0; i-- {
		e := &d.sorted[i]
		if e.hold == nil {
			continue
		}
		e.by = min(e.latest-int64(lead), next-int64(gap))
		next = e.by
	}
}

// all are the holds in their order, and when to release them.
func (d *deadlines) all() iter.Seq2[*hold, *deadline] {
	return func(yield func(*hold, *deadline) bool) {
		for i := range d.sorted {
			if e := &d.sorted[i]; e.hold != nil && !yield(e.hold, e) {
				return
			}
		}
	}
}

// lastCall is when a hold is released whatever the plan says. Only the Lease holder and pods' own queues use the exact
// instant of the spread.
func (d *deadline) lastCall(early bool) time.Time {
	by, latest := time.Unix(0, d.by), time.Unix(0, d.latest)
	if early {
		return by
	}
	return timeutil.Earlier(by.Add(standbyLag), latest)
}
