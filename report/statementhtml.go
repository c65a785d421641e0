package report

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
)

// What is shown of a long report; CSV and JSON have everything.
const (
	mostBars = 30
	mostJobs = 500
	barStep  = 22.0
	barRoom  = 420.0
)

// HTML writes a page.
func (s *Statement) HTML(w io.Writer) error {
	t := s.table().shown(true)
	t.Title = "Energy, emissions and cost"
	if len(s.GroupBy) == 0 {
		t.Total = nil
	}
	p := page{Title: s.title(), Tables: []*shown{t}, Units: true, Notes: s.Notes, Bars: s.bars(t)}
	if c := s.Savings; c != nil {
		t.Title += "; saved against " + c.Baseline + ", estimated"
		p.Notes = append(slices.Clone(s.Notes), c.Method)
		if len(c.PerJob) > 0 {
			p.Tables = append(p.Tables, c.jobs())
		}
	}
	return pageTemplate.Execute(w, &p)
}

// bars draws the energy of the first rows of a table.
func (s *Statement) bars(t *shown) *bars {
	most := 0.0
	for i := range s.Rows {
		most = max(most, s.Rows[i].EnergyKWh)
	}
	if len(s.GroupBy) == 0 || most == 0 {
		return nil
	}
	n := min(len(s.Rows), mostBars)
	b := &bars{Height: float64(n)*barStep + 4, Left: len(s.Rows) - n}
	for i := range s.Rows[:n] {
		row := &s.Rows[i]
		b.All = append(b.All, bar{
			Name: shortened(strings.Join(t.Rows[i][:t.Words], " · ")),
			Text: Significant(row.EnergyKWh) + " kWh, " + row.Quality.String(), Y: float64(i) * barStep,
			Width: math.Max(0, row.EnergyKWh/most*barRoom),
		})
	}
	return b
}

// shortened is a name that fits beside its bar. The table has all of it.
func shortened(name string) string {
	const most = 40
	if all := []rune(name); len(all) > most {
		return string(all[:most-1]) + "…"
	}
	return name
}

// jobs are a table of what each job saved.
func (c *Comparison) jobs() *shown {
	n := min(len(c.PerJob), mostJobs)
	t := Heads(4, "job", "strategy", "ran on", "baseline", "held", "saved\nkWh", "saved\nkgCO2e", "saved\nmoney")
	t.Title = fmt.Sprintf("Saved by each job against %s, estimated; 95 %% interval in brackets; %d of %d jobs",
		c.Baseline, n, c.Jobs)
	for i := range c.PerJob[:n] {
		j := &c.PerJob[i]
		var held, emissions, cost string
		if j.Held > 0 {
			held = Span(j.Held)
		}
		if j.Emissions != nil {
			emissions = j.Emissions.String() + " (" + j.Signal + ")"
		}
		if j.Cost != nil {
			cost = j.Cost.String() + " " + j.Currency
		}
		t.Add(j.Namespace+"/"+j.Owner, j.Strategy, Few(3, j.Nodes), Few(3, j.Instead), held, j.Energy.String(),
			emissions, cost)
	}
	return t.shown(true)
}
