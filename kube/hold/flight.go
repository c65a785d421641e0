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
	rate  float64       // starts per second, as last measured
	alone time.Duration // from release to start, with little else on its way
	least time.Duration // span below which nothing is gained, for want of resolution

	out     int   // on their way
	started int64 // so far
	heard   time.Time
}

const (
	// leastWindow keeps something on its way where nothing is known yet, and where nothing seems to start.
	leastWindow = 4
	// What has not started after so long, or after four spans, is not waited for: the cluster has no room, or it never will.
	leastPatience = 4 * time.Second
	mostSpan      = 30 * time.Second // more is not the time of a start
	learnAlone    = 8                // starts on their own by which that time follows
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
func (f *flight) window() int {
	return max(leastWindow, int(math.Ceil(f.rate*f.span().Seconds())))
}

// room reports whether another may be let go beside some that just were.
func (f *flight) room(more int) bool { return f.out+more < f.window() }

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
	latency := at.Sub(d.at)
	if latency <= 0 {
		return
	}
	if d.ahead < leastWindow {
		f.alone += (min(latency, mostSpan) - f.alone) / learnAlone
	}
	// As many as started between its release and its own start took as long as it did. Where more could have been let go,
	// that is no measure of what the cluster can do, unless it is more than was known.
	measured := float64(f.started-d.started) / latency.Seconds()
	if d.full || measured > f.rate {
		weight := min(max(2/float64(f.window()+1), 0.02), 0.3)
		f.rate += weight * (measured - f.rate)
	}
}

// recall takes back what is not on its way any longer.
func (f *flight) recall(d departure) {
	if !d.lost {
		f.out--
	}
}

func (f *flight) patience() time.Duration { return max(leastPatience, 4*f.span()) }

// giveUp counts something as lost. If nothing was heard of others either, the cluster is slower than was thought.
func (f *flight) giveUp(now time.Time) {
	f.out--
	if now.Sub(f.heard) >= f.patience() {
		f.rate = max(f.rate/2, minRate)
		f.heard = now
	}
}
