package hold

import (
	"math"
	"slices"
	"time"

	"github.com/kubenergy/kubenergy/internal/timeutil"
)

// congestion is a congestion control for releases. It decides how many objects to release from the latency between
// release and start. Releasing too few leaves the cluster idle. Releasing too many fills its queues and slows down
// work that was never held.
//
// Initially, a window limits the number of releases in flight. The window grows by one with each start, so it
// doubles each time all of them have started. Once a start takes more than twice as long as on an idle cluster, the
// cluster is considered busy, and from then on releases are spaced by a rate slightly below the rate of the
// observed starts. The rate rises while starts take hardly longer than on an idle cluster, in growing steps, and
// falls when they take much longer. If everything takes 1/(1−ρ) times as long on a cluster with utilization ρ, this
// leaves about a third of the cluster's capacity to other work. The number of releases in flight remains limited as
// well, in case the cluster becomes slower.
//
// congestion does not read the clock.
type congestion struct {
	byRate bool      // releases are limited by the rate instead of the window
	trial  *round    // the previous round while a trial at half the rate is in progress, otherwise nil
	size   float64   // size of the window, used until byRate is set
	rate   float64   // releases per second, used once byRate is set
	step   float64   // fraction by which the rate rises next
	slot   time.Time // earliest time of the next release at the rate

	alone         time.Duration // start latency with no other releases in flight
	aloneStarts   int           // number of starts that contributed to alone, at most learnAlone
	aloneMeasured time.Time     // time of the last of these starts
	least         time.Duration // resolution of latencies: shorter ones are treated as equal

	inFlight      int       // number of releases in flight
	lastNews      time.Time // time of the last start, or of giving up on one
	newestStarted time.Time // latest release time among objects that have started

	// The remaining fields describe the current round.
	roundBegan time.Time
	starts     int // number of starts
	// latencies of objects that were both released and started in the round, and so depend on its rate
	latencies []time.Duration
	releases  int
	onTime    int // number of releases that happened as soon as the rate allowed
}

const (
	// minWindow is the min number of releases in flight, so that measurements continue even without data or when
	// nothing seems to start. Half of it is allowed regardless of the rate, because so few releases keep no cluster
	// busy.
	minWindow   = 4
	minInFlight = minWindow / 2
	spans       = 4 // max age of releases in flight once there is a rate, relative to the latency on an idle cluster
	maxSpan     = 30 * time.Second

	light = 1.5 // relative latency below which the cluster has spare capacity
	full  = 2.5 // relative latency above which the cluster is overloaded

	// A round contains at least roundStarts starts that were also released in it, and lasts at least as long as a
	// start takes on an idle cluster. Once there is a rate, it lasts at least twice as long and at least roundTime.
	roundStarts = 5
	roundTime   = time.Second / 2

	minStep = 0.02
	maxStep = 0.1
	cutBack = 0.85 // factor from the measured rate of starts to the rate of releases after an overload
	quicker = 0.8  // relative change below which latencies and rates are considered lower

	// If nothing has started for minTimeout or four spans, the releases in flight may never start.
	minTimeout = 4 * time.Second
	// time without releases after which the state is reset, because the cluster may have changed
	restart = 30 * time.Second
	catchUp = time.Second / 10 // max duration of missed releases to make up for

	// The latency on an idle cluster is measured again after measureEvery, or after measureRarely times that
	// latency if this is longer. Each measurement waits until all releases in flight have started, which takes a
	// few percent of the time. If latencies have risen so much that the rate is at its minimum, measureHurriedly is
	// used instead.
	measureEvery     = 10 * time.Second
	measureRarely    = 40
	measureHurriedly = 2 * time.Second
	learnAlone       = 4 // number of starts over which the latency is averaged
)

// newJobCongestion returns initial estimates for kube-controller-manager with its default client limit, see
// newJobPace.
func newJobCongestion() *congestion {
	return &congestion{rate: minRate, alone: 200 * time.Millisecond, least: 20 * time.Millisecond}
}

// newPodCongestion returns initial estimates for a scheduler on a small machine.
func newPodCongestion() *congestion {
	return &congestion{rate: minRate, alone: 20 * time.Millisecond, least: 10 * time.Millisecond}
}

// departure records the circumstances of a release.
type departure struct {
	at    time.Time
	ahead int  // number of releases in flight at that time
	lost  bool // the start is no longer expected
}

// span returns the target age of releases in flight when they are limited by the rate.
func (c *congestion) span() time.Duration { return min(spans*max(c.alone, c.least), maxSpan) }

// maxInFlight returns the max number of releases in flight.
func (c *congestion) maxInFlight() int {
	size := c.size
	if c.byRate {
		size = c.rate * c.span().Seconds()
	}
	return max(minWindow, int(math.Ceil(size)))
}

// mayRelease reports whether another object may be released in addition to the already selected ones. If the
// latency on an idle cluster must be measured, no object is released until all releases in flight have started, and
// then a single one.
func (c *congestion) mayRelease(now time.Time, more int) bool {
	switch out := c.inFlight + more; {
	case out == 0:
		return true
	case c.mustMeasureAlone(now) || out >= c.maxInFlight():
		return false
	default:
		return !c.byRate || out < minInFlight || !c.nextSlot(now).Add(time.Duration(more)*c.interval()).After(now)
	}
}

// nextRelease returns the time of the next release, or the zero time if another object must start first.
func (c *congestion) nextRelease(now time.Time) time.Time {
	switch {
	case c.inFlight > 0 && (c.mustMeasureAlone(now) || c.inFlight >= c.maxInFlight()):
		return time.Time{}
	case c.byRate && c.inFlight >= minInFlight && c.slot.After(now):
		return c.slot
	}
	return now
}

