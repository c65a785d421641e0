// Program repeat runs the tests many times and lists the tests that failed. It tests the checked-out commit and
// rejects a working tree with uncommitted changes.
//
//	repeat [-runs 10] [-load 8] [-command 'make test']
//
// Each run has a different seed for the order of the tests, which is passed to the command in the environment
// variable SHUFFLE. With -load, the given number of threads keep processors busy while the tests run.
//
// Every completed run is recorded in out/repeat/runs.json, and its log is written to the same directory. After an
// interruption, only the current run is lost. The same command continues until there are enough runs of this commit
// at this load. The exit code is 1 if any of them failed.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/kubenergy/kubenergy/hack/resume"
)

// A run is a completed run of the tests.
type run struct {
	Revision string    `json:"revision"`
	Command  string    `json:"command"`
	Load     int       `json:"load"` // number of busy threads
	Seed     uint32    `json:"seed"` // seed of the test order
	Began    time.Time `json:"began"`
	Seconds  float64   `json:"seconds"`
	Failed   []string  `json:"failed"` // "package TestName"; empty if the run passed
	Log      string    `json:"log"`
}

// A campaign is a series of runs of one revision at one load.
type campaign struct {
	folder   string
	command  string
	runs     int
	load     int
	revision func() (string, error) // returns an error if there are uncommitted changes
	out      io.Writer
}

func main() {
	c := campaign{folder: filepath.Join("out", "repeat"), revision: committed, out: os.Stdout}
	flag.IntVar(&c.runs, "runs", 10, "number of runs of this commit at this load, including the recorded ones")
	flag.IntVar(&c.load, "load", 0, "number of threads that keep processors busy during the runs")
	flag.StringVar(&c.command, "command", "make test", "shell command to repeat")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go withParent(ctx, os.Getppid(), cancel)
	runs, err := c.repeat(ctx)
	switch failed := report(os.Stdout, runs); {
	case ctx.Err() != nil:
		fmt.Println("== interrupted: the same command continues from here")
		os.Exit(130)
	case err != nil:
		fmt.Fprintln(os.Stderr, "repeat:", err)
		os.Exit(1)
	case failed:
		os.Exit(1)
	}
}

// withParent calls cancel when the parent process exits.
func withParent(ctx context.Context, parent int, cancel func()) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for os.Getppid() == parent {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
	cancel()
}

// committed returns the checked-out commit. It returns an error if there are uncommitted changes.
func committed() (string, error) {
	status, err := exec.Command("git", "status", "--porcelain").Output()
	if err != nil {
		return "", fmt.Errorf("checking for uncommitted changes: %w", err)
	}
	if len(status) > 0 {
		return "", fmt.Errorf("the working tree has uncommitted changes; commit or stash them first:\n%s", status)
	}
	commit, err := exec.Command("git", "rev-parse", "--short=12", "HEAD").Output()
	if err != nil {
		return "", fmt.Errorf("reading the commit: %w", err)
	}
	return strings.TrimSpace(string(commit)), nil
}

// repeat runs the command until there are enough runs. It returns the runs of this campaign, including previously
// recorded ones.
func (c *campaign) repeat(ctx context.Context) (done []run, err error) {
	revision, err := c.revision()
	if err != nil {
		return nil, err
	}
	lock, err := resume.Lock(c.folder)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	file := filepath.Join(c.folder, "runs.json")
	var all []run
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading the recorded runs in %s: %w", file, err)
	}
	for _, r := range all {
		if r.Revision == revision && r.Load == c.load && r.Command == c.command {
			done = append(done, r)
		}
	}
	for len(done) < c.runs {
		r, err := c.once(ctx, revision, len(done)+1)
		if err != nil {
			return done, err
		}
		all, done = append(all, r), append(done, r)
		text, err := json.MarshalIndent(all, "", " ")
		if err == nil {
			err = resume.Replace(file, text)
		}
		if err != nil {
			return done, fmt.Errorf("recording a run in %s: %w", file, err)
		}
	}
	return done, nil
}

