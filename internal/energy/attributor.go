package energy

import (
	"math"
	"slices"
	"time"
)

// AttributorOptions configures an Attributor.
type AttributorOptions struct {
	Idle  IdlePolicy
	Prior *Profile // of the node's hardware; nil if there is none

	// Patience is the time to wait for a root domain that is missing or not refreshed by its meter before the time
	// is reported as unmeasured. 0 defaults to ten minutes, which is two intervals of the slowest scrapes.
	Patience time.Duration
}

const (
	defaultPatience = 10 * time.Minute
	anotherBoot     = time.Minute // a clock that is set back by more than this belongs to another boot

	// The amounts carried from interval to interval are limited, so that a meter that was inaccurate for a long
	// time does not distort the results for equally long after it recovers.
	platformCarried = 10 * time.Second // of the root's power
	idleCarried     = 5 * time.Second  // of idle power
)

// An Attributor divides the energy of a node's root domain among the consumers of the node, interval by interval.
// An interval ends when the CPU times were read, or at the latest reading of the root's counters if that is
// earlier. The counters are interpolated at that time, and the remainder of a reading belongs to the next interval.
// The intervals of a run therefore add up exactly to the difference of the counters.
//
// The energy of an interval is divided in three steps. Energy measured by the root beyond its parts is platform
// energy. Of the rest, the energy that the node uses without load is idle energy (see [Fit]); all of it is idle if
// no consumer used CPU time. The remainder is dynamic energy and is split by CPU time. CPU time that the node used
// and no consumer accounts for makes the corresponding part unknown.
//
// The root is authoritative. If the parts exceed it temporarily, the difference is compensated later. If they
// exceed it for long, they contradict the root: platform energy is 0, and an excess of more than ten seconds of the
// root's power is dropped.
//
// The parts are used only if all are available. A missing part is extrapolated for a few seconds. After that, the
// energy of the root is unknown until all parts are back, because platform energy cannot be determined, and
// consumers must not be charged for the platform because a meter failed. If a part never returns, this lasts for
// the lifetime of the process. A process that restores the state expects only the parts that it reads itself.
//
// The attributor waits for a root that does not advance. Each time Patience has passed, it reports the time as
// unmeasured, so that an operator is alerted. The energy is not lost: if the same run of the counters continues,
// all energy counted meanwhile is included in the interval that completes then, and is divided by the CPU times
// since the last attributed energy. Consumers that ended before such a report are listed only in that report, and
// their part of the late energy is unknown. The energy is lost if the counters start a new run or are replaced.
//
// The learned idle power belongs to the current root and its parts and is discarded when they change.
//
// An Attributor is not safe for concurrent use. It does not allocate while the number of consumers stays within its
// previous maximum.
type Attributor struct {
	o   AttributorOptions
	fit *Fit

	begun bool
	at    time.Duration // of the last observation
	end   time.Duration // everything until then has been reported
	since time.Duration // energy until then is attributed or known to be lost; before end if energy is late
	root  []track       // empty while the root is unknown
	parts []part

	roster        roster
	platformCarry Microjoules // negative: parts were larger than the root
	idleCarry     Microjoules // idle energy that exceeded the measured energy

	// reusable memory
	split   Split
	weights []uint64
	amounts []Microjoules
	alive   []uint64 // weight of each share in idle energy
}

// NewAttributor returns an attributor without any state.
func NewAttributor(o AttributorOptions) *Attributor {
	if o.Patience <= 0 {
		o.Patience = defaultPatience
	}
	return &Attributor{o: o, fit: NewFit(o.Prior)}
}

// IdlePower returns the power that the root domain draws without load, excluding the platform, and whether the
// value is settled.
func (a *Attributor) IdlePower() (w Watts, settled bool) { return a.fit.Idle() }

// SetPrior sets the power profile from which the idle power of the next root is learned, as in
// [AttributorOptions].
func (a *Attributor) SetPrior(p *Profile) { a.o.Prior = p }

// Readings appends the latest reading of each tracked counter to into. Meters resume from these readings after
// RestoreState.
func (a *Attributor) Readings(into []Reading) []Reading {
	for i := range a.root {
		into = append(into, a.root[i].last)
	}
	for i := range a.parts {
		into = append(into, a.parts[i].last)
	}
	return into
}

