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

	heldFor = metrics.Histogram("kubenergy_hold_seconds", "Duration of the holds of released work.", seconds, "kind")
	heldNow = metrics.Gauge("kubenergy_held", "Number of currently held Jobs and pods.", "kind")

	startLateness = metrics.Histogram("kubenergy_start_lateness_seconds",
		"Delay between the deadline of held work and its binding to a node; 0 if it was bound before the deadline.",
		append([]float64{0}, seconds...), "kind")
	lateness = metrics.Histogram("kubenergy_release_lateness_seconds",
		"Delay between the planned start of held work and its release; 0 if it was released before.",
		append([]float64{0}, seconds...), "kind")
	releases = metrics.Counter("kubenergy_releases_total", "Number of releases, by cause.", "kind", "cause")
	inFlight = metrics.Gauge("kubenergy_releases_in_flight",
		"Number of released Jobs and pods that are expected to start but have not started yet.", "kind")
	releaseWindow = metrics.Gauge("kubenergy_release_window",
		"Maximum number of releases in flight, not counting releases at deadlines.", "kind")
	turnAge = metrics.Gauge("kubenergy_hold_turn_age_seconds",
		"Time since the last iteration of the hold loop started; the process exits after two minutes.")
	notesWaiting = metrics.Gauge("kubenergy_hold_notes_waiting",
		"Number of pending annotations, conditions and events about held work.")
)

// measure updates the gauges of a queue.
func (q *queue) measure() {
	heldNow.WithLabelValues(q.kind).Set(float64(len(q.byUID)))
	inFlight.WithLabelValues(q.kind).Set(float64(q.congestion.inFlight))
	releaseWindow.WithLabelValues(q.kind).Set(float64(q.congestion.maxInFlight()))
}
