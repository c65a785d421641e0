package intake

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubenergy/kubenergy/central/api"
	"github.com/kubenergy/kubenergy/ledger"
)

// LedgerMetrics show at each scrape how the ledger does, and which nodes are metered.
type LedgerMetrics struct {
	Ledger interface {
		Writable() (bool, error)
		Activity() ledger.Activity
		Gauges(ctx context.Context) (ledger.Statistics, error)
	}
	Nodes func() api.NodesPower
	Now   func() time.Time

	mu     sync.Mutex
	looked time.Time
	store  ledger.Statistics
	failed bool // they could not be had then
}

// Asking how full a database is is work for it.
const gaugesEvery = time.Minute

// staleAfter is when watts are no longer decided by.
const staleAfter = 45 * time.Second

func ledgerDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

var (
	ledgerWritable = ledgerDesc("kubenergy_ledger_writable",
		"1 while batches can be booked, 0 while the disk or the database fails: agents then keep what they have.")
	ledgerBookings = ledgerDesc("kubenergy_ledger_bookings_total",
		"Batches that were to be booked, by what became of them.", "result")
	ledgerGaps = ledgerDesc("kubenergy_ledger_gaps_total",
		"Batches before which numbers of their stream are missing: they were lost.")
	ledgerCommits = ledgerDesc("kubenergy_ledger_commits_total", "Transactions of bookings.", "result")
	ledgerWriting = ledgerDesc("kubenergy_ledger_commit_seconds_total", "Time spent in them.")
	ledgerFolds   = ledgerDesc("kubenergy_ledger_folds_total",
		"Transactions that move bookings from the journal into windows and sums.")
	ledgerFolding = ledgerDesc("kubenergy_ledger_fold_seconds_total", "Time spent in them.")
	ledgerWaiting = ledgerDesc("kubenergy_ledger_waiting_bookings", "Batches that wait to be written.")
	ledgerJournal = ledgerDesc("kubenergy_ledger_journal_bookings",
		"Batches that are on disk and not in windows and sums yet.")
	ledgerBytes  = ledgerDesc("kubenergy_ledger_bytes", "Size of the ledger on disk.")
	meteredNodes = prometheus.NewDesc("kubenergy_metered_nodes",
		"Nodes that have been metered lately, by whether their watts are decided by.", []string{"state"}, nil)
)

// Describe implements prometheus.Collector.
func (m *LedgerMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		ledgerWritable, ledgerBookings, ledgerGaps, ledgerCommits, ledgerWriting, ledgerFolds, ledgerFolding,
		ledgerWaiting, ledgerJournal, ledgerBytes, meteredNodes,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m *LedgerMetrics) Collect(ch chan<- prometheus.Metric) {
	show := func(kind prometheus.ValueType, d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, kind, v, labels...)
	}
	const gauge, counter = prometheus.GaugeValue, prometheus.CounterValue
	writable := 0.0
	if ok, _ := m.Ledger.Writable(); ok {
		writable = 1
	}
	show(gauge, ledgerWritable, writable)
	a := m.Ledger.Activity()
	show(counter, ledgerBookings, float64(a.Booked), "booked")
	show(counter, ledgerBookings, float64(a.Again), "again")
	show(counter, ledgerBookings, float64(a.Refused), "refused")
	show(counter, ledgerGaps, float64(a.Gaps))
	show(counter, ledgerCommits, float64(a.Commits), "ok")
	show(counter, ledgerCommits, float64(a.Failures), "failed")
	show(counter, ledgerWriting, a.Writing.Seconds())
	show(counter, ledgerFolds, float64(a.Folds))
	show(counter, ledgerFolding, a.Folding.Seconds())
	show(gauge, ledgerWaiting, float64(a.Waiting))
	if s, ok := m.gauges(); ok {
		show(gauge, ledgerJournal, float64(s.Journal))
		show(gauge, ledgerBytes, float64(s.Bytes))
	}
	states := map[string]int{"live": 0, "stale": 0, "implausible": 0}
	now := m.Now()
	for _, n := range m.Nodes().Nodes {
		switch {
		case now.Sub(n.AsOf) > staleAfter:
			states["stale"]++
		case n.Implausible:
			states["implausible"]++
		default:
			states["live"]++
		}
	}
	for state, n := range states {
		show(gauge, meteredNodes, float64(n), state)
	}
}

func (m *LedgerMetrics) gauges() (g ledger.Statistics, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.Now().Sub(m.looked) < gaugesEvery {
		return m.store, !m.failed
	}
	const patience = 5 * time.Second
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	g, err := m.Ledger.Gauges(ctx)
	m.store, m.failed, m.looked = g, err != nil, m.Now()
	return g, err == nil
}
