// Package exposition exports the metered energy as Prometheus metrics and serves them over HTTP.
//
// At every scrape, the metrics of containers, virtual machines, control groups, the system, other and ended
// consumers, idle, platform and unknown energy add up exactly to the node's metered energy, to the microjoule. The
// metrics are documented in docs/reference/metrics.md.
package exposition

import (
	"cmp"
	"slices"
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
	MaxConsumers int
}

const (
	// The series of an ended consumer are exported for this time, so that its final values are scraped.
	retain = 2 * time.Minute
	// A consumer without any update for this time has ended.
	lostAfter = 10 * time.Minute
	// Name of the source if no meter could be read.
	noSource = "none"
)

// Exporter adds up attributions and exports the totals. It must be created with New, and is safe for concurrent
// use. Add and SetStatus are called once per tick.
type Exporter struct {
	options Options
	node    string // first label of all metrics

	mu         sync.Mutex // guards all mutable fields
	now        time.Duration
	quality    energy.Quality // quality of the last interval
	current    string         // source of the last interval
	consumers  []*consumer    // sorted by ID
	sources    []source
	idle       [qualities]energy.Microjoules
	platform   [qualities]energy.Microjoules
	unknown    [qualities]energy.Microjoules
	unmeasured time.Duration
	gpuIdle    energy.Microjoules // part of idle that GPUs used
	gpuUnknown energy.Microjoules
	other      consumer // consumers beyond MaxConsumers
	ended      consumer // consumers with removed series
	folded     int      // number of consumers without their own series in the last tick
	status     Status

	temperatures []meter.Temperature // replaced as a whole, never modified

	size int // of the last page, without collected metrics

	scrapes  chan struct{}
	ticks    prometheus.Histogram
	registry *prometheus.Registry
}

// source contains the totals of one meter.
type source struct {
	name   string
	labels string
	energy [qualities]energy.Microjoules
}

// New returns an empty Exporter.
func New(o Options) *Exporter {
	e := &Exporter{
		options: o, other: consumer{kind: kindOther}, ended: consumer{kind: kindEnded},
		scrapes: make(chan struct{}, maxScrapes),
		node:    pairs("node", o.Node)[1:], registry: newRegistry(),
		ticks: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "kubenergy_agent_tick_duration_seconds",
			Help: "Duration of the periodic step that reads, attributes and stores the energy.",
			// The agent cannot keep up if ticks take a second.
			Buckets:     []float64{.00025, .0005, .001, .0025, .005, .01, .025, .1, .25, 1},
			ConstLabels: prometheus.Labels{"node": label(o.Node)},
		}),
	}
	e.registry.MustRegister(e.ticks)
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
	e.other.quality, e.ended.quality = quality, quality
	at := 0
	for i := range a.Shares {
		s := &a.Shares[i]
		account := &e.other.account
		c, position := e.consumer(s, at)
		if at = position; c != nil {
			account = &c.account
			c.quality, c.seen = quality, e.now
			e.setEnded(c, s.Ended)
			at++
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
		return c.ended && c.endedAt <= e.now-retain
	})
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
	e.sources = append(e.sources, source{name: name, labels: pairs("source", name)})
	return &e.sources[len(e.sources)-1]
}

// consumer returns the consumer of a share and its index, and adds it if necessary. If the limit is reached, a new
// consumer replaces the one that ended first. The consumer is nil if there is none, or if its kind is unknown. The
// limit does not apply to the system. Shares are usually sorted by ID, so that a consumer is usually found at the
// expected index.
func (e *Exporter) consumer(s *energy.Share, expected int) (*consumer, int) {
	if expected < len(e.consumers) && e.consumers[expected].id == s.ID {
		return e.consumers[expected], expected
	}
	at, found := e.position(s.ID)
	if found {
		return e.consumers[at], at
	}
	if len(e.consumers) >= e.options.MaxConsumers && s.ID != energy.System {
		if s.Ended || !e.retireOldest() {
			return nil, at
		}
		at, _ = e.position(s.ID)
	}
	c := &consumer{id: strings.Clone(s.ID)}
	if at > 0 && podOf(e.consumers[at-1].id) == podOf(c.id) {
		c.names = e.consumers[at-1].names // until the next acknowledgement
		c.names.container = ""
	}
	if c.kind, c.labels = identify(c.id, c.names); c.kind == kindUnknown {
		return nil, at
	}
	e.consumers = slices.Insert(e.consumers, at, c)
	return c, at
}

func (e *Exporter) position(id string) (int, bool) {
	return slices.BinarySearchFunc(e.consumers, id, func(c *consumer, id string) int { return cmp.Compare(c.id, id) })
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
	e.consumers = slices.DeleteFunc(e.consumers, func(c *consumer) bool {
		if !gone(c) {
			return false
		}
		e.ended.account.add(&c.account)
		return true
	})
}

// SetNames sets the names of pods by UID. It ignores pods without series, because the next acknowledgement contains
// them again.
func (e *Exporter) SetNames(names map[string]batch.Names) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range e.consumers {
		uid, container, _ := energy.PodOf(c.id)
		n, known := names[uid]
		if of := (podNames{n.Namespace, n.Pod, n.Containers[container]}); known && of != c.names {
			c.names = of
			_, c.labels = identify(c.id, of)
		}
	}
}
