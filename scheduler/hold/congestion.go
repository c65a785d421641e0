package hold

import (
	"math"
	"slices"
	"time"
)

// flight decides how much is let go, by how long what was let go takes until it starts. It is a congestion control:
// too little leaves the cluster idle, and too much waits in its queues, and slows down work that was never held.
//
// It begins with a window, so many on their way at once, that grows by one with each start and so doubles each time
// all have started. When a start takes twice as long as on its own, the cluster is busy, and from then on releases
// follow each other at a rate, somewhat less than that at which starts came. The rate rises while starts take hardly
// longer than alone, the faster the longer that has been so, and falls when they take much longer. A cluster that
// shares its time among all that it does, so that a load of ρ of what it can do makes everything 1/(1−ρ) times as
// long, is then left a third of its time for others. A window remains as well: a cluster that becomes slower is sent
// no more than that.
//
// flight reads no clock.
type flight struct {
	cruising bool
	trial    *round    // the round before, where half as many are let go in this one to see what that changes
	size     float64   // of the window, before it cruises
	rate     float64   // releases per second, when it does
	step     float64   // by which the rate rises
	slot     time.Time // when the next may go

	alone   time.Duration // from release to start, with nothing else on its way
	lonely  int           // starts from which that was learned
	sampled time.Time     // the last of them
	least   time.Duration // shorter times are not told apart

	out    int       // on their way
	heard  time.Time // of a start, or that one was given up
	newest time.Time // release of those that have started

	// Of this round.
	began   time.Time
	started int             // in it
	took    []time.Duration // of these, those that were released in it, and so tell of its rate
	left    int
	timely  int // of these went as soon as the rate let them
}

const (
	// leastWindow keeps something on its way where nothing is known yet, and where nothing seems to start. Half as
	// many keep no cluster busy: so many are there whatever the rate.
	leastWindow = 4
	always      = leastWindow / 2
	spans       = 4 // times that a start takes alone are on their way at most when it cruises
	mostSpan    = 30 * time.Second

	light = 1.5 // times as long as alone take starts where there is room for more
	full  = 2.5 // and where there is too much

	// A round has so many starts that were released in it, and lasts as long as a start takes alone; twice as long
	// and so long at least when it cruises.
	roundStarts = 5
	roundTime   = time.Second / 2

	leastStep = 0.02
	mostStep  = 0.1
	cutBack   = 0.85 // of the rate of starts is the rate of releases where there is too much
	quicker   = 0.8  // times as long or as many is a difference

	// Where nothing has started for so long, or for four spans, what is on its way may never start.
	leastPatience = 4 * time.Second
	restart       = 30 * time.Second // without releases, after which the cluster may have become another
	catchUp       = time.Second / 10 // for which releases that were missed are made up for

	// The time that a start takes alone is measured again so often, or after so many times as long as it is: a
	// sounding. That takes the time for what is on its way to start, a few hundredths of the time in all. It is
	// hurried where starts have come to take so much longer that the rate is as low as can be.
	soundings        = 10 * time.Second
	rarely           = 40
	hurriedSoundings = 2 * time.Second
	learnAlone       = 4 // starts by which the time follows
)

// newJobFlight starts from a controller-manager at its default limits, see newJobPace.
func newJobFlight() *flight {
	return &flight{rate: minRate, alone: 200 * time.Millisecond, least: 20 * time.Millisecond}
}

// newPodFlight starts from a scheduler on a small machine.
func newPodFlight() *flight {
	return &flight{rate: minRate, alone: 20 * time.Millisecond, least: 10 * time.Millisecond}
}

// departure is what is noted of a release for when it starts.
type departure struct {
	at    time.Time
	ahead int  // were on their way
	lost  bool // it is no longer waited for
}

func (f *flight) span() time.Duration { return min(spans*max(f.alone, f.least), mostSpan) }

// window is how many may be on their way.
func (f *flight) window() int {
	size := f.size
	if f.cruising {
		size = f.rate * f.span().Seconds()
	}
	return max(leastWindow, int(math.Ceil(size)))
}

// room reports whether another may be let go beside some that just were. While a sounding is due there is none until
// all have started, and then for one.
func (f *flight) room(now time.Time, more int) bool {
	switch out := f.out + more; {
	case out == 0:
		return true
	case f.sounds(now) || out >= f.window():
		return false
	default:
		return !f.cruising || out < always || !f.turn(now).Add(time.Duration(more)*f.gap()).After(now)
	}
}

// next returns when there is room; the zero time if starts must come first.
func (f *flight) next(now time.Time) time.Time {
	switch {
	case f.out > 0 && (f.sounds(now) || f.out >= f.window()):
		return time.Time{}
	case f.cruising && f.out >= always && f.slot.After(now):
		return f.slot
	}
	return now
}

func (f *flight) sounds(now time.Time) bool {
	due := max(soundings, rarely*f.alone)
	if f.cruising && f.window() == leastWindow {
		due = hurriedSoundings
	}
	return now.Sub(f.sampled) > due
}

