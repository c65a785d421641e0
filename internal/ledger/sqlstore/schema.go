package sqlstore

import _ "embed" // the statements of migrations

// A migration brings a store from one version to the next. Both engines understand the text; what differs is put in for
// {blob} and {serial}; statements end in ; at the end of a line. Migrations that were released never change.
type migration struct {
	text string
	// additive says that programs of the version before can use the tables as they are afterwards: columns with a
	// default and tables that they need not know were added. They can then be put back after an update.
	additive bool
}

var (
	//go:embed schema/1.sql
	tables string
	//go:embed schema/2.sql
	reachesInTable string

	//go:embed schema/3.sql
	outbox string

	//go:embed schema/4.sql
	gpuColumns string

	//go:embed schema/5.sql
	temperatures string

	migrations = []migration{
		{tables, false}, {reachesInTable, false}, {outbox, true}, {gpuColumns, true}, {temperatures, true},
	}
)

// demandGPUs makes a store in which something is booked for GPUs one of version 4: programs before it do not read such
// windows. Others can be put back.
const demandGPUs = "UPDATE meta SET value = '4' WHERE key = 'oldest' AND value IN ('1', '2', '3')"
