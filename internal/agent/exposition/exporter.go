// Package exposition exports the metered energy as Prometheus metrics and serves them over HTTP.
//
// At every scrape, the metrics of containers, virtual machines, control groups, the system, other and ended
// consumers, idle, platform and unknown energy add up exactly to the node's metered energy, to the microjoule. The
// metrics are documented in docs/reference/metrics.md.
package exposition

import (
	"cmp"
	"maps"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubenergy/kubenergy/internal/agent/meter"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
)

// Options configures an Exporter.
type Options struct {
	Node    string
	Version string
	// MaxConsumers is the maximum number of consumers with their own series. All other consumers share one.
	// Defaults to 2,000.
	MaxConsumers int
	// Retain is the time for which the series of an ended consumer are exported, so that its final values are
	// scraped. Defaults to two minutes.
	Retain time.Duration
}

const (
	defaultMaxConsumers = 2000
	defaultRetain       = 2 * time.Minute
	// A consumer without any update for this time has ended.
	lostAfter = 10 * time.Minute
	// Name of the source if no meter could be read.
	noSource = "none"
)

// Exporter adds up attributions and exports the totals. It must be created with New, and is safe for concurrent
// use. Add and SetStatus are called once per tick.
type Exporter struct {
	options Options

	mu         sync.Mutex // guards all mutable fields
	now        time.Duration
	quality    energy.Quality       // quality of the last interval
	current    string               // source of the last interval
	consumers  map[string]*consumer // by ID
	names      map[string]batch.Names
	stale      bool // names may contain pods without consumers
	sources    []source
	idle       [qualities]energy.Microjoules
	platform   [qualities]energy.Microjoules
	unknown    [qualities]energy.Microjoules
	unmeasured time.Duration
	gpuIdle    energy.Microjoules // part of idle that GPUs used
	gpuUnknown energy.Microjoules
	other      account // consumers beyond MaxConsumers
	ended      account // consumers whose series were removed
	folded     int     // number of consumers without their own series in the last tick
	status     Status
	health     health

	temperatures []meter.Temperature // replaced as a whole, never modified

	scrapes  chan struct{}
	registry *prometheus.Registry
}

// source contains the totals of one meter.
type source struct {
	name   string
	energy [qualities]energy.Microjoules
}

// New returns an empty Exporter.
func New(o Options) *Exporter {
	o.MaxConsumers = cmp.Or(o.MaxConsumers, defaultMaxConsumers)
	o.Retain = cmp.Or(o.Retain, defaultRetain)
	e := &Exporter{
		options: o, consumers: map[string]*consumer{}, names: map[string]batch.Names{},
		scrapes: make(chan struct{}, maxScrapes), registry: prometheus.NewRegistry(),
	}
	e.registry.MustRegister(e,
		prometheus.NewProcessCollector(prometheus.ProcessCollectorOpts{}), //nolint:staticcheck // collectors links SQL
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "go_goroutines", Help: "Number of goroutines."},
			func() float64 { return float64(runtime.NumGoroutine()) }))
	return e
}

// Add adds the attribution of an interval. The source is the root domain and its meter, e.g. "psys (rapl)", or ""
// if no meter was read.
func (e *Exporter) Add(a *energy.Attribution, source string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.now = max(e.now, a.End)
	e.bookNode(a, source)
	e.folded = 0
	quality := min(a.Quality, energy.Derived)
	for i := range a.Shares {
		s := &a.Shares[i]
		account := &e.other
		if c := e.consumer(s); c != nil {
			account = &c.account
			c.quality, c.seen = quality, e.now
			e.setEnded(c, s.Ended)
		} else {
			e.folded++
		}
		account.energy[dynamic][quality] += s.Dynamic
		account.energy[shared][quality] += s.Idle
		account.gpu += s.GPU
		account.cpu += s.CPU
	}
	e.retire(func(c *consumer) bool {
		if c.kind != kindSystem && e.now-c.seen > lostAfter {
			e.setEnded(c, true)
		}
		return c.ended && c.endedAt <= e.now-e.options.Retain
	})
	if e.stale {
		named := map[string]bool{}
		for id := range e.consumers {
			uid, _, _ := energy.PodOf(id)
			named[uid] = true
		}
		maps.DeleteFunc(e.names, func(uid string, _ batch.Names) bool { return !named[uid] })
		e.stale = false
	}
}

