package ledger

import (
	"encoding/csv"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// rest is what the row of all that a limit left out is called.
const rest = "(rest)"

// WriteCSV writes an answer as a table: what it is grouped by, then sums, with units in the names of the columns.
// Emissions have a column for each signal, costs one for each currency. Numbers are exact. The total is not in it.
func (a *Answer) WriteCSV(w io.Writer) error {
	signals, currencies := a.named()
	head := []string{}
	for _, d := range a.GroupBy {
		head = append(head, string(d))
	}
	head = append(head, "energy_joules", "energy_kwh", "dynamic_joules", "idle_joules", "cpu_seconds",
		"facility_joules")
	for _, signal := range signals {
		head = append(head, "carbon_grams_"+orUnknown(signal))
	}
	for _, currency := range currencies {
		head = append(head, "cost_"+orUnknown(currency))
	}
	head = append(head, "estimated_joules", "estimated_share", "uncharted_joules", "unpriced_joules",
		"unmeasured_seconds", "quality", "first", "last")
	out := csv.NewWriter(w)
	if err := out.Write(quoted(head)); err != nil {
		return fmt.Errorf("writing a table: %w", err)
	}
	for i := range a.Rows {
		if err := out.Write(a.cells(&a.Rows[i], signals, currencies)); err != nil {
			return fmt.Errorf("writing a table: %w", err)
		}
	}
	out.Flush()
	if err := out.Error(); err != nil {
		return fmt.Errorf("writing a table: %w", err)
	}
	return nil
}

// named returns the signals and currencies of all rows, sorted.
func (a *Answer) named() (signals, currencies []string) {
	s, c := map[string]bool{}, map[string]bool{}
	for i := range a.Rows {
		for signal := range a.Rows[i].Emissions {
			s[signal] = true
		}
		for currency := range a.Rows[i].Costs {
			c[currency] = true
		}
	}
	return slices.Sorted(maps.Keys(s)), slices.Sorted(maps.Keys(c))
}

func orUnknown(name string) string {
	if name == "" {
		return "unknown"
	}
	return name
}

func (a *Answer) cells(r *Row, signals, currencies []string) []string {
	cells := slices.Clone(r.Key)
	if r.Key == nil && len(a.GroupBy) > 0 {
		cells = make([]string, len(a.GroupBy))
		cells[0] = rest
	}
	cells = quoted(cells)
	cells = append(cells, decimal(int64(r.Energy()), microPlaces), short(float64(r.Energy())/microjoulesPerKWh),
		decimal(int64(r.Dynamic), microPlaces), decimal(int64(r.Idle), microPlaces), decimal(int64(r.CPU), nanoPlaces),
		decimal(int64(r.Facility), microPlaces))
	for _, signal := range signals {
		cell := ""
		if carbon, ok := r.Emissions[signal]; ok {
			cell = decimal(int64(carbon), microPlaces)
		}
		cells = append(cells, cell)
	}
	for _, currency := range currencies {
		cell := ""
		if cost, ok := r.Costs[currency]; ok {
			cell = decimal(int64(cost), nanoPlaces)
		}
		cells = append(cells, cell)
	}
	return append(cells, decimal(int64(r.Estimated), microPlaces), short(r.EstimatedShare()),
		decimal(int64(r.Uncharted), microPlaces),
		decimal(int64(r.Unpriced), microPlaces), decimal(int64(r.Unmeasured), nanoPlaces), r.Quality().String(),
		instant(r.First), instant(r.Last))
}

func instant(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// quoted keeps spreadsheets from taking names for formulas.
func quoted(cells []string) []string {
	out := slices.Clone(cells)
	for i, cell := range out {
		if cell != "" && strings.ContainsRune("=+-@\t\r", rune(cell[0])) {
			out[i] = "'" + cell
		}
	}
	return out
}
