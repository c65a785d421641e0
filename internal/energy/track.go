package energy

import (
	"math"
	"slices"
	"time"
)

// A track follows one counter across intervals. Energy up to booked is already included in an attribution.
type track struct {
	last   Reading
	booked Microjoules // interpolated value at the end of the last interval
	fresh  bool        // booked is still unset: the last reading is older than the end of the last interval
	next   Reading     // the reading being attributed
}

// at returns the counter's value at a time after the end of the last interval and not after the next reading. The
// value is monotonic in time and never exceeds the next reading.
func (t *track) at(instant, end time.Duration) Microjoules {
	if instant >= t.last.At {
		return t.last.Total + project(t.next.Total-t.last.Total, int64(instant-t.last.At), int64(t.next.At-t.last.At))
	}
	return t.booked + project(t.last.Total-t.booked, int64(instant-end), int64(t.last.At-end))
}

// progress describes how a root domain's readings have advanced since the last interval.
type progress uint8

const (
	advanced progress = iota
	waiting           // a counter is missing or was not refreshed
	broken            // a counter started a new run, or a counter was added
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

// joined reports whether there are readings of domains that are not tracked.
func joined(tracks []track, readings []Reading) bool {
	return slices.ContainsFunc(readings, func(r Reading) bool { return valid(&r) && !tracked(tracks, r.Domain) })
}

// present returns the number of tracks that have a reading.
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

// A part is a track of a domain inside the root. Its usage only determines how the root's energy is divided.
// Therefore, if the counter of a part is late or temporarily missing, its usage is extrapolated at the last rate
// and corrected by the next reading.
type part struct {
	track
	rise     Microjoules // usage between its last two readings, in the time over
	over     time.Duration
	known    knowledge // as of the end of the last interval
	restored bool      // restored from a state and not yet read by this process
}

// knowledge describes the reliability of a part's usage.
type knowledge uint8

const (
	exact   knowledge = iota
	guessed           // extrapolated, or the correction of an extrapolation
	lost
)

// Limits for the duration of an extrapolation, which is three times the interval between the last two readings.
const (
	minGuess = 3 * time.Second
	maxGuess = 15 * time.Second
)

// lostAt reports whether the last reading is too old for extrapolation at the given time.
func (p *part) lostAt(instant time.Duration) bool {
	return instant-p.last.At > 3*min(max(p.over, minGuess/3), maxGuess/3)
}

// restart resets the part to its current reading. Without a reading, the part is lost until the next one.
func (p *part) restart(readings []Reading) {
	if r := find(readings, p.last.Domain); r != nil {
		*p = part{track: track{last: *r, booked: r.Total}}
		return
	}
	p.known = lost
}

// forecast returns the usage of the part in dt at its last rate.
func (p *part) forecast(dt time.Duration) Microjoules {
	return project(p.rise, int64(dt), int64(p.over))
}

// to advances the part to the end of the root's interval, using its reading if there is one, and returns the
// increase. The increase is negative if an earlier extrapolation was too high.
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

// move returns false if the usage of the part is unknown.
func (p *part) move(end, before time.Duration, r *Reading) (Microjoules, bool) {
	known := p.over > 0
	if r == nil || (r.Run == p.last.Run && r.Total >= p.last.Total && r.At <= p.last.At) {
		value := p.last.Total.plus(p.forecast(end - p.last.At)) // the counter was not refreshed
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
	case over <= 0: // exceeds the range of time.Duration
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