func (e *Exporter) bookNode(a *energy.Attribution, source string) {
	q := min(a.Quality, energy.Measured)
	e.quality, e.current = q, cmp.Or(source, noSource)
	e.source(e.current).energy[q] += a.Measured
	e.idle[min(q, energy.Derived)] += a.Idle // the idle power is fitted
	e.platform[q] += a.Platform
	e.unknown[q] += a.Unknown
	e.unmeasured += a.Unmeasured
	e.gpuIdle += a.GPUIdle
	e.gpuUnknown += a.GPUUnknown
}

func (e *Exporter) source(name string) *source {
	for i := range e.sources {
		if e.sources[i].name == name {
			return &e.sources[i]
		}
	}
	e.sources = append(e.sources, source{name: name})
	return &e.sources[len(e.sources)-1]
}

// consumer returns the consumer of a share, and adds it if necessary. If the limit is reached, a new consumer replaces
// the one that ended first. It returns nil if there is none, or if the kind of the consumer is unknown. The limit does
// not apply to the system.
func (e *Exporter) consumer(s *energy.Share) *consumer {
	if c := e.consumers[s.ID]; c != nil {
		return c
	}
	kind := kindOf(s.ID)
	if kind == kindUnknown {
		return nil
	}
	if len(e.consumers) >= e.options.MaxConsumers && kind != kindSystem {
		if s.Ended || !e.retireOldest() {
			return nil
		}
	}
	id := strings.Clone(s.ID)
	c := &consumer{kind: kind, labels: labelsOf(id, kind, e.names)}
	e.consumers[id] = c
	return c
}

func (e *Exporter) setEnded(c *consumer, ended bool) {
	if ended && !c.ended {
		c.endedAt = e.now
	}
	c.ended = ended // a recreated group with the same name continues its series
}

// retireOldest removes the consumer that ended first, and reports whether there was one.
func (e *Exporter) retireOldest() bool {
	var oldest *consumer
	for _, c := range e.consumers {
		if c.ended && (oldest == nil || c.endedAt < oldest.endedAt) {
			oldest = c
		}
	}
	if oldest != nil {
		e.retire(func(c *consumer) bool { return c == oldest })
	}
	return oldest != nil
}

// retire removes the series of consumers, and adds their totals to those of ended consumers.
func (e *Exporter) retire(gone func(*consumer) bool) {
	before := len(e.consumers)
	maps.DeleteFunc(e.consumers, func(_ string, c *consumer) bool {
		if !gone(c) {
			return false
		}
		e.ended.add(&c.account)
		return true
	})
	e.stale = e.stale || len(e.consumers) < before
}

// SetNames sets the names of pods by UID. It ignores pods without series, because the next acknowledgement contains
// them again. The maps must not be modified afterwards.
func (e *Exporter) SetNames(names map[string]batch.Names) {
	e.mu.Lock()
	defer e.mu.Unlock()
	changed := map[string]bool{}
	for uid, n := range names {
		previous, known := e.names[uid]
		changed[uid] = !known || previous.Namespace != n.Namespace || previous.Pod != n.Pod ||
			!maps.Equal(previous.Containers, n.Containers)
	}
	for id, c := range e.consumers {
		if uid, _, ok := energy.PodOf(id); ok && changed[uid] {
			e.names[uid] = names[uid]
			c.labels = labelsOf(id, c.kind, e.names)
		}
	}
}
