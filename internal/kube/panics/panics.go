// Package panics counts what was recovered from a panic, and breaks the circuit where that comes again and again:
// from the third panic within a minute on, the scheduler decides as stock Kubernetes does for ten minutes. Nothing else
// heeds it: budgets that let go of what they suspended would have it lose its work.
package panics

import (
	"context"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	most   = 3 // within a minute
	within = time.Minute
	opened = 10 * time.Minute
)

// A Breaker counts panics. Its zero value is closed.
type Breaker struct {
	until atomic.Int64 // Unix nanoseconds: it is open until then

	mu     sync.Mutex
	last   [most]time.Time // a ring
	next   int
	counts map[string]float64 // by part
}

// process is the breaker that Count, Note and Open use.
var process Breaker

// Count notes a panic of this process in one of its parts, of which there are a few. It returns how many there were in
// that part.
func Count(part string) (times int) { return process.Count(part, time.Now()) }

// Note counts a panic that input from outside can cause: it does not break the circuit. It returns how many there were
// in that part.
func Note(part string) (times int) {
	process.mu.Lock()
	defer process.mu.Unlock()
	return process.note(part)
}

// Survive calls f and reports whether it returned. A panic is noted, and costs what f was about. Of a part's panics
// the log tells the first, the second, the fourth and so on: a loop that panics in each round must not fill the disk.
func Survive(log *slog.Logger, part, about string, f func()) (ok bool) {
	defer func() {
		if what := recover(); what != nil {
			if times := Note(part); Worth(times) {
				log.Error("a part panicked: the others go on", "part", part, "about", about, "times", times,
					"panic", what, "stack", string(debug.Stack()))
			}
		}
	}()
	f()
	return true
}

// Caught calls f, and counts a panic of it. It returns what f panicked with; nil: it returned.
func Caught(part string, f func()) (what any) {
	defer func() {
		if what = recover(); what != nil {
			Count(part)
		}
	}()
	f()
	return nil
}

// pause is how long a loop rests that has panicked.
const pause = time.Second

// Keep runs a loop until it returns. One that panics begins again after a pause, until ctx ends.
func Keep(ctx context.Context, log *slog.Logger, part, about string, run func(context.Context) error) (err error) {
	for !Survive(log, part, about, func() { err = run(ctx) }) {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
	return err
}

// Collector returns a collector under which a panic costs what it had still to show: a registry calls collectors in
// goroutines of its own, where a panic would end the process.
func Collector(log *slog.Logger, c prometheus.Collector) prometheus.Collector {
	return collector{c, log}
}

type collector struct {
	prometheus.Collector
	log *slog.Logger
}

func (c collector) Collect(into chan<- prometheus.Metric) {
	Survive(c.log, "metrics", "collecting metrics", func() { c.Collector.Collect(into) })
}

// Worth reports whether the log is told of a panic that is the so-manieth of its part.
func Worth(times int) bool { return times&(times-1) == 0 }

// Open reports whether this process leaves deciding to stock Kubernetes.
// Each cycle of each pod asks, so the clock is read where there were panics alone.
func Open() bool { return process.until.Load() != 0 && process.Open(time.Now()) }

// Reset forgets the panics of this process, for tests that cause some.
func Reset() {
	process.mu.Lock()
	defer process.mu.Unlock()
	process.last, process.counts = [most]time.Time{}, nil
	process.until.Store(0)
}

// Count notes a panic in a part.
func (b *Breaker) Count(part string, now time.Time) (times int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last[b.next], b.next = now, (b.next+1)%most
	if first := b.last[b.next]; !first.IsZero() && now.Sub(first) < within {
		b.until.Store(now.Add(opened).UnixNano())
	}
	return b.note(part)
}

func (b *Breaker) note(part string) (times int) {
	if b.counts == nil {
		b.counts = map[string]float64{}
	}
	b.counts[part]++
	return int(b.counts[part])
}

// Open reports whether there were too many.
func (b *Breaker) Open(now time.Time) bool { return now.UnixNano() < b.until.Load() }

// Describe implements [prometheus.Collector]. It says nothing: parts are not known before they panic.
func (b *Breaker) Describe(chan<- *prometheus.Desc) {}

var (
	total = prometheus.NewDesc("kubenergy_panics_total", "Panics that were recovered: each cost one object or one "+
		"decision.", []string{"part"}, nil)
	open = prometheus.NewDesc("kubenergy_panics_breaker_open", "1: three panics came within a minute, and stock "+
		"Kubernetes decides for ten minutes.", nil, nil)
)

// Collect implements [prometheus.Collector].
func (b *Breaker) Collect(into chan<- prometheus.Metric) {
	state := 0.0
	if b.Open(time.Now()) {
		state = 1
	}
	into <- prometheus.MustNewConstMetric(open, prometheus.GaugeValue, state)
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.counts) == 0 { // a counter that is not there cannot be told from one that is not exported
		into <- prometheus.MustNewConstMetric(total, prometheus.CounterValue, 0, "")
	}
	for part, n := range b.counts {
		into <- prometheus.MustNewConstMetric(total, prometheus.CounterValue, n, part)
	}
}

// Metrics are those of this process.
func Metrics() prometheus.Collector { return &process }
