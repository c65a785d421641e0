package energy

import (
	"math"
	"slices"
	"time"
)

// AttributorOptions say how a node's energy is attributed.
type AttributorOptions struct {
	Idle  IdlePolicy
	Prior *Profile // of the node's hardware; nil if there is none

	// Patience is for how long a root domain is waited for that a meter does not refresh, or that is missing, before
	// the time is reported as unmeasured. 0 reads as ten minutes: two of the slowest scrapes there are.
	Patience time.Duration
}

const (
	defaultPatience = 10 * time.Minute
	anotherBoot     = time.Minute // a clock that is back by more began anew

	// What is carried from interval to interval is bounded, so that a meter that is wrong for long, and then right,
	// does not distort what comes for as long again.
	platformCarried = 10 * time.Second // at the root's power
	idleCarried     = 5 * time.Second  // at idle power
)

// An Attributor divides what the root domain of a node used among the consumers of the node, interval by interval. An
// interval ends when the CPU times were read, or at the latest reading of the root's counters if that is earlier; the
// counters are interpolated there, and what is left of a reading belongs to the next interval. So over a run the
// intervals add up to what the counters counted, exactly.
//
// An interval's energy is divided in three steps. What the root measured beyond its parts is platform. Of the rest,
// idle is what the node draws anyway (see [Fit]); if nothing ran, all of it is. What is left is dynamic, and is split
// by CPU time. CPU time that the node spent and no consumer did makes its part of it unknown.
//
// The root is what counts. Parts that are larger than it for a while are made up for later. If they are for long, they
// contradict it, platform stays 0, and what they claim beyond ten seconds of the root's power is forgotten.
//
// Parts are all or nothing. One that is missing goes on as before for a few seconds; from then on until all are back,
// the energy of the root counts as unknown: the platform's part cannot be told from the rest, and consumers do not
// pay for a platform because a meter failed. Where a part never comes back it stays so for as long as the process
// lives. One that takes over its state expects only the parts that it sees itself.
//
// The attributor waits for a root that does not advance. Whenever Patience has passed, it reports that time as
// unmeasured, so that an operator notices; but the energy is not lost. When the same run of the counters goes on, all
// that they counted meanwhile is in the interval that this ends, late, and is divided by the CPU times since the last
// energy was. Only consumers that ended before such a report are told of in it: their part of what comes late is
// unknown. The energy is lost if the counters begin a new run or are others.
//
// What was learned of idle power is of the root and its parts, and forgotten with them.
//
// An Attributor is for one goroutine. It allocates nothing as long as no more consumers come than ever were.
type Attributor struct {
	o   AttributorOptions
	fit *Fit

	begun bool
	at    time.Duration // of the last observation
	end   time.Duration // until then everything is reported
	since time.Duration // until then energy is booked, or known to be lost; before end if energy is late
	root  []track       // none while nothing is known of the root
	parts []part

	roster        roster
	platformCarry Microjoules // negative: parts were larger than the root
	idleCarry     Microjoules // idle energy that was due and not there

	// memory that is used again
	split   Split
	weights []uint64
	amounts []Microjoules
	alive   []uint64 // per share: its weight in idle energy
}

// NewAttributor returns an attributor that has seen nothing.
func NewAttributor(o AttributorOptions) *Attributor {
	if o.Patience <= 0 {
		o.Patience = defaultPatience
	}
	return &Attributor{o: o, fit: NewFit(o.Prior)}
}

// IdlePower returns what the root domain draws without its platform and without work, and if that is settled.
func (a *Attributor) IdlePower() (w Watts, settled bool) { return a.fit.Idle() }

// Readings appends the latest reading of each counter that is followed: what meters resume from, after RestoreState.
func (a *Attributor) Readings(into []Reading) []Reading {
	for i := range a.root {
		into = append(into, a.root[i].last)
	}
	for i := range a.parts {
		into = append(into, a.parts[i].last)
	}
	return into
}

