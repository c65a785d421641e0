package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubenergy/kubenergy/internal/cli/cmdutil"
	"github.com/kubenergy/kubenergy/internal/report"
	"github.com/kubenergy/kubenergy/internal/study"
)

type compareFlags struct {
	file    string
	over    study.Overrides
	shard   string
	workers int
	output  *cmdutil.Choice
	out     string
}

func newCompare(t cmdutil.Terminal) *cobra.Command {
	var f compareFlags
	cmd := &cobra.Command{
		Use:   "compare -f comparison.yaml [flags]",
		Short: "Compare strategies over zones, starts and seeds with the clairvoyant optimum",
		Long: `Run a scenario with every strategy, in every zone, from every start and for every seed of a comparison
file, and report the savings: in grams, as a fraction of the baseline's emissions, and as η, the fraction of the savings
of the clairvoyant optimum. Results do not depend on the number of workers. With --out, every trial is stored as soon as
it is complete, and an interrupted command can be repeated to continue.`,
		Example: `  kubenergy compare -f comparison.yaml
  kubenergy compare -f comparison.yaml --zones DE,FR --strategies rolling,residual --out results/
  kubenergy compare -f comparison.yaml --shard 0/8 --out results/part-0
  kubenergy compare merge results/part-* --out results/`,
		Args: cmdutil.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd, t) },
	}
	flags := cmd.Flags()
	flags.StringVarP(&f.file, "filename", "f", "", "comparison file")
	flags.StringSliceVar(&f.over.Strategies, "strategies", nil, "strategies, instead of those in the file")
	flags.StringSliceVar(&f.over.Zones, "zones", nil, "zones of the file to include")
	flags.StringVar(&f.over.Starts, "starts", "", "starts of the file to include, by index from 0, for example 0-3,8")
	flags.UintSliceVar(&f.over.Seeds, "seeds", nil, "seeds, instead of those in the file")
	flags.StringSliceVar(&f.over.Forecasts, "forecast", nil,
		"forecasts, instead of those in the file: perfect, or models")
	flags.StringVar(&f.over.Lag, "lag", "",
		"delay in full hours until models receive the intensity of an hour, from its start (default 0h)")
	flags.IntVar(&f.over.Jobs, "jobs", 0, jobsUsage)
	flags.IntVar(&f.workers, "workers", 0, "number of concurrent trials (default: number of cores)")
	flags.StringVar(&f.shard, "shard", "",
		"shard I/N to run, e.g. 0/8; Indexed Jobs use JOB_COMPLETION_INDEX and JOB_COMPLETIONS")
	f.output = cmdutil.Output(flags, "table", "wide", "json", "csv")
	flags.StringVar(&f.out, "out", "", "directory for the trials, the report, its figures and a manifest")
	cmd.AddCommand(newMerge(t))
	return cmd
}

// part parses the shard to run.
func (f *compareFlags) part(t cmdutil.Terminal) (study.Shard, error) {
	text := f.shard
	if text == "" {
		index, completions := t.Getenv("JOB_COMPLETION_INDEX"), t.Getenv("JOB_COMPLETIONS")
		if index == "" || completions == "" {
			return study.Shard{Count: 1}, nil
		}
		text = index + "/" + completions
	}
	i, n, _ := strings.Cut(text, "/")
	index, err := strconv.Atoi(i)
	count, err2 := strconv.Atoi(n)
	if errors.Join(err, err2) != nil || index < 0 || index >= count {
		return study.Shard{}, fmt.Errorf("--shard is %q: want I/N with I from 0 to N-1, for example 0/8", text)
	}
	return study.Shard{Index: index, Count: count}, nil
}

