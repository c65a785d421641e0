package record

import "github.com/kubenergy/kubenergy/scheduler/instruments"

var (
	metrics = &instruments.Set{}

	records = metrics.Counter("kubenergy_records_total", "Number of records of decisions: sent to the central unit, "+
		"refused by it, or dropped because too many waited.", "outcome")
	panicked = metrics.Counter("kubenergy_record_panics_total",
		"Panics while decisions were written or sent; the log has their stacks.")
)
