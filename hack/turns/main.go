// Program turns compares a benchmark of the working tree with the same benchmark of a base revision. It builds both
// test binaries, with the base revision in a temporary worktree, and runs them alternately. For each figure, it
// prints the ratio of the new value to the base value with its 95 % confidence interval. It fails if the entire
// interval is above the limit.
//
//	turns -base REVISION [-pairs 6] [-limit 1.05] cycle|agent|controller|hold
//
// Results of fewer than six pairs are printed but not judged, because the probability that all of them are on the
// same side of the true ratio exceeds 5 %.
//
// The environment is passed to the benchmarks, so variables such as KUBENERGY_PAIRS and KUBENERGY_BENCH_NODES can
// be used to reduce their size. KUBENERGY_BENCH defaults to 1.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/kubenergy/kubenergy/test/paired"
)

// A benchmark is a test that logs figures. Lower values are better for all figures.
type benchmark struct {
	pkg, run string
	env      []string
	figures  []figure
}

// A figure is a number in the log of a benchmark. The first group of the pattern is a name and the second group is
// the value.
type figure struct {
	name    string
	pattern *regexp.Regexp
}

var benchmarks = map[string]benchmark{
	"cycle": {
		pkg: "./test/perf", run: "^TestCycleCost$",
		figures: []figure{{"CPU of a pod, ours ÷ stock", regexp.MustCompile(`([\w-]+, \d+ nodes): CPU of a pod ([\d.]+)`)}},
	},
	"agent": {
		pkg: "./internal/agent", run: "^TestCost$",
		figures: []figure{
			{"% of a core", regexp.MustCompile(`(\d+ busy containers), 1 s: ([\d.]+) %`)},
			{"MiB resident", regexp.MustCompile(`(\d+ busy containers), 1 s: .*?([\d.]+) MiB resident`)},
		},
	},
	"controller": {
		pkg: "./test/scale", run: "^TestController$", env: []string{"KUBENERGY_BENCH_STORES=sqlite"},
		figures: []figure{
			{"cores", regexp.MustCompile(`()CPU ([\d.]+) cores`)},
			{"MiB at most", regexp.MustCompile(`()peak memory ([\d.]+) MiB`)},
			{"writes/s to the API server", regexp.MustCompile(`()([\d.]+) writes/s to the API server`)},
			{"GB a day of ledger", regexp.MustCompile(`()the ledger grows by (-?[\d.]+) GB`)},
		},
	},
	"hold": {
		pkg: "./test/scale", run: "^TestHold",
		figures: []figure{
			{"s until all are bound", regexp.MustCompile(`(\w[\w ]*): created .*?all after ([\d.]+) s`)},
			{"MB of heap with holds", regexp.MustCompile(`()heap (?:with holds )?([\d.]+) MB`)},
			{
				"scheduler's CPU of an unheld pod, with ÷ without holds",
				regexp.MustCompile(`(\w[\w ]*): (?:ratio of )?unheld pods .*?CPU (?:per pod|for one): ([\d.]+)`),
			},
		},
	},
}

// minPairs is the smallest n such that n pairs are all above the median with a probability 2⁻ⁿ of at most 2.5 %.
const minPairs = 6

