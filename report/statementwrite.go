package report

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

var statementFormats = []string{"table", "wide", "csv", "json", "html"}

// CheckStatementFormat reports whether [WriteStatement] knows a format.
func CheckStatementFormat(format string) error {
	if slices.Contains(statementFormats, format) {
		return nil
	}
	return fmt.Errorf("unknown output format %q: want one of %s", format, strings.Join(statementFormats, ", "))
}

// WriteStatement writes a statement in one of the formats. colours are for tables on a terminal.
func WriteStatement(w io.Writer, s *Statement, format string, colours bool) error {
	switch format {
	case "json":
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(s)
	case "csv":
		return statementCSV(w, s)
	case "table", "wide":
		return statementTable(w, s, format == "wide", colours)
	case "html":
		return statementHTML(w, s)
	}
	return CheckStatementFormat(format)
}

// column is one figure of a statement. A column that has nothing to say in any row is left out of tables.
type column struct {
	name, unit string // for people
	field      string // in CSV
	wide       bool   // only where there is room
	text       func(*StatementRow) string
	exact      func(*StatementRow) string
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

func percent(share float64) string {
	if v := 100 * share; v > 0 && v < 0.1 {
		return "<0.1 %"
	}
	return strconv.FormatFloat(100*share, 'f', 1, 64) + " %"
}

// plain is a column of one number.
func plain(name, unit, field string, wide bool, of func(*StatementRow) float64, show func(float64) string) column {
	return column{
		name, unit, field, wide,
		func(r *StatementRow) string { return show(of(r)) },
		func(r *StatementRow) string { return number(of(r)) },
	}
}

// optional is a column of a number that may be missing.
func optional(name, unit, field string, of func(*StatementRow) *float64, show func(float64) string) column {
	given := func(show func(float64) string) func(*StatementRow) string {
		return func(r *StatementRow) string {
			if v := of(r); v != nil {
				return show(*v)
			}
			return ""
		}
	}
	return column{name: name, unit: unit, field: field, text: given(show), exact: given(number)}
}

func lookUp(of func(*StatementRow) map[string]float64, key string) func(*StatementRow) *float64 {
	return func(r *StatementRow) *float64 {
		if v, ok := of(r)[key]; ok {
			return &v
		}
		return nil
	}
}

func (s *Statement) columns() []column {
	zero := func(v float64) string {
		if v == 0 {
			return ""
		}
		return percent(v)
	}
	all := []column{
		plain("energy", "kWh", "energy_kwh", false, func(r *StatementRow) float64 { return r.EnergyKWh }, significant),
		plain("facility", "kWh", "facility_kwh", true, func(r *StatementRow) float64 { return r.FacilityKWh },
			significant),
		optional("intensity", "g/kWh", "intensity_g_per_kwh", func(r *StatementRow) *float64 { return r.Intensity },
			func(v float64) string { return strconv.FormatFloat(v, 'f', 0, 64) }),
	}
	signals := slices.Sorted(maps.Keys(s.Total.EmissionsKg))
	for _, signal := range signals {
		name := "emissions"
		if len(signals) > 1 {
			name = signal + " emissions"
		}
		all = append(all, optional(name, "kgCO2e", "emissions_kg_"+word(signal),
			lookUp(func(r *StatementRow) map[string]float64 { return r.EmissionsKg }, signal), significant))
	}
	for _, currency := range slices.Sorted(maps.Keys(s.Total.Costs)) {
		all = append(all, optional("cost", currency, "cost_"+word(currency),
			lookUp(func(r *StatementRow) map[string]float64 { return r.Costs }, currency), significant))
	}
	all = append(all, column{
		"jobs", "ended", "jobs", true, func(r *StatementRow) string { return blank(r.Jobs) },
		func(r *StatementRow) string { return strconv.Itoa(r.Jobs) },
	})
	all = append(all, optional("turnaround", "mean", "turnaround_hours", func(r *StatementRow) *float64 {
		return r.TurnaroundHours
	}, func(v float64) string { return span(v * time.Hour.Seconds()) }))
	all = append(all, s.savedColumns()...)
	return append(all,
		plain("CPU", "hours", "cpu_hours", true, func(r *StatementRow) float64 { return r.CPUHours }, significant),
		plain("est.", "%", "estimated_share", false, func(r *StatementRow) float64 { return r.EstimatedShare },
			percent),
		plain("no intensity", "%", "uncharted_share", true, func(r *StatementRow) float64 { return r.UnchartedShare },
			zero),
		plain("no price", "%", "unpriced_share", true, func(r *StatementRow) float64 { return r.UnpricedShare }, zero),
		column{
			"quality", "", "quality", false, func(r *StatementRow) string { return r.Quality.String() },
			func(r *StatementRow) string { return r.Quality.String() },
		},
	)
}

func blank(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// savedColumns are those of savings: of energy, and by signal and currency.
func (s *Statement) savedColumns() (all []column) {
	if s.Savings == nil {
		return nil
	}
	add := func(unit, field string, of func(*Saved) *Difference) {
		difference := func(r *StatementRow) *Difference {
			if r.Saved == nil {
				return nil
			}
			return of(r.Saved)
		}
		bound := func(of func(*Difference) *float64) func(*StatementRow) string {
			return func(r *StatementRow) string {
				if d := difference(r); d != nil && of(d) != nil {
					return number(*of(d))
				}
				return ""
			}
		}
		none := func(*StatementRow) string { return "" }
		all = append(all,
			column{
				name: "saved", unit: unit, field: field,
				exact: bound(func(d *Difference) *float64 { return &d.Saved }), text: func(r *StatementRow) string {
					if d := difference(r); d != nil {
						return d.String()
					}
					return ""
				},
			},
			column{field: field + "_low", exact: bound(func(d *Difference) *float64 { return d.Low }), text: none},
			column{field: field + "_high", exact: bound(func(d *Difference) *float64 { return d.High }), text: none},
		)
	}
	add("kWh", "saved_kwh", func(v *Saved) *Difference { return &v.Energy })
	for _, signal := range slices.Sorted(maps.Keys(s.Savings.Total.Emissions)) {
		unit := "kgCO2e"
		if len(s.Savings.Total.Emissions) > 1 {
			unit += " " + signal
		}
		add(unit, "saved_kg_"+word(signal), func(v *Saved) *Difference {
			if t, ok := v.Emissions[signal]; ok {
				return &t.Difference
			}
			return nil
		})
	}
	for _, currency := range slices.Sorted(maps.Keys(s.Savings.Total.Costs)) {
		add(currency, "saved_"+word(currency), func(v *Saved) *Difference {
			if t, ok := v.Costs[currency]; ok {
				return &t.Difference
			}
			return nil
		})
	}
	return all
}

// word is a name as part of a column's name.
func word(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '_' {
			return r
		}
		return '_'
	}, strings.ToLower(s))
}

