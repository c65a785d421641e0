package intake

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubenergy/kubenergy/internal/apiclient/api"
	"github.com/kubenergy/kubenergy/internal/ledger"
)

// LedgerMetrics collects metrics of the ledger and of metered nodes at each scrape.
type LedgerMetrics struct {
	Ledger *ledger.Ledger
	Nodes  func() api.NodesPower
	Now    func() time.Time

	mu     sync.Mutex
	looked time.Time
	store  ledger.Statistics
	failed bool // the last query of store failed
}

// gaugesEvery is the interval between queries of the database, which are expensive.
const gaugesEvery = time.Minute

// staleAfter is the maximum age of a reading that decisions may use.
const staleAfter = 45 * time.Second

// Describe implements [prometheus.Collector]. It sends no descriptions, which makes the collector unchecked.
func (*LedgerMetrics) Describe(chan<- *prometheus.Desc) {}

// Collect implements [prometheus.Collector].
func (m *LedgerMetrics) Collect(ch chan<- prometheus.Metric) {
	const gauge, counter = prometheus.GaugeValue, prometheus.CounterValue
	show := func(kind prometheus.ValueType, v float64, name, help string, label ...string) {
		labels := prometheus.Labels{}
		for pair := range slices.Chunk(label, 2) {
			labels[pair[0]] = pair[1]
		}
		ch <- prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, nil, labels), kind, v)
	}
	writable := 0.0
	if ok, _ := m.Ledger.Writable(); ok {
		writable = 1
	}
	show(gauge, writable, "kubenergy_ledger_writable",
		"Whether batches can be written (1) or the disk or the database fails (0). Agents keep their batches then.")
	a := m.Ledger.Activity()
	for result, n := range map[string]uint64{"booked": a.Booked, "again": a.Again, "refused": a.Refused} {
		show(counter, float64(n), "kubenergy_ledger_bookings_total",
			"Attempts to record a batch, by result.", "result", result)
	}
	show(counter, float64(a.Gaps), "kubenergy_ledger_gaps_total",
		"Batches with missing preceding numbers in their stream, which were lost.")
	for result, n := range map[string]uint64{"ok": a.Commits, "failed": a.Failures} {
		show(counter, float64(n), "kubenergy_ledger_commits_total", "Transactions of bookings.", "result", result)
	}
	show(counter, a.Writing.Seconds(), "kubenergy_ledger_commit_seconds_total", "Time spent writing bookings.")
	show(counter, float64(a.Folds), "kubenergy_ledger_folds_total",
		"Transactions that move bookings from the journal into windows and sums.")
	show(counter, a.Folding.Seconds(), "kubenergy_ledger_fold_seconds_total", "Time spent in folding the journal.")
	show(gauge, float64(a.Waiting), "kubenergy_ledger_waiting_bookings", "Batches waiting to be written.")
	if s, ok := m.gauges(); ok {
		show(gauge, float64(s.Journal), "kubenergy_ledger_journal_bookings",
			"Batches on disk that are not in windows and sums yet.")
		show(gauge, float64(s.Bytes), "kubenergy_ledger_bytes", "Size of the ledger on disk.")
	}
	states := map[string]int{"live": 0, "stale": 0, "implausible": 0}
	now := m.Now()
	nodes := m.Nodes()
	for _, n := range nodes.Nodes {
		switch {
		case now.Sub(n.AsOf) > staleAfter:
			states["stale"]++
		case n.Implausible:
			states["implausible"]++
		default:
			states["live"]++
		}
	}
	show(gauge, float64(len(nodes.Hot(now, 0))), "kubenergy_hot_nodes",
		"Nodes above the maximum temperature of their PowerProfile. The scheduler places no pods on them.")
	for state, n := range states {
		show(gauge, float64(n), "kubenergy_metered_nodes",
			"Nodes with recent power readings, by whether decisions use the readings.", "state", state)
	}
}

func (m *LedgerMetrics) gauges() (g ledger.Statistics, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.Now().Sub(m.looked) < gaugesEvery {
		return m.store, !m.failed
	}
	const timeout = 5 * time.Second
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	g, err := m.Ledger.Gauges(ctx)
	m.store, m.failed, m.looked = g, err != nil, m.Now()
	return g, err == nil
}