func (f *flight) gap() time.Duration { return time.Duration(float64(time.Second) / f.rate) }

// turn returns when the next may go: what was missed before that is made up for in part only.
func (f *flight) turn(now time.Time) time.Time {
	if earliest := now.Add(-catchUp); f.slot.Before(earliest) {
		return earliest
	}
	return f.slot
}

func (f *flight) leave(now time.Time) departure {
	if f.out == 0 {
		if now.Sub(f.heard) > restart {
			f.cruising, f.trial, f.size, f.sampled = false, nil, leastWindow, now
		}
		f.heard = now
		f.begin(now)
	}
	d := departure{at: now, ahead: f.out}
	f.left++
	if f.slot.After(now.Add(-catchUp)) {
		f.timely++
	}
	if f.cruising {
		f.slot = f.turn(now).Add(f.gap())
	}
	f.out++
	return d
}

// arrive learns from a start.
func (f *flight) arrive(at time.Time, d departure) {
	f.recall(d)
	f.heard = at
	if d.at.After(f.newest) {
		f.newest = d.at
	}
	latency := max(at.Sub(d.at), 0)
	if d.ahead == 0 {
		f.lonely = min(f.lonely+1, learnAlone)
		f.alone += (min(latency, mostSpan) - f.alone) / time.Duration(f.lonely)
		f.sampled = at
	}
	f.size = max(f.size, leastWindow) + 1
	f.started++
	if !d.at.Before(f.began) {
		f.took = append(f.took, latency)
	}
	least := f.alone
	if f.cruising {
		least = max(2*f.alone, roundTime)
	}
	if length := at.Sub(f.began); len(f.took) >= roundStarts && length >= least {
		slices.Sort(f.took)
		f.steer(round{rate: f.rate, starts: float64(f.started) / length.Seconds(), latency: f.took[len(f.took)/2]})
		f.begin(at)
	}
}

func (f *flight) begin(now time.Time) {
	f.began, f.started, f.took, f.left, f.timely = now, 0, f.took[:0], 0, 0
}

// round is what came of one.
type round struct {
	rate    float64       // of releases
	starts  float64       // per second
	latency time.Duration // of half of those that were released in it
}

// steer follows a round. Where starts take too long, half as many are let go for one round. If they get quicker, or
// go on to come as before, because many were waiting, it was too much. If not, it is not for us that starts take
// long: others keep the cluster busy, and who gave way to them would end with nothing.
func (f *flight) steer(r round) {
	load := float64(r.latency) / float64(max(f.alone, f.least))
	switch {
	case f.trial != nil:
		f.judge(*f.trial, r)
	case !f.cruising && load > 2:
		f.cruising, f.rate, f.step = true, cutBack*r.starts, leastStep
	case !f.cruising:
	case load > full:
		f.trial, f.rate, f.step = &r, min(r.rate, r.starts)/2, leastStep
	case load > light:
		f.step = leastStep
	case 2*f.timely >= f.left: // else there was little to let go
		f.rate *= 1 + f.step
		f.step = min(2*f.step, mostStep)
	}
	f.rate = max(f.rate, minRate)
}

// judge ends a trial.
func (f *flight) judge(before, r round) {
	f.trial = nil
	change := float64(r.latency) / float64(before.latency)
	switch {
	case change > 1/quicker: // something has happened meanwhile
		f.rate = cutBack * min(before.rate, r.starts)
	case change < quicker || r.starts > quicker*before.starts:
		f.rate = cutBack * min(before.rate, before.starts)
	default:
		f.rate, f.alone = before.rate, time.Duration(float64(r.latency)/light)
	}
	f.rate = max(f.rate, minRate)
}

// recall takes back what is not on its way any longer.
func (f *flight) recall(d departure) {
	if !d.lost {
		f.out--
	}
}

// setBack leaves nothing in the future.
func (f *flight) setBack(now time.Time) {
	for _, t := range [5]*time.Time{&f.slot, &f.sampled, &f.heard, &f.newest, &f.began} {
		*t = earlier(*t, now)
	}
}

func (f *flight) patience() time.Duration { return max(leastPatience, 4*f.span()) }

// overdue reports whether something is not to be waited for any longer: what was released two spans after it has
// started, or nothing has for long.
func (f *flight) overdue(now time.Time, d departure) bool {
	patience := f.patience()
	return f.newest.Sub(d.at) > max(2*f.span(), time.Second) || now.Sub(d.at) > patience && now.Sub(f.heard) > patience
}

// giveUp stops waiting for what is overdue. If nothing was heard of others either, the cluster is slower than was
// thought.
func (f *flight) giveUp(now time.Time, some int) {
	f.out -= some
	f.sampled = now
	if now.Sub(f.heard) > f.patience() {
		f.cruising, f.rate, f.step = true, max(f.rate/2, minRate), leastStep
		f.heard = now
	}
}
