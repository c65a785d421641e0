package intake

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
	"github.com/kubenergy/kubenergy/internal/ledger"
)

// Tolerance is the factor by which the power of a node may exceed the maximum of its hardware model.
const Tolerance = 1.2

// Tolerances of the envelope. Clocks drift, counters are read late, and tables contain mean values.
const (
	overPower = 1.2
	overCores = 1.1
	slack     = time.Minute // time at full power, for all batches of a node together

	// A node cannot report more time, over all of its boots, than has passed since it was created. This is the
	// creation of its Node object or its first batch, whichever is earlier. The ledger stores the total, so a node
	// gains nothing by inventing boots. An agent outside the cluster may have measured up to maxBacklog before its
	// first batch.
	maxBacklog     = 7 * 24 * time.Hour
	drift          = 1000 // the maximum drift of a clock is 1/drift
	timeSlack      = 10 * time.Minute
	reportedFor    = time.Hour // maximum age of the total, because another controller may have added to it
	reportedAtOnce = 24        // hours per hour that cause a log line if exceeded

	// Thresholds of implausible power, and the minimum measured time to apply them.
	farBelow   = 0.3
	farAbove   = Tolerance
	minCompare = 5 * time.Second
)

// Values of the metric label for the limit that a batch exceeds.
const (
	limitPower = "power"
	limitCPU   = "cpu"
	limitTime  = "time"
)

// A breach is the error of an impossible batch.
type breach struct {
	limit string
	text  string
}

func (b *breach) Error() string { return b.text }

func (*breach) Unwrap() error { return ErrRefused }

// An envelope limits the claims of a node to its physical limits. Excess energy and CPU time are carried over from
// batch to batch, so that many short batches do not each get the slack. It is safe for concurrent use.
type envelope struct {
	mu    sync.Mutex
	asked time.Time     // time of the last query of the ledger; zero if the total is unknown
	since time.Time     // creation of the node according to its first booking; zero if there is none
	time  time.Duration // total of reported time over all boots
	going time.Duration // the part of time in batches that are not written yet
	seen  ledger.Seen   // hardware that the Node object reported first
	kept  ledger.Seen   // the part of seen that the ledger has stored
	hour  hour          // the current hour
	power float64       // excess energy in µJ; ≥ 0
	cpu   float64       // excess CPU time in ns; ≥ 0
}

// An hour sums up the time that nodes report within an hour.
type hour struct {
	began    time.Time
	reported time.Duration
	last     time.Duration // sum of the previous hour
}

// at returns the hour that contains now. It starts a new hour if necessary.
func (h *hour) at(now time.Time) *hour {
	switch passed := now.Sub(h.began); {
	case passed < time.Hour && passed >= 0:
	case passed < 2*time.Hour && passed >= 0:
		*h = hour{began: now, last: h.reported}
	default:
		*h = hour{began: now}
	}
	return h
}

// A claim is the part of a node's envelope that a batch uses while it is being written.
type claim struct {
	envelope   *envelope
	limits     Limits
	since      time.Time     // creation of the node
	seen       *ledger.Seen  // hardware that the ledger has not stored yet; nil if there is none
	length     time.Duration // reported time
	power, cpu float64       // increase of the excess
	booked     bool          // the ledger has recorded the batch
	unknown    bool          // the ledger may have recorded the batch
}

// end ends the claim. It must be called once, also after a panic. If the batch was not booked, its part of the envelope
// is released. If the result is unknown, the next batch queries the ledger again.
func (c *claim) end() {
	e := c.envelope
	e.mu.Lock()
	defer e.mu.Unlock()
	e.going -= c.length
	if c.unknown {
		e.asked = time.Time{}
	}
	if c.booked {
		return
	}
	e.time -= c.length
	e.hour.reported = max(0, e.hour.reported-c.length)
	e.power, e.cpu = max(0, e.power-c.power), max(0, e.cpu-c.cpu)
}

// check rejects a batch that its node cannot have produced. limitsOf returns the limits of the node.
func (h *Handler) check(ctx context.Context, n *node, b *batch.Batch, limitsOf func(string, ledger.Seen) Limits,
	agentless bool, now time.Time,
) (*claim, error) {
	if !agentless { // the time of estimates is not limited
		if err := n.envelope.recall(ctx, h.c.Ledger, b.Stream.Node, now); err != nil {
			return nil, err
		}
	}
	limits, seen := n.envelope.limits(limitsOf, b.Stream.Node, agentless)
	c, broken := n.envelope.reserve(b, limits, now)
	if broken != nil {
		h.metrics.breaches.WithLabelValues(broken.limit).Inc()
		return nil, broken
	}
	c.seen = seen
	return c, nil
}

