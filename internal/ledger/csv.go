package ledger

import (
	"cmp"
	"encoding/csv"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/humanize"
	"github.com/kubenergy/kubenergy/internal/sliceutil"
)

// rest is the key of the row that sums the rows beyond the limit.
const rest = "(rest)"

// A column of a table of rows.
type column struct {
	name string
	cell func(*Row) string
}

// WriteCSV writes the rows of an answer as CSV, with the key columns followed by sums. The column names contain the
// units. There is one column per signal for emissions and one per currency for costs. Numbers are exact. The total
// is not included.
func (a *Answer) WriteCSV(w io.Writer) error {
	columns := a.columns()
	out := csv.NewWriter(w)
	// Errors are sticky and checked after Flush.
	_ = out.Write(sliceutil.Map(columns, func(c column) string { return humanize.CSVCell(c.name) }))
	for i := range a.Rows {
		_ = out.Write(sliceutil.Map(columns, func(c column) string { return c.cell(&a.Rows[i]) }))
	}
	out.Flush()
	if err := out.Error(); err != nil {
		return fmt.Errorf("writing CSV: %w", err)
	}
	return nil
}

func (a *Answer) columns() (all []column) {
	add := func(name string, cell func(*Row) string) { all = append(all, column{name, cell}) }
	joules := func(name string, fn func(*Row) energy.Microjoules) {
		add(name+"_joules", func(r *Row) string { return decimal(int64(fn(r)), microPlaces) })
	}
	seconds := func(name string, fn func(*Row) time.Duration) {
		add(name+"_seconds", func(r *Row) string { return decimal(int64(fn(r)), nanoPlaces) })
	}
	for i, by := range a.GroupBy {
		add(string(by), func(r *Row) string {
			switch {
			case r.Key != nil:
				return humanize.CSVCell(r.Key[i])
			case i == 0:
				return rest
			}
			return ""
		})
	}
	joules("energy", func(r *Row) energy.Microjoules { return r.Energy() })
	add("energy_kwh", func(r *Row) string { return kWh(r.Energy()) })
	joules("dynamic", func(r *Row) energy.Microjoules { return r.Dynamic })
	joules("idle", func(r *Row) energy.Microjoules { return r.Idle })
	joules("gpu", func(r *Row) energy.Microjoules { return r.GPU })
	seconds("cpu", func(r *Row) time.Duration { return r.CPU })
	joules("facility", func(r *Row) energy.Microjoules { return r.Facility })
	for _, signal := range names(a.Rows, func(r *Row) map[string]Micrograms { return r.Emissions }) {
		add("carbon_grams_"+orUnknown(signal),
			func(r *Row) string { return reported(r.Emissions, signal, microPlaces) })
	}
	for _, currency := range names(a.Rows, func(r *Row) map[string]Nanos { return r.Costs }) {
		add("cost_"+orUnknown(currency), func(r *Row) string { return reported(r.Costs, currency, nanoPlaces) })
	}
	joules("estimated", func(r *Row) energy.Microjoules { return r.Estimated })
	add("estimated_share", func(r *Row) string { return short(r.EstimatedShare()) })
	joules("uncharted", func(r *Row) energy.Microjoules { return r.Uncharted })
	joules("unpriced", func(r *Row) energy.Microjoules { return r.Unpriced })
	seconds("unmeasured", func(r *Row) time.Duration { return r.Unmeasured })
	add("quality", func(r *Row) string { return r.Quality().String() })
	add("first", func(r *Row) string { return instant(r.First) })
	add("last", func(r *Row) string { return instant(r.Last) })
	return all
}

// names returns the keys of the sums of all rows, sorted.
func names[N any](rows []Row, sums func(*Row) map[string]N) []string {
	all := map[string]N{}
	for i := range rows {
		maps.Copy(all, sums(&rows[i]))
	}
	return slices.Sorted(maps.Keys(all))
}

// reported formats the named sum. It returns "" if there is no such sum.
func reported[N ~int64](sums map[string]N, name string, places int) string {
	if sum, ok := sums[name]; ok {
		return decimal(int64(sum), places)
	}
	return ""
}

func orUnknown(name string) string { return cmp.Or(name, "unknown") }

func instant(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}
