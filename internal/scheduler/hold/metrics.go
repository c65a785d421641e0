package hold

import "github.com/kubenergy/kubenergy/internal/scheduler/instruments"

// Values of the label "kind" of the metrics, which identify the kind of the held objects.
const (
	kindJob = "job"
	kindPod = "pod"
)

// seconds are histogram buckets from 0.1 s, below which a hold was not worthwhile, to a day, the longest usual
// delay.
var seconds = []float64{0.1, 0.5, 1, 5, 15, 60, 300, 900, 3600, 3 * 3600, 6 * 3600, 12 * 3600, 24 * 3600}

var (
	metrics = &instruments.Set{}

	heldFor = metrics.Histogram("kubenergy_hold_seconds", "How long released work had been held.", seconds, "kind")
	heldNow = metrics.Gauge("kubenergy_held", "Number of Jobs and pods that are held.", "kind")

	startLateness = metrics.Histogram("kubenergy_start_lateness_seconds",
		"How long after its deadline held work was bound to a node; 0 if before.",
		append([]float64{0}, seconds...), "kind")
	lateness = metrics.Histogram("kubenergy_release_lateness_seconds",
		"How long after the start that was planned held work was let go; 0 if before.",
		append([]float64{0}, seconds...), "kind")
	releases = metrics.Counter("kubenergy_releases_total",
		"Number of releases, by what brought them about.", "kind", "cause")
	inFlight = metrics.Gauge("kubenergy_releases_in_flight",
		"Number of released Jobs and pods that have not started yet, as far as they are waited for.", "kind")
	releaseWindow = metrics.Gauge("kubenergy_release_window",
		"How many releases may be in flight before the next waits; deadlines do not.", "kind")
	turnAge = metrics.Gauge("kubenergy_hold_turn_age_seconds",
		"How long ago the last turn of the hold loop began; after two minutes the process ends.")
	notesWaiting = metrics.Gauge("kubenergy_hold_notes_waiting",
		"Number of annotations, conditions and events on held work that are yet to be written.")
)

// measure updates the gauges of a queue.
func (q *queue) measure() {
	heldNow.WithLabelValues(q.kind).Set(float64(len(q.byUID)))
	inFlight.WithLabelValues(q.kind).Set(float64(q.congestion.inFlight))
	releaseWindow.WithLabelValues(q.kind).Set(float64(q.congestion.maxInFlight()))
}