// reserve claims the part of the envelope that a batch uses, or returns the limit that the batch exceeds.
func (e *envelope) reserve(b *batch.Batch, l Limits, now time.Time) (*claim, *breach) {
	length := b.EndSinceBoot - b.StartSinceBoot
	var cpu float64
	for i := range b.Shares {
		cpu += float64(b.Shares[i].CPU)
	}
	const micro = 1e6
	most := float64(l.MaxPower) * micro // in µJ per second
	overEnergy := float64(b.Measured) - overPower*most*length.Seconds()
	overCPU := cpu - overCores*l.Cores*float64(length)
	e.mu.Lock()
	defer e.mu.Unlock()
	since := e.cameToBe(l, now)
	elapsed := now.Sub(since)
	reported, power, cpuNow := e.time+length, max(0, e.power+overEnergy), max(0, e.cpu+overCPU)
	switch {
	case !ledger.Splittable(length, len(b.Shares)):
		return nil, &breach{limitTime, fmt.Sprintf("%v of %d consumers exceed the limits of the ledger",
			length, len(b.Shares))}
	case !e.asked.IsZero() && reported > elapsed+elapsed/drift+timeSlack:
		return nil, &breach{limitTime, fmt.Sprintf("%v, in addition to %v before: the node was created %v ago", length,
			e.time, elapsed.Round(time.Second))}
	case power > most*slack.Seconds():
		return nil, &breach{limitPower, fmt.Sprintf("%v in %v: the node draws at most %v", b.Measured, length,
			l.MaxPower)}
	case cpuNow > l.Cores*float64(slack):
		return nil, &breach{limitCPU, fmt.Sprintf("%v of CPU time in %v: the node has %v cores",
			time.Duration(cpu), length, l.Cores)}
	}
	c := &claim{envelope: e, limits: l, since: since, length: length, power: power - e.power, cpu: cpuNow - e.cpu}
	e.time, e.power, e.cpu = reported, power, cpuNow
	e.hour.at(now).reported += length
	e.going += length
	return c, nil
}

// cameToBe returns the earliest time at which a node can have used energy. A Node object may have been replaced by
// another one of the same name.
func (e *envelope) cameToBe(l Limits, now time.Time) time.Time {
	since := l.Since
	if since.IsZero() {
		since = now.Add(-maxBacklog)
	}
	if !e.since.IsZero() && e.since.Before(since) {
		return e.since
	}
	return since
}

// recall reads the total of reported time from the ledger unless it is recent. It must be called before the batch
// of an agent is checked. Otherwise its time is not limited.
func (e *envelope) recall(ctx context.Context, l Booker, node string, now time.Time) error {
	e.mu.Lock()
	fresh := !e.asked.IsZero() && now.Sub(e.asked) < reportedFor
	e.mu.Unlock()
	if fresh {
		return nil
	}
	reported, err := l.Reported(ctx, node)
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.asked, e.since, e.time = now, reported.Since, reported.Time+e.going
	e.kept, e.seen = reported.Seen, reported.Seen.Add(e.seen)
	return nil
}

// count enables the limit of time for a node of a member without an agent. The ledger does not store its total,
// which starts at zero when the controller starts.
func (e *envelope) count(now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.asked, e.since = now, cmp.Or(e.since, now.Add(-maxBacklog))
}

// limits returns the limits of a node, and the hardware of a node with an agent if the ledger has not stored it yet.
func (e *envelope) limits(fn func(string, ledger.Seen) Limits, node string, agentless bool) (Limits, *ledger.Seen) {
	e.mu.Lock()
	defer e.mu.Unlock()
	l := fn(node, e.seen)
	l.MaxPower, l.Cores = cmp.Or(l.MaxPower, DefaultMaxPower), cmp.Or(l.Cores, DefaultCores)
	if l.Says.Made != 0 {
		e.seen = e.seen.Add(l.Says)
	}
	if all := e.seen; !agentless && all != e.kept {
		return l, &all
	}
	return l, nil
}

// keeps records that the ledger has stored the hardware of a node.
func (e *envelope) keeps(seen *ledger.Seen) {
	if seen == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.kept = *seen
}

// surge records the time that a node has reported within the hour. A large value is either a backlog or invented.
func (h *Handler) surge(n *node, name string, now time.Time) {
	n.envelope.mu.Lock()
	reported := n.envelope.hour.at(now).reported
	n.envelope.mu.Unlock()
	h.mu.Lock()
	most := h.most.at(now)
	before := most.reported
	most.reported = max(most.reported, reported)
	h.mu.Unlock()
	if reported > reportedAtOnce*time.Hour && reported > before {
		h.logThrottled("Node reported more than a day within an hour", "node", name, "told", reported)
	}
}

// reportedRatio returns the maximum time, in hours, that a node has reported within this hour or the previous one.
func (h *Handler) reportedRatio() float64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	most := h.most.at(h.c.Now())
	return max(most.reported, most.last).Hours()
}

// compare records whether the mean power of a batch deviates too far from the model of the node's hardware. Estimates
// and short measurements are not compared, nor are nodes without a model.
func (h *Handler) compare(n *node, b *batch.Batch, l *Limits) {
	length := b.EndSinceBoot - b.StartSinceBoot
	measured := length - b.Unmeasured
	if !l.Modelled || b.Quality == energy.Estimated || measured < minCompare {
		return
	}
	mean := energy.Watts(joules(b.Measured) / measured.Seconds())
	far := mean > farAbove*l.MaxPower || b.Parent == nil && mean < farBelow*l.Idle
	if before := n.strange.Swap(far); far && !before {
		h.logThrottled("Power of node deviates from its hardware model", "node", b.Stream.Node,
			"watts", joules(b.Measured)/length.Seconds(), "idleWatts", float64(l.Idle), "maxWatts", float64(l.MaxPower))
	}
	if far {
		h.metrics.implausible.Inc()
	}
}
