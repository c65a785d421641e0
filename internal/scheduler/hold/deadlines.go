package hold

import (
	"cmp"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/kubenergy/kubenergy/internal/timeutil"
)

// deadlines contains holds ordered by deadline and, for equal deadlines, by age. Holds that are added are only
// merged when the order is needed, so that a hundred thousand additions require a single sort. Removing a hold
// takes a binary search.
type deadlines struct {
	sorted []deadline
	fresh  map[*hold]struct{} // added since the last sort
	gone   int                // number of removed entries in sorted
}

type deadline struct {
	latest int64 // Unix nanoseconds
	rank   int64
	by     int64 // release time that lets this hold and all later ones start in time
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

// drop removes a hold and reports whether it was present. The deadline and rank of the hold must not have changed
// since it was added.
func (d *deadlines) drop(h *hold) bool {
	if _, ok := d.fresh[h]; ok {
		delete(d.fresh, h)
		return true
	}
	// A removed entry has no UID to compare, so find the first entry with the same time and rank, and then compare
	// pointers.
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

// sort merges added holds into the order. Removed entries stay as tombstones; the slice is compacted once they
// exceed one eighth of it, or before holds are merged.
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

// merge merges the sorted entries at the end of the slice into the rest, from back to front.
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

// spread computes the release time of each hold, which is at least lead before its deadline and at least gap before
// the next release time.
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

// all iterates over the holds in order, together with their entries.
func (d *deadlines) all() iter.Seq2[*hold, *deadline] {
	return func(yield func(*hold, *deadline) bool) {
		for i := range d.sorted {
			if e := &d.sorted[i]; e.hold != nil && !yield(e.hold, e) {
				return
			}
		}
	}
}

// lastCall returns the time at which a hold is released regardless of its plan. If early is true, this is the exact
// time that spread computed, which only the Lease holder and the queue of pods use. Standby replicas release the
// hold later by standbyLag, but at the deadline at the latest.
func (d *deadline) lastCall(early bool) time.Time {
	by, latest := time.Unix(0, d.by), time.Unix(0, d.latest)
	if early {
		return by
	}
	return timeutil.Earlier(by.Add(standbyLag), latest)
}
