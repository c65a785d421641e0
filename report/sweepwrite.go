package report

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// WriteSweep writes the comparison as a table, as JSON or as CSV. colours are for tables on a terminal.
func WriteSweep(w io.Writer, s *Sweep, format string, colours bool) error {
	switch format {
	case "json":
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(s)
	case "csv":
		return sweepCSV(w, s)
	case "table":
		return sweepTables(w, s, colours)
	}
	return CheckFormat(format)
}

// sweepCSV writes a row for every strategy over all zones, and one for each zone.
func sweepCSV(w io.Writer, s *Sweep) error {
	out := csv.NewWriter(w)
	number := func(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }
	optional := func(v *float64) string {
		if v == nil {
			return ""
		}
		return number(*v)
	}
	three := func(i *Interval) []string {
		if i == nil {
			return []string{"", "", ""}
		}
		return []string{number(i.Value), optional(i.Low), optional(i.High)}
	}
	rows := [][]string{{
		"strategy", "forecast", "restartCostSeconds", "family", "zone", "trials", "gramsCO2e", "baselineGramsCO2e",
		"saving", "savingLow", "savingHigh",
		"optimumSaving", "eta", "etaLow", "etaHigh", "etaGrams", "etaMean", "etaInterruptible", "etaOther", "energyKWh",
		"cost", "priced", "adjustedCost", "meanWaitHours",
		"p95WaitHours", "meanTurnaroundHours", "suspensionsPerJob", "lostHours", "delayViolations", "tolerated",
		"unplacedJobs", "baseline", "quoted",
	}}
	for i := range s.Strategies {
		r := &s.Strategies[i]
		head := []string{r.Strategy, r.Forecast, number(r.RestartCost.Seconds()), r.Family}
		row := append(slices.Clone(head), "", strconv.Itoa(r.Trials), number(r.Grams), number(r.BaselineGrams))
		row = append(row, three(&r.Saving)...)
		row = append(append(row, ""), three(r.Eta)...)
		row = append(row, three(r.EtaGrams)[0], three(r.EtaMean)[0], three(r.EtaInterruptible)[0], optional(r.EtaOther),
			number(r.EnergyKWh), number(r.Cost), strconv.FormatBool(r.Priced),
			optional(r.AdjustedCost), number(r.MeanWaitHours), number(r.P95WaitHours), number(r.TurnaroundHours),
			number(r.Suspensions), number(r.LostHours),
			strconv.Itoa(r.Violations), strconv.Itoa(r.Tolerated), strconv.Itoa(r.Unplaced), s.Baseline, s.Quoted)
		rows = append(rows, row)
		for k := range r.ByZone {
			z := &r.ByZone[k]
			row := append(slices.Clone(head), z.Zone, "", number(z.Grams), number(z.BaselineGrams))
			row = append(append(row, three(&z.Saving)...), optional(z.OptimumSaving))
			row = append(append(row, three(z.Eta)...), "", "", "", "", "", "", "", "", number(z.MeanWaitHours))
			rows = append(rows, append(row, make([]string, len(rows[0])-len(row)-2)...))
			last := len(rows) - 1
			rows[last] = append(rows[last], s.Baseline, s.Quoted)
		}
	}
	return out.WriteAll(rows)
}

// cells are a table for people, in text and in HTML.
type cells struct {
	title  string
	header []string
	names  int // columns of words, on the left
	rows   [][]string
}

// tables returns what people are shown.
func (s *Sweep) tables() []cells {
	all := []cells{s.overall()}
	if len(s.Zones) > 1 {
		all = append(all, s.perZone("η by zone", func(z *ZoneRow) string { return shownInterval(z.Eta, 1, 3) }),
			s.perZone("emissions saved by zone, % (optimum)", func(z *ZoneRow) string {
				if z.OptimumSaving == nil {
					return fmt.Sprintf("%.2f", 100*z.Saving.Value)
				}
				return fmt.Sprintf("%.2f (%.2f)", 100*z.Saving.Value, 100**z.OptimumSaving)
			}))
	}
	if len(s.Published) > 0 {
		all = append(all, s.published())
	}
	return all
}

// published sets what others have published beside what was found here.
func (s *Sweep) published() cells {
	restarts := slices.ContainsFunc(s.Published, func(p Published) bool { return p.Restart != "" })
	c := cells{title: "published figures", header: []string{"strategy", "forecast"}}
	if restarts {
		c.header = append(c.header, "restart cost")
	}
	c.header = append(c.header, "figure", "source", "published", "here")
	c.names = len(c.header) - 2
	for _, p := range s.Published {
		row := []string{p.Strategy, p.Forecast}
		if restarts {
			cost, _ := p.check() // a wrong one was refused
			row = append(row, cost.String())
		}
		c.rows = append(c.rows, append(row, p.Figure, p.Source, significant(p.Value), significant(p.Measured)))
	}
	return c
}

