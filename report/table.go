package report

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/kubenergy/kubenergy/sched"
)

// A rareColumn is shown where some run has something to say in it.
type rareColumn struct {
	header string
	value  func(*Run) float64
}

var rareColumns = []rareColumn{
	{"late\nstarts", func(r *Run) float64 { return float64(r.LateStarts) }},
	{"missed\ndeadlines", func(r *Run) float64 { return float64(r.MissedDeadlines) }},
	{"suspen-\nsions", func(r *Run) float64 { return float64(r.Suspensions) }},
	{"tolerated\n", func(r *Run) float64 { return float64(r.Tolerated) }},
	{"unplaced\njobs", func(r *Run) float64 { return float64(r.UnplacedJobs) }},
	{"decisions\nper s", func(r *Run) float64 { return r.DecisionsPerSecond }},
}

func writeTable(w io.Writer, r *Report, colours bool) error {
	t := table.NewWriter()
	t.SetStyle(table.StyleLight)
	t.Style().Format.Header = text.FormatDefault
	if colours {
		t.Style().Color.Header = text.Colors{text.Bold} //nolint:misspell // the library's spelling
	}
	header := table.Row{"strategy", "energy\nkWh", "saved\n%", "emissions\nkgCO2e", "saved\n%"}
	priced := len(r.Runs) > 0 && r.Runs[0].Priced
	if priced {
		header = append(header, "cost\n", "saved\n%")
	}
	header = append(header, "mean wait\n", "p95 wait\n", "mean\ncompletion", "makespan\n", "CPU\n%", "held\njobs",
		"delay\nviolations")
	// Columns of zeros cost the width that a terminal does not have.
	rare := slices.DeleteFunc(slices.Clone(rareColumns), func(c rareColumn) bool {
		return !slices.ContainsFunc(r.Runs, func(run Run) bool { return c.value(&run) > 0 })
	})
	for _, c := range rare {
		header = append(header, c.header)
	}
	t.AppendHeader(header)
	configs := make([]table.ColumnConfig, len(header))
	for i := range configs {
		configs[i] = table.ColumnConfig{Number: i + 1, Align: text.AlignRight, AlignHeader: text.AlignRight}
	}
	configs[0].Align, configs[0].AlignHeader = text.AlignLeft, text.AlignLeft
	t.SetColumnConfigs(configs)
	for i := range r.Runs {
		run := &r.Runs[i]
		share := func(v float64) string {
			if i == 0 {
				return "–"
			}
			return fmt.Sprintf("%.1f", 100*v)
		}
		row := table.Row{
			run.Strategy, significant(run.EnergyKWh), share(run.Savings.Energy), significant(run.EmissionsKg),
			share(run.Savings.Emissions),
		}
		if priced {
			row = append(row, significant(run.Cost), share(run.Savings.Cost))
		}
		row = append(row, span(run.MeanWaitSeconds), span(run.P95WaitSeconds), span(run.MeanCompletionSeconds),
			span(run.MakespanSeconds),
			fmt.Sprintf("%.1f", 100*run.Utilisation), run.HeldJobs, run.DelayViolations)
		for _, c := range rare {
			row = append(row, fmt.Sprintf("%.0f", c.value(run)))
		}
		t.AppendRow(row)
	}
	_, err := fmt.Fprintf(w, "%s\n%s\n%s\n", title(r), t.Render(), strings.Join(footnotes(r), "\n"))
	return err
}

func title(r *Report) string {
	var sites []string
	for _, s := range r.Scenario.Sites {
		label := s.Zone
		if s.Name != s.Zone {
			label = s.Name + " (" + s.Zone + ")"
		}
		sites = append(sites, fmt.Sprintf("%s, PUE %.3g", label, s.PUE))
	}
	return fmt.Sprintf("%s on %s from %s; grid %s", plural(r.Scenario.Jobs, "job", "jobs"),
		plural(r.Scenario.Nodes, "node", "nodes"),
		r.Scenario.Start.Format("2006-01-02 15:04 MST"), strings.Join(sites, "; "))
}

func footnotes(r *Report) []string {
	empty := "Empty nodes sleep as their power profile says."
	if r.Scenario.EmptyNodes != "sleep" {
		empty = "Empty nodes idle."
	}
	notes := []string{
		r.Note + " " + empty,
		fmt.Sprintf("Saved: compared with %s. All runs are accounted until %s. Forecast: %s.",
			r.Baseline, r.Scenario.Accounted.Format("2006-01-02 15:04 MST"), r.Scenario.Forecast),
	}
	if r.Scenario.Learner != "" {
		notes[1] += " Run times: " + r.Scenario.Learner + "."
	}
	if r.Scenario.Power != "" {
		notes[1] += " Power of jobs: " + r.Scenario.Power + "."
	}
	holds := slices.ContainsFunc(r.Runs, func(run Run) bool { return sched.Holds(run.Strategy) })
	if holds && r.Scenario.MayWait == 0 {
		notes = append(notes, "No job may wait, so nothing was put off: give jobs an allowed delay, or --max-delay.")
	}
	notes = append(notes, unplacedNotes(r)...)
	if slices.ContainsFunc(r.Runs, func(run Run) bool { return run.LateStarts > 0 }) {
		notes = append(notes, "Late starts are past the allowed delay for whatever reason; delay violations only "+
			"where holds and suspensions, not lack of room, are to blame.")
	}
	if slices.ContainsFunc(r.Runs, func(run Run) bool { return run.Tolerated > 0 }) {
		notes = append(notes,
			"Tolerated: only what jobs did once more after their last suspension kept them for longer than allowed.")
	}
	if len(r.Runs) > 0 && !r.Runs[0].Priced {
		notes = append(notes, "No price was given, so there is no cost.")
	}
	return notes
}

// unplacedNotes tell what no node is large enough for from what only found no room: energy is lower for either.
func unplacedNotes(r *Report) (notes []string) {
	unfit := r.Scenario.FitNowhere
	if unfit > 0 {
		notes = append(notes, plural(unfit, "job fits", "jobs fit")+
			" on no node even when all are empty, by request or selector. What never runs uses no energy in any row.")
	}
	if slices.ContainsFunc(r.Runs, func(run Run) bool { return run.UnplacedJobs > unfit }) {
		which := "Unplaced jobs"
		if unfit > 0 {
			which = "Other unplaced jobs"
		}
		notes = append(notes, which+" fit on an empty node, but never got one; they never ran.")
	}
	return notes
}

// significant shows four digits, and no exponent for what people pay.
func significant(v float64) string {
	switch a := max(v, -v); {
	case a >= 1000:
		return fmt.Sprintf("%.0f", v)
	case a >= 100:
		return fmt.Sprintf("%.1f", v)
	case a >= 10:
		return fmt.Sprintf("%.2f", v)
	}
	if a := max(v, -v); a > 0 && a < 0.1 {
		// A share of a minute of one node is a few millionths of a kilowatt-hour: 0.000 would say that it was nothing.
		const digits, most = 3, 9
		return strconv.FormatFloat(v, 'f', min(most, digits-1-int(math.Floor(math.Log10(a)))), 64)
	}
	return fmt.Sprintf("%.3f", v)
}

// span shows seconds with two units at most.
func span(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%.3g s", d.Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%dm %02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh %02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd %02dh", int(d.Hours())/24, int(d.Hours())%24)
}
