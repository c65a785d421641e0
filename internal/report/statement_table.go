package report

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/internal/humanize"
	"github.com/kubenergy/kubenergy/internal/sliceutil"
)

// statementTable is a table under construction. It contains the function that computes the cells of each column.
type statementTable struct {
	Table
	of []func(*StatementRow) any
}

func (t *statementTable) add(c Column, fn func(*StatementRow) any) {
	t.Columns, t.of = append(t.Columns, c), append(t.of, fn)
}

func (t *statementTable) row(r *StatementRow) []any {
	return sliceutil.Map(t.of, func(fn func(*StatementRow) any) any { return fn(r) })
}

// Sheet returns a table with one row per row of the statement. Columns without values are omitted.
func (s *Statement) Sheet() *Table {
	t := &statementTable{}
	for i, d := range s.GroupBy {
		t.add(Column{Name: d, Field: d, Words: true}, func(r *StatementRow) any { return s.key(r, i) })
	}
	t.add(Column{Name: "energy\nkWh", Field: "energy_kwh", Show: humanize.Significant},
		func(r *StatementRow) any { return r.EnergyKWh })
	t.add(Column{Name: "facility\nkWh", Field: "facility_kwh", Show: humanize.Significant, Wide: true},
		func(r *StatementRow) any { return r.FacilityKWh })
	if s.Total.GPUKWh > 0 {
		t.add(Column{Name: "of GPUs\nkWh", Field: "gpu_kwh", Show: humanize.Significant},
			func(r *StatementRow) any { return r.GPUKWh })
	}
	t.add(Column{
		Name: "intensity\ng/kWh", Field: "intensity_g_per_kwh",
		Show: func(v float64) string { return strconv.FormatFloat(v, 'f', 0, 64) },
	}, func(r *StatementRow) any { return r.Intensity })
	signals := slices.Sorted(maps.Keys(s.Total.EmissionsKg))
	for _, signal := range signals {
		name := "emissions"
		if len(signals) > 1 {
			name = signal + " emissions"
		}
		t.add(Column{Name: name + "\nkgCO2e", Field: "emissions_kg_" + word(signal), Show: humanize.Significant},
			func(r *StatementRow) any { return entry(r.EmissionsKg, signal) })
	}
	for _, currency := range slices.Sorted(maps.Keys(s.Total.Costs)) {
		t.add(Column{Name: "cost\n" + currency, Field: "cost_" + word(currency), Show: humanize.Significant},
			func(r *StatementRow) any { return entry(r.Costs, currency) })
	}
	t.add(Column{Name: "jobs\nended", Field: "jobs", Wide: true}, func(r *StatementRow) any {
		if r.Jobs == 0 {
			return Cell{0, ""}
		}
		return r.Jobs
	})
	t.add(Column{
		Name: "turnaround\nmean", Field: "turnaround_hours",
		Show: func(hours float64) string { return humanize.Span(hours * time.Hour.Seconds()) },
	}, func(r *StatementRow) any { return r.TurnaroundHours })
	s.addSaved(t)
	notZero := func(v float64) string {
		if v == 0 {
			return ""
		}
		return percent(v)
	}
	t.add(Column{Name: "CPU\nhours", Field: "cpu_hours", Show: humanize.Significant, Wide: true},
		func(r *StatementRow) any { return r.CPUHours })
	t.add(Column{Name: "est.\n%", Field: "estimated_share", Show: percent},
		func(r *StatementRow) any { return r.EstimatedShare })
	t.add(Column{Name: "no intensity\n%", Field: "uncharted_share", Show: notZero, Wide: true},
		func(r *StatementRow) any { return r.UnchartedShare })
	t.add(Column{Name: "no price\n%", Field: "unpriced_share", Show: notZero, Wide: true},
		func(r *StatementRow) any { return r.UnpricedShare })
	t.add(Column{Name: "quality", Field: "quality"}, func(r *StatementRow) any { return r.Quality })
	t.add(Column{Field: "from"}, func(*StatementRow) any { return s.From })
	t.add(Column{Field: "to"}, func(*StatementRow) any { return s.To })
	baseline := ""
	if s.Savings != nil {
		baseline = s.Savings.Baseline
	}
	t.add(Column{Field: "baseline"}, func(*StatementRow) any { return baseline })
	t.Rows = sliceutil.Map(s.Rows, func(r StatementRow) []any { return t.row(&r) })
	t.Total = t.row(&s.Total)
	return &t.Table
}

