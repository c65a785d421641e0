package hold

import (
	"slices"
	"time"
)

// pace is what the loop has learned of how soon released work starts: a latency where nothing stood before it, and the
// rate that the cluster keeps up with. Jobs and pods have one each: a Job's pods are made by kube-controller-manager,
// whose client limits are the bottleneck.
type pace struct {
	rate    float64 // starts per second
	max     float64
	initial time.Duration // latency until enough were measured
	samples []time.Duration
	next    int
}

const (
	paceSamples = 256
	paceEnough  = 20
	minRate     = 1
	maxLead     = time.Minute // what takes longer waits for room, which no lead can give it
)

// newJobPace starts from what kube-controller-manager does at its default client limits of 20 requests per second: of
// 200 Jobs released at once 8 start per second, or 5 where they also end meanwhile; each alone starts within 0.3 s.
func newJobPace() *pace { return &pace{rate: 5, max: 200, initial: 2 * time.Second} }

// newPodPace starts well below kube-scheduler's throughput of 200 to 350 pods per second on two cores, so that
// released pods do not crowd out the others.
func newPodPace() *pace { return &pace{rate: 100, max: 400, initial: time.Second} }

// gap returns the time between two releases.
func (p *pace) gap() time.Duration { return time.Duration(float64(time.Second) / p.rate) }

// lead returns how long before the wanted start a release must happen: the 99th percentile of what was measured.
func (p *pace) lead() time.Duration {
	if len(p.samples) < paceEnough {
		return p.initial
	}
	sorted := slices.Sorted(slices.Values(p.samples))
	return min(sorted[len(sorted)*99/100], maxLead)
}

// observe learns from one start: latency after its release, with ahead others released before it and not yet started.
func (p *pace) observe(latency time.Duration, ahead int) {
	if latency <= 0 {
		return
	}
	if backlog := float64(ahead); backlog > p.rate {
		// Little's law: a backlog that took this long was served at this rate.
		p.rate += 0.05 * (backlog/latency.Seconds() - p.rate)
	} else {
		if len(p.samples) < paceSamples {
			p.samples = append(p.samples, latency)
		} else {
			p.samples[p.next] = latency
		}
		p.next = (p.next + 1) % paceSamples
		if latency < time.Second && backlog > p.rate/10 {
			// It kept up with work in flight: probe upwards, slowly, because client limits let the first of a burst through.
			p.rate *= 1.002
		}
	}
	p.rate = min(max(p.rate, minRate), p.max)
}
