package hold

import (
	"math"
	"slices"
	"time"

	"github.com/kubenergy/kubenergy/internal/timeutil"
)

// congestion decides how much is let go, by how long what was let go takes until it starts. It is a congestion control:
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
// congestion reads no clock.
type congestion struct {
	byRate bool      // releases follow a rate, not a window
	trial  *round    // the round before, where half as many are let go in this one to see what that changes
	size   float64   // of the window, before there is a rate
	rate   float64   // releases per second, then
	step   float64   // by which the rate rises
	slot   time.Time // when the next may go

	alone         time.Duration // from release to start, with nothing else on its way
	aloneStarts   int           // starts from which that was learned
	aloneMeasured time.Time     // the last of them
	least         time.Duration // shorter times are not told apart

	inFlight      int       // on their way
	lastNews      time.Time // of a start, or that one was given up
	newestStarted time.Time // release of those that have started

	// Of this round.
	roundBegan time.Time
	starts     int             // in it
	latencies  []time.Duration // of the starts that were also released in it, and so depend on its rate
	releases   int
	onTime     int // of these went as soon as the rate let them
}

const (
	// minWindow keeps something on its way where nothing is known yet, and where nothing seems to start. Half as
	// many keep no cluster busy: so many are there whatever the rate.
	minWindow   = 4
	minInFlight = minWindow / 2
	spans       = 4 // times that a start takes alone are on their way at most where there is a rate
	maxSpan     = 30 * time.Second

	light = 1.5 // times as long as alone take starts where there is room for more
	full  = 2.5 // and where there is too much

	// A round has so many starts that were released in it, and lasts as long as a start takes alone. Where there is a
	// rate it lasts twice as long, and at least roundTime.
	roundStarts = 5
	roundTime   = time.Second / 2

	minStep = 0.02
	maxStep = 0.1
	cutBack = 0.85 // of the rate of starts is the rate of releases where there is too much
	quicker = 0.8  // times as long or as many is a difference

	// Where nothing has started for so long, or for four spans, what is on its way may never start.
	minTimeout = 4 * time.Second
	restart    = 30 * time.Second // without releases, after which the cluster may have become another
	catchUp    = time.Second / 10 // for which releases that were missed are made up for

	// The time that a start takes alone is measured again so often, or after so many times as long as it is. That
	// takes the time for what is on its way to start, a few hundredths of the time in all. It is hurried where starts
	// have come to take so much longer that the rate is as low as can be.
	measureEvery     = 10 * time.Second
	measureRarely    = 40
	measureHurriedly = 2 * time.Second
	learnAlone       = 4 // starts by which the time follows
)

// newJobCongestion starts from a controller-manager at its default limits, see newJobPace.
func newJobCongestion() *congestion {
	return &congestion{rate: minRate, alone: 200 * time.Millisecond, least: 20 * time.Millisecond}
}

// newPodCongestion starts from a scheduler on a small machine.
func newPodCongestion() *congestion {
	return &congestion{rate: minRate, alone: 20 * time.Millisecond, least: 10 * time.Millisecond}
}

// departure is what is noted of a release for when it starts.
type departure struct {
	at    time.Time
	ahead int  // were on their way
	lost  bool // it is no longer waited for
}

// span is for how long releases at the rate may be on their way.
func (c *congestion) span() time.Duration { return min(spans*max(c.alone, c.least), maxSpan) }

// maxInFlight is how many may be on their way.
func (c *congestion) maxInFlight() int {
	size := c.size
	if c.byRate {
		size = c.rate * c.span().Seconds()
	}
	return max(minWindow, int(math.Ceil(size)))
}

// mayRelease reports whether another may be let go beside some that just were. While it is to be measured how long a
// start takes alone, none may until all have started, and then one.
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

// nextRelease returns when there is room; the zero time if starts must come first.
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

// nextSlot returns when the next may go: what was missed before that is made up for in part only.
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

// started learns from a start.
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

// round is what came of one.
type round struct {
	rate    float64       // of releases
	starts  float64       // per second
	latency time.Duration // of half of those that were released in it
}

// adjustRate follows a round. Where starts take too long, half as many are let go for one round. If they get quicker,
// or go on to come as before, because many were waiting, it was too much. If not, it is not for us that starts take
// long: others keep the cluster busy, and giving way to them would end with no starts at all.
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
	case 2*c.onTime >= c.releases: // else there was little to let go
		c.rate *= 1 + c.step
		c.step = min(2*c.step, maxStep)
	}
	c.rate = max(c.rate, minRate)
}

// endTrial ends a trial.
func (c *congestion) endTrial(before, r round) {
	c.trial = nil
	change := float64(r.latency) / float64(before.latency)
	switch {
	case change > 1/quicker: // something has happened meanwhile
		c.rate = cutBack * min(before.rate, r.starts)
	case change < quicker || r.starts > quicker*before.starts:
		c.rate = cutBack * min(before.rate, before.starts)
	default:
		c.rate, c.alone = before.rate, time.Duration(float64(r.latency)/light)
	}
	c.rate = max(c.rate, minRate)
}

// forget takes back what is not on its way any longer.
func (c *congestion) forget(d departure) {
	if !d.lost {
		c.inFlight--
	}
}

// setBack leaves nothing in the future.
func (c *congestion) setBack(now time.Time) {
	for _, t := range [5]*time.Time{&c.slot, &c.aloneMeasured, &c.lastNews, &c.newestStarted, &c.roundBegan} {
		*t = timeutil.Earlier(*t, now)
	}
}

func (c *congestion) timeout() time.Duration { return max(minTimeout, 4*c.span()) }

// isOverdue reports whether something is not to be waited for any longer: what was released two spans after it has
// started, or nothing has for long.
func (c *congestion) isOverdue(now time.Time, d departure) bool {
	timeout := c.timeout()
	return c.newestStarted.Sub(d.at) > max(2*c.span(), time.Second) ||
		now.Sub(d.at) > timeout && now.Sub(c.lastNews) > timeout
}

// giveUp stops waiting for what is overdue. If nothing was heard of others either, the cluster is slower than was
// thought.
func (c *congestion) giveUp(now time.Time, some int) {
	c.inFlight -= some
	c.aloneMeasured = now
	if now.Sub(c.lastNews) > c.timeout() {
		c.byRate, c.rate, c.step = true, max(c.rate/2, minRate), minStep
		c.lastNews = now
	}
}
