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
			Help:        "Pods whose names are known: those that exist, and those that were deleted lately.",
			ConstLabels: prometheus.Labels{"state": state},
		}, func() float64 { return float64(value()) })
	}
	return &metrics{
		batches: with.Counters("kubenergy_ingest_batches_total", "Batches, by what became of them.", "result"),
		seconds: with.NewHistogram(prometheus.HistogramOpts{
			Name: "kubenergy_ingest_seconds", Help: "Time that a request took, from its token to the acknowledgement.",
			Buckets: []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30},
		}),
		energy: with.Counter("kubenergy_ingest_joules_total", "Energy that was booked, of guests too."),
		foreign: with.Counter("kubenergy_ingest_foreign_joules_total",
			"Energy that nodes said was of pods that run elsewhere; it is booked as the node's own."),
		breaches: with.Counters("kubenergy_ingest_impossible_total",
			"Batches that were refused because their node cannot do that, by the limit that they break.", "limit"),
		skewed: with.Counter("kubenergy_ingest_ahead_total", "Batches whose node's clock is more than 2 s ahead."),
		moved: with.Counter("kubenergy_ingest_moved_total",
			"Batches that ended so far in the future, or so long ago, that they were "+
				"booked as if they ended when they came."),
		late: with.Counter("kubenergy_ingest_late_total",
			"Batches that began more than an hour before they came: no budget acts on what pods used in them."),
		orphans: with.Counter("kubenergy_ingest_orphans_total",
			"Batches that name a host which does not exist or does not speak of "+
				"them, or one too many; they are booked without it."),
		implausible: with.Counter("kubenergy_ingest_implausible_total",
			"Batches whose power is far from what a model of the hardware says; they are booked."),
		gaps: with.Counter("kubenergy_ingest_gaps_total", "Batches before which numbers of their stream are missing."),
		nameless: with.Counter("kubenergy_ingest_nameless_shares_total",
			"Shares of pods that the API server has not reported."),
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
