package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/kubenergy/kubenergy/hack/resume"
)

// A target is a fuzz test.
type target struct{ pkg, name string }

// part returns the name of the part that runs the target.
func (t target) part() string { return "fuzz " + t.pkg + " " + t.name }

// A total contains the accumulated statistics of a target over all runs.
type total struct {
	seconds  float64 // fuzzing time of one worker
	execs    int64
	crashers int
	commit   string // last fuzzed commit
}

type totals map[target]total

var totalsFile = filepath.Join("docs", "measurements", "fuzzing.tsv")

const totalsHead = "package\ttarget\tseconds\texecutions\tcrashers\tlast commit\n"

// readTotals reads the totals from a file. It returns empty totals if the file does not exist.
func readTotals(name string) (totals, error) {
	text, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	all := totals{}
	for line := range strings.Lines(strings.TrimPrefix(string(text), totalsHead)) {
		f := strings.Split(strings.TrimSpace(line), "\t")
		if len(f) != 6 {
			return nil, fmt.Errorf("%s: %q does not have six columns", name, line)
		}
		seconds, err1 := strconv.ParseFloat(f[2], 64)
		execs, err2 := strconv.ParseInt(f[3], 10, 64)
		crashers, err3 := strconv.Atoi(f[4])
		if err := errors.Join(err1, err2, err3); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		all[target{f[0], f[1]}] = total{seconds, execs, crashers, f[5]}
	}
	return all, nil
}

func (all totals) write(name string) error {
	var b bytes.Buffer
	b.WriteString(totalsHead)
	for _, t := range slices.SortedFunc(maps.Keys(all), func(a, b target) int {
		return cmp.Or(strings.Compare(a.pkg, b.pkg), strings.Compare(a.name, b.name))
	}) {
		o := all[t]
		fmt.Fprintf(&b, "%s\t%s\t%.0f\t%d\t%d\t%s\n", t.pkg, t.name, o.seconds, o.execs, o.crashers, o.commit)
	}
	return resume.Replace(name, b.Bytes())
}

var fuzzLine = regexp.MustCompile(`(?m)^fuzz: elapsed: (\S+), execs: (\d+) `)

// fuzzed parses the output of go test -fuzz.
func fuzzed(out string) (seconds float64, execs int64, crashers int) {
	if all := fuzzLine.FindAllStringSubmatch(out, -1); len(all) > 0 {
		last := all[len(all)-1]
		d, _ := time.ParseDuration(last[1])
		execs, _ = strconv.ParseInt(last[2], 10, 64)
		seconds = d.Seconds()
	}
	return seconds, execs, strings.Count(out, "Failing input written to ")
}

// deadline reports whether go test failed only because its time was over. It reports a failure if an input is
// running at the deadline (go.dev/issue/75804, fixed in Go 1.27).
func deadline(out string) bool {
	return strings.Contains(out, "context deadline exceeded") && !strings.Contains(out, "Failing input written to ") &&
		!strings.Contains(out, "panic:")
}

// rest returns the remaining fuzzing time of a target.
func (n *night) rest(t target) time.Duration {
	o := n.Done[t.part()]
	if o.Verdict == failed {
		return 0
	}
	return max(n.fuzztime-time.Duration(o.Seconds*float64(time.Second)), 0)
}

// openTargets returns the targets with remaining time, starting with the targets that have been fuzzed the least.
func (n *night) openTargets() []target {
	open := slices.DeleteFunc(slices.Clone(n.targets), func(t target) bool { return n.rest(t) < time.Second })
	slices.SortStableFunc(open, func(a, b target) int { return cmp.Compare(n.totals[a].seconds, n.totals[b].seconds) })
	return open
}

// fuzz runs as many targets concurrently as there are cores. Each target has one worker, so that fuzzing times are
// comparable. The corpora are stored in the build cache of Go, where `make clean` does not remove them and where
// manual runs of go test -fuzz add to them.
func (n *night) fuzz(ctx context.Context) error {
	open := make(chan target)
	var errs []error
	var workers sync.WaitGroup
	for range n.workers {
		workers.Go(func() {
			for t := range open {
				if ctx.Err() != nil {
					continue
				}
				if err := n.fuzzOne(ctx, t); err != nil {
					n.lock.Lock()
					errs = append(errs, err)
					n.lock.Unlock()
				}
			}
		})
	}
	for _, t := range n.openTargets() {
		if !n.end.IsZero() && time.Until(n.end) < least {
			break
		}
		open <- t
	}
	close(open)
	workers.Wait()
	return errors.Join(errs...)
}

