package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/kubenergy/kubenergy/internal/humanize"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
	"github.com/kubenergy/kubenergy/internal/sim"
)

// Text returns the runs as a table. Columns that contain only zeros are omitted, because terminals are narrow.
func (r *Report) Text(wide, colours bool) string {
	t := Heads(2, "strategy", "empty\nmachines", "energy\nkWh", "energy\nsaved %", "emissions\nkgCO2e",
		"CO2e\nsaved %", "cost\n", "cost\nsaved %", "cost with\ncarbon", "mean wait\n", "p95 wait\n",
		"mean\ncompletion", "makespan\n", "CPU\n%", "held\njobs", "delay\nviolations", "late\nstarts",
		"late, had\ncapacity", "missed\ndeadlines", "suspen-\nsions", "tolerated\n", "unplaced\njobs", "boots\n",
		"boots\nfailed", "decisions\nper s")
	const rare = 9
	for i := range t.Columns[len(t.Columns)-rare:] {
		c := &t.Columns[len(t.Columns)-rare+i]
		c.Rare, c.Show = true, func(v float64) string { return fmt.Sprintf("%.0f", v) }
	}
	t.widen("p95 wait\n", "mean\ncompletion", "makespan\n", "CPU\n%", "decisions\nper s")
	for i, run := range r.Runs {
		slept := cmp.Or(run.Sleep, &Sleep{})
		share := func(v float64) string {
			if i == 0 {
				return "–"
			}
			return humanize.Fixed(100*v, 1)
		}
		var adjusted any
		if run.AdjustedCost != nil {
			adjusted = humanize.Significant(*run.AdjustedCost)
		}
		t.Add(run.Strategy, machinesDo[run.EmptyNodes], humanize.Significant(run.EnergyKWh), share(run.Savings.Energy),
			humanize.Significant(run.EmissionsKg), share(run.Savings.Emissions),
			only(run.Priced, humanize.Significant(run.Cost)), only(run.Priced, share(run.Savings.Cost)), adjusted,
			humanize.Span(run.MeanWaitSeconds), humanize.Span(run.P95WaitSeconds),
			humanize.Span(run.MeanCompletionSeconds), humanize.Span(run.MakespanSeconds),
			fmt.Sprintf("%.1f", 100*run.Utilisation), run.HeldJobs, run.DelayViolations, run.LateStarts,
			run.LateHadCapacity, run.MissedDeadlines, run.Suspensions, run.Tolerated, run.UnplacedJobs, slept.Boots,
			slept.FailedBoots, run.DecisionsPerSecond)
	}
	return fmt.Sprintf("%s\n%s\n%s\n", title(r), t.Framed(wide, colours), strings.Join(footnotes(r), "\n"))
}

// machinesDo describes the state of empty machines.
var machinesDo = map[string]string{sim.EmptyNodesSleep: "sleep", sim.EmptyNodesIdle: "stay on"}

// Sheet returns a table with one row per run.
func (r *Report) Sheet() *Table {
	t := Sheet("strategy", "jobs", "energyKWh", "emissionsKg", "cost", "priced", "meanWaitSeconds", "p95WaitSeconds",
		"meanCompletionSeconds", "makespanSeconds", "utilisation", "delayViolations", "lateStarts", "missedDeadlines",
		"heldJobs", "meanHoldSeconds", "unplacedJobs", "decisions", "decisionsPerSecond", "energySavings",
		"emissionsSavings", "costSavings", "baseline", "quality", "tolerated", "suspensions",
		"emptyNodes", "boots", "failedBoots", "bootHours", "bootEnergyKWh", "asleepHours", "mostCycles", "adjustedCost",
		"meanBoundedSlowdown", "lateStartsHadCapacity")
	for _, run := range r.Runs {
		slept := cmp.Or(run.Sleep, &Sleep{})
		t.Add(run.Strategy, run.Jobs, run.EnergyKWh, run.EmissionsKg, run.Cost, run.Priced, run.MeanWaitSeconds,
			run.P95WaitSeconds, run.MeanCompletionSeconds, run.MakespanSeconds, run.Utilisation, run.DelayViolations,
			run.LateStarts, run.MissedDeadlines, run.HeldJobs, run.MeanHoldSeconds, run.UnplacedJobs, run.Decisions,
			run.DecisionsPerSecond, run.Savings.Energy, run.Savings.Emissions, run.Savings.Cost, r.Baseline,
			run.Quality, run.Tolerated, run.Suspensions, run.EmptyNodes, slept.Boots, slept.FailedBoots,
			slept.BootHours, slept.BootEnergyKWh, slept.AsleepHours, slept.MaxCycles, run.AdjustedCost,
			run.MeanBoundedSlowdown, run.LateHadCapacity)
	}
	return t
}

