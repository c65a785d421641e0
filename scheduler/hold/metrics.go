package hold

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

// Names of the metrics' kind label, and of what is held.
const (
	kindJob = "job"
	kindPod = "pod"
)

// seconds from a tenth to a day: what is held for less was not worth it, for more is what people allow.
var seconds = []float64{0.1, 0.5, 1, 5, 15, 60, 300, 900, 3600, 3 * 3600, 6 * 3600, 12 * 3600, 24 * 3600}

var (
	heldFor = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Name: "kubenergy_hold_seconds", Help: "How long released work had been held.",
		Buckets: seconds, StabilityLevel: metrics.ALPHA,
	}, []string{"kind"})
	heldNow = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Name: "kubenergy_held", Help: "Number of Jobs and pods that are held.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"kind"})
	startLateness = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Name:    "kubenergy_start_lateness_seconds",
		Help:    "How long after its deadline held work was bound to a node; 0 if before.",
		Buckets: append([]float64{0}, seconds...), StabilityLevel: metrics.ALPHA,
	}, []string{"kind"})
	releases = metrics.NewCounterVec(&metrics.CounterOpts{
		Name: "kubenergy_releases_total", Help: "Number of releases, by what brought them about.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"kind", "cause"})

	inFlight = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Name:           "kubenergy_releases_in_flight",
		Help:           "Number of released Jobs and pods that have not started yet, as far as they are waited for.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"kind"})
	flightWindow = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Name:           "kubenergy_release_window",
		Help:           "How many releases may be in flight before the next waits; deadlines do not.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"kind"})
	notesWaiting = metrics.NewGauge(&metrics.GaugeOpts{
		Name:           "kubenergy_hold_notes_waiting",
		Help:           "Number of annotations, conditions and events on held work that are yet to be written.",
		StabilityLevel: metrics.ALPHA,
	})

	// kube-scheduler serves this registry at /metrics.
	registerMetrics = sync.OnceFunc(func() {
		legacyregistry.MustRegister(heldFor, heldNow, startLateness, releases, inFlight, flightWindow, notesWaiting)
	})
)

// measure publishes how much a queue holds.
func (q *queue) measure() {
	heldNow.WithLabelValues(q.kind).Set(float64(q.len()))
	inFlight.WithLabelValues(q.kind).Set(float64(q.congestion.out))
	flightWindow.WithLabelValues(q.kind).Set(float64(q.congestion.window()))
}