// Observe takes what was read at a tick. If that completes an interval, it fills out, whose memory is used again, and
// is true. It is false for the first observation and as long as the root's counters do not advance: CPU times then
// add up until they do. An observation that is not later than the last, or before boot, is ignored. It does not keep
// o, except for the strings in it.
func (a *Attributor) Observe(o *Observation, out *Attribution) bool {
	if o.At < 0 {
		return false // no time since boot; differences of others do not overflow
	}
	if a.begun && o.At <= a.at {
		if a.at-o.At <= anotherBoot {
			return false
		}
		*a = *NewAttributor(a.o) // what is known is of the boot before
	}
	seen := a.roster.sweep(o)
	a.at = o.At
	if !a.begun {
		a.begun, a.end = true, math.MinInt64
		a.restart(o.Root, o.Parts)
		return false
	}
	out.begin(a.end, o.Root)
	state, here := follow(a.root, o.Root), present(a.root, o.Root)
	switch {
	case state == broken, len(a.root) == 0:
		a.restart(o.Root, o.Parts)
	case state == advanced:
		return a.attribute(o, seen, out)
	case o.At-a.end <= a.o.Patience:
		return false
	case here > 0 && here < len(a.root):
		a.restart(o.Root, o.Parts) // the rest is the root now
	default:
		a.end = o.At
		out.End, out.Unmeasured = a.end, a.end-out.Start
		a.roster.bury(out)
		return true
	}
	if a.end == out.Start {
		return false
	}
	out.End, out.Unmeasured = a.end, a.end-out.Start
	if seen {
		a.list(out)
		a.roster.paid()
	}
	return true
}

// begin makes out an empty attribution from an instant on.
func (out *Attribution) begin(start time.Duration, root []Reading) {
	*out = Attribution{Start: start, End: start, Shares: out.Shares[:0]}
	for i := range root {
		if q := root[i].Quality; i == 0 || q < out.Quality {
			out.Quality = q
		}
	}
}

// restart follows the counters from their present readings on; what they counted before is not known. Without any,
// nothing is known until now.
func (a *Attributor) restart(root, parts []Reading) {
	if present(a.root, root) < len(a.root) || joined(a.root, root) {
		a.parts = a.parts[:0]
		a.unlearn()
	}
	a.root = a.root[:0]
	a.platformCarry, a.idleCarry = 0, 0
	for i := range root {
		if r := &root[i]; valid(r) && !tracked(a.root, r.Domain) {
			a.root = append(a.root, track{last: *r, booked: r.Total})
			a.end = max(a.end, r.At)
		}
	}
	if len(a.root) == 0 {
		a.end = max(a.end, a.at)
	}
	a.since = a.end
	for i := range a.root {
		t := &a.root[i]
		t.fresh = t.last.At < a.end
	}
	for i := range a.parts {
		a.parts[i].restart(parts)
	}
	a.joinParts(parts)
}

// unlearn forgets the idle power of what is not the root any more, or not its parts.
func (a *Attributor) unlearn() { a.fit = NewFit(a.o.Prior) }

// attribute divides the interval that the next readings of all counters of the root complete.
func (a *Attributor) attribute(o *Observation, seen bool, out *Attribution) bool {
	end := o.At
	for i := range a.root {
		end = min(end, a.root[i].next.At)
	}
	if end <= a.end {
		return false
	}
	out.End = end
	for i := range a.root {
		t := &a.root[i]
		if t.fresh {
			t.booked, t.fresh = t.at(a.since, a.since), false
		}
		value := t.at(end, a.since)
		out.Measured = out.Measured.plus(value - t.booked)
		t.last, t.booked = t.next, value
	}
	dt := end - a.since
	platform, known := a.platform(o.Parts, out, dt)
	a.end, a.since = end, end
	switch {
	case known == lost:
		out.Unknown, a.platformCarry = out.Measured, 0
		if !seen {
			return true
		}
		a.list(out)
	case !seen:
		out.Platform, out.Unknown = platform, out.Measured-platform
		return true
	default:
		out.Platform = platform
		a.divide(o, out, dt, known)
	}
	a.roster.paid()
	return true
}

// platform returns what the root used beyond its parts in the dt until an interval's end, nothing if it has none, and
// how well that is known.
func (a *Attributor) platform(readings []Reading, out *Attribution, dt time.Duration) (Microjoules, knowledge) {
	parts, known := Microjoules(0), exact
	kept := a.parts[:0]
	for i := range a.parts {
		p := a.parts[i]
		r := find(readings, p.last.Domain)
		if r == nil && p.restored && p.lostAt(out.End) {
			a.unlearn() // this process has not seen it
			continue
		}
		rise, k := p.to(out.End, out.End-dt, r)
		parts, known = parts.plus(rise), max(known, k)
		kept = append(kept, p)
	}
	a.parts = kept
	if a.joinParts(readings) {
		known = lost // it will say something of the next interval
	}
	if len(kept) == 0 || known == lost {
		return 0, known
	}
	due := out.Measured.plus(-max(parts, -math.MaxInt64)).plus(a.platformCarry)
	platform := min(max(due, 0), out.Measured)
	most := project(out.Measured, int64(platformCarried), int64(dt))
	a.platformCarry = min(max(due-platform, -most), most)
	return platform, known
}

