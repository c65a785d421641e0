package agent

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/time/rate"

	"github.com/kubenergy/kubenergy/internal/agent/delivery"
	"github.com/kubenergy/kubenergy/internal/agent/exposition"
	"github.com/kubenergy/kubenergy/internal/agent/host"
	"github.com/kubenergy/kubenergy/internal/agent/meter"
	"github.com/kubenergy/kubenergy/internal/energy"
)

// loop runs ticks until ctx is done, and then one final tick to account for containers that stop when the node
// shuts down.
func (a *agent) loop(ctx context.Context) {
	interval := a.options.Interval
	a.lastTick.Store(int64(host.Now()))
	next := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			a.tick()
			return
		case <-timer.C:
		}
		a.tick()
		a.lastTick.Store(int64(host.Now()))
		// Lost ticks are not repeated, because counters are cumulative.
		next = next.Add(interval)
		if late := time.Since(next); late > 0 {
			lost := late/interval + 1
			a.status.Lost += uint64(lost)
			next = next.Add(lost * interval)
		}
		timer.Reset(time.Until(next))
	}
}

// tick reads CPU times, then energy counters, and attributes the energy (docs/decisions/0012). A panic outside of
// meters terminates the process, because the interval may be partially attributed; the next process continues from
// the saved state.
func (a *agent) tick() {
	began := time.Now()
	err := a.host.Sweep(&a.sweep)
	a.sweepTrouble.note(a.log, "reading CPU times", "the energy is unknown until it succeeds", err)
	a.status.Sweep += time.Since(began)
	a.readMeters()
	o := &a.observation
	*o = energy.Observation{
		At: a.sweep.At, CPUs: a.sweep.CPUs, Busy: a.sweep.Busy, Root: o.Root, Parts: o.Parts,
		EarlierRoot: o.EarlierRoot, EarlierParts: o.EarlierParts,
	}
	if err == nil {
		o.Usage, o.Ended = a.sweep.Usage, a.sweep.Ended
	} else {
		o.At, o.Busy = host.Now(), 0
	}
	a.splitRoot(o)
	a.status.Source, a.status.Parent = a.root.Source(), meter.ParentOf(a.meters)
	if a.attributor.Observe(o, &a.attribution) {
		a.bookGPUs()
		a.book()
	}
	// Counters published to virtual machines must never exceed the saved state; otherwise, the next process would
	// publish the same energy again.
	a.save()
	if a.publisher != nil { // errors of single machines are logged by Publish
		err := a.publisher.Publish(host.Now(), a.host.VMs())
		a.publishTrouble.note(a.log, "writing the counters of virtual machines", "they may be lost after a restart",
			err)
	}
	a.status.Tick = time.Since(began)
	a.report()
}

// splitRoot sets the readings of the root, and follows changes of the root.
func (a *agent) splitRoot(o *energy.Observation) {
	before := a.root.Source()
	a.root.Split(host.Now(), a.readings, o)
	if source := a.root.Source(); source != before {
		a.log.Warn("Changed the root meter", "from", before, "to", source)
		a.status.RootChanges++
		prior, err := a.prior()
		if err != nil {
			a.log.Error("Failed to read the power profile of the new root meter", "err", err)
		}
		a.attributing.Prior = prior
		a.attributor.SetPrior(prior)
	}
	a.withoutGPUs(o.EarlierRoot)
	a.withoutGPUs(o.Root)
}

func (a *agent) readMeters() {
	t := meter.Tick{Now: host.Now, Busy: a.sweep.Busy, At: a.sweep.At, CPUs: a.sweep.CPUs}
	a.readings = a.readings[:0]
	for i, m := range a.meters {
		var err error
		a.readings, err = meter.ReadSafely(m, t, a.readings)
		status := &a.status.Meters[i]
		status.Readable = err == nil
		if scraped, ok := m.(*meter.Scraped); ok {
			status.Errors = uint64(max(0, scraped.Failures())) // counts failed scrapes rather than failed ticks
		} else if err != nil {
			status.Errors++
		}
		a.meterLogs[i].note(a.log, "reading the meter "+status.Name,
			"its energy is recorded when it can be read again", err)
	}
}

// logThrottle limits how often a recurring failure is logged.
type logThrottle struct {
	failing bool
	limit   rate.Sometimes
}

// note logs the start and the end of a failure, at most one entry per minute.
func (t *logThrottle) note(log *slog.Logger, what, consequence string, err error) {
	if (err != nil) == t.failing {
		return
	}
	t.limit.Interval = time.Minute
	t.limit.Do(func() {
		if t.failing = err != nil; t.failing {
			log.Error("Agent component failing", "part", what, "consequence", consequence, "err", err)
		} else {
			log.Info("Agent component recovered", "part", what)
		}
	})
}

// book adds the attribution to the queue, the metrics and the counters of virtual machines. The queue is updated
// first so that a client that scrapes metrics and then requests a delivery gets the same data from both.
func (a *agent) book() {
	if a.publisher != nil {
		a.bookVMs()
	}
	if a.pusher != nil {
		meta := delivery.Meta{
			Wall: time.Now().Add(a.attribution.End - host.Now()), Source: a.status.Source, IdlePolicy: a.status.Idle,
			Parent: a.status.Parent,
		}
		if err := a.queue.Add(&a.attribution, meta); err != nil {
			a.log.Error("Failed to queue an interval", "err", err)
		}
	}
	a.page.Add(&a.attribution, a.status.Source)
}

// bookVMs adds the energy of virtual machines to their published counters.
func (a *agent) bookVMs() {
	for i := range a.attribution.Shares {
		s := &a.attribution.Shares[i]
		if vm, ok := energy.VMOf(s.ID); ok {
			a.publisher.Add(vm, s.Dynamic+s.Idle, min(a.attribution.Quality, energy.Derived))
		}
	}
}

// save persists the state for the next process. Errors are logged by the queue.
func (a *agent) save() {
	if a.queue == nil {
		return
	}
	a.state = a.appendState(a.state[:0])
	_ = a.queue.Save(a.state)
}

func (a *agent) report() {
	s := &a.status
	s.IdlePower, s.IdleSettled = a.attributor.IdlePower()
	s.Host = a.host.Stats()
	a.showGPUs()
	if a.publisher != nil {
		stats := a.publisher.Stats()
		s.Guests = &stats
	}
	if a.pusher != nil {
		s.Delivery = &exposition.DeliveryStatus{QueueStats: a.queue.Stats(), PushStats: a.pusher.Stats()}
	}
	a.page.SetStatus(s)
}

// missed is the number of missed ticks after which the agent is considered unhealthy.
const missed = 10

// healthy returns an error if no tick has completed recently.
func (a *agent) healthy() error {
	silent := host.Now() - time.Duration(a.lastTick.Load())
	if silent > max(missed*a.options.Interval, missed*time.Second) {
		return fmt.Errorf("the last tick was %v ago", silent.Round(time.Second))
	}
	return nil
}
