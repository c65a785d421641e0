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

// Tolerance is by how much a node's power may exceed what a model of its hardware says at most, and be believed.
const Tolerance = 1.2

// How far a batch may be from what its node can do: clocks drift, counters are read late, tables are means.
const (
	overPower = 1.2
	overCores = 1.1
	slack     = time.Minute // at full power, in all of a node's batches together

	// A node tells of no more time, over all of its boots, than has passed since it came to be: since its Node was made
	// or its first batch came, whichever was earlier. The ledger keeps how much it told: invented boots do not help.
	// An agent outside the cluster may have measured for some time before the controller first let it in.
	maxBacklog     = 7 * 24 * time.Hour
	drift          = 1000 // of a clock: a part in so many
	timeSlack      = 10 * time.Minute
	reportedFor    = time.Hour // what the ledger says is asked for again: another controller may have booked
	reportedAtOnce = 24        // hours in an hour: more is worth a line

	// What is far from a model, if measured for long enough to say.
	farBelow   = 0.3
	farAbove   = Tolerance
	minCompare = 5 * time.Second
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

func (*breach) Unwrap() error { return ErrRefused }

// An envelope holds what a node has told against what it can do. What it told beyond full power is remembered: the
// slack of a batch must not be had again with each of many short ones.
type envelope struct {
	mu    sync.Mutex
	asked time.Time     // when the ledger said what follows
	since time.Time     // when the node came to be, as its first booking said; zero: there is none
	time  time.Duration // that it has told of, over all boots
	going time.Duration // of that, in batches that are being booked
	seen  ledger.Seen   // what it has, as its Node said at first
	kept  ledger.Seen   // what the ledger knows of that
	hour  hour          // the present one
	power float64       // microjoules beyond what it can draw in the time told of; not below 0
	cpu   float64       // CPU nanoseconds beyond what its cores have in that time; not below 0
}

// An hour adds up what nodes tell within an hour.
type hour struct {
	began    time.Time
	reported time.Duration
	last     time.Duration // in the hour before
}

// at returns the hour that an instant is in.
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

// A claim is the part of a node's envelope that a batch takes while it is booked.
type claim struct {
	limits Limits
	since  time.Time    // before which the node did not exist
	seen   *ledger.Seen // hardware of the node that the ledger has not recorded yet; nil: none
	// done ends the claim; it must be called once. A batch that was not booked returns its part. If the caller does not
	// know whether it was booked, the next batch queries the ledger again.
	done func(booked, known bool)
}

// check rejects a batch that its node cannot have produced, within the limits that limitsOf returns for the node.
func (h *Handler) check(ctx context.Context, n *node, b *batch.Batch, limitsOf func(string, ledger.Seen) Limits,
	agentless bool, now time.Time,
) (claim, error) {
	if !agentless { // the time of estimates is not limited
		if err := n.envelope.recall(ctx, h.c.Ledger, b.Stream.Node, now); err != nil {
			return claim{}, err
		}
	}
	limits, seen := n.envelope.limits(limitsOf, b.Stream.Node)
	c, broken := n.envelope.reserve(b, limits, now)
	if broken != nil {
		h.metrics.breaches.WithLabelValues(broken.limit).Inc()
		return claim{}, broken
	}
	if !agentless {
		c.seen = seen
	}
	h.compare(n, b, limits)
	return c, nil
}

// reserve claims what a batch needs of the envelope, or returns the limit that the batch exceeds.
func (e *envelope) reserve(b *batch.Batch, l Limits, now time.Time) (c claim, broken *breach) {
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
	c.limits, c.since = l, e.cameToBe(l, now)
	elapsed := now.Sub(c.since)
	reported, power, cpuNow := e.time+length, max(0, e.power+overEnergy), max(0, e.cpu+overCPU)
	switch {
	case !ledger.Splittable(length, len(b.Shares)):
		return c, &breach{limitTime, fmt.Sprintf("%v of %d consumers are too much to be booked day by day",
			length, len(b.Shares))}
	case !e.asked.IsZero() && reported > elapsed+elapsed/drift+timeSlack:
		return c, &breach{limitTime, fmt.Sprintf("%v, and %v before: the node came to be %v ago", length,
			e.time, elapsed.Round(time.Second))}
	case power > most*slack.Seconds():
		return c, &breach{limitPower, fmt.Sprintf("%v in %v: the node draws at most %v", b.Measured, length,
			l.MaxPower)}
	case cpuNow > l.Cores*float64(slack):
		return c, &breach{limitCPU, fmt.Sprintf("CPU time of %v in %v: the node has %v cores",
			time.Duration(cpu), length, l.Cores)}
	}
	deltaPower, deltaCPU := power-e.power, cpuNow-e.cpu
	e.time, e.power, e.cpu = reported, power, cpuNow
	e.hour.at(now).reported += length
	e.going += length
	c.done = func(booked, known bool) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.going -= length
		if !known {
			e.asked = time.Time{}
		}
		if booked {
			return
		}
		e.time -= length
		e.hour.reported = max(0, e.hour.reported-length)
		e.power, e.cpu = max(0, e.power-deltaPower), max(0, e.cpu-deltaCPU)
	}
	return c, nil
}

