package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubenergy/kubenergy/internal/cli/cmdutil"
	"github.com/kubenergy/kubenergy/internal/dashboard"
	"github.com/kubenergy/kubenergy/internal/humanize"
	"github.com/kubenergy/kubenergy/internal/report"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
	"github.com/kubenergy/kubenergy/internal/sim"
	"github.com/kubenergy/kubenergy/internal/sim/oracle"
	"github.com/kubenergy/kubenergy/internal/workload"
)

// simulateFlags are the flags of the command simulate.
type simulateFlags struct {
	file      string
	over      sim.Overrides
	price     float64
	carbon    float64
	interrupt bool
	seed      uint64
	output    *cmdutil.Choice
	out       string
	best      time.Duration
}

func newSimulate(t cmdutil.Terminal) *cobra.Command {
	var f simulateFlags
	cmd := &cobra.Command{
		Use:   "simulate [-f scenario.yaml] [flags]",
		Short: "Simulate a workload trace with one or more strategies and compare them",
		Long: `Simulate a workload trace on a model of a cluster with one or more strategies, and report energy,
emissions, cost and waiting times. A strategy consists of a placement, optionally followed by a start rule, as in
carbon+window, and by a queue order, as in energy+now/fifo. The strategies flow-*, ecsched-*, min-min and max-min place
the whole queue in one step. kubenergy strategies lists them all. The first strategy is the baseline for savings.

Flags take precedence over the scenario file. Several sites, limits, weights and queue can only be set in the scenario
file. The setting queue controls how often the queue is planned and for how many jobs at a time.`,
		Example: `  kubenergy simulate -f scenario.yaml
  kubenergy simulate --workload jobs.csv --nodes ecsched50 --grid DE_2022.csv.gz \
      --start 2022-06-01 --max-delay 6h --strategy least-allocated,energy,carbon+window
  kubenergy simulate -f scenario.yaml --zone FR --grid FR.csv -o json --out results/`,
		Args: cmdutil.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd, t) },
	}
	flags := cmd.Flags()
	flags.StringVarP(&f.file, "filename", "f", "", "scenario file")
	flags.StringVar(&f.over.Workload, "workload", "", "trace of jobs; may be compressed with gzip")
	flags.StringVar(&f.over.Format, "format", "",
		"format of the trace: "+strings.Join(workload.Formats(), ", ")+" (default: detected)")
	flags.StringVar(&f.over.TimeZone, "time-zone", "",
		"time zone of times without an offset in files of the grid and of prices, and in a trace of sacct, e.g. "+
			"Europe/Berlin")
	flags.BoolVar(&f.over.SkipBad, "skip-bad", false, skipBadUsage)
	flags.IntVar(&f.over.Jobs, "jobs", 0, jobsUsage)
	flags.StringVar(&f.over.Nodes, "nodes", "", "file with nodes, or a preset: "+strings.Join(workload.Presets(), ", "))
	flags.StringVar(&f.over.Grid, "grid", "", "CSV file with carbon intensity over time, may be compressed with gzip; "+
		"a quoted pattern joins consecutive files")
	flags.StringVar(&f.over.Column, "column", "", "column of the grid file, or its only column (default "+
		"ci_lifecycle_g_per_kwh)")
	flags.StringVar(&f.over.Fill, "fill", "", cmdutil.FillUsage)
	flags.StringVar(&f.over.Zone, "zone", "", "grid zone, required if the grid file contains several zones")
	flags.StringVar(&f.over.Start, "start", "",
		"start of the trace, e.g. 2022-06-01 or RFC 3339 (default: start of the grid file, or the first hour of a "+
			"trace with absolute times)")
	flags.StringSliceVar(&f.over.Strategies, "strategy", nil, "strategies to compare, starting with the baseline "+
		"(default: strategies of the file, or least-allocated,energy,carbon+window)")
	flags.StringVar(&f.over.MaxDelay, "max-delay", "",
		"maximum allowed delay of a job, and the default for jobs without one, e.g. 6h")
	flags.Float64Var(&f.price, "price", 0, "price of electricity per kWh")
	flags.Float64Var(&f.carbon, "carbon-price", 0,
		"price of a tonne of CO2e in the currency of --price; adds the CI-adjusted cost, which includes emissions")
	flags.StringVar(&f.over.EmptyNodes, "empty-nodes", "", "state of machines without jobs: sleep, also simulated "+
		"without sleep for comparison, or idle (default sleep)")
	flags.BoolVar(&f.interrupt, "interruptible", false, "allow strategies to suspend and resume jobs")
	flags.StringVar(&f.over.RestartCost, "restart-cost", "",
		"work that an interruptible job repeats after each resume, e.g. 5m")
	flags.StringVar(&f.over.Learner, "learner", "",
		"run-time model: known, groups, mean, siblings or survival (default known)")
	flags.StringVar(&f.over.Power, "power", "", "power model of jobs: profiles for the power profiles of nodes, or "+
		"learnt from previous jobs (default profiles)")
	flags.StringVar(&f.over.Forecast, "forecast", "",
		"forecast of the intensity: perfect, or a model such as history or weather (default perfect)")
	flags.StringVar(&f.over.Weather, "weather", "", "weather file for the forecast model weather")
	flags.Uint64Var(&f.seed, "seed", 0, "random seed for ties of least-allocated, as in stock; 0 breaks ties by name")
	flags.DurationVar(&f.best, "best", 0, "search time for the schedule with the lowest emissions and perfect "+
		"knowledge; shown as an additional strategy with a lower bound")
	f.output = cmdutil.Output(flags, "table", "wide", "json", "csv")
	flags.StringVar(&f.out, "out", "", "output directory for summary.json, decisions.csv, figures as SVG and PNG, "+
		"their data as CSV, and the dashboard")
	return cmd
}

