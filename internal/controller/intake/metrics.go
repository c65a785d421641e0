package intake

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubenergy/kubenergy/internal/controller/instrument"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/ledger"
)

// metrics are the metrics of a Handler. Their number of series is fixed, so nodes are identified only in the log.
type metrics struct {
	batches                     *prometheus.CounterVec
	seconds                     prometheus.Histogram
	energy, foreign             prometheus.Counter
	breaches                    *prometheus.CounterVec
	skewed, moved, orphans      prometheus.Counter
	late                        prometheus.Counter
	implausible, gaps, nameless prometheus.Counter
}

func newMetrics(registry prometheus.Registerer, d *PodIndex) *metrics {
	with := instrument.With(registry)
	for state, value := range map[string]func() int{
		"existing": func() int { there, _ := d.Count(); return there },
		"deleted":  func() int { _, gone := d.Count(); return gone },
	} {
		with.NewGaugeFunc(prometheus.GaugeOpts{
			Name:        "kubenergy_ingest_pods",
			Help:        "Pods in the index, either existing or recently deleted.",
			ConstLabels: prometheus.Labels{"state": state},
		}, func() float64 { return float64(value()) })
	}
	return &metrics{
		batches: with.Counters("kubenergy_ingest_batches_total", "Batches, by result.", "result"),
		seconds: with.NewHistogram(prometheus.HistogramOpts{
			Name: "kubenergy_ingest_seconds", Help: "Duration of a request, including authentication.",
			Buckets: []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30},
		}),
		energy: with.Counter("kubenergy_ingest_joules_total", "Recorded energy, including energy of guests."),
		foreign: with.Counter("kubenergy_ingest_foreign_joules_total",
			"Energy that nodes reported for pods of other nodes. It is charged to the reporting node."),
		breaches: with.Counters("kubenergy_ingest_impossible_total",
			"Batches rejected as impossible for their node, by the exceeded limit.", "limit"),
		skewed: with.Counter("kubenergy_ingest_ahead_total", "Batches from nodes with a clock more than 2 s ahead."),
		moved: with.Counter("kubenergy_ingest_moved_total",
			"Batches that ended too far in the future or in the past. They are "+
				"recorded with the time of their receipt."),
		late: with.Counter("kubenergy_ingest_late_total",
			"Batches that started more than an hour before their receipt. Budgets ignore their usage."),
		orphans: with.Counter("kubenergy_ingest_orphans_total",
			"Batches that claim a host that does not exist, does not report "+
				"them, or exceeds the limit. They are recorded without the host."),
		implausible: with.Counter("kubenergy_ingest_implausible_total",
			"Batches with power that deviates from the hardware model. They are recorded."),
		gaps: with.Counter("kubenergy_ingest_gaps_total", "Batches with missing preceding numbers in their stream."),
		nameless: with.Counter("kubenergy_ingest_nameless_shares_total",
			"Shares of pods that are not in the index."),
	}
}

// count updates the metrics for a booking that was written.
func (m *metrics) count(b *ledger.Booking, receipt *ledger.Receipt) {
	m.energy.Add(joules(b.Batch.Measured))
	if isLate(b.Batch, b.Received) {
		m.late.Inc()
	}
	if receipt.Gap {
		m.gaps.Inc()
	}
	var foreign energy.Microjoules
	for i, c := range b.Consumers {
		switch c.Account.Kind {
		case ledger.Foreign:
			foreign += b.Batch.Shares[i].Dynamic + b.Batch.Shares[i].Idle
		case ledger.Workload, ledger.Late:
			if c.Pod == "" && c.UID() != "" {
				m.nameless.Inc()
			}
		}
	}
	m.foreign.Add(joules(foreign))
}

// joules converts energy to the unit of metrics.
func joules(u energy.Microjoules) float64 { return float64(u.Joules()) }
