package sqlstore

import (
	"cmp"
	"iter"
	"slices"
	"time"

	"github.com/kubenergy/kubenergy/ledger"
)

// windows cuts the entry's time by windows, as [ledger.Booking.Windows] does.
func (e *entry) windows() iter.Seq[ledger.Window] {
	return ledger.Window{First: e.Start, Last: e.End}.Cut(len(e.Postings))
}

// postings is about how many the entry becomes.
func (e *entry) postings() int {
	if e.End.Sub(e.Start) <= ledger.WindowLength {
		return len(e.Postings)
	}
	n := 0
	for range e.windows() {
		n += len(e.Postings)
	}
	return n
}

// touches reports if some of the entry's time is in one of these windows.
func (e *entry) touches(windows map[windowKey]bool) bool {
	if len(windows) == 0 {
		return false
	}
	first, last := floorTo(e.Start.Unix(), windowSeconds), ceil(e.End)
	for k := range windows {
		if k.node == e.Node && k.start >= first && (k.start < last || k.start == first) {
			return true
		}
	}
	return false
}

// expand calls each for what the entry says of each window. It prices the entry's postings.
func (e *entry) expand(each func(*window)) {
	for i := range e.Postings {
		e.Rates.Charge(&e.Postings[i].Amount, e.Estimated)
	}
	unmeasured := ledger.Amount{Unmeasured: e.Unmeasured}
	for cut := range e.windows() {
		w := &window{
			Start: cut.Start.Unix(), Node: e.Node, Agentless: e.Agentless,
			First: cut.First.Unix(), Last: ceil(cut.Last),
			Bases:    []base{{e.Base, cut.Part(&unmeasured).Unmeasured}},
			Postings: make([]posting, 0, len(e.Postings)+1),
		}
		var sum ledger.Amount
		for i := range e.Postings {
			p := e.Postings[i]
			p.Amount = cut.Part(&p.Amount)
			sum.Add(&p.Amount)
			w.Postings = appendPosting(w.Postings, p)
		}
		if e.Guest.Account != 0 && sum != (ledger.Amount{}) {
			w.Postings = append(w.Postings, posting{e.Guest.Consumer, e.Guest.Account, sum.Negative()})
			sortPostings(w.Postings) // it is one at the end
		}
		each(w)
	}
}

// appendPosting adds to a sorted list what is not less than its last.
func appendPosting(all []posting, p posting) []posting {
	if p.Amount == (ledger.Amount{}) {
		return all
	}
	if n := len(all); n > 0 && all[n-1].compare(&p) == 0 {
		all[n-1].Add(&p.Amount)
		return all
	}
	return append(all, p)
}

func ceil(t time.Time) int64 {
	if t.Nanosecond() > 0 {
		return t.Unix() + 1
	}
	return t.Unix()
}

func (p *posting) compare(o *posting) int {
	return cmp.Or(cmp.Compare(p.Consumer, o.Consumer), cmp.Compare(p.Account, o.Account))
}

func sortPostings(all []posting) {
	slices.SortStableFunc(all, func(a, b posting) int { return a.compare(&b) })
}

// plus returns w with o added, which is of the same row; w may be nil. Both can be changed and must not be used any
// more.
func (w *window) plus(o *window) *window {
	if w == nil {
		return o
	}
	w.First, w.Last = min(w.First, o.First), max(w.Last, o.Last)
	for _, b := range o.Bases {
		i, found := slices.BinarySearchFunc(w.Bases, b.Account, func(b base, account int64) int {
			return cmp.Compare(b.Account, account)
		})
		if found {
			w.Bases[i].Unmeasured += b.Unmeasured
		} else {
			w.Bases = slices.Insert(w.Bases, i, b)
		}
	}
	w.Postings = merge(w.Postings, o.Postings)
	return w
}

// merge adds b to a, in place if all of it is there already, as it mostly is.
func merge(a, b []posting) []posting {
	i, missing := 0, 0
	for j := range b {
		for i < len(a) && a[i].compare(&b[j]) < 0 {
			i++
		}
		if i == len(a) || a[i].compare(&b[j]) != 0 {
			missing++
		}
	}
	if missing == 0 {
		i = 0
		for j := range b {
			for a[i].compare(&b[j]) < 0 {
				i++
			}
			a[i].Add(&b[j].Amount)
		}
		return a
	}
	merged := make([]posting, 0, len(a)+missing)
	for len(a) > 0 && len(b) > 0 {
		switch c := a[0].compare(&b[0]); {
		case c < 0:
			merged, a = append(merged, a[0]), a[1:]
		case c > 0:
			merged, b = append(merged, b[0]), b[1:]
		default:
			a[0].Add(&b[0].Amount)
			merged, a, b = append(merged, a[0]), a[1:], b[1:]
		}
	}
	return append(append(merged, a...), b...)
}

// negative returns what takes w back.
func (w *window) negative() *window {
	n := *w
	n.Bases, n.Postings = slices.Clone(w.Bases), slices.Clone(w.Postings)
	for i := range n.Bases {
		n.Bases[i].Unmeasured = -n.Bases[i].Unmeasured
	}
	for i := range n.Postings {
		n.Postings[i].Amount = n.Postings[i].Negative()
	}
	return &n
}
