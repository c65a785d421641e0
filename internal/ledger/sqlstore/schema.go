package sqlstore

import _ "embed" // for the statements of migrations

// A migration migrates a store from one version to the next. The text is valid for both databases after replacing
// {blob} and {serial}. Statements end with a semicolon at the end of a line, and those with {step} are executed for
// hours and for days. Released migrations must not be modified.
type migration struct {
	text string
	// additive is true if programs of the previous version can use the migrated tables, because only columns with a
	// default and independent tables were added. Such programs can be restored after an upgrade.
	additive bool
}

// firstVersion is the schema version after the first migration. Earlier versions were never released.
const firstVersion = 5

var (
	//go:embed schema.sql
	tables string

	migrations = []migration{
		{tables, false},
		{statesTable, true},
	}
)

// versionAfter returns the schema version after the given migrations.
func versionAfter(migrations []migration) int { return firstVersion - 1 + len(migrations) }