// scenario returns the scenario of the file with the flags applied.
func (f *simulateFlags) scenario(cmd *cobra.Command) (*sim.File, error) {
	file := &sim.File{}
	var err error
	if f.file != "" {
		if file, err = sim.ReadFile(f.file); err != nil {
			return nil, err
		}
	}
	if f.over.Strategies, err = cmdutil.StrategyNames(cmd, "strategy"); err != nil {
		return nil, err
	}
	if err := f.missing(); err != nil {
		return nil, err
	}
	f.over.Price, f.over.CarbonPrice = given(cmd, "price", &f.price), given(cmd, "carbon-price", &f.carbon)
	f.over.Interruptible, f.over.Seed = given(cmd, "interruptible", &f.interrupt), given(cmd, "seed", &f.seed)
	if err := file.Override(f.over); err != nil {
		return nil, err
	}
	if len(file.Strategies) == 0 {
		file.Strategies = []string{"least-allocated", "energy", "carbon+window"}
	}
	return file, nil
}

// given returns the value of a flag, or nil if the flag is not set.
func given[T any](cmd *cobra.Command, flag string, value *T) *T {
	if !cmd.Flags().Changed(flag) {
		return nil
	}
	return value
}

// missing returns an error that lists missing flags if there is no scenario file.
func (f *simulateFlags) missing() error {
	var flags []string
	for _, flag := range [...]struct{ name, value string }{
		{"--workload", f.over.Workload}, {"--nodes", f.over.Nodes}, {"--grid", f.over.Grid},
	} {
		if flag.value == "" {
			flags = append(flags, flag.name)
		}
	}
	if f.file != "" || len(flags) == 0 {
		return nil
	}
	return fmt.Errorf("want a scenario file (-f), or --workload, --nodes and --grid: missing %s",
		strings.Join(flags, ", "))
}

