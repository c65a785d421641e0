package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/kubenergy/kubenergy/internal/humanize"
	"github.com/kubenergy/kubenergy/internal/sim"
	"github.com/kubenergy/kubenergy/internal/sliceutil"
)

// Sheet returns a table with one row per strategy over all zones, and one row per strategy and zone.
func (s *Sweep) Sheet() *Table {
	t := Sheet("strategy", "forecast", "restartCostSeconds", "family", "zone", "trials", "gramsCO2e",
		"baselineGramsCO2e", "saving", "savingLow", "savingHigh", "optimumSaving", "eta", "etaLow", "etaHigh",
		"etaGrams", "etaMean", "etaInterruptible", "etaOther", "energyKWh", "cost", "priced", "adjustedCost",
		"meanWaitHours", "p95WaitHours", "meanTurnaroundHours", "suspensionsPerJob", "lostHours", "delayViolations",
		"tolerated", "unplacedJobs", "baseline", "quoted", "emptyNodes", "boots", "failedBoots", "bootEnergyKWh")
	none := &Interval{}
	for _, r := range s.Strategies {
		eta := cmp.Or(r.Eta, none)
		t.Add(r.Strategy, r.Forecast, r.RestartCost.Seconds(), r.Family, nil, r.Trials, r.Grams, r.BaselineGrams,
			r.Saving.Value, r.Saving.Low, r.Saving.High, nil, r.Eta.value(), eta.Low, eta.High, r.EtaGrams.value(),
			r.EtaMean.value(), r.EtaInterruptible.value(), r.EtaOther, r.EnergyKWh, r.Cost, r.Priced, r.AdjustedCost,
			r.MeanWaitHours, r.P95WaitHours, r.TurnaroundHours, r.Suspensions, r.LostHours, r.Violations, r.Tolerated,
			r.Unplaced, s.Baseline, s.Quoted, s.empty(r), r.Boots, r.FailedBoots, r.BootEnergyKWh)
		for _, z := range r.ByZone {
			eta := cmp.Or(z.Eta, none)
			t.Add(r.Strategy, r.Forecast, r.RestartCost.Seconds(), r.Family, z.Zone, nil, z.Grams, z.BaselineGrams,
				z.Saving.Value, z.Saving.Low, z.Saving.High, z.OptimumSaving, z.Eta.value(), eta.Low, eta.High, nil,
				nil, nil, nil, nil, nil, nil, nil, z.MeanWaitHours, nil, nil, nil, nil, nil, nil, nil, s.Baseline,
				s.Quoted, s.empty(r), nil, nil, nil)
		}
	}
	return t
}

// tables returns the tables for people.
func (s *Sweep) tables() []*Table {
	all := []*Table{s.overall()}
	if len(s.Zones) > 1 {
		all = append(all, s.perZone("η by zone", func(z *ZoneRow) string { return shownInterval(z.Eta, 1, 3) }),
			s.perZone("emissions saved by zone, % (optimum)", func(z *ZoneRow) string {
				if z.OptimumSaving == nil {
					return humanize.Fixed(100*z.Saving.Value, 2)
				}
				return fmt.Sprintf("%s (%s)", humanize.Fixed(100*z.Saving.Value, 2),
					humanize.Fixed(100**z.OptimumSaving, 2))
			}))
	}
	if len(s.Published) > 0 {
		all = append(all, s.published())
	}
	return all
}

// published compares published figures with the values found here.
func (s *Sweep) published() *Table {
	t := Heads(5, "strategy", "forecast", "restart cost", "figure", "source", "published", "here")
	t.Title = "published figures"
	restarts := slices.ContainsFunc(s.Published, func(p Published) bool { return p.Restart != "" })
	for _, p := range s.Published {
		cost, _ := p.check() // NewSweep has returned the error
		t.Add(p.Strategy, p.Forecast, only(restarts, cost.String()), p.Figure, p.Source, humanize.Significant(p.Value),
			humanize.Significant(p.Measured))
	}
	return t
}

