package sqlstore

import _ "embed" // for the statements of migrations

// A migration migrates a store from one version to the next. The text is valid for both databases after replacing
// {blob} and {serial}. Statements end with a semicolon at the end of a line. Released migrations must not be
// modified.
type migration struct {
	text string
	// additive is true if programs of the previous version can use the migrated tables, because only columns with a
	// default and independent tables were added. Such programs can be restored after an upgrade.
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

// demandGPUs raises the required version to 4 when GPU energy is recorded, because older programs cannot read such
// windows. Stores without GPU energy can still be used by older programs.
const demandGPUs = "UPDATE meta SET value = '4' WHERE key = 'oldest' AND value IN ('1', '2', '3')"