func (f *compareFlags) run(cmd *cobra.Command, t cmdutil.Terminal) error {
	part, err := f.part(t)
	switch {
	case err != nil:
		return cmdutil.NewUsageError(err)
	case f.file == "":
		return cmdutil.UsageErrorf("want a comparison file: -f FILE")
	case f.workers < 0:
		return cmdutil.UsageErrorf("--workers is %d: want 1 or more", f.workers)
	case part.Count > 1 && f.out == "":
		return cmdutil.UsageErrorf("--shard only runs some trials: set --out DIR, and merge the shards")
	}
	if f.over.Strategies, err = cmdutil.StrategyNames(cmd, "strategies"); err != nil {
		return cmdutil.NewUsageError(err)
	}
	file, err := study.ReadFile(f.file)
	if err != nil {
		return cmdutil.NewUsageError(err)
	}
	if err := file.Apply(&f.over); err != nil {
		return cmdutil.NewUsageError(err)
	}
	p := t.Progress(cmd.CommandPath(), "trials")
	defer p.Close()
	read := p.Doing("reading the input files of " + f.file)
	c, err := file.Plan()
	if err != nil {
		return cmdutil.NewUsageError(err)
	}
	read()
	c.Doing = p.Doing
	return f.carryOut(cmd.Context(), t, c, part, p)
}

// carryOut runs the trials and prints the report.
func (f *compareFlags) carryOut(ctx context.Context, t cmdutil.Terminal, c *study.Study, part study.Shard,
	p *cmdutil.Progress,
) error {
	store, err := study.OpenStore(f.out, part)
	if err != nil {
		return err
	}
	if store.Damaged > 0 {
		p.Say("%d lines of earlier results are damaged, and their trials run again\n", store.Damaged)
	}
	mine, err := c.Run(ctx, store, part, f.workers, p.Update)
	p.Close()
	switch {
	case errors.Is(err, context.Canceled) && f.out != "":
		return fmt.Errorf("%w: repeat the command to continue", err)
	case err != nil:
		return err
	}
	book := c.Book(cmdutil.Version(), append([]string{t.Name}, t.Args...))
	if part.Count > 1 {
		if err := book.Write(f.out); err != nil {
			return err
		}
		fmt.Fprintf(t.Err,
			"wrote shard %d of %d with %d trials to %s; to merge all shards, run %s compare merge DIR... --out DIR\n",
			part.Index, part.Count, len(mine), f.out, t.Name)
		return nil
	}
	return finishComparison(t, book, mine, f.out, f.output.Value)
}

// finishComparison aggregates trials and writes the results.
func finishComparison(t cmdutil.Terminal, book *study.Book, planned []*study.Planned, out, format string) error {
	sweep, err := book.Sum(planned)
	if err != nil {
		return cmdutil.NewUsageError(err)
	}
	if out != "" {
		// Files are written first, because readers of standard output may take it as a sign of success.
		if err := book.Write(out); err != nil {
			return err
		}
		written, err := report.WriteSweepDir(out, sweep, &book.Manifest)
		if err != nil {
			return err
		}
		fmt.Fprintln(t.Err, "wrote", strings.Join(written, ", "))
	}
	return t.Print(sweep, format)
}

func newMerge(t cmdutil.Terminal) *cobra.Command {
	var format *cmdutil.Choice
	var out string
	cmd := &cobra.Command{
		Use:   "merge DIR...",
		Short: "Report on a comparison from its shards",
		Long: "Read the trials of all shards of a comparison, written by compare --shard, and report on them like " +
			"compare.",
		Example: "  kubenergy compare merge results/part-* --out results/",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmdutil.UsageErrorf("want the directories of the shards")
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			book, planned, err := study.ReadParts(args)
			if err != nil {
				return cmdutil.NewUsageError(err)
			}
			if out != "" {
				if err := study.Keep(out, planned); err != nil {
					return err
				}
			}
			return finishComparison(t, book, planned, out, format.Value)
		},
	}
	format = cmdutil.Output(cmd.Flags(), "table", "json", "csv")
	cmd.Flags().StringVar(&out, "out", "", "directory for all trials, the report, its figures and a manifest")
	return cmd
}
