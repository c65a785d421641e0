package mincost

import (
	"cmp"
	"slices"
)

// Limits of a search: the number of checks whether an item fits into a bin, and the number of passes over all bins.
const (
	searchWork   = 1 << 25
	searchPasses = 12
)

// search improves a placement step by step until no step reduces the cost, the cost reaches the bound, or the work
// limit is reached. It reports whether it completed before stop returned true.
type search struct {
	*bins
	bound int64
	work  int
	stop  func() bool
	ended bool

	worthiest [][]int // classes by group
	done      []moved
}

func (b *bins) search(sizes []float64, bound int64, stop func() bool) (whole bool) {
	s := search{bins: b, bound: bound, work: searchWork, stop: stop}
	s.rank(sizes)
	for range searchPasses {
		before := b.cost
		for _, improve := range []func(bin int){s.admit, s.move, s.vacate, s.exchange} {
			for bin := 0; bin < len(b.group) && !s.over(bin); bin++ {
				improve(bin)
			}
		}
		if b.cost == before || s.over(0) {
			break
		}
	}
	return !s.ended
}

// over reports whether the search must end.
func (s *search) over(bin int) bool {
	if bin%8 == 0 && !s.ended {
		s.ended = s.stop()
	}
	return s.ended || s.work <= 0 || nearBound(s.cost, s.bound)
}

func (s *search) tries(bin, class int) bool {
	s.work--
	return s.fits(bin, class)
}

// target returns the bin with the lowest cost for an item of a class, or -1 if no cost is below the given one. One
// bin is excluded. All empty bins of a group are equivalent.
func (s *search) target(class int, below int64, except int) int {
	bin := -1
	for j := range s.p.Bins {
		price := s.price(class, j)
		if price >= below { // includes Missing
			continue
		}
		for k := s.first[j]; k < s.first[j+1] && price < below; k++ {
			added := s.added(k, class)
			if k != except && added < below && s.tries(k, class) {
				bin, below = k, added
			}
		}
	}
	return bin
}

// move moves items to cheaper bins.
func (s *search) move(from int) {
	for at := 0; at < len(s.held[from]); {
		class := s.held[from][at].Class
		to := s.target(class, s.removed(from, class), from)
		if to < 0 {
			at++
			continue
		}
		s.pull(from, class)
		s.put(to, class)
	}
}

// admit places omitted items in a bin, if necessary by replacing some or all of its contents if this reduces the
// cost. The replaced items may be placed in other bins.
func (s *search) admit(bin int) {
	if !s.fills(bin) {
		return
	}
	for _, h := range slices.Clone(s.held[bin]) {
		for n := int64(1); n <= h.Count; n = min(2*n, max(h.Count, n+1)) {
			if s.replace(bin, []Held{{h.Class, n}}) {
				break
			}
		}
	}
	s.replace(bin, slices.Clone(s.held[bin]))
}

// fills adds as many omitted items to a bin as fit, starting with the highest saving relative to their size. It
// reports whether omitted items of a suitable class exist.
func (s *search) fills(bin int) (some bool) {
	for _, class := range s.worthiest[s.group[bin]] {
		if s.left[class] == 0 {
			continue
		}
		some = true
		for s.left[class] > 0 && s.added(bin, class) < s.p.Items[class].LeftOut && s.tries(bin, class) {
			s.put(bin, class)
			s.done = append(s.done, moved{bin, class})
		}
	}
	return some
}

// moved is an item that was placed in a bin.
type moved struct{ bin, class int }

// replace removes items from a bin, fills the bin with others, and places the removed items elsewhere. All changes
// are reverted if the cost is not reduced.
func (s *search) replace(bin int, out []Held) bool {
	before := s.cost
	s.done = s.done[:0]
	aside := make([]int64, len(out)) // items of these classes that were already omitted
	for k, h := range out {
		aside[k] = s.left[h.Class]
		for range h.Count {
			s.pull(bin, h.Class)
		}
		s.left[h.Class] = 0
	}
	s.fills(bin)
	for k, h := range out {
		s.left[h.Class] = aside[k] + h.Count
	}
	if len(s.done) > 0 {
		for _, h := range out {
			s.placeLeftOut(h)
		}
	}
	if s.cost < before {
		return true
	}
	for _, m := range slices.Backward(s.done) {
		s.pull(m.bin, m.class)
	}
	for _, h := range out {
		for range h.Count {
			s.put(bin, h.Class)
		}
	}
	return false
}

