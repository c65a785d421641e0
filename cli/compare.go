package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubenergy/kubenergy/report"
	"github.com/kubenergy/kubenergy/sim"
)

type compareFlags struct {
	file        string
	over        comparisonOverrides
	shard       string
	workers     int
	output, out string
}

func newCompare(t terminal) *cobra.Command {
	var f compareFlags
	cmd := &cobra.Command{
		Use:   "compare -f comparison.yaml [flags]",
		Short: "Compare strategies over zones, starts and seeds with the clairvoyant optimum",
		Long: `Play a scenario under every strategy, in every zone, from every start and for every seed of a comparison file, and report what was
saved: in grams, as a share of the baseline's emissions, and as η, the share of what the clairvoyant optimum saves. Results do not
depend on the number of workers. With --out every trial is kept as it is done: the same command goes on where it was interrupted.`,
		Example: `  kubenergy compare -f comparison.yaml
  kubenergy compare -f comparison.yaml --zones DE,FR --strategies rolling,residual --out results/
  kubenergy compare -f comparison.yaml --shard 0/8 --out results/part-0
  kubenergy compare merge results/part-* --out results/`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd, t) },
	}
	flags := cmd.Flags()
	flags.StringVarP(&f.file, "filename", "f", "", "comparison file")
	flags.StringSliceVar(&f.over.strategies, "strategies", nil, "strategies, instead of those of the file")
	flags.StringSliceVar(&f.over.zones, "zones", nil, "only these zones of the file")
	flags.StringVar(&f.over.starts, "starts", "", "only these starts of the file, by their index from 0, as 0-3,8")
	flags.UintSliceVar(&f.over.seeds, "seeds", nil, "seeds, instead of those of the file")
	flags.StringSliceVar(&f.over.forecasts, "forecast", nil,
		"forecasts, instead of those of the file: perfect, or models")
	flags.IntVar(&f.workers, "workers", 0, "trials at once (default: as many as there are cores)")
	flags.StringVar(&f.shard, "shard", "",
		"run only part I of N, as 0/8; in an Indexed Job JOB_COMPLETION_INDEX and JOB_COMPLETIONS say it")
	flags.StringVarP(&f.output, "output", "o", "table", "table, json or csv")
	flags.StringVar(&f.out, "out", "", "directory for the trials, the report, its figures and a manifest")
	cmd.AddCommand(newMerge(t))
	return cmd
}

// part reads which shard is to be run.
func (f *compareFlags) part(env []string) (shard, error) {
	text := f.shard
	if text == "" {
		index, completions := environment(env, "JOB_COMPLETION_INDEX"), environment(env, "JOB_COMPLETIONS")
		if index == "" || completions == "" {
			return shard{count: 1}, nil
		}
		text = index + "/" + completions
	}
	i, n, _ := strings.Cut(text, "/")
	index, err := strconv.Atoi(i)
	count, err2 := strconv.Atoi(n)
	if errors.Join(err, err2) != nil || index < 0 || index >= count {
		return shard{}, fmt.Errorf("shard %q: want I/N with I from 0 to N-1, as 0/8", text)
	}
	return shard{index, count}, nil
}

func environment(env []string, name string) string {
	for _, v := range env {
		if value, ok := strings.CutPrefix(v, name+"="); ok {
			return value
		}
	}
	return ""
}

func (f *compareFlags) run(cmd *cobra.Command, t terminal) error {
	part, err := f.part(t.env)
	switch {
	case err != nil:
		return usageError{err}
	case f.file == "":
		return usageError{errors.New("want a comparison file: -f FILE")}
	case f.workers < 0:
		return usageError{fmt.Errorf("--workers is %d: want 1 or more", f.workers)}
	case part.count > 1 && f.out == "":
		return usageError{errors.New("a shard is only part of the results: say --out DIR, and merge them")}
	}
	if err := report.CheckFormat(f.output); err != nil {
		return usageError{err}
	}
	if f.over.strategies, err = strategyNames(cmd, "strategies"); err != nil {
		return usageError{err}
	}
	file, err := readComparison(f.file)
	if err != nil {
		return usageError{err}
	}
	if err := file.apply(&f.over); err != nil {
		return usageError{err}
	}
	c, err := file.plan()
	if err != nil {
		return usageError{err}
	}
	return f.carryOut(cmd.Context(), t, c, part)
}