// joinParts begins to follow the parts that are new, and says if there are any.
func (a *Attributor) joinParts(readings []Reading) (joined bool) {
	for i := range readings {
		r := &readings[i]
		if valid(r) && !slices.ContainsFunc(a.parts, func(p part) bool { return p.last.Domain == r.Domain }) {
			a.parts = append(a.parts, part{track: track{last: *r, booked: r.Total}})
			joined = true
		}
	}
	if joined {
		a.unlearn()
	}
	return joined
}

// divide gives what the parts used in dt, or the root where it has none, to the consumers. The fit learns only of
// what was measured, not of what parts were taken to use.
func (a *Attributor) divide(o *Observation, out *Attribution, dt time.Duration, known knowledge) {
	energy := out.Measured - out.Platform
	if known == exact {
		a.learn(o, energy, dt)
	}
	a.list(out)
	out.Idle = a.idle(energy, dt)
	a.weights = append(a.weights, uint64(max(a.roster.gap, 0)))
	a.amounts = slices.Grow(a.amounts[:0], len(a.weights))[:len(a.weights)]
	if a.split.Parts(energy-out.Idle, a.weights, a.amounts) {
		for i := range out.Shares {
			out.Shares[i].Dynamic = a.amounts[i]
		}
		out.Unknown = a.amounts[len(out.Shares)]
	} else {
		out.Idle = energy // no consumer used CPU: all of it is drawn anyway
	}
	switch a.o.Idle {
	case IdleByRequests:
		a.alive = append(a.alive, 0)
		out.Idle = a.split.idleByRequests(out.Idle, o.CPUs, a.alive, a.amounts, out.Shares)
	case IdleEqually:
		out.Idle = a.split.idleEqually(out.Idle, a.alive, a.amounts, out.Shares)
	}
}

// learn shows the fit what was used at which utilisation, if the CPU times are of the same interval.
func (a *Attributor) learn(o *Observation, energy Microjoules, dt time.Duration) {
	off := a.roster.span - dt
	if !(o.CPUs > 0) || off > dt/4 || off < -dt/4 {
		return
	}
	u := a.roster.worked.Seconds() / (o.CPUs * a.roster.span.Seconds())
	a.fit.Add(u, Watts(float64(energy.Joules())/dt.Seconds()), dt)
}

// idle returns how much of an interval's energy the node would have used anyway.
func (a *Attributor) idle(energy Microjoules, dt time.Duration) Microjoules {
	w, _ := a.fit.Idle()
	w = min(max(w, 0), megawatt)
	if w != w { // NaN
		w = 0
	}
	due := min(w.For(dt).Microjoules(), math.MaxInt64/2) + a.idleCarry
	idle := min(max(due, 0), energy)
	a.idleCarry = min(due-idle, w.For(idleCarried).Microjoules())
	return idle
}

// list fills in the shares, without energy, and what each weighs in dividing dynamic and idle energy. A consumer that
// the sweep missed is among them only if it has something to pay, and takes no part in idle energy; nor does one that
// ended.
func (a *Attributor) list(out *Attribution) {
	a.weights, a.alive = a.weights[:0], a.alive[:0]
	for i := range a.roster.entries {
		e := &a.roster.entries[i]
		if e.absent > 0 && e.used == 0 && !e.ended {
			continue
		}
		out.Shares = append(out.Shares, Share{ID: e.id, CPU: e.used, Ended: e.ended})
		a.weights = append(a.weights, uint64(e.used))
		a.alive = append(a.alive, a.idleWeight(e))
	}
}

func (a *Attributor) idleWeight(e *entry) uint64 {
	switch {
	case a.o.Idle == IdleApart || e.absent > 0 || e.ended || !sharesIdle(e.id):
		return 0
	case a.o.Idle == IdleEqually:
		return 1
	}
	return e.weight
}
