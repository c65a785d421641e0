package hold

import (
	"slices"
	"time"
)

// pace estimates how fast released work starts, in order to release work in time for its deadline. It estimates a
// high percentile of the start latency and the sustained rate of starts. Jobs and pods have separate estimates,
// because the pods of Jobs are created by kube-controller-manager, and its client-side rate limit is the
// bottleneck. That limit allows bursts, so pace measures the rate over several seconds, while congestion reacts to
// each start.
type pace struct {
	rate    float64 // starts per second
	max     float64
	initial time.Duration // latency until there are enough samples
	samples []time.Duration
	next    int
	ahead   time.Duration // cached lead of the current samples; 0 if it has not been computed

	began, last time.Time     // first and last start of the current measurement
	count       int           // number of starts in the current measurement
	sum         time.Duration // sum of their latencies
}

const (
	paceSamples = 256
	paceEnough  = 20
	minRate     = 1
	maxLead     = time.Minute // longer latencies are due to missing capacity, so no lead helps

	stretch = 5 * time.Second // min duration of a rate measurement
	pauses  = 2 * time.Second // max time between two starts of a measurement
	busy    = 1.5             // latency relative to the latency of a single start above which the cluster is saturated
	probe   = 1.25            // factor by which the rate is raised while the cluster keeps up with it
)

// newJobPace returns initial estimates for kube-controller-manager with its default client limit of 20 requests per
// second. Of 200 Jobs that are released at the same time, 8 start per second, or 5 if Jobs also complete at that
// time. A single Job starts within 0.3 s.
func newJobPace() *pace { return &pace{rate: 5, max: 5000, initial: 2 * time.Second} }

// newPodPace returns an initial rate well below the throughput of kube-scheduler, which is 200 to 350 pods per
// second on two cores, so that released pods do not crowd out other pods.
func newPodPace() *pace { return &pace{rate: 100, max: 5000, initial: time.Second} }

// gap returns the time between two releases.
func (p *pace) gap() time.Duration { return time.Duration(float64(time.Second) / p.rate) }

// lead returns how long before the required start an object must be released. It is the 99th percentile of the
// measured latencies, or the initial latency until there are enough samples.
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

// observe updates the estimates with a start. latency is the time since the release, alone is the latency of a
// single start on an idle cluster, and ahead is the number of objects that had been released earlier and had not
// started yet.
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
		return // the measurement of the rate begins with the next start
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