// carryOut runs the trials and reports on them.
func (f *compareFlags) carryOut(ctx context.Context, t terminal, c *study, part shard) error {
	name := "trials.jsonl"
	if part.count > 1 {
		name = fmt.Sprintf("trials-%d-of-%d.jsonl", part.index, part.count)
	}
	store, err := openStore(f.out, name)
	if err != nil {
		return err
	}
	if store != nil && store.damaged > 0 {
		fmt.Fprintf(t.err, "%d lines of earlier results are damaged: those trials are run again\n", store.damaged)
	}
	if f.out != "" {
		c.cache = c.forecastFolder(f.out)
	}
	tell := func(int, int) {}
	if isTerminal(t.err) {
		tell = (&progress{w: t.err, now: t.now}).tell
	}
	workers := f.workers
	if workers == 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	mine, err := c.runAll(ctx, store, part, workers, tell)
	if closed := store.close(mine, err == nil); err == nil {
		err = closed
	}
	switch {
	case errors.Is(err, context.Canceled) && f.out != "":
		return fmt.Errorf("%w: the same command goes on from here", err)
	case err != nil:
		return err
	}
	book := c.book(c.manifest(t))
	if part.count > 1 {
		if err := book.write(f.out); err != nil {
			return err
		}
		fmt.Fprintf(t.err,
			"wrote part %d of %d, %d trials, into %s; when all are there: %s compare merge DIR... --out DIR\n",
			part.index, part.count, len(mine), f.out, t.name)
		return nil
	}
	return finishComparison(t, book, mine, f.out, f.output)
}

// finishComparison sums trials up and writes what was asked for.
func finishComparison(t terminal, book *comparisonBook, planned []*plannedTrial, out, output string) error {
	trials := make([]report.Trial, len(planned))
	for i, p := range planned {
		trials[i] = p.Trial
		if p.Tail != nil {
			trials[i].Extend(p.Tail)
		}
	}
	sweep, err := report.NewSweep(trials, book.Options)
	if err != nil {
		return usageError{err}
	}
	if out != "" {
		// Files first: whoever reads standard output may take it as the sign that all went well.
		if err := book.write(out); err != nil {
			return err
		}
		written, err := report.WriteSweepDir(out, sweep, &book.Manifest)
		if err != nil {
			return err
		}
		fmt.Fprintln(t.err, "wrote", strings.Join(written, ", "))
	}
	return report.WriteSweep(t.out, sweep, output, t.colours(t.out))
}

// comparisonBook is what a folder of results says of them, so that parts can be merged without their inputs.
type comparisonBook struct {
	Digest   string              `json:"digest"`
	Options  report.SweepOptions `json:"options"`
	Manifest report.Manifest     `json:"manifest"`
	Planned  []*plannedTrial     `json:"planned"`
}

const bookName = "plan.json"

func (b *comparisonBook) write(dir string) error {
	text, err := json.Marshal(b)
	if err != nil {
		return fmt.Errorf("writing the plan: %w", err)
	}
	return writeResult(filepath.Join(dir, bookName), append(text, '\n'))
}

func (c *study) book(m report.Manifest) *comparisonBook {
	b := &comparisonBook{Digest: c.digest, Manifest: m, Options: c.options()}
	for _, t := range c.trials {
		b.Planned = append(b.Planned, &plannedTrial{Key: t.Key, Trial: t.Trial.Name(), Tail: t.Tail})
	}
	return b
}