func main() {
	base := flag.String("base", "", "revision to compare with")
	pairs := flag.Int("pairs", minPairs, "number of pairs of runs; fewer than 6 are not judged")
	limit := flag.Float64("limit", 1.05, "maximum ratio; fails if an entire confidence interval is above it")
	flag.Parse()
	b, known := benchmarks[flag.Arg(0)]
	if !known || *base == "" || flag.NArg() != 1 || *pairs < 1 {
		fmt.Fprintln(os.Stderr, "usage: turns -base REVISION [-pairs 6] [-limit 1.05] "+
			strings.Join(slices.Sorted(maps.Keys(benchmarks)), "|"))
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := compare(ctx, b, *base, *pairs, *limit); err != nil {
		fmt.Fprintln(os.Stderr, "turns:", err)
		os.Exit(1)
	}
}

// compare builds both binaries and compares their figures.
func compare(ctx context.Context, b benchmark, base string, pairs int, limit float64) (err error) {
	dir, err := os.MkdirTemp("", "kubenergy-turns")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	tree := filepath.Join(dir, "base")
	if err := command(ctx, ".", os.Stdout, "git", "worktree", "add", "--quiet", "--detach", tree, base); err != nil {
		return err
	}
	defer func() { // also after an interrupt
		remove := command(context.WithoutCancel(ctx), ".", os.Stdout, "git", "worktree", "remove", "--force", tree)
		err = errors.Join(err, remove)
	}()
	here, err := os.Getwd()
	if err != nil {
		return err
	}
	var arms [2]func() (map[string]float64, error) // base and new
	for i, root := range []string{tree, here} {
		binary := filepath.Join(dir, []string{"base.test", "new.test"}[i])
		fmt.Printf("== building %s of %s\n", b.pkg, root)
		if err := command(ctx, root, os.Stdout, "go", "test", "-c", "-o", binary, b.pkg); err != nil {
			return err
		}
		arms[i] = func() (map[string]float64, error) { return b.measure(ctx, binary, filepath.Join(root, b.pkg)) }
	}
	ratios, err := inTurns(os.Stdout, arms, pairs)
	if err != nil {
		return err
	}
	return judge(os.Stdout, ratios, limit)
}

func command(ctx context.Context, dir string, out io.Writer, name string, args ...string) error {
	c := exec.CommandContext(ctx, name, args...)
	c.Dir, c.Stdout, c.Stderr = dir, out, os.Stderr
	if err := c.Run(); err != nil {
		return fmt.Errorf("running %s %s: %w", name, strings.Join(args, " "), err)
	}
	return nil
}

// measure runs a test binary in the directory of its package and returns its figures. If the benchmark fails, for
// example because it exceeds its own limits, measure prints the error and still returns the figures.
func (b *benchmark) measure(ctx context.Context, binary, dir string) (map[string]float64, error) {
	c := exec.CommandContext(ctx, binary, "-test.run="+b.run, "-test.v", "-test.timeout=2h")
	c.Dir, c.Env = dir, append(os.Environ(), b.env...)
	if _, set := os.LookupEnv("KUBENERGY_BENCH"); !set {
		c.Env = append(c.Env, "KUBENERGY_BENCH=1")
	}
	c.Cancel = func() error { return c.Process.Signal(os.Interrupt) }
	out, err := c.CombinedOutput()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	found, tail := b.read(string(out)), out[max(0, len(out)-4000):]
	if len(found) == 0 {
		return nil, fmt.Errorf("%s logged no figures: %w\n%s", binary, err, tail)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "turns: running %s: %v\n%s", binary, err, tail)
	}
	return found, nil
}

// read parses the figures in a log.
func (b *benchmark) read(log string) map[string]float64 {
	found := map[string]float64{}
	for _, f := range b.figures {
		for _, match := range f.pattern.FindAllStringSubmatch(log, -1) {
			name := f.name
			if match[1] != "" {
				name = match[1] + ": " + name
			}
			if v, err := strconv.ParseFloat(match[2], 64); err == nil {
				found[name] = v
			}
		}
	}
	return found
}

// inTurns runs base and new alternately and returns the ratios of each figure. It returns an error if new does not log
// a figure of base in the same pair. Figures that only new logs are ignored.
func inTurns(out io.Writer, arms [2]func() (map[string]float64, error), pairs int) (map[string][]float64, error) {
	ratios := map[string][]float64{}
	for i := range pairs {
		before, err := arms[0]()
		if err != nil {
			return nil, err
		}
		after, err := arms[1]()
		if err != nil {
			return nil, err
		}
		for _, name := range slices.Sorted(maps.Keys(before)) {
			if _, logged := after[name]; !logged {
				return nil, fmt.Errorf("pair %d: the working tree does not log the figure %q of the base", i+1, name)
			}
			fmt.Fprintf(out, "   pair %d: %s: %v, base %v\n", i+1, name, after[name], before[name])
			if before[name] > 0 && after[name] >= 0 { // a negative ratio would lower the median
				ratios[name] = append(ratios[name], after[name]/before[name])
			}
		}
	}
	if len(ratios) == 0 {
		return nil, errors.New("the base and the working tree have no figures in common")
	}
	return ratios, nil
}

// judge prints the ratios. It returns an error if the interval of at least minPairs pairs is entirely above the
// limit.
func judge(out io.Writer, ratios map[string][]float64, limit float64) error {
	var above []string
	fmt.Fprintf(out, "== new ÷ base; the limit for the lower bound is %v\n", limit)
	for _, name := range slices.Sorted(maps.Keys(ratios)) {
		r := paired.MedianOf(ratios[name], 1)
		fmt.Fprintf(out, "   %s: %v\n", name, r)
		if len(ratios[name]) < minPairs {
			fmt.Fprintf(out, "      not judged: fewer than %d pairs\n", minPairs)
		} else if r.Exceeds(limit) {
			above = append(above, name)
		}
	}
	if len(above) > 0 {
		return fmt.Errorf("the lower bound of the interval is above %v: %s", limit, strings.Join(above, "; "))
	}
	return nil
}