// cameToBe returns the instant before which a node can have used nothing. A Node may be made anew under its name.
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

// recall asks a ledger how much time a node has told of, if that was long ago. It must come before a batch of an agent
// is checked: without it, time is not.
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

// count has the time counted that a node tells of without an agent. The ledger does not: it begins anew with us.
func (e *envelope) count(now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.asked, e.since = now, cmp.Or(e.since, now.Add(-maxBacklog))
}

// limits returns what the node can do, and what it has where the ledger does not know that yet.
func (e *envelope) limits(fn func(string, ledger.Seen) Limits, node string) (l Limits, news *ledger.Seen) {
	e.mu.Lock()
	defer e.mu.Unlock()
	l = fn(node, e.seen)
	l.MaxPower, l.Cores = cmp.Or(l.MaxPower, DefaultMaxPower), cmp.Or(l.Cores, DefaultCores)
	if l.Says.Made != 0 {
		e.seen = e.seen.Add(l.Says)
	}
	if all := e.seen; all != e.kept {
		return l, &all
	}
	return l, nil
}

// keeps notes that the ledger knows what a node has.
func (e *envelope) keeps(seen *ledger.Seen) {
	if seen == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.kept = *seen
}

// surge notes how much time a node has told of within the hour: much of it is a backlog, or invented.
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
		h.logThrottled("a node tells of more than a day within an hour", "node", name, "told", reported)
	}
}

// reportedRatio is the most that a node has told of within this hour or the last, over an hour.
func (h *Handler) reportedRatio() float64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	most := h.most.at(h.c.Now())
	return max(most.reported, most.last).Hours()
}

// compare records whether the mean power of a batch deviates too far from the model of the node's hardware. Estimates
// and short measurements are not compared, nor are nodes without a model.
func (h *Handler) compare(n *node, b *batch.Batch, l Limits) {
	length := b.EndSinceBoot - b.StartSinceBoot
	measured := length - b.Unmeasured
	if !l.Modelled || b.Quality == energy.Estimated || measured < minCompare {
		return
	}
	mean := energy.Watts(joules(b.Measured) / measured.Seconds())
	far := mean > farAbove*l.MaxPower || b.Parent == nil && mean < farBelow*l.Idle
	if before := n.strange.Swap(far); far && !before {
		h.logThrottled("a node's power is far from what is known of its hardware", "node", b.Stream.Node,
			"watts", joules(b.Measured)/length.Seconds(), "idleWatts", float64(l.Idle), "maxWatts", float64(l.MaxPower))
	}
	if far {
		h.metrics.implausible.Inc()
	}
}
