package sqlstore

import (
	"cmp"
	"iter"
	"slices"
	"time"

	"github.com/kubenergy/kubenergy/internal/ledger"
)

// windows splits the entry's interval into windows.
func (e *entry) windows() iter.Seq[ledger.Window] {
	return ledger.Window{First: e.Start, Last: e.End}.Cut(len(e.Postings))
}

// postings returns the approximate number of postings after expansion.
func (e *entry) postings() int {
	n := 0
	for range e.windows() {
		n += len(e.Postings)
	}
	return n
}

// touches reports whether the entry's interval overlaps one of the given windows.
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

// expand sets the prices of the entry's postings and calls each for every window of the entry.
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
			sortPostings(w.Postings) // there is one posting at the end
		}
		each(w)
	}
}

// appendPosting appends p to a sorted list, or adds it to the last element if they have the same key. p must not be
// less than the last element.
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

// plus adds o to w, which belongs to the same row, and returns the result. w may be nil. Both windows may be
// modified and must not be used afterwards.
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

// merge adds the sorted postings b to the sorted postings a. It is optimized for the case that a contains most of
// them.
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

// negative returns w with all amounts negated.
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