// least is the minimum time to compile and fuzz a target.
const least = time.Minute

func (n *night) fuzzOne(ctx context.Context, t target) error {
	n.lock.Lock()
	rest, before := n.rest(t), n.Done[t.part()]
	n.lock.Unlock()
	out, err := n.run(ctx, t.part(), fmt.Sprintf("exec go test %s -run '^$' -fuzz '^%s$' -fuzztime %v -parallel 1 "+
		"-fuzzminimizetime 20x", t.pkg, t.name, rest.Round(time.Second)))
	seconds, execs, crashers := fuzzed(out)
	o := outcome{Verdict: passed, Detail: "no crasher", Seconds: before.Seconds + seconds, Execs: before.Execs + execs}
	switch {
	case crashers > 0:
		o.Verdict, o.Detail = failed, "a failing input is in testdata/fuzz of the package"
	case ctx.Err() != nil:
		o.Verdict, o.Detail = cut, "continues in the next run"
	case err != nil && !deadline(out):
		judged := judge(out, err)
		o.Verdict, o.Detail = judged.Verdict, judged.Detail
	case execs == 0:
		o.Verdict, o.Detail = cut, "no inputs were fuzzed because the corpus took all of the time"
	}
	n.lock.Lock()
	n.Done[t.part()] = o
	sum := n.totals[t]
	err = nil
	if execs > 0 {
		n.totals[t] = total{sum.seconds + seconds, sum.execs + execs, sum.crashers + crashers, n.commit}
		err = n.totals.write(totalsFile)
	}
	n.lock.Unlock()
	fmt.Printf("%-10s  %s  %.0f s, %d executions\n", o.Verdict, t.part(), seconds, execs)
	return errors.Join(err, n.save())
}

// report returns a short report in Markdown.
func (n *night) report() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Results of `make nightly`\n\nCommit %s, %s, %s on %s/%s with %d cores.\n\n"+
		"| part | verdict | duration | |\n|---|---|---|---|\n", n.commit,
		time.Now().UTC().Format("2006-01-02 15:04 MST"), runtime.Version(), runtime.GOOS, runtime.GOARCH, n.workers)
	var targets, cuts int
	var now, ever total
	var bad []string
	for _, name := range slices.Sorted(maps.Keys(n.Done)) {
		o := n.Done[name]
		if !strings.HasPrefix(name, "fuzz ") {
			d := time.Duration(o.Seconds * float64(time.Second))
			fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", name, o.Verdict, about(d), strings.ReplaceAll(o.Detail, "|", "/"))
			continue
		}
		now.seconds, now.execs, targets = now.seconds+o.Seconds, now.execs+o.Execs, targets+1
		switch o.Verdict {
		case failed:
			bad = append(bad, fmt.Sprintf("* %s: %s\n", strings.TrimPrefix(name, "fuzz "), o.Detail))
		case cut:
			cuts++
		}
	}
	for _, p := range n.parts {
		if n.isOpen(p) {
			fmt.Fprintf(&b, "| %s | not run yet | | about %s |\n", p.name, about(n.takes(p)))
		}
	}
	skipped := ""
	for _, name := range slices.Sorted(maps.Keys(n.Done)) {
		for _, reason := range slices.Sorted(maps.Keys(n.Done[name].Skipped)) {
			skipped += fmt.Sprintf("* %s: %s: %s\n", name, reason, strings.Join(n.Done[name].Skipped[reason], ", "))
		}
	}
	if skipped != "" {
		b.WriteString("\n## Skipped tests\n\n" + skipped)
	}
	for _, o := range n.totals {
		ever.seconds, ever.execs, ever.crashers = ever.seconds+o.seconds, ever.execs+o.execs, ever.crashers+o.crashers
	}
	fmt.Fprintf(&b, "\n## Fuzzing\n\n| | targets | worker hours | executions | crashers |\n|---|---|---|---|---|\n"+
		"| this code | %d of %d, %d interrupted | %.1f | %d | %d |\n", targets, len(n.targets), cuts, now.seconds/3600,
		now.execs, len(bad))
	fmt.Fprintf(&b, "| all runs (%s) | %d | %.1f | %d | %d |\n\n%s", filepath.ToSlash(totalsFile), len(n.totals),
		ever.seconds/3600, ever.execs, ever.crashers, strings.Join(bad, ""))
	return b.String()
}
