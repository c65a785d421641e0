package live

import "github.com/kubenergy/kubenergy/internal/scheduler/instruments"

var (
	metrics = &instruments.Set{}

	asked = metrics.Counter("kubenergy_live_requests_total",
		"Number of requests for live power to the controller, by path and result.", "path", "result")
	nodesKnown = metrics.Gauge("kubenergy_live_nodes",
		"Number of nodes in the last response with live power, by whether or why not their readings are used.", "state")
	youngest = metrics.Gauge("kubenergy_live_age_seconds",
		"Age of the newest reading in the last response when it was last checked; -1 if there is none.")
	provisional = metrics.Gauge("kubenergy_live_provisional_watts",
		"Expected power of bound pods that are not included in a reading yet.")
	panicked = metrics.Counter("kubenergy_live_panics_total",
		"Number of panics while requesting live power; the log contains the stack traces.")
)