// keyText is what stands for a value of a dimension.
func keyText(s string) string {
	if s == "" {
		return "–"
	}
	return s
}

func (s *Statement) keyOfRow(r *StatementRow) []string {
	key := slices.Clone(r.Key)
	if key == nil {
		key = make([]string, len(s.GroupBy))
		if len(key) > 0 {
			key[0] = "others"
		}
		return key
	}
	for i := range key {
		key[i] = keyText(key[i])
	}
	return key
}

// shown returns the columns that have something to say.
func (s *Statement) shown(wide bool) []column {
	return slices.DeleteFunc(s.columns(), func(c column) bool {
		if c.name == "" || c.wide && !wide {
			return true
		}
		return c.text(&s.Total) == "" && !slices.ContainsFunc(s.Rows, func(r StatementRow) bool {
			return c.text(&r) != ""
		})
	})
}

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

func statementTable(w io.Writer, s *Statement, wide, colours bool) error {
	t := table.NewWriter()
	t.SetStyle(table.StyleLight)
	t.Style().Format.Header, t.Style().Format.Footer = text.FormatDefault, text.FormatDefault
	if colours {
		t.Style().Color.Header = text.Colors{text.Bold} //nolint:misspell // the library's spelling
	}
	columns := s.shown(wide)
	var header, footer table.Row
	var configs []table.ColumnConfig
	for i, d := range s.GroupBy {
		header = append(header, d)
		configs = append(configs, table.ColumnConfig{Number: i + 1})
		name := ""
		if i == 0 {
			name = "total"
		}
		footer = append(footer, name)
	}
	for _, c := range columns {
		header, footer = append(header, strings.TrimSuffix(c.name+"\n"+c.unit, "\n")), append(footer, c.text(&s.Total))
		configs = append(configs, table.ColumnConfig{
			Number: len(header), Align: text.AlignRight, AlignHeader: text.AlignRight, AlignFooter: text.AlignRight,
		})
	}
	t.AppendHeader(header)
	t.SetColumnConfigs(configs)
	for i := range s.Rows {
		var row table.Row
		for _, k := range s.keyOfRow(&s.Rows[i]) {
			row = append(row, visible(k))
		}
		for _, c := range columns {
			row = append(row, c.text(&s.Rows[i]))
		}
		t.AppendRow(row)
	}
	if len(s.GroupBy) > 0 {
		t.AppendFooter(footer)
	} else if len(s.Rows) == 0 {
		t.AppendRow(footer)
	}
	_, err := fmt.Fprintf(w, "%s\n%s\n%s\n", visible(s.title()), t.Render(), strings.Join(s.Notes, "\n"))
	return err
}

// visible takes control characters out of names that others chose: a terminal would obey them.
func visible(s string) string {
	return strings.Map(func(r rune) rune {
		if !strconv.IsPrint(r) {
			return '�'
		}
		return r
	}, s)
}

func statementCSV(w io.Writer, s *Statement) error {
	out := csv.NewWriter(w)
	columns := s.columns()
	header := slices.Clone(s.GroupBy)
	for _, c := range columns {
		header = append(header, c.field)
	}
	rows := [][]string{append(header, "from", "to", "baseline")}
	baseline := ""
	if s.Savings != nil {
		baseline = s.Savings.Baseline
	}
	for i := range s.Rows {
		row := &s.Rows[i]
		var cells []string
		for _, k := range row.Key {
			cells = append(cells, harmless(k))
		}
		if row.Key == nil {
			cells = s.keyOfRow(row)
		}
		for _, c := range columns {
			cells = append(cells, c.exact(row))
		}
		rows = append(rows, append(cells, s.From.UTC().Format(time.RFC3339), s.To.UTC().Format(time.RFC3339), baseline))
	}
	return out.WriteAll(rows)
}

// harmless keeps spreadsheets from taking a name for a formula.
func harmless(s string) string {
	if s != "" && strings.ContainsRune("=+-@\t\r", rune(s[0])) {
		return "'" + s
	}
	return s
}