func (s *Sweep) overall() *Table {
	t := Heads(3, "strategy", "empty\nmachines", "forecast", "restart\ncost", "emissions\nkgCO2e",
		"saved %\n[95 %]", "η\n[95 %]", "η mean of\nzones", "η worst\nzone", "η other\nstarts", "of sus-\npending",
		"mean\nwait", "p95\nwait", "turn-\naround", "cost\n", "cost with\ncarbon", "suspended\nper job",
		"delay viola-\ntions, sum", "boots\n", "boots\nfailed")
	t.widen("η mean of\nzones", "η worst\nzone", "η other\nstarts", "of sus-\npending", "turn-\naround",
		"suspended\nper job")
	rated := slices.ContainsFunc(s.Strategies, func(r SweepRow) bool { return r.Eta != nil })
	restarts := slices.ContainsFunc(s.Strategies, func(r SweepRow) bool { return r.RestartCost > 0 })
	priced := slices.ContainsFunc(s.Strategies, func(r SweepRow) bool { return r.Priced })
	for _, r := range s.Strategies {
		var adjusted any
		if r.AdjustedCost != nil {
			adjusted = humanize.Significant(r.mean(*r.AdjustedCost))
		}
		t.Add(r.Strategy, only(s.sleeps(), machinesDo[s.empty(r)]), cmp.Or(r.Forecast, "–"),
			only(restarts, r.RestartCost.String()), humanize.Significant(r.mean(r.Grams/1000)),
			shownInterval(&r.Saving, 100, 2), only(rated, shownInterval(r.Eta, 1, 3)),
			only(rated, shownShare(r.EtaMean.value())), only(rated, worst(r)), only(rated, shownShare(r.EtaOther)),
			only(rated, shownShare(r.EtaInterruptible.value())), humanize.Span(3600*r.MeanWaitHours),
			humanize.Span(3600*r.P95WaitHours), humanize.Span(3600*r.TurnaroundHours),
			only(priced, humanize.Significant(r.mean(r.Cost))), adjusted, fmt.Sprintf("%.2f", r.Suspensions),
			r.Violations, only(s.sleeps(), humanize.Fixed(r.mean(float64(r.Boots)), 1)),
			only(s.sleeps(), humanize.Fixed(r.mean(float64(r.FailedBoots)), 1)))
	}
	return t
}

// allNotes returns the notes for wide tables, which include explanations of some columns.
func (s *Sweep) allNotes() []string {
	notes := slices.Clone(s.Notes)
	if slices.ContainsFunc(s.Strategies, func(r SweepRow) bool { return r.EtaInterruptible != nil }) {
		notes = append(notes, "Of suspending: the saving divided by that of the optimum that may also suspend jobs, "+
			"for strategies that do not suspend jobs.")
	}
	if slices.ContainsFunc(s.Strategies, func(r SweepRow) bool { return r.EtaOther != nil }) {
		notes = append(notes, "η other starts: η of the starts that are not quoted.")
	}
	return notes
}

func (s *Sweep) perZone(title string, show func(*ZoneRow) string) *Table {
	t := Heads(1, append([]string{"strategy"}, s.Zones...)...)
	t.Title = title
	for _, r := range s.Strategies {
		if r.Strategy == s.Baseline {
			continue
		}
		cells := sliceutil.Map(r.ByZone, func(z ZoneRow) any { return show(&z) })
		t.Add(append([]any{s.label(r)}, cells...)...)
	}
	return t
}

// empty returns the state of machines without jobs.
func (s *Sweep) empty(r SweepRow) string {
	if s.sleeps() && !r.StayOn {
		return sim.EmptyNodesSleep
	}
	return sim.EmptyNodesIdle
}

// shownInterval formats a value multiplied by scale, and its interval if it has one.
func shownInterval(i *Interval, scale float64, decimals int) string {
	if i == nil {
		return "–"
	}
	if i.Low == nil {
		return humanize.Fixed(scale*i.Value, decimals)
	}
	return fmt.Sprintf("%s [%s, %s]", humanize.Fixed(scale*i.Value, decimals), humanize.Fixed(scale**i.Low, decimals),
		humanize.Fixed(scale**i.High, decimals))
}

func shownShare(v *float64) string {
	if v == nil {
		return "–"
	}
	return humanize.Fixed(*v, 3)
}

func worst(r SweepRow) string {
	if r.WorstEta == nil {
		return "–"
	}
	return humanize.Fixed(*r.WorstEta, 3) + " " + r.WorstZone
}

// headline summarizes the comparison in one line.
func (s *Sweep) headline() string {
	starts := humanize.Count(s.Starts, "start")
	if s.Quoted != QuoteAll {
		starts += fmt.Sprintf(", quoting those with %s index", s.Quoted)
	}
	return fmt.Sprintf("%s: %s in %s, %s", cmp.Or(s.Name, "comparison"), humanize.Count(s.Trials, "trial"),
		humanize.Count(len(s.Zones), "zone"), starts)
}

// Text returns all tables.
func (s *Sweep) Text(wide, colours bool) string {
	parts := []string{s.headline()}
	for _, t := range s.tables() {
		if t.Title != "" {
			parts = append(parts, t.Title)
		}
		parts = append(parts, t.Framed(wide, colours))
	}
	notes := s.Notes
	if wide {
		notes = s.allNotes()
	}
	return fmt.Sprintf("%s\n%s\n", strings.Join(parts, "\n"), strings.Join(notes, "\n"))
}