// placeLeftOut places omitted items at the lowest cost.
func (s *search) placeLeftOut(items Held) {
	for range items.Count {
		to := s.target(items.Class, s.p.Items[items.Class].LeftOut, -1)
		if to < 0 {
			return
		}
		s.put(to, items.Class)
		s.done = append(s.done, moved{to, items.Class})
	}
}

// rank sorts the classes that a group may hold by their saving compared with omission, relative to their size.
func (s *search) rank(sizes []float64) {
	for j := range s.p.Bins {
		var classes []int
		gain := make([]float64, len(s.p.Items))
		for i := range s.p.Items {
			if price := s.price(i, j); price != Missing && price < s.p.Items[i].LeftOut {
				classes = append(classes, i)
				gain[i] = float64(s.p.Items[i].LeftOut-price) / max(sizes[i], 1e-12)
			}
		}
		slices.SortStableFunc(classes, func(a, b int) int { return cmp.Compare(gain[b], gain[a]) })
		s.worthiest = append(s.worthiest, classes)
	}
}

// partners is the number of bins per group that are considered for an exchange of two classes.
const partners = 6

// exchange exchanges items of a bin with items of other groups if this reduces the cost.
func (s *search) exchange(bin int) {
	for at := 0; at < len(s.held[bin]); at++ {
		out := s.held[bin][at].Class
		for in := range s.p.Items {
			if in == out || s.price(in, s.group[bin]) == Missing || at >= len(s.held[bin]) ||
				s.held[bin][at].Class != out {
				continue
			}
			s.exchangeFor(bin, out, in)
		}
	}
}

func (s *search) exchangeFor(bin, out, in int) {
	here := s.group[bin]
	if !s.swaps(bin, out, in) {
		return
	}
	s.work -= len(s.p.Bins)
	for there := range s.p.Bins {
		if there == here || s.price(in, there) == Missing || s.price(out, there) == Missing {
			continue
		}
		if s.price(in, here)+s.price(out, there) >= s.price(out, here)+s.price(in, there) {
			continue
		}
		left := partners
		for other := s.first[there]; other < s.first[there+1] && left > 0; other++ {
			if !slices.ContainsFunc(s.held[other], func(h Held) bool { return h.Class == in }) {
				continue
			}
			left--
			if s.swaps(other, in, out) {
				s.pull(bin, out)
				s.pull(other, in)
				s.put(bin, in)
				s.put(other, out)
				return
			}
		}
	}
}

// swaps reports whether a bin has capacity for an item of class in after an item of class out is removed.
func (s *search) swaps(bin, out, in int) bool {
	s.work--
	if s.price(in, s.group[bin]) == Missing {
		return false
	}
	for k, d := range s.p.Items[in].Demand {
		if d > s.free[bin*s.dims+k]+s.p.Items[out].Demand[k] {
			return false
		}
	}
	if s.p.Room == nil {
		return true
	}
	s.trial = append(s.trial[:0], s.held[bin]...)
	s.trial = change(change(s.trial, out, -1), in, 1)
	return s.p.Room(s.group[bin], s.trial)
}

// vacate empties a bin if its contents cost less elsewhere than here including the opening cost.
func (s *search) vacate(bin int) {
	if len(s.held[bin]) == 0 || s.p.Bins[s.group[bin]].Opening == 0 {
		return
	}
	before := s.cost
	s.done = s.done[:0]
	for len(s.held[bin]) > 0 {
		class := s.held[bin][0].Class
		s.pull(bin, class)
		to := s.target(class, s.p.Items[class].LeftOut, bin)
		if to < 0 {
			s.put(bin, class)
			break
		}
		s.put(to, class)
		s.done = append(s.done, moved{to, class})
	}
	if s.cost < before {
		return
	}
	for _, m := range slices.Backward(s.done) {
		s.pull(m.bin, m.class)
		s.put(bin, m.class)
	}
}