func (c *study) manifest(t terminal) report.Manifest {
	m := report.Manifest{
		APIVersion: sim.APIVersion, Kind: report.ManifestKind, Program: version(), Go: runtime.Version(),
		Platform:    runtime.GOOS + "/" + runtime.GOARCH,
		CommandLine: append([]string{t.name}, t.args...), Comparison: c.digest, Inputs: c.inputs,
		Seed: c.file.BootstrapSeed, Seeds: c.file.Seeds,
		Split: report.Split{Quoted: c.file.Quote, Starts: []int{}, Others: []int{}},
	}
	if m.Split.Quoted == "" {
		m.Split.Quoted = report.QuoteAll
	}
	for _, i := range c.file.indices {
		if m.Split.Quoted == report.QuoteAll || (i%2 == 0) == (m.Split.Quoted == report.QuoteEven) {
			m.Split.Starts = append(m.Split.Starts, i)
		} else {
			m.Split.Others = append(m.Split.Others, i)
		}
	}
	return m
}

func newMerge(t terminal) *cobra.Command {
	var output, out string
	cmd := &cobra.Command{
		Use:   "merge DIR...",
		Short: "Report on a comparison whose parts were run apart",
		Long: "Read the trials of all parts of a comparison, made with compare --shard, and report on them as " +
			"compare itself does.",
		Example: "  kubenergy compare merge results/part-* --out results/",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageError{errors.New("want the folders of the parts")}
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			if err := report.CheckFormat(output); err != nil {
				return usageError{err}
			}
			book, planned, err := readParts(args)
			if err != nil {
				return usageError{err}
			}
			if out != "" {
				store, err := openStore(out, "trials.jsonl")
				if err != nil {
					return err
				}
				if err := store.close(planned, true); err != nil {
					return err
				}
			}
			return finishComparison(t, book, planned, out, output)
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table, json or csv")
	cmd.Flags().StringVar(&out, "out", "", "directory for all trials, the report, its figures and a manifest")
	return cmd
}

// readParts collects the trials of one plan from folders.
func readParts(dirs []string) (*comparisonBook, []*plannedTrial, error) {
	var book *comparisonBook
	done, tails := map[string]report.Trial{}, map[string]*report.Tail{}
	damaged := 0
	for _, dir := range dirs {
		text, err := os.ReadFile(filepath.Join(dir, bookName))
		if err != nil {
			return nil, nil, fmt.Errorf("%s is no folder of results: %w", dir, err)
		}
		b := new(comparisonBook)
		if err := json.Unmarshal(text, b); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", filepath.Join(dir, bookName), err)
		}
		if book != nil && b.Digest != book.Digest {
			return nil, nil, fmt.Errorf("%s and %s are of different comparisons, or were made by different builds",
				dirs[0], dir)
		}
		for _, p := range b.Planned {
			if p.Tail != nil {
				tails[p.Key] = p.Tail
			}
		}
		if book == nil {
			book = b
		}
		paths, err := filepath.Glob(filepath.Join(dir, "trials*.jsonl"))
		if err != nil {
			return nil, nil, err
		}
		part := &trialStore{done: done}
		for _, path := range paths {
			if err := part.read(path); err != nil {
				return nil, nil, err
			}
		}
		damaged += part.damaged
	}
	var missing []string
	for _, p := range book.Planned {
		trial, ok := done[p.Key]
		if !ok {
			missing = append(missing, p.Trial.ID())
		}
		p.Trial.TakeFigures(&trial)
		p.Tail = tails[p.Key]
	}
	if len(missing) > 0 {
		const some = 3
		return nil, nil, fmt.Errorf("%d of %d trials are missing (%d lines are damaged), as %s: run their parts again",
			len(missing), len(book.Planned), damaged,
			strings.Join(slices.Clone(missing[:min(some, len(missing))]), "; "))
	}
	return book, book.Planned, nil
}
