package live

import "github.com/kubenergy/kubenergy/internal/scheduler/instruments"

var (
	metrics = &instruments.Set{}

	asked = metrics.Counter("kubenergy_live_requests_total",
		"Requests for live watts to the controller, by what came of them.", "path", "result")
	nodesKnown = metrics.Gauge("kubenergy_live_nodes",
		"Nodes in the last answer with live watts: fresh ones, and those that were left out, by why.", "state")
	youngest = metrics.Gauge("kubenergy_live_age_seconds",
		"Age of the youngest reading of the last answer when it was last looked at; -1 if there is none.")
	provisional = metrics.Gauge("kubenergy_live_provisional_watts",
		"Watts of pods that were bound and that no reading tells of yet.")
	panicked = metrics.Counter("kubenergy_live_panics_total",
		"Panics while live watts were asked for; the log has their stacks.")
)
