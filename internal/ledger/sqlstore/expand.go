package sqlstore

import (
	"cmp"
	"iter"
	"slices"
	"time"

	"github.com/kubenergy/kubenergy/internal/ledger"
)

// windows divides the entry's time into windows.
func (e *entry) windows() iter.Seq[ledger.Window] {
	return ledger.Window{First: e.Start, Last: e.End}.Cut(len(e.Postings))
}

// postings is about how many the entry becomes.
func (e *entry) postings() int {
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
			Start: cut.Start.Unix(), Node: e.Node, By: byAgent,
			First: cut.First.Unix(), Last: ceil(cut.Last),
			Bases:    []base{{e.Base, cut.Part(&unmeasured).Unmeasured}},
			Postings: make([]posting, 0, len(e.Postings)+1),
		}
		if e.Agentless {
			w.By = byEstimate
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

func ceil(t time.Time) int64 { return t.Add(time.Second - 1).Unix() }

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

// merge adds b to a, where all of it is mostly there already. Both are sorted.
func merge(a, b []posting) []posting {
	i, held := 0, len(a)
	for _, p := range b {
		for i < held && a[i].compare(&p) < 0 {
			i++
		}
		if i < held && a[i].compare(&p) == 0 {
			a[i].Add(&p.Amount)
		} else {
			a = append(a, p)
		}
	}
	if len(a) > held {
		sortPostings(a)
	}
	return a
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
