package energy

import (
	"math"
	"slices"
	"time"
)

// A track follows one counter from interval to interval. Of what it counted, everything up to booked is in an
// attribution.
type track struct {
	last   Reading
	booked Microjoules // its value at the end of the last interval, interpolated
	fresh  bool        // booked is not known yet: the last reading is older than the end of the last interval
	next   Reading     // the reading that is being attributed
}

// at returns the counter's value at an instant after the end of the last interval and not after the next reading. It
// never falls with the instant and is never above the next reading.
func (t *track) at(instant, end time.Duration) Microjoules {
	if instant >= t.last.At {
		return t.last.Total + project(t.next.Total-t.last.Total, int64(instant-t.last.At), int64(t.next.At-t.last.At))
	}
	return t.booked + project(t.last.Total-t.booked, int64(instant-end), int64(t.last.At-end))
}

// what a root domain's readings say of the interval that ends with them.
type progress uint8

const (
	advanced progress = iota
	waiting           // a counter is missing, or was not refreshed
	broken            // a counter began a new run, or another one joined
)

// follow finds the next reading of each track.
func follow(tracks []track, readings []Reading) progress {
	p := advanced
	for i := range tracks {
		t := &tracks[i]
		r := find(readings, t.last.Domain)
		switch {
		case r == nil:
			p = max(p, waiting)
		case r.Run != t.last.Run:
			p = broken
		case r.At <= t.last.At:
			p = max(p, waiting)
		case r.Total < t.last.Total:
			p = broken
		default:
			t.next = *r
		}
	}
	if joined(tracks, readings) {
		p = broken
	}
	return p
}

// joined says if there are readings of domains that are not tracked.
func joined(tracks []track, readings []Reading) bool {
	return slices.ContainsFunc(readings, func(r Reading) bool { return valid(&r) && !tracked(tracks, r.Domain) })
}

// present counts the tracks that have readings.
func present(tracks []track, readings []Reading) (found int) {
	for i := range tracks {
		if find(readings, tracks[i].last.Domain) != nil {
			found++
		}
	}
	return found
}

func valid(r *Reading) bool { return r.Total >= 0 && r.At >= 0 }

func find(readings []Reading, d Domain) *Reading {
	for i := range readings {
		if r := &readings[i]; r.Domain == d && valid(r) {
			return r
		}
	}
	return nil
}

func tracked(tracks []track, d Domain) bool {
	return slices.ContainsFunc(tracks, func(t track) bool { return t.last.Domain == d })
}

// A part is a track of a domain inside the root. What it used decides only how the root's energy is divided, so where
// a part's counter is late, or missing for a moment, it is taken to have gone on as before; what it then says is made
// up for.
type part struct {
	track
	rise     Microjoules // what it used from its last reading but one to its last
	over     time.Duration
	known    knowledge // at the end of the last interval
	restored bool      // from a state, and this process has not seen it
}

// knowledge is how well something is known.
type knowledge uint8

const (
	exact   knowledge = iota
	guessed           // taken to have gone on as before, or made up for that
	lost
)

// How long a part is taken to have gone on as before: three times as long as from reading to reading, within limits.
const (
	minGuess = 3 * time.Second
	maxGuess = 15 * time.Second
)

// lostAt says if the last reading says nothing of an instant any more.
func (p *part) lostAt(instant time.Duration) bool {
	return instant-p.last.At > 3*min(max(p.over, minGuess/3), maxGuess/3)
}

// restart begins anew from the part's reading; without one, the part is lost until it comes.
func (p *part) restart(readings []Reading) {
	if r := find(readings, p.last.Domain); r != nil {
		*p = part{track: track{last: *r, booked: r.Total}}
		return
	}
	p.known = lost
}

// forecast returns what the part uses in dt at its last rate.
func (p *part) forecast(dt time.Duration) Microjoules {
	return project(p.rise, int64(dt), int64(p.over))
}

// to moves the part to the end of the root's interval, given its reading if there is one, and returns by how much it
// rose. That can be negative, where more was foreseen than came.
func (p *part) to(end, before time.Duration, r *Reading) (Microjoules, knowledge) {
	previous, run := p.known, p.last.Run
	p.restored = p.restored && r == nil
	rise, known := p.move(end, before, r)
	switch {
	case !known || p.lostAt(end):
		p.known = lost
	case end-p.last.At > (end-before)/4 || p.last.Run != run:
		p.known = guessed
	default:
		p.known = exact
	}
	return rise, max(previous, p.known)
}

// move is false if nothing is known of the part.
func (p *part) move(end, before time.Duration, r *Reading) (Microjoules, bool) {
	known := p.over > 0
	if r == nil || (r.Run == p.last.Run && r.Total >= p.last.Total && r.At <= p.last.At) {
		value := p.last.Total.plus(p.forecast(end - p.last.At)) // not refreshed
		if end < p.last.At {
			value = p.between(end, before)
		}
		return p.book(value, known)
	}
	if r.Run != p.last.Run || r.Total < p.last.Total {
		used := p.forecast(end - before)
		p.last, p.fresh = *r, false
		p.booked = r.Total.plus(-p.forecast(r.At - end)).plus(p.forecast(end - r.At))
		return used, known
	}
	var value Microjoules
	rise, over := r.Total-p.last.Total, r.At-p.last.At
	switch {
	case over <= 0: // beyond what a duration holds
		p.last, p.booked, p.over = *r, r.Total, 0
		return 0, false
	case end > r.At:
		value = r.Total.plus(project(rise, int64(end-r.At), int64(over)))
	case end >= p.last.At:
		value = p.last.Total + project(rise, int64(end-p.last.At), int64(over))
	default:
		value = p.between(end, before)
	}
	p.last, p.rise, p.over = *r, rise, over
	return p.book(value, true)
}

// between interpolates between the end of the last interval and the last reading.
func (p *part) between(instant, before time.Duration) Microjoules {
	return p.booked.plus(project(p.last.Total.plus(-p.booked), int64(instant-before), int64(p.last.At-before)))
}

func (p *part) book(value Microjoules, known bool) (Microjoules, bool) {
	rise := value.plus(-max(p.booked, -math.MaxInt64))
	p.booked = value
	return rise, known
}
