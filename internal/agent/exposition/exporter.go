// Package exposition shows what the agent has metered as a page of Prometheus metrics, and serves it over HTTP.
//
// What is on the page adds up: containers, virtual machines, groups, the system, consumers without series of their
// own or without any left, idle, platform and unknown are together what the node's meter counted, to the microjoule,
// at every scrape. docs/reference/metrics.md names the series.
package exposition

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubenergy/kubenergy/internal/agent/meter"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
)

// Options are what a page depends on besides what was metered.
type Options struct {
	Node    string
	Version string
	// MaxConsumers is how many consumers have series of their own; the rest share one. 0: 2,000.
	MaxConsumers int
	// Retain is how long a consumer that ended keeps its series, so that scrapers see its last joules. 0: two minutes.
	Retain time.Duration
}

const (
	defaultMaxConsumers = 2000
	defaultRetain       = 2 * time.Minute
	// A consumer of which nothing is heard for so long, and no end either, has ended.
	lostAfter = 10 * time.Minute
	// What the source is called where no meter was read.
	noSource = "none"
)

// An Exporter adds up attributions and shows the sums. The zero value is not ready: see New.
//
// Add and SetStatus are the metering loop's, once a tick. Everything is safe for use by several goroutines.
type Exporter struct {
	options Options
	node    []byte // the label

	mu         sync.Mutex // guards all but what does not change
	now        time.Duration
	quality    energy.Quality // of the last interval
	current    string         // source of the last interval
	consumers  []*consumer    // sorted by ID
	names      map[string]batch.Names
	stale      bool // some names may be of pods without consumers
	sources    []source
	idle       [qualities]energy.Microjoules
	platform   [qualities]energy.Microjoules
	unknown    [qualities]energy.Microjoules
	unmeasured time.Duration
	gpuIdle    energy.Microjoules // of idle, what GPUs used
	gpuUnknown energy.Microjoules
	other      account // of those beyond MaxConsumers
	ended      account // of those whose series are gone
	folded     int     // how many had no series of their own in the last tick
	status     Status
	health     health

	temperatures []meter.Temperature // replaced, never changed
	size         int                 // of the last page

	scrapes chan struct{}
	process prometheus.Gatherer
}

// source is what one meter counted.
type source struct {
	name   string
	labels []byte
	energy [qualities]energy.Microjoules
}

// New returns an Exporter that has added nothing yet.
func New(o Options) *Exporter {
	o.MaxConsumers = cmp.Or(o.MaxConsumers, defaultMaxConsumers)
	o.Retain = cmp.Or(o.Retain, defaultRetain)
	return &Exporter{
		options: o, node: appendLabel(nil, "node", o.Node), names: map[string]batch.Names{},
		scrapes: make(chan struct{}, maxScrapes), process: newProcess(),
	}
}

// Add books an interval. Source is the root domain that its energy was counted by, and its meter, as "psys (rapl)";
// "" where none was read.
func (e *Exporter) Add(a *energy.Attribution, source string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.now = max(e.now, a.End)
	e.bookNode(a, source)
	e.folded = 0
	quality := min(a.Quality, energy.Derived)
	at := 0
	for i := range a.Shares {
		s := &a.Shares[i]
		account := &e.other
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
		return c.ended && c.endedAt <= e.now-e.options.Retain
	})
	if e.stale {
		maps.DeleteFunc(e.names, func(uid string, _ batch.Names) bool { return !e.has(uid) })
		e.stale = false
	}
}

func (e *Exporter) bookNode(a *energy.Attribution, source string) {
	q := min(a.Quality, energy.Measured)
	e.quality, e.current = q, cmp.Or(source, noSource)
	e.source(e.current).energy[q] += a.Measured
	e.idle[min(q, energy.Derived)] += a.Idle // the fit says what is idle
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
	e.sources = append(e.sources, source{name: name, labels: e.labels("source", name)})
	return &e.sources[len(e.sources)-1]
}

// consumer returns the consumer of a share, and where it stands, or where it would stand; nil where it has to go
// without series of its own. Shares and consumers are sorted alike, so that it nearly always stands where it is
// expected.
func (e *Exporter) consumer(s *energy.Share, expected int) (*consumer, int) {
	at, found := e.position(s.ID, expected)
	if found {
		return e.consumers[at], at
	}
	c := e.admit(s)
	if c == nil {
		return nil, at
	}
	at, _ = e.position(s.ID, at) // others may have gone to make room
	e.consumers = slices.Insert(e.consumers, at, c)
	return c, at
}

func (e *Exporter) position(id string, expected int) (at int, found bool) {
	n := len(e.consumers)
	if expected < n && e.consumers[expected].id == id {
		return expected, true
	}
	if expected <= n && (expected == 0 || e.consumers[expected-1].id < id) &&
		(expected == n || id < e.consumers[expected].id) {
		return expected, false
	}
	return slices.BinarySearchFunc(e.consumers, id, func(c *consumer, id string) int {
		return strings.Compare(c.id, id)
	})
}

// admit returns a new consumer, nil if there is no room: then living ones take the place of those that ended longest
// ago. The system always has room.
func (e *Exporter) admit(s *energy.Share) *consumer {
	kind := kindOf(s.ID)
	if kind == kindUnknown {
		return nil
	}
	if len(e.consumers) >= e.options.MaxConsumers && kind != kindSystem {
		if s.Ended || !e.retireOldest() {
			return nil
		}
	}
	c := &consumer{id: strings.Clone(s.ID), kind: kind}
	c.labels = c.appendLabels(slices.Clone(e.node), e.names)
	return c
}

func (e *Exporter) setEnded(c *consumer, ended bool) {
	if ended && !c.ended {
		c.endedAt = e.now
	}
	c.ended = ended // one that is back, a group of the same name, goes on where it was
}

// retireOldest makes room for one consumer, if one has ended.
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

// retire takes the series of consumers, and moves their joules to those of all that ended.
func (e *Exporter) retire(gone func(*consumer) bool) {
	before := len(e.consumers)
	e.consumers = slices.DeleteFunc(e.consumers, func(c *consumer) bool {
		if !gone(c) {
			return false
		}
		e.ended.add(&c.account)
		return true
	})
	e.stale = e.stale || len(e.consumers) < before
}

// ofPod returns the consumers of a pod, among which there may be others that sort between them.
func (e *Exporter) ofPod(uid string) []*consumer {
	prefix := energy.ContainerID(uid, "")
	from, _ := e.position(prefix, len(e.consumers))
	to := from
	for to < len(e.consumers) && strings.HasPrefix(e.consumers[to].id, prefix) {
		to++
	}
	return e.consumers[from:to]
}

func (e *Exporter) has(uid string) bool {
	return slices.ContainsFunc(e.ofPod(uid), func(c *consumer) bool { return c.isOf(uid) })
}

// SetNames tells what pods are called, by their UIDs. Those without series are left out: the next acknowledgement
// brings them again. It keeps the maps.
func (e *Exporter) SetNames(names map[string]batch.Names) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for uid, n := range names {
		if previous, known := e.names[uid]; known && previous.Namespace == n.Namespace && previous.Pod == n.Pod &&
			maps.Equal(previous.Containers, n.Containers) {
			continue
		}
		if !e.has(uid) {
			continue
		}
		e.names[uid] = n
		for _, c := range e.ofPod(uid) {
			if c.isOf(uid) {
				c.labels = c.appendLabels(slices.Clone(e.node), e.names)
			}
		}
	}
}