// key returns the text of a row for a dimension.
func (s *Statement) key(r *StatementRow, i int) any {
	switch {
	case r.Key != nil:
		return Cell{r.Key[i], cmp.Or(r.Key[i], "–")}
	case i > 0:
		return ""
	case r == &s.Total:
		return "total"
	}
	return "others"
}

// entry returns a value of a map, or nil if the key is absent.
func entry(values map[string]float64, key string) any {
	if v, ok := values[key]; ok {
		return v
	}
	return nil
}

// addSaved adds the columns of savings of energy, and of each signal and currency.
func (s *Statement) addSaved(t *statementTable) {
	if s.Savings == nil {
		return
	}
	add := func(unit, field string, fn func(*Saved) *Difference) {
		difference := func(show func(*Difference) any) func(*StatementRow) any {
			return func(r *StatementRow) any {
				if r.Saved == nil {
					return nil
				}
				if d := fn(r.Saved); d != nil {
					return show(d)
				}
				return nil
			}
		}
		t.add(Column{Name: "saved\n" + unit, Field: field}, difference(func(d *Difference) any {
			return Cell{d.Saved, d.String()}
		}))
		t.add(Column{Field: field + "_low"}, difference(func(d *Difference) any { return d.Low }))
		t.add(Column{Field: field + "_high"}, difference(func(d *Difference) any { return d.High }))
	}
	add("kWh", "saved_kwh", func(v *Saved) *Difference { return &v.Energy })
	totals := func(fn func(*Saved) map[string]Totals, key string) func(*Saved) *Difference {
		return func(v *Saved) *Difference {
			if t, ok := fn(v)[key]; ok {
				return &t.Difference
			}
			return nil
		}
	}
	for _, signal := range slices.Sorted(maps.Keys(s.Savings.Total.Emissions)) {
		unit := "kgCO2e"
		if len(s.Savings.Total.Emissions) > 1 {
			unit += " " + signal
		}
		add(unit, "saved_kg_"+word(signal), totals(func(v *Saved) map[string]Totals { return v.Emissions }, signal))
	}
	for _, currency := range slices.Sorted(maps.Keys(s.Savings.Total.Costs)) {
		add(currency, "saved_"+word(currency), totals(func(v *Saved) map[string]Totals { return v.Costs }, currency))
	}
}

var notInWord = regexp.MustCompile(`[^a-z0-9_]`)

// word converts a name to a part of a column name.
func word(s string) string { return notInWord.ReplaceAllString(strings.ToLower(s), "_") }

func (s *Statement) title() string {
	const layout = "2006-01-02 15:04 MST"
	parts := []string{"Energy from " + s.From.UTC().Format(layout) + " to " + s.To.UTC().Format(layout)}
	for _, name := range slices.Sorted(maps.Keys(s.Filters)) {
		parts = append(parts, name+" "+strings.Join(s.Filters[name], ", "))
	}
	if !s.AsOf.IsZero() {
		parts = append(parts, "booked until "+s.AsOf.UTC().Format(layout))
	}
	return strings.Join(parts, "; ")
}

// Text returns the statement as a table.
func (s *Statement) Text(wide, colours bool) string {
	t := s.Sheet()
	switch {
	case s.empty():
		return fmt.Sprintf("%s\n%s\n", visible(s.title()), strings.Join(s.Notes, "\n"))
	case len(s.GroupBy) > 0:
	case len(s.Rows) == 0:
		t.Rows, t.Total = [][]any{t.Total}, nil
	default:
		t.Total = nil
	}
	return fmt.Sprintf("%s\n%s\n%s\n", visible(s.title()), t.Framed(wide, colours), strings.Join(s.Notes, "\n"))
}