// Observe processes the observation of one tick. If it completes an interval, Observe fills out, reusing its
// memory, and returns true. It returns false for the first observation and while the root's counters do not
// advance; CPU times accumulate meanwhile. Observations that are not later than the previous one or have a negative
// time are ignored. Observe does not retain o except for its strings.
func (a *Attributor) Observe(o *Observation, out *Attribution) bool {
	if o.At < 0 {
		return false // not a time since boot; rejecting it prevents overflows in differences
	}
	if a.begun && o.At <= a.at {
		if a.at-o.At <= anotherBoot {
			return false
		}
		*a = *NewAttributor(a.o) // the state belongs to the previous boot
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
	case len(o.EarlierRoot) > 0:
		a.restart(o.EarlierRoot, o.EarlierParts)
		out.Unmeasured = a.end - out.Start
		if follow(a.root, o.Root) == advanced && a.attribute(o, seen, out) {
			return true
		}
	case state == broken, len(a.root) == 0:
		a.restart(o.Root, o.Parts)
	case state == advanced:
		return a.attribute(o, seen, out)
	case o.At-a.end <= a.o.Patience:
		return false
	case here > 0 && here < len(a.root):
		a.restart(o.Root, o.Parts) // continue with the remaining counters as the root
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

// begin resets out to an empty attribution that starts at the given time.
func (out *Attribution) begin(start time.Duration, root []Reading) {
	*out = Attribution{Start: start, End: start, Shares: out.Shares[:0]}
	for i := range root {
		if q := root[i].Quality; i == 0 || q < out.Quality {
			out.Quality = q
		}
	}
}

// restart follows the counters from their current readings on. Energy counted before is unknown. Without any
// reading, the energy until now is unknown.
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

// unlearn discards the idle power of a previous root or of previous parts.
func (a *Attributor) unlearn() { a.fit = NewFit(a.o.Prior) }

// attribute divides the interval that is completed by the next readings of all counters of the root.
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

// platform returns the energy that the root used beyond its parts in the dt until the end of the interval, and its
// reliability. It returns 0 if the root has no parts.
func (a *Attributor) platform(readings []Reading, out *Attribution, dt time.Duration) (Microjoules, knowledge) {
	parts, known := Microjoules(0), exact
	kept := a.parts[:0]
	for i := range a.parts {
		p := a.parts[i]
		r := find(readings, p.last.Domain)
		if r == nil && p.restored && p.lostAt(out.End) {
			a.unlearn() // not read by this process
			continue
		}
		rise, k := p.to(out.End, out.End-dt, r)
		parts, known = parts.plus(rise), max(known, k)
		kept = append(kept, p)
	}
	a.parts = kept
	if a.joinParts(readings) {
		known = lost // usage is available from the next interval on
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

// joinParts starts to follow new parts and reports whether there are any.
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

// divide distributes the energy that the parts used in dt, or the root if it has none, among the consumers. The fit
// is updated only with measured energy, not with extrapolations.
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
		out.Idle = energy // no consumer used CPU time
	}
	switch a.o.Idle {
	case IdleByRequests:
		a.alive = append(a.alive, 0)
		out.Idle = a.split.idleByRequests(out.Idle, o.CPUs, a.alive, a.amounts, out.Shares)
	case IdleEqually:
		out.Idle = a.split.idleEqually(out.Idle, a.alive, a.amounts, out.Shares)
	}
}

// learn adds a sample to the fit if the CPU times cover the same interval as the energy.
func (a *Attributor) learn(o *Observation, energy Microjoules, dt time.Duration) {
	off := a.roster.span - dt
	if !(o.CPUs > 0) || off > dt/4 || off < -dt/4 {
		return
	}
	u := a.roster.worked.Seconds() / (o.CPUs * a.roster.span.Seconds())
	a.fit.Add(u, Watts(float64(energy.Joules())/dt.Seconds()), dt)
}

// idle returns the part of an interval's energy that the node would have used without load.
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

// list appends the shares, without energy, and sets the weights of each share in dynamic and idle energy. A
// consumer that is missing in the sweep is included only if it has CPU time to account for, and does not get idle
// energy. Neither does a consumer that has ended.
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
