package record

import "github.com/kubenergy/kubenergy/internal/scheduler/instruments"

// Decisions are counted even if they are not recorded.
var (
	counts  = &instruments.Set{}
	decided = counts.Counter("kubenergy_decisions_total",
		"Number of decisions that were carried out, by action, strategy and reason.", "action", "strategy", "reason")
)

// Decided counts a decision that was carried out. Strategy and reason must be from a fixed set of values.
func Decided(action, strategy, reason string) {
	counts.Register()
	decided.WithLabelValues(action, strategy, reason).Inc()
}

var (
	metrics = &instruments.Set{}

	records = metrics.Counter("kubenergy_records_total", "Number of records of decisions that were sent to the "+
		"controller, rejected by it, or dropped because the queue was full.", "outcome")
	panicked = metrics.Counter("kubenergy_record_panics_total",
		"Number of panics while writing or sending records of decisions; the log contains the stack traces.")
)
