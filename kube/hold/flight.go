package hold

import (
	"math"
	"time"
)

// flight bounds how much is on its way at once: released and not yet seen to start. It is a congestion window. Too small a
// one leaves the cluster idle; what is on its way beyond what keeps it busy only waits in its queues, before work that was
// never held.
//
// The window is what the cluster starts within a span of twice the time that a start takes when little else is on its way.
// While the cluster is not busy, as many start in that time as were let go, so that each round trip doubles the window; once
// it is, the rate of starts is what it can do, and the window stays: it is busy, and a start takes twice as long as alone.
//
// flight reads no clock.
type flight struct {
	size  float64       // of the window: it grows by one with each start, whatever rate and span suggest
	rate  float64       // starts per second, as last measured
	alone time.Duration // from release to start, with little else on its way
	least time.Duration // span below which nothing is gained, for want of resolution

	out     int       // on their way
	started int64     // so far
	heard   time.Time // of a start, or that one was given up
	newest  time.Time // release of those that have started
	lonely  int       // starts from which alone was learned
	sampled time.Time // the last of them
}

const (
	// leastWindow keeps something on its way where nothing is known yet, and where nothing seems to start.
	leastWindow = 4
	// Where nothing has started for so long, or for four spans, what is on its way may never start.
	leastPatience = 4 * time.Second
	mostSpan      = 30 * time.Second // more is not the time of a start
	learnAlone    = 8                // starts on their own by which that time follows
	soundings     = 10 * time.Second // between two of them where the window is as small as can be
)

// newJobFlight starts from a controller-manager at its default limits, see newJobPace. The span is at least half a second: the
// queues that Jobs wait in are kube-controller-manager's, in which nothing else stands behind them.
func newJobFlight() *flight {
	return &flight{rate: 8, alone: 300 * time.Millisecond, least: 500 * time.Millisecond}
}

// newPodFlight starts from a scheduler on a small machine. Pods wait in the scheduler's own queue, before others that come
// later, so their span is short.
func newPodFlight() *flight {
	return &flight{rate: 100, alone: 30 * time.Millisecond, least: 50 * time.Millisecond}
}

// departure is what is noted of a release for when it starts.
type departure struct {
	at      time.Time
	started int64 // had started by then
	ahead   int   // were on their way
	full    bool  // and no more could be
	lost    bool  // it is no longer waited for
}

// span is the time within which as many start as are on their way.
func (f *flight) span() time.Duration { return min(max(f.least, 2*f.alone), mostSpan) }

// window is how many may be on their way.
func (f *flight) window() int { return max(leastWindow, int(math.Ceil(f.size))) }

// resize follows what was learned.
func (f *flight) resize(growth float64) {
	f.size = min(max(f.size, leastWindow)+growth, f.rate*f.span().Seconds())
}

// room reports whether another may be let go beside some that just were.
//
// Where a start has come to take longer even alone, the window shrinks to the least, since fewer start in the span than were
// let go. Then one is let go on its own now and then, which tells.
func (f *flight) room(now time.Time, more int) bool {
	if f.out+more > 0 && f.window() == leastWindow && now.Sub(f.sampled) > soundings {
		return false
	}
	return f.out+more < f.window()
}

func (f *flight) leave(now time.Time) departure {
	if f.out == 0 {
		f.heard = now
	}
	d := departure{at: now, started: f.started, ahead: f.out, full: f.out+1 >= f.window()}
	f.out++
	return d
}

// arrive learns from a start.
func (f *flight) arrive(at time.Time, d departure) {
	f.recall(d)
	f.started++
	f.heard = at
	if d.at.After(f.newest) {
		f.newest = d.at
	}
	latency := at.Sub(d.at)
	if latency <= 0 {
		return
	}
	if d.ahead == 0 {
		f.lonely = min(f.lonely+1, learnAlone)
		f.alone += (min(latency, mostSpan) - f.alone) / time.Duration(f.lonely)
		f.sampled = at
	}
	// As many as started between its release and its own start took as long as it did. Where more could have been let go,
	// that is no measure of what the cluster can do, unless it is more than was known.
	measured := float64(f.started-d.started) / latency.Seconds()
	weight := min(max(2/float64(f.window()+1), 0.002), 0.25) // all that are on their way together count most
	switch {
	case measured > f.rate:
		f.rate += 2 * weight * (measured - f.rate)
	case d.full:
		f.rate += weight * (measured - f.rate)
	}
	f.resize(1)
}

// recall takes back what is not on its way any longer.
func (f *flight) recall(d departure) {
	if !d.lost {
		f.out--
	}
}

func (f *flight) patience() time.Duration { return max(leastPatience, 4*f.span()) }

// overdue reports whether something is not to be waited for any longer: what was released two spans after it has started, or
// nothing has for long.
func (f *flight) overdue(now time.Time, d departure) bool {
	patience := f.patience()
	return f.newest.Sub(d.at) > 2*f.span() || now.Sub(d.at) > patience && now.Sub(f.heard) > patience
}

// giveUp stops waiting for what is overdue. If nothing was heard of others either, the cluster is slower than was thought.
func (f *flight) giveUp(now time.Time, some int) {
	f.out -= some
	f.sampled = now
	if now.Sub(f.heard) > f.patience() {
		f.rate = max(f.rate/2, minRate)
		f.heard = now
	}
	f.resize(0)
}