func title(r *Report) string {
	var sites []string
	for _, s := range r.Scenario.Sites {
		label := s.Zone
		if s.Name != s.Zone {
			label = s.Name + " (" + s.Zone + ")"
		}
		sites = append(sites, fmt.Sprintf("%s, PUE %.3g", cmp.Or(label, "without a zone"), s.PUE))
	}
	return fmt.Sprintf("%s on %s from %s; grid %s", humanize.Count(r.Scenario.Jobs, "job"),
		humanize.Count(r.Scenario.Nodes, "node"), r.Scenario.Start.Format("2006-01-02 15:04 MST"),
		strings.Join(sites, "; "))
}

func footnotes(r *Report) []string {
	saved := "Savings are relative to " + r.Baseline
	if r.both() {
		saved += " on machines that " + machinesDo[r.Runs[0].EmptyNodes]
	}
	single := !slices.ContainsFunc(r.Runs, func(run Run) bool { return run.Strategy != r.Baseline })
	switch {
	case single && r.both():
		saved += ", so they are only due to sleep. To compare strategies, add another, e.g. --strategy " +
			"least-allocated,energy"
	case single && r.Baseline == "least-allocated":
		saved = "There are no savings with only one strategy. Add another, e.g. --strategy least-allocated,energy"
	case single:
		saved = "There are no savings without a baseline. List it first, e.g. --strategy least-allocated," + r.Baseline
	}
	notes := []string{
		r.Note + " " + r.emptyNote(),
		fmt.Sprintf("%s. All runs are accounted until %s. Forecast: %s.", saved,
			r.Scenario.Accounted.Format("2006-01-02 15:04 MST"), r.Scenario.Forecast),
	}
	notes[1] += " Run times: " + cmp.Or(r.Scenario.Learner, "known") + "."
	if r.Scenario.Power != "" {
		notes[1] += " Power of jobs: " + r.Scenario.Power + "."
	}
	holds := slices.ContainsFunc(r.Runs, func(run Run) bool { return strategy.Holds(run.Strategy) })
	if holds && r.Scenario.MayWait == 0 {
		notes = append(notes, "No job may wait, so no job was delayed. Set an allowed delay for jobs, or --max-delay.")
	}
	notes = append(notes, unplacedNotes(r)...)
	notes = append(notes, r.Scenario.Notes...)
	if slices.ContainsFunc(r.Runs, func(run Run) bool { return run.LateStarts > 0 }) {
		notes = append(notes, "Late starts exceed the allowed delay for any reason. Delay violations only count "+
			"delays by holds and suspensions, not by a lack of capacity.")
	}
	if slices.ContainsFunc(r.Runs, func(run Run) bool { return run.LateHadCapacity > 0 }) {
		notes = append(notes, "\"Late, had capacity\" counts late starts of jobs that were held although there was "+
			"capacity at their submission.")
	}
	if slices.ContainsFunc(r.Runs, func(run Run) bool { return run.Tolerated > 0 }) {
		notes = append(notes,
			"Tolerated: jobs exceeded the allowed delay only by work repeated after their last suspension.")
	}
	if len(r.Runs) > 0 && !r.Runs[0].Priced {
		note := "No price was given, so there is no cost."
		if r.Runs[0].AdjustedCost != nil {
			note = "No price was given, so the cost with carbon only includes emissions."
		}
		notes = append(notes, note)
	}
	return notes
}

// both reports whether machines sleep in some runs and stay on in others.
func (r *Report) both() bool {
	return slices.ContainsFunc(r.Runs, func(run Run) bool { return run.EmptyNodes != r.Runs[0].EmptyNodes })
}

// emptyNote describes the state of empty machines, and the cost of their boots.
func (r *Report) emptyNote() string {
	var sum Sleep
	for i := range r.Runs {
		if s := r.Runs[i].Sleep; s != nil {
			sum.Boots += s.Boots
			sum.BootHours += s.BootHours
			sum.BootEnergyKWh += s.BootEnergyKWh
			sum.AsleepHours += s.AsleepHours
		}
	}
	if !slices.ContainsFunc(r.Runs, func(run Run) bool { return run.Sleep != nil }) {
		return "Empty machines stay on."
	}
	return fmt.Sprintf("Sleeping machines draw the power in their power profile. Machines that take time to boot "+
		"slept for %s of machine time in all runs. The %s took %s kWh and %s, which the figures include.",
		humanize.Span(3600*sum.AsleepHours), humanize.Count(sum.Boots, "boot"), humanize.Significant(sum.BootEnergyKWh),
		humanize.Span(3600*sum.BootHours))
}

// unplacedNotes distinguishes jobs that do not fit on any node from jobs that lacked free capacity.
// Energy is lower for both.
func unplacedNotes(r *Report) (notes []string) {
	unfit := r.Scenario.FitNowhere
	if unfit > 0 {
		notes = append(notes, humanize.Plural(unfit, "job fits", "jobs fit")+
			" on no node even if all are empty, by request or selector. Jobs that never run use no energy in any row.")
	}
	if slices.ContainsFunc(r.Runs, func(run Run) bool { return run.UnplacedJobs > unfit }) {
		which := "Unplaced jobs"
		if unfit > 0 {
			which = "Other unplaced jobs"
		}
		notes = append(notes, which+" fit on an empty node, but never got one and did not run.")
	}
	return notes
}
