package mincost

import "slices"

// A search may ask so often whether an item fits a bin, and goes through all bins so often.
const (
	searchWork   = 1 << 26
	searchPasses = 12
)

// search improves a placement step by step until nothing helps, the cost is no more than the bound, or work is used up. It
// reports whether it was let go on to its end.
type search struct {
	*bins
	bound int64
	work  int
	stop  func() bool
	ended bool
}

func (b *bins) search(bound int64, stop func() bool) (whole bool) {
	s := search{bins: b, bound: bound, work: searchWork, stop: stop}
	for range searchPasses {
		before := b.cost
		for _, improve := range []func(bin int){s.move, s.exchange, s.admit, s.vacate} {
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

// over reports whether it is no use to go on, or not allowed.
func (s *search) over(bin int) bool {
	if bin%64 == 0 && !s.ended {
		s.ended = s.stop()
	}
	return s.ended || s.work <= 0 || s.cost <= s.bound
}

func (s *search) tries(bin, class int) bool {
	s.work--
	return s.fits(bin, class)
}

// target returns the bin where an item of a class costs least, if that is less than so much, and not some bin. Bins that hold nothing
// are as good as each other.
func (s *search) target(class int, below int64, except int) (bin int, cost int64) {
	bin = -1
	for j := range s.p.Bins {
		price := s.price(class, j)
		if price >= below { // also where it is missing
			continue
		}
		for k := s.first[j]; k < s.first[j+1] && price < below; k++ {
			added := s.added(k, class)
			if k != except && added < below && s.tries(k, class) {
				bin, below = k, added
			}
		}
	}
	return bin, below
}

// move moves items to where they cost less.
func (s *search) move(from int) {
	for at := 0; at < len(s.held[from]); {
		class := s.held[from][at].Class
		to, _ := s.target(class, s.removed(from, class), from)
		if to < 0 {
			at++
			continue
		}
		s.pull(from, class)
		s.put(to, class)
	}
}

// admit puts items that are left out into a bin, in place of one that costs less to leave out, or that finds another bin.
func (s *search) admit(bin int) {
	for class, left := range s.left {
		if left == 0 || s.price(class, s.group[bin]) == Missing {
			continue
		}
		if s.added(bin, class) < s.p.Items[class].LeftOut && s.tries(bin, class) {
			s.put(bin, class)
			continue
		}
		for _, h := range slices.Clone(s.held[bin]) {
			if h.Class != class && s.replace(bin, h.Class, class) {
				break
			}
		}
	}
}

// replace puts an item that is left out in the place of another one, if that saves anything.
func (s *search) replace(bin, out, in int) bool {
	before := s.cost
	s.pull(bin, out)
	if s.left[in] > 0 && s.tries(bin, in) {
		s.put(bin, in)
		if to, _ := s.target(out, s.p.Items[out].LeftOut, -1); to >= 0 {
			s.put(to, out)
			if s.cost < before {
				return true
			}
			s.pull(to, out)
		}
		if s.cost < before {
			return true
		}
		s.pull(bin, in)
	}
	s.put(bin, out)
	return false
}

// partners are the bins of a group in which an exchange of two classes is tried.
const partners = 6

// exchange exchanges an item of a bin with one of another group, where that saves anything.
func (s *search) exchange(bin int) {
	for at := 0; at < len(s.held[bin]); at++ {
		out := s.held[bin][at].Class
		for in := range s.p.Items {
			if in == out || s.price(in, s.group[bin]) == Missing || at >= len(s.held[bin]) || s.held[bin][at].Class != out {
				continue
			}
			s.exchangeFor(bin, out, in)
		}
	}
}

func (s *search) exchangeFor(bin, out, in int) {
	here := s.group[bin]
	checked := false
	for there := range s.p.Bins {
		if there == here || s.price(in, there) == Missing || s.price(out, there) == Missing {
			continue
		}
		if s.price(in, here)+s.price(out, there) >= s.price(out, here)+s.price(in, there) {
			continue
		}
		if !checked { // most fail here
			s.take(bin, out, -1)
			checked = s.tries(bin, in)
			s.take(bin, out, 1)
			if !checked {
				return
			}
		}
		left := partners
		for other := s.first[there]; other < s.first[there+1] && left > 0; other++ {
			if !holds(s.held[other], in) {
				continue
			}
			left--
			if s.swap(bin, other, out, in) {
				return
			}
		}
	}
}

// swap exchanges an item out of a bin with an item in of another one, if both fit.
func (s *search) swap(bin, other, out, in int) bool {
	s.pull(bin, out)
	s.pull(other, in)
	if s.tries(bin, in) && s.tries(other, out) {
		s.put(bin, in)
		s.put(other, out)
		return true
	}
	s.put(other, in)
	s.put(bin, out)
	return false
}

func holds(held []Held, class int) bool {
	return slices.ContainsFunc(held, func(h Held) bool { return h.Class == class })
}

// vacate closes a bin if what it holds costs less elsewhere than here with the opening.
func (s *search) vacate(bin int) {
	if len(s.held[bin]) == 0 || s.p.Bins[s.group[bin]].Opening == 0 {
		return
	}
	before := s.cost
	type moved struct{ to, class int }
	var moves []moved
	for len(s.held[bin]) > 0 {
		class := s.held[bin][0].Class
		s.pull(bin, class)
		to, _ := s.target(class, s.p.Items[class].LeftOut, bin)
		if to < 0 {
			s.put(bin, class)
			break
		}
		s.put(to, class)
		moves = append(moves, moved{to, class})
	}
	if s.cost < before {
		return
	}
	for _, m := range slices.Backward(moves) {
		s.pull(m.to, m.class)
		s.put(bin, m.class)
	}
}