// once performs a single run. It returns an error if the run was interrupted or if the working tree changed.
func (c *campaign) once(ctx context.Context, revision string, number int) (run, error) {
	r := run{
		Revision: revision, Command: c.command, Load: c.load, Seed: rand.Uint32(), Began: time.Now().UTC(),
		Log: filepath.Join(c.folder, fmt.Sprintf("%s-load%d-%03d.log", revision, c.load, number)),
	}
	fmt.Fprintf(c.out, "== run %d of %d of %s at load %d, SHUFFLE=%d, log %s\n", number, c.runs, revision, c.load,
		r.Seed, r.Log)
	stop := busy(c.load)
	text, failure := resume.Run(ctx, r.Log, fmt.Sprintf("export SHUFFLE=%d; %s", r.Seed, c.command))
	stop()
	r.Seconds = time.Since(r.Began).Seconds()
	if ctx.Err() != nil {
		return run{}, ctx.Err()
	}
	if now, err := c.revision(); err != nil || now != revision {
		return run{}, errors.Join(fmt.Errorf("the working tree changed from %s to %s during the run", revision, now), err)
	}
	if failure != nil {
		r.Failed = failures(text)
	}
	verdict := "passed"
	if len(r.Failed) > 0 {
		verdict = "FAILED: " + strings.Join(r.Failed, ", ")
	}
	fmt.Fprintf(c.out, "   %s after %v\n", verdict, time.Duration(r.Seconds*float64(time.Second)).Round(time.Second))
	return r, nil
}

// busy keeps the given number of threads busy until stop is called.
func busy(threads int) (stop func()) {
	before := runtime.GOMAXPROCS(runtime.NumCPU() + threads) // the busy threads must not delay this program
	end := make(chan struct{})
	for range threads {
		go func() {
			for {
				select {
				case <-end:
					return
				default:
				}
			}
		}()
	}
	return func() { close(end); runtime.GOMAXPROCS(before) }
}

var (
	testLine    = regexp.MustCompile(`^--- FAIL: (\S+)`)
	packageLine = regexp.MustCompile(`^FAIL\s+(\S+)`)
)

// failures returns the failed tests in a log, and failed packages without a failed test, e.g. after a panic. If
// there are none, it returns the last line.
func failures(log string) []string {
	failed := map[string]bool{}
	var tests []string
	last := ""
	for line := range strings.Lines(log) {
		line = strings.TrimRight(line, "\r\n")
		if match := testLine.FindStringSubmatch(line); match != nil {
			tests = append(tests, match[1])
		} else if match := packageLine.FindStringSubmatch(line); match != nil {
			for _, test := range tests {
				failed[match[1]+" "+test] = true
			}
			if len(tests) == 0 {
				failed[match[1]] = true
			}
			tests = nil
		}
		if strings.TrimSpace(line) != "" {
			last = line
		}
	}
	if len(failed) == 0 {
		failed[cmp.Or(last, "no output")] = true
	}
	return slices.Sorted(maps.Keys(failed))
}

// report prints the runs and the failed tests, sorted by the number of failures. It reports whether any run failed.
func report(out io.Writer, runs []run) (failed bool) {
	if len(runs) == 0 {
		return false
	}
	count, last := map[string]int{}, map[string]run{}
	bad, seconds := 0, 0.
	for _, r := range runs {
		seconds += r.Seconds
		if len(r.Failed) > 0 {
			bad++
		}
		for _, test := range r.Failed {
			count[test]++
			last[test] = r
		}
	}
	mean := time.Duration(seconds / float64(len(runs)) * float64(time.Second)).Round(time.Second)
	fmt.Fprintf(out, "== %d runs of %s at load %d, %v each: %d passed, %d failed\n", len(runs), runs[0].Revision,
		runs[0].Load, mean, len(runs)-bad, bad)
	if bad == 0 {
		return false
	}
	tests := slices.SortedFunc(maps.Keys(count), func(a, b string) int {
		return cmp.Or(count[b]-count[a], strings.Compare(a, b))
	})
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "failures\ttest\tlast in\trepeat with")
	for _, test := range tests {
		r := last[test]
		fmt.Fprintf(table, "%d\t%s\t%s\tSHUFFLE=%s\n", count[test], test, r.Log, strconv.FormatUint(uint64(r.Seed), 10))
	}
	table.Flush()
	return true
}
