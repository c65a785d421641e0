package intake

import (
	"fmt"
	"sync"
	"time"

	"github.com/kubenergy/kubenergy/energy"
	"github.com/kubenergy/kubenergy/energy/batch"
)

// Tolerance is by how much a node's power may exceed what a model of its hardware says at most, and be believed.
const Tolerance = 1.2

// How far a batch may be from what its node can do: clocks drift, counters are read late, tables are means.
const (
	overPower = 1.2
	overCores = 1.1
	slack     = time.Minute // at full power, in all of a node's batches together

	// How much time a node may tell of, beyond what has passed since it was first heard of: an agent may have been
	// kept from delivering for long. A node that invents boots of its kernel can make up so much time, and no more,
	// until the central unit begins anew: what was told before is forgotten with it.
	mostTime = 400 * 24 * time.Hour

	// What is far from a model, if measured for long enough to say.
	farBelow     = 0.3
	farAbove     = Tolerance
	leastCompare = 5 * time.Second
)

// The limits that a batch can break.
const (
	limitPower = "power"
	limitCPU   = "cpu"
	limitTime  = "time"
)

// A breach says that a batch cannot be true.
type breach struct {
	limit string
	text  string
}

func (b *breach) Error() string { return b.text }

// An envelope holds what a node has told against what it can do. What it told beyond full power is remembered: the
// slack of a batch must not be had again with each of many short ones.
type envelope struct {
	mu    sync.Mutex
	since time.Time     // when the node was first heard of
	time  time.Duration // that it has told of since
	power float64       // microjoules beyond what it can draw in the time told of; not below 0
	cpu   float64       // CPU nanoseconds beyond what its cores have in that time; not below 0
}

// reserve checks a batch and takes what it needs. Where it is not booked after all, release puts it back.
func (e *envelope) reserve(b *batch.Batch, l Limits, now time.Time) (undo func(), broken *breach) {
	length := b.EndSinceBoot - b.StartSinceBoot
	var cpu float64
	for i := range b.Shares {
		cpu += float64(b.Shares[i].CPU)
	}
	const micro = 1e6
	most := float64(l.MaxPower) * micro // µJ in a second
	overEnergy := float64(b.Measured) - overPower*most*length.Seconds()
	overCPU := cpu - overCores*l.Cores*float64(length)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.since.IsZero() {
		e.since = now
	}
	told, power, cpuNow := e.time+length, max(0, e.power+overEnergy), max(0, e.cpu+overCPU)
	switch {
	case length > mostTime || told > mostTime+max(0, now.Sub(e.since)):
		return nil, &breach{limitTime, fmt.Sprintf("%v: more time than can have passed", length)}
	case power > most*slack.Seconds():
		return nil, &breach{limitPower, fmt.Sprintf("%v in %v: the node draws at most %v", b.Measured, length,
			l.MaxPower)}
	case cpuNow > l.Cores*float64(slack):
		return nil, &breach{limitCPU, fmt.Sprintf("CPU time of %v in %v: the node has %v cores", time.Duration(cpu),
			length, l.Cores)}
	}
	deltaPower, deltaCPU := power-e.power, cpuNow-e.cpu
	e.time, e.power, e.cpu = told, power, cpuNow
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.time -= length
		e.power, e.cpu = max(0, e.power-deltaPower), max(0, e.cpu-deltaCPU)
	}, nil
}

// compare reports whether the mean power of a batch is far from what a model of the node says; known is false where
// that cannot be said.
func compare(b *batch.Batch, l Limits) (far, known bool) {
	measured := b.EndSinceBoot - b.StartSinceBoot - b.Unmeasured
	if !l.Modelled || b.Quality == energy.Estimated || measured < leastCompare {
		return false, false
	}
	mean := energy.Watts(float64(b.Measured.Joules()) / measured.Seconds())
	return mean > farAbove*l.MaxPower || b.Parent == nil && mean < farBelow*l.Idle, true
}
