package report

import (
	"cmp"
	"fmt"
	"image/color"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/internal/humanize"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/timeutil"
)

// Limits of a page. CSV and JSON contain everything.
const (
	maxBars = 30
	maxJobs = 500
	// maximum number of slots in a heat map; if there are more, several hours or days form one slot
	maxHeatSlots = 200
)

// HTML writes the statement as a page.
func (s *Statement) HTML(w io.Writer) error {
	t := s.Sheet().shown(true)
	t.Title = "Energy, emissions and cost"
	if len(s.GroupBy) == 0 {
		t.Total = nil
	}
	p := page{Title: s.title(), Tables: []*shown{t}, Units: true, Notes: s.Notes}
	f, caption, drawn := s.bars(t)
	if m, start, span := s.heatmap(); m != nil {
		f = heatFigure(m.title, "no booked energy", start, span.Seconds(), 1, []heatmap{{"", m.what, m.rows, m.slot}})
		caption, drawn = m.title+".", true
	}
	if drawn {
		p.Figures = []pageFigure{{caption, inPage(f.svg())}}
	}
	if c := s.Savings; c != nil {
		t.Title += "; savings relative to " + c.Baseline + ", estimated"
		p.Notes = append(slices.Clone(s.Notes), c.Method)
		if len(c.PerJob) > 0 {
			p.Tables = append(p.Tables, c.jobs())
		}
	}
	return pageTemplate.Execute(w, &p)
}

// heatmap returns the power of nodes, or of another dimension, by hour or day. It returns nil if the statement is
// not grouped by exactly these two.
func (s *Statement) heatmap() (m *heatmap, start time.Time, span time.Duration) {
	slots := map[string]time.Duration{string(ledger.ByHour): time.Hour, string(ledger.ByDay): 24 * time.Hour}
	when := slices.IndexFunc(s.GroupBy, func(d string) bool { return slots[d] > 0 })
	if len(s.GroupBy) != 2 || when < 0 || slots[s.GroupBy[1-when]] > 0 || len(s.Rows) == 0 {
		return nil, start, 0
	}
	slot, what := slots[s.GroupBy[when]], s.GroupBy[1-when]
	end := s.To
	if !s.AsOf.IsZero() {
		end = timeutil.Earlier(end, s.AsOf) // the last slot may not be complete
	}
	start = s.From.UTC().Truncate(slot)
	span = max(slot/60, end.Sub(start))
	group := time.Duration(max(1, math.Ceil(float64(span)/float64(slot)/maxHeatSlots)))
	n, sums, cells := int((span+group*slot-1)/(group*slot)), map[string]float64{}, map[string][]heat{}
	for _, row := range s.Rows {
		if row.Key == nil {
			continue // rows beyond a limit have no time
		}
		name, at := cmp.Or(row.Key[1-when], "–"), row.Key[when]
		t, err := time.Parse(time.RFC3339, at)
		if k := int(t.Sub(start) / (group * slot)); err == nil && k >= 0 && k < n {
			if cells[name] == nil {
				cells[name] = slices.Repeat([]heat{{marked: true}}, n)
			}
			begins := start.Add(time.Duration(k) * group * slot) // the first slot may start before the statement
			length := max(slot/60, timeutil.Earlier(begins.Add(group*slot), end).Sub(timeutil.Later(begins, s.From)))
			cells[name][k] = heat{value: cells[name][k].value + 1000*row.EnergyKWh/length.Hours()}
			sums[name] += row.EnergyKWh
		}
	}
	names := slices.SortedFunc(maps.Keys(sums), func(a, b string) int {
		return cmp.Or(cmp.Compare(sums[b], sums[a]), strings.Compare(a, b))
	})
	m = &heatmap{title: fmt.Sprintf("Mean power by %s (W)", what), what: what, slot: (group * slot).Seconds()}
	for _, name := range names[:min(len(names), maxNodes)] {
		m.rows = append(m.rows, heatRow{name, cells[name]})
	}
	if left := len(names) - maxNodes; left > 0 {
		m.title += fmt.Sprintf(", of the %d with the highest energy; the table contains %d more", maxNodes, left)
	}
	return m, start, span
}

// bars returns a bar chart of the energy of the first rows of a table. ok is false if there are none.
func (s *Statement) bars(t *shown) (f figure, caption string, ok bool) {
	n := min(len(s.Rows), maxBars)
	energy := chart{label: "Energy (kWh)"}
	names := make([]string, n)
	for i := range n {
		energy.values = append(energy.values, s.Rows[i].EnergyKWh)
		names[i] = strings.Join(t.Rows[i][:t.Words], " · ")
	}
	if len(s.GroupBy) == 0 || n == 0 || slices.Max(energy.values) <= 0 {
		return f, "", false
	}
	if caption = "Energy of each row."; len(s.Rows) > n {
		caption = fmt.Sprintf("Energy of the first %d rows. The table has %d more.", n, len(s.Rows)-n)
	}
	return barCharts([]chart{energy}, names, slices.Repeat([]color.Color{Palette[0]}, n)), caption, true
}

// jobs returns a table with the savings of each job.
func (c *Comparison) jobs() *shown {
	n := min(len(c.PerJob), maxJobs)
	t := Heads(4, "job", "strategy", "ran on", "baseline", "held", "saved\nkWh", "saved\nkgCO2e", "saved\nmoney")
	t.Title = fmt.Sprintf("Savings per job relative to %s, estimated, with 95 %% intervals in brackets; %d of %d jobs",
		c.Baseline, n, c.Jobs)
	for i := range c.PerJob[:n] {
		j := &c.PerJob[i]
		var held, emissions, cost string
		if j.Held > 0 {
			held = humanize.Span(j.Held)
		}
		if j.Emissions != nil {
			emissions = j.Emissions.String() + " (" + j.Signal + ")"
		}
		if j.Cost != nil {
			cost = j.Cost.String() + " " + j.Currency
		}
		t.Add(j.Namespace+"/"+j.Owner, cmp.Or(j.Strategy, "–"), humanize.Few(3, j.Nodes), humanize.Few(3, j.Instead),
			held, j.Energy.String(), emissions, cost)
	}
	return t.shown(true)
}
