package estimate

import (
	"log/slog"
	"sync"

	prom "github.com/prometheus/client_golang/prometheus"

	"github.com/kubenergy/kubenergy/energy/batch"
)

// stats are what is shown of an estimator.
type stats struct {
	booked, dropped tallied

	mu       sync.Mutex
	nodes    [sources]int
	measured int // nodes and pods that metrics-server tells of
	queued   int
	failures uint64
	told     bool // that booking fails
}

// tallied counts batches and their energy.
type tallied struct {
	mu              sync.Mutex
	batches, joules float64
}

func (t *tallied) add(b *batch.Batch) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.batches += float64(b.Last - b.First + 1)
	t.joules += float64(b.Measured.Joules())
}

func (t *tallied) sums() (batches, joules float64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.batches, t.joules
}

func (s *stats) set(nodes [sources]int, u *Usage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nodes, s.measured = nodes, u.size()
}

func (s *stats) waiting(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.queued = n; n == 0 {
		s.told = false
	}
}

// failed counts, and says so once until all is booked again.
func (s *stats) failed(err error, log *slog.Logger) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failures++
	if !s.told {
		s.told = true
		log.Warn("booking estimates: trying again", "error", err)
	}
}

var (
	descNodes = prom.NewDesc("kubenergy_agentless_nodes",
		"Nodes without an agent, by what tells their energy: wall, model, or unknown.", []string{"by"}, nil)
	descUsage = prom.NewDesc("kubenergy_agentless_usage_samples",
		"Nodes and pods of which metrics-server told the CPU usage last; of others, requests count.", nil, nil)
	descBatches = prom.NewDesc("kubenergy_agentless_batches_total", "Estimates, by what became of them.",
		[]string{"outcome"}, nil)
	descJoules = prom.NewDesc("kubenergy_agentless_energy_joules_total",
		"Energy of estimates, by what became of them.", []string{"outcome"}, nil)
	descQueued = prom.NewDesc("kubenergy_agentless_waiting_nodes", "Nodes with estimates that are not booked yet.",
		nil, nil)
	descFailed = prom.NewDesc("kubenergy_agentless_booking_failures_total",
		"Times that booking an estimate failed; it is tried again.", nil, nil)
)

var byNames = [sources]string{"wall", "model", "unknown"}

// Describe implements prometheus.Collector.
func (e *Estimator) Describe(ch chan<- *prom.Desc) {
	for _, d := range []*prom.Desc{descNodes, descUsage, descBatches, descJoules, descQueued, descFailed} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (e *Estimator) Collect(ch chan<- prom.Metric) {
	s := &e.stats
	for outcome, t := range map[string]*tallied{"booked": &s.booked, "dropped": &s.dropped} {
		batches, joules := t.sums()
		ch <- prom.MustNewConstMetric(descBatches, prom.CounterValue, batches, outcome)
		ch <- prom.MustNewConstMetric(descJoules, prom.CounterValue, joules, outcome)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, name := range byNames {
		ch <- prom.MustNewConstMetric(descNodes, prom.GaugeValue, float64(s.nodes[i]), name)
	}
	ch <- prom.MustNewConstMetric(descUsage, prom.GaugeValue, float64(s.measured))
	ch <- prom.MustNewConstMetric(descQueued, prom.GaugeValue, float64(s.queued))
	ch <- prom.MustNewConstMetric(descFailed, prom.CounterValue, float64(s.failures))
}