func (f *simulateFlags) run(cmd *cobra.Command, t cmdutil.Terminal) error {
	file, err := f.scenario(cmd)
	if err != nil {
		return cmdutil.NewUsageError(err)
	}
	strategies := make([]strategy.Strategy, len(file.Strategies))
	for i, name := range file.Strategies {
		if strategies[i], err = strategy.ByName(name); err != nil {
			return cmdutil.UsageErrorf("%s: %w", file.Called("strategies"), err)
		}
	}
	scenario, err := file.LoadContext(cmd.Context())
	if err != nil {
		return cmdutil.NewUsageError(err)
	}
	scenario.Notes = append(scenario.Notes, file.Unused()...)
	if !slices.ContainsFunc(scenario.Jobs, func(j sched.Job) bool { return j.Interruptible }) {
		scenario.Notes = append(scenario.Notes,
			report.StartsOnly(file.Strategies, "interruptible: true (--interruptible)")...)
	}
	results, err := simulateAll(cmd.Context(), t, scenario, file.Strategies, strategies)
	if err == nil && f.best > 0 {
		results, err = f.bracket(cmd.Context(), scenario, results)
	}
	if err != nil {
		return err
	}
	summary := report.New(file, results)
	if f.out != "" {
		// Write files first, because output on standard output may be taken as a sign of success.
		written, err := report.WriteDir(f.out, summary, results)
		if err != nil {
			return err
		}
		page, err := dashboard.NewResults(summary, results).Write(f.out)
		if err != nil {
			return err
		}
		fmt.Fprintln(t.Err, "wrote", strings.Join(append(written, page), ", "))
	}
	return t.Print(summary, f.output.Value)
}

// bracket adds the best schedule that the search finds in time, and a note with a lower bound of the emissions.
func (f *simulateFlags) bracket(ctx context.Context, s *sim.Scenario, results []*sim.Result) ([]*sim.Result, error) {
	const rounds = 2000
	began := time.Now()
	same := slices.DeleteFunc(slices.Clone(results), func(r *sim.Result) bool { return r.Scenario != s })
	spent := func() float64 { return float64(time.Since(began)) / float64(f.best) }
	best, foreseen, err := oracle.Best(ctx, s, same, f.seed, spent)
	if err != nil {
		return nil, err
	}
	note := &results[0].Scenario.Notes // the report prints the notes
	sleeping := fmt.Sprintf("If machines were asleep whenever they are empty, and woke up in time, the best schedule "+
		"found would emit %s kg.", humanize.Significant(foreseen.Carbon.Kg()))
	if !s.Sleeps() {
		sleeping = "Machines stay on, so the best schedule found includes their idle power."
	}
	least, asleep, err := oracle.Bound(s, rounds)
	if err != nil {
		*note = append(*note, sleeping, "No lower bound of the emissions is available: "+err.Error()+".")
	} else {
		*note = append(*note, sleeping, fmt.Sprintf("Lower bound: no schedule that runs each job without interruption "+
			"on its requested resources emits less than %s kg. %s kg is %.1f %% above it, excluding %s kg of idle "+
			"machines.", humanize.Significant(least.Kg()), humanize.Significant(foreseen.Carbon.Kg()),
			100*float64(foreseen.Carbon-least)/float64(least-asleep), humanize.Significant(asleep.Kg())))
	}
	results = append(results, best)
	_, err = sim.Align(results...)
	return results, err
}

// simulateAll simulates each strategy. If machines may sleep, it first simulates them without sleep.
func simulateAll(ctx context.Context, t cmdutil.Terminal, s *sim.Scenario, names []string,
	strategies []strategy.Strategy,
) (results []*sim.Result, err error) {
	scenarios := []*sim.Scenario{s}
	if s.Sleeps() {
		scenarios = []*sim.Scenario{s.StayingAwake(), s}
	}
	for _, s := range scenarios {
		for i, name := range names {
			if cmdutil.IsTerminal(t.Err) {
				fmt.Fprintf(t.Err, "Simulating %s (%d of %d) …\n", name, len(results)+1, len(names)*len(scenarios))
			}
			r, err := sim.Run(ctx, s, name, strategies[i])
			if err != nil {
				if ctx.Err() != nil {
					return nil, err
				}
				return nil, cmdutil.NewUsageError(err) // the scenario requires data that its files do not contain
			}
			results = append(results, r)
		}
	}
	if _, err := sim.Align(results...); err != nil {
		return nil, cmdutil.NewUsageError(err)
	}
	return results, nil
}