func (s *Sweep) overall() cells {
	c := cells{header: []string{"strategy", "forecast"}, names: 2}
	rated := slices.ContainsFunc(s.Strategies, func(r SweepRow) bool { return r.Eta != nil })
	restarts := slices.ContainsFunc(s.Strategies, func(r SweepRow) bool { return r.RestartCost > 0 })
	priced := slices.ContainsFunc(s.Strategies, func(r SweepRow) bool { return r.Priced })
	column := func(when bool, names ...string) {
		if when {
			c.header = append(c.header, names...)
		}
	}
	column(restarts, "restart\ncost")
	column(true, "emissions\nkgCO2e", "saved %\n[95 %]")
	column(rated, "η\n[95 %]", "η mean of\nzones", "η worst\nzone", "η other\nstarts", "of sus-\npending")
	column(true, "mean\nwait", "p95\nwait", "turn-\naround")
	column(priced, "cost\n")
	column(s.CarbonPrice > 0, "cost with\ncarbon")
	column(true, "suspended\nper job", "delay\nviolations")
	for i := range s.Strategies {
		r := &s.Strategies[i]
		row := []string{r.Strategy, shownOr(r.Forecast)}
		cell := func(when bool, text ...string) {
			if when {
				row = append(row, text...)
			}
		}
		cell(restarts, r.RestartCost.String())
		cell(true, significant(r.Grams/1000), shownInterval(&r.Saving, 100, 2))
		cell(rated, shownInterval(r.Eta, 1, 3), valueOf(r.EtaMean), worst(r), shownShare(r.EtaOther),
			valueOf(r.EtaInterruptible))
		cell(true, span(3600*r.MeanWaitHours), span(3600*r.P95WaitHours), span(3600*r.TurnaroundHours))
		cell(priced, significant(r.Cost))
		if r.AdjustedCost != nil {
			cell(true, significant(*r.AdjustedCost))
		}
		cell(true, fmt.Sprintf("%.2f", r.Suspensions), strconv.Itoa(r.Violations))
		c.rows = append(c.rows, row)
	}
	return c
}

func (s *Sweep) perZone(title string, show func(*ZoneRow) string) cells {
	c := cells{title: title, header: append([]string{"strategy"}, s.Zones...), names: 1}
	for i := range s.Strategies {
		r := &s.Strategies[i]
		if r.Strategy == s.Baseline {
			continue
		}
		row := []string{s.label(r)}
		for k := range r.ByZone {
			row = append(row, show(&r.ByZone[k]))
		}
		c.rows = append(c.rows, row)
	}
	return c
}

// shownInterval shows a value times scale with so many decimals, and its interval where there is one.
func shownInterval(i *Interval, scale float64, decimals int) string {
	if i == nil {
		return "–"
	}
	if i.Low == nil {
		return fmt.Sprintf("%.*f", decimals, scale*i.Value)
	}
	return fmt.Sprintf("%.*f [%.*f, %.*f]", decimals, scale*i.Value, decimals, scale**i.Low, decimals, scale**i.High)
}

func valueOf(i *Interval) string {
	if i == nil {
		return "–"
	}
	return fmt.Sprintf("%.3f", i.Value)
}

func shownShare(v *float64) string {
	if v == nil {
		return "–"
	}
	return fmt.Sprintf("%.3f", *v)
}

func shownOr(text string) string {
	if text == "" {
		return "–"
	}
	return text
}

func worst(r *SweepRow) string {
	if r.WorstEta == nil {
		return "–"
	}
	return fmt.Sprintf("%.3f %s", *r.WorstEta, r.WorstZone)
}

// headline says what was compared.
func (s *Sweep) headline() string {
	name := s.Name
	if name == "" {
		name = "comparison"
	}
	starts := fmt.Sprintf("%d starts", s.Starts)
	if s.Quoted != QuoteAll {
		starts += fmt.Sprintf(", those of %s index quoted", s.Quoted)
	}
	return fmt.Sprintf("%s: %d trials in %d zones, %s", name, s.Trials, len(s.Zones), starts)
}

func sweepTables(w io.Writer, s *Sweep, colours bool) error {
	parts := []string{s.headline()}
	for _, c := range s.tables() {
		if c.title != "" {
			parts = append(parts, c.title)
		}
		parts = append(parts, c.render(colours))
	}
	_, err := fmt.Fprintf(w, "%s\n%s\n", strings.Join(parts, "\n"), strings.Join(s.Notes, "\n"))
	return err
}

func (c *cells) render(colours bool) string {
	t := table.NewWriter()
	t.SetStyle(table.StyleLight)
	t.Style().Format.Header = text.FormatDefault
	if colours {
		t.Style().Color.Header = text.Colors{text.Bold} //nolint:misspell // the library's spelling
	}
	row := func(all []string) (row table.Row) {
		for _, s := range all {
			row = append(row, s)
		}
		return row
	}
	t.AppendHeader(row(c.header))
	configs := make([]table.ColumnConfig, len(c.header))
	for i := range configs {
		configs[i] = table.ColumnConfig{Number: i + 1, Align: text.AlignRight, AlignHeader: text.AlignRight}
		if i < c.names {
			configs[i].Align, configs[i].AlignHeader = text.AlignLeft, text.AlignLeft
		}
	}
	t.SetColumnConfigs(configs)
	for _, r := range c.rows {
		t.AppendRow(row(r))
	}
	return t.Render()
}
