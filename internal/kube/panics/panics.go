// Package panics counts recovered panics and implements a circuit breaker. After three panics within a minute, the
// scheduler makes decisions like an unmodified kube-scheduler for ten minutes. Other components ignore the breaker.
// For example, if budgets resumed the work that they had suspended, that work could be lost.
package panics

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	most   = 3 // maximum number of panics within a minute
	within = time.Minute
	opened = 10 * time.Minute
)

// A Breaker counts panics. The zero value is a closed breaker.
type Breaker struct {
	until atomic.Int64 // time until which the breaker is open, in Unix nanoseconds

	mu     sync.Mutex
	last   [most]time.Time // ring buffer
	next   int
	counts map[string]float64 // by part of the process
}

// process is the breaker of this process, used by Count, Note and Open.
var process Breaker

// Count records a panic in a part of this process and returns the number of panics in that part. The set of parts
// must be small.
func Count(part string) (times int) { return process.Count(part, time.Now()) }

// Note records a panic that external input can cause. It does not affect the breaker. It returns the number of
// panics in the part.
func Note(part string) (times int) {
	process.mu.Lock()
	defer process.mu.Unlock()
	return process.note(part)
}

// Survive calls f, recovers from a panic and records it with Note. It reports whether f returned without a panic.
// Only the first, second, fourth, etc. panic of a part is logged, so that a loop that panics in each iteration does
// not fill the disk.
func Survive(log *slog.Logger, part, about string, f func()) (ok bool) {
	defer func() {
		if what := recover(); what != nil {
			if times := Note(part); Worth(times) {
				log.Error("Recovered from a panic", "part", part, "about", about, "times", times,
					"panic", what, "stack", string(debug.Stack()))
			}
		}
	}()
	f()
	return true
}

// ErrPanicked is the error of a function that panicked.
var ErrPanicked = errors.New("recovered from a panic")

// Try calls f and returns its error. It recovers from a panic like Survive, and returns ErrPanicked.
func Try(log *slog.Logger, part, about string, f func() error) error {
	err := ErrPanicked
	Survive(log, part, about, func() { err = f() })
	return err
}

// Caught calls f, recovers from a panic and records it with Count. It returns the value of the panic, or nil if f
// returned.
func Caught(part string, f func()) (what any) {
	defer func() {
		if what = recover(); what != nil {
			Count(part)
		}
	}()
	f()
	return nil
}

// pause is the time after which a loop that has panicked is restarted.
const pause = time.Second

// Keep runs a loop until it returns. If it panics, it is restarted after a pause until ctx is done.
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

// Collector returns a collector that recovers from panics of c. The remaining metrics of c are then missing. A
// registry calls collectors in separate goroutines, in which a panic would terminate the process.
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

// Worth reports whether the panic with the given number should be logged.
func Worth(times int) bool { return times&(times-1) == 0 }

// Open reports whether the breaker of this process is open, so that decisions are left to Kubernetes. It is called
// for each pod in each cycle, so it reads the clock only after there have been panics.
func Open() bool { return process.until.Load() != 0 && process.Open(time.Now()) }

// Reset clears the recorded panics of this process. It is for testing only.
func Reset() {
	process.mu.Lock()
	defer process.mu.Unlock()
	process.last, process.counts = [most]time.Time{}, nil
	process.until.Store(0)
}

// Count records a panic in a part and opens the breaker after too many panics. It returns the number of panics in
// the part.
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

// Open reports whether the breaker is open.
func (b *Breaker) Open(now time.Time) bool { return now.UnixNano() < b.until.Load() }

// Describe implements [prometheus.Collector]. It sends no descriptors, because the parts are not known in advance.
func (b *Breaker) Describe(chan<- *prometheus.Desc) {}

var (
	total = prometheus.NewDesc("kubenergy_panics_total", "Number of recovered panics that each affected one "+
		"object or decision.", []string{"part"}, nil)
	open = prometheus.NewDesc("kubenergy_panics_breaker_open", "1 if decisions are left to Kubernetes for ten "+
		"minutes after three panics within a minute.", nil, nil)
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
	if len(b.counts) == 0 { // export 0 to distinguish no panics from a missing metric
		into <- prometheus.MustNewConstMetric(total, prometheus.CounterValue, 0, "")
	}
	for part, n := range b.counts {
		into <- prometheus.MustNewConstMetric(total, prometheus.CounterValue, n, part)
	}
}

// Metrics returns the collector for the panics of this process.
func Metrics() prometheus.Collector { return &process }
