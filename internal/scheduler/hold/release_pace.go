package hold

import (
	"slices"
	"time"
)

// pace is what the loop has learned of how soon released work starts, for releases that must end in time: how long a
// start takes at worst, and the rate that the cluster keeps up for long. Jobs and pods have one each: a Job's pods
// are made by kube-controller-manager, whose client limits are the bottleneck. Those let the first of a burst
// through, so this rate is measured over seconds, while congestion follows each start.
type pace struct {
	rate    float64 // starts per second
	max     float64
	initial time.Duration // latency until enough were measured
	samples []time.Duration
	next    int
	ahead   time.Duration // lead, where it was worked out for these samples; 0: it was not

	began, last time.Time // of the present stretch of starts
	count       int
	sum         time.Duration // of their latencies
}

const (
	paceSamples = 256
	paceEnough  = 20
	minRate     = 1
	maxLead     = time.Minute // what takes longer waits for room, which no lead can give it

	stretch = 5 * time.Second // of starts that follow each other, over which a rate is measured
	pauses  = 2 * time.Second // end it
	busy    = 1.5             // times as long as alone takes a start where others are waited for
	probe   = 1.25            // by which the rate is raised where the cluster kept up with it
)

// newJobPace starts from what kube-controller-manager does at its default client limits of 20 requests per second: of
// 200 Jobs released at once 8 start per second, or 5 where they also end meanwhile; each alone starts within 0.3 s.
func newJobPace() *pace { return &pace{rate: 5, max: 5000, initial: 2 * time.Second} }

// newPodPace starts well below kube-scheduler's throughput of 200 to 350 pods per second on two cores, so that
// released pods do not crowd out the others.
func newPodPace() *pace { return &pace{rate: 100, max: 5000, initial: time.Second} }

// gap returns the time between two releases.
func (p *pace) gap() time.Duration { return time.Duration(float64(time.Second) / p.rate) }

// lead returns how long before the wanted start a release must happen: the 99th percentile of what was measured.
func (p *pace) lead() time.Duration {
	if len(p.samples) < paceEnough {
		return p.initial
	}
	if p.ahead == 0 {
		sorted := slices.Sorted(slices.Values(p.samples))
		p.ahead = min(sorted[len(sorted)*99/100], maxLead)
	}
	return p.ahead
}

// observe learns from one start: latency after its release, where it takes alone when nothing stands before it and
// ahead others were released before it and had not started.
func (p *pace) observe(at time.Time, latency, alone time.Duration, ahead int) {
	if latency <= 0 {
		return
	}
	if float64(ahead) <= p.rate {
		p.sample(latency)
	}
	if at.Sub(p.last) > pauses {
		p.began, p.count, p.sum = at, 0, 0
		p.last = at
		return // its rate begins with the next
	}
	p.last = at
	p.count++
	p.sum += latency
	took := at.Sub(p.began)
	if took < stretch {
		return
	}
	measured := float64(p.count) / took.Seconds()
	switch mean := p.sum / time.Duration(p.count); {
	case mean > time.Duration(busy*float64(alone)):
		p.rate += (measured - p.rate) / 2
	case measured > p.rate/probe:
		p.rate = max(p.rate*probe, measured)
	}
	p.rate = min(max(p.rate, minRate), p.max)
	p.began, p.count, p.sum = at, 0, 0
}

func (p *pace) sample(latency time.Duration) {
	if len(p.samples) < paceSamples {
		p.samples = append(p.samples, latency)
	} else {
		p.samples[p.next] = latency
	}
	p.next = (p.next + 1) % paceSamples
	p.ahead = 0
}