func (c *congestion) mustMeasureAlone(now time.Time) bool {
	due := max(measureEvery, measureRarely*c.alone)
	if c.byRate && c.maxInFlight() == minWindow {
		due = measureHurriedly
	}
	return now.Sub(c.aloneMeasured) > due
}

func (c *congestion) interval() time.Duration { return time.Duration(float64(time.Second) / c.rate) }

// nextSlot returns the time of the next release at the rate. Missed releases are made up for at most catchUp.
func (c *congestion) nextSlot(now time.Time) time.Time {
	if earliest := now.Add(-catchUp); c.slot.Before(earliest) {
		return earliest
	}
	return c.slot
}

func (c *congestion) released(now time.Time) departure {
	if c.inFlight == 0 {
		if now.Sub(c.lastNews) > restart {
			c.byRate, c.trial, c.size, c.aloneMeasured = false, nil, minWindow, now
		}
		c.lastNews = now
		c.beginRound(now)
	}
	d := departure{at: now, ahead: c.inFlight}
	c.releases++
	if c.slot.After(now.Add(-catchUp)) {
		c.onTime++
	}
	if c.byRate {
		c.slot = c.nextSlot(now).Add(c.interval())
	}
	c.inFlight++
	return d
}

// started updates the estimates with a start.
func (c *congestion) started(at time.Time, d departure) {
	c.forget(d)
	c.lastNews = at
	c.newestStarted = timeutil.Later(c.newestStarted, d.at)
	latency := max(at.Sub(d.at), 0)
	if d.ahead == 0 {
		c.aloneStarts = min(c.aloneStarts+1, learnAlone)
		c.alone += (min(latency, maxSpan) - c.alone) / time.Duration(c.aloneStarts)
		c.aloneMeasured = at
	}
	c.size = max(c.size, minWindow) + 1
	c.starts++
	if !d.at.Before(c.roundBegan) {
		c.latencies = append(c.latencies, latency)
	}
	least := c.alone
	if c.byRate {
		least = max(2*c.alone, roundTime)
	}
	if length := at.Sub(c.roundBegan); len(c.latencies) >= roundStarts && length >= least {
		slices.Sort(c.latencies)
		c.adjustRate(round{
			rate: c.rate, starts: float64(c.starts) / length.Seconds(), latency: c.latencies[len(c.latencies)/2],
		})
		c.beginRound(at)
	}
}

func (c *congestion) beginRound(now time.Time) {
	c.roundBegan, c.starts, c.latencies, c.releases, c.onTime = now, 0, c.latencies[:0], 0, 0
}

// round contains the measurements of a round.
type round struct {
	rate    float64       // releases per second
	starts  float64       // starts per second
	latency time.Duration // median latency of the objects that were also released in the round
}

// adjustRate updates the rate after a round. If starts take too long, the rate is halved for one round as a trial.
// If the latency then falls, or the rate of starts remains the same because many releases were queued, the rate was
// too high. Otherwise other work keeps the cluster busy, and giving way to it would reduce the rate of starts to
// zero.
func (c *congestion) adjustRate(r round) {
	load := float64(r.latency) / float64(max(c.alone, c.least))
	switch {
	case c.trial != nil:
		c.endTrial(*c.trial, r)
	case !c.byRate && load > 2:
		c.byRate, c.rate, c.step = true, cutBack*r.starts, minStep
	case !c.byRate:
	case load > full:
		c.trial, c.rate, c.step = &r, min(r.rate, r.starts)/2, minStep
	case load > light:
		c.step = minStep
	case 2*c.onTime >= c.releases: // otherwise there was not enough work to release at the rate
		c.rate *= 1 + c.step
		c.step = min(2*c.step, maxStep)
	}
	c.rate = max(c.rate, minRate)
}

// endTrial chooses the rate after a trial.
func (c *congestion) endTrial(before, r round) {
	c.trial = nil
	change := float64(r.latency) / float64(before.latency)
	switch {
	case change > 1/quicker: // the load of the cluster has changed in the meantime
		c.rate = cutBack * min(before.rate, r.starts)
	case change < quicker || r.starts > quicker*before.starts:
		c.rate = cutBack * min(before.rate, before.starts)
	default:
		c.rate, c.alone = before.rate, time.Duration(float64(r.latency)/light)
	}
	c.rate = max(c.rate, minRate)
}

// forget removes a release from those in flight, unless it is already counted as lost.
func (c *congestion) forget(d departure) {
	if !d.lost {
		c.inFlight--
	}
}

// setBack moves times that are in the future to now, after the clock was set back.
func (c *congestion) setBack(now time.Time) {
	for _, t := range [5]*time.Time{&c.slot, &c.aloneMeasured, &c.lastNews, &c.newestStarted, &c.roundBegan} {
		*t = timeutil.Earlier(*t, now)
	}
}

func (c *congestion) timeout() time.Duration { return max(minTimeout, 4*c.span()) }

// isOverdue reports whether a start is no longer expected. This is the case if an object has started that was
// released two spans later, or if nothing has started for the timeout.
func (c *congestion) isOverdue(now time.Time, d departure) bool {
	timeout := c.timeout()
	return c.newestStarted.Sub(d.at) > max(2*c.span(), time.Second) ||
		now.Sub(d.at) > timeout && now.Sub(c.lastNews) > timeout
}

// giveUp stops waiting for overdue starts. If nothing has started within the timeout, the cluster is slower than
// estimated, and the rate is halved.
func (c *congestion) giveUp(now time.Time, some int) {
	c.inFlight -= some
	c.aloneMeasured = now
	if now.Sub(c.lastNews) > c.timeout() {
		c.byRate, c.rate, c.step = true, max(c.rate/2, minRate), minStep
		c.lastNews = now
	}
}
