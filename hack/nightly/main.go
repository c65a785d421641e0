// Program nightly runs the tests that `make test` excludes because they take hours: kill and damage tests at full
// length, storms, ten thousand seeds, the Kubernetes integration tests, the vulnerability check, and all fuzz
// targets. Tests with a real Karmada require the absolute path of its checkout in KARMADA_SRC. The program prints the
// expected duration first. After an interruption, it continues with the parts that have not been completed for the
// same code.
//
//	nightly [-for 2h] [-only PART,...] [-fuzztime 10m]
//
// When all selected parts are completed, the next call runs them again. The directory out/nightly contains
// state.json, a log of each part, and report.md with a summary and the skipped tests. The fuzzing totals in
// docs/measurements/fuzzing.tsv and the last outcome of each other part in docs/measurements/nightly.tsv are committed.
// Parts start in the order of their last outcome, so that nights on different machines cover all of them.
package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/kubenergy/kubenergy/hack/resume"
)

var folder = filepath.Join("out", "nightly")

// A part is a command that passes or fails. Its tests are skipped with a reason if the machine does not meet their
// requirements.
type part struct {
	name    string
	usual   time.Duration // default duration on two cores, until a duration has been measured
	command string        // shell command
}

var parts = []part{
	{"vulnerabilities", 2 * time.Minute, "go tool -modfile=go.tools.mod govulncheck ./..."},
	{"agent-long", 10 * time.Minute, "make agent-long"},
	{"conservation", 10 * time.Minute, "go test ./internal/energy -run TestConservation -rapid.checks=10000 -v -timeout 2h"},
	{"e2e-real", 10 * time.Minute, "make e2e-real"},
	{"e2e-nodes", 10 * time.Minute, "make e2e-nodes"},
	{"power-real", 10 * time.Minute, "make power-real"},
	{"e2e-vm", 20 * time.Minute, "make e2e-vm"},
	{"browser", 10 * time.Minute, "make browser"},
	{"storm", 30 * time.Minute, "make storm"},
	{"sleep-lab", 45 * time.Minute, "make sleep-lab"},
	{"order-lab", 45 * time.Minute, "make order-lab"},
	{"compare-gaia", 30 * time.Minute, "make compare-gaia"},
	{"hold", 30 * time.Minute, "make hold"},
	{"controller-long", time.Hour, "make controller-long"},
	{"tutorials", 40 * time.Minute, "make tutorials"},
	// The make targets of Slurm and Karmada fail if requirements are missing, but the tests are skipped.
	{"slurm", 70 * time.Minute, "KUBENERGY_LONG=1 go test ./test/slurm -v -count=1 -parallel 15 -timeout 100m"},
	{"karmada", 70 * time.Minute, "KUBENERGY_LONG=1 go test ./test/karmada -v -count=1 -timeout 180m"},
	{"ledger-damage", 100 * time.Minute, "make ledger-damage"},
	{"experiments", 40 * time.Minute, "KUBENERGY_LONG=1 go test ./test/experiment -run Killed -v -count=1 -timeout 2h"},
}

// Experiments and the upstream tests take many hours in total. Therefore, each experiment and each suite is a part.
var (
	experiments = strings.Fields("control escheduler hybrid kubenergysched stock")
	suites      = strings.Fields("batch bind eventhandler extender filters nominated_node_name plugins podgroup " +
		"preemption queueing scheduler scoring serving taint")
)

// usualLong is the default duration of a package with KUBENERGY_LONG. Packages that match elsewhere are covered by
// other parts.
const usualLong = 10 * time.Minute

var elsewhere = regexp.MustCompile(`^\./(internal/(energy|agent|cli|ledger/sqlite)|` +
	`test/(batch|browser|controller|experiment|hold|karmada|lifecycle|order|sleep|slurm))(/|$)`)

// An outcome is the result of a part. An interrupted fuzz target continues for its remaining time.
type outcome struct {
	Verdict string  `json:"verdict"`
	Detail  string  `json:"detail"`
	Seconds float64 `json:"seconds"`
	Execs   int64   `json:"execs,omitempty"` // only for fuzz targets
	// Skipped contains the skipped tests, including subtests, by reason.
	Skipped map[string][]string `json:"skipped,omitempty"`
}

const (
	passed    = "passed"
	failed    = "FAILED"
	notJudged = "not judged"
	cut       = "cut"
)

// A night is one run of the program. Its exported fields are stored between runs.
type night struct {
	Code  string             `json:"code"`  // digest of the tested code
	Done  map[string]outcome `json:"done"`  // completed parts for this code
	Times map[string]float64 `json:"times"` // last measured or minimum duration by part, in seconds

	alone    *os.File // lock file, held until the program exits
	commit   string
	fuzztime time.Duration
	workers  int
	end      time.Time // zero means no limit
	parts    []part
	targets  []target

	lock    sync.Mutex // protects Done, Times, running and totals
	running map[string]time.Time
	totals  totals
	records records
}

func main() {
	limit := flag.Duration("for", 0, "time limit, at which running parts are interrupted (0: no limit)")
	only := flag.String("only", "", "comma-separated list of parts to run; long and fuzz select groups of parts")
	fuzztime := flag.Duration("fuzztime", 10*time.Minute, "fuzzing time of each target")
	flag.Parse()
	stopped, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx := stopped
	n := &night{fuzztime: *fuzztime, workers: runtime.NumCPU(), running: map[string]time.Time{}}
	if *limit > 0 {
		n.end = time.Now().Add(*limit)
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(stopped, n.end)
		defer cancel()
	}
	err := n.open(*only)
	if err == nil {
		fmt.Print(n.plan())
		err = n.work(ctx)
	}
	switch bad := n.failures(); {
	case err != nil:
		fmt.Fprintln(os.Stderr, "nightly:", err)
		os.Exit(1)
	case len(bad) > 0:
		fmt.Println("== failed:", strings.Join(bad, ", "))
		os.Exit(1)
	case stopped.Err() != nil:
		fmt.Println("== interrupted: the same command continues from here")
		os.Exit(130)
	}
}

// open loads the state and determines the remaining work.
func (n *night) open(only string) error {
	code, commit, err := identify()
	if err != nil {
		return err
	}
	n.commit = commit
	if err := n.load(code); err != nil {
		return fmt.Errorf("loading the state of previous runs: %w", err)
	}
	long, targets, err := discover(".")
	if err != nil {
		return err
	}
	n.parts = withLong(long)
	unwanted := func(name string) bool {
		return only != "" && !slices.ContainsFunc(strings.Split(only, ","), func(o string) bool {
			return name == o || strings.HasPrefix(name, o+" ")
		})
	}
	n.parts = slices.DeleteFunc(n.parts, func(p part) bool { return unwanted(p.name) })
	n.targets = slices.DeleteFunc(targets, func(t target) bool { return unwanted(t.part()) })
	if len(n.parts)+len(n.targets) == 0 {
		return fmt.Errorf("-only %s: no such part", only)
	}
	if only != "" && !slices.ContainsFunc(n.parts, n.isOpen) && len(n.openTargets()) == 0 {
		maps.DeleteFunc(n.Done, func(name string, _ outcome) bool { return !unwanted(name) })
	}
	if n.totals, err = readTotals(totalsFile); err != nil {
		return err
	}
	if n.records, err = readRecords(recordsFile); err != nil {
		return err
	}
	n.records.order(n.parts)
	return nil
}

// withLong returns all parts, including a part for each of the given packages that no other part covers.
func withLong(long []string) []part {
	all := slices.Clone(parts)
	for _, name := range experiments {
		command := "KUBENERGY_LONG=1 go test ./test/experiment -run 'Shipped.*/^" + name + "$' -v -count=1 -timeout 2h"
		all = append(all, part{"experiments " + name, 25 * time.Minute, command})
	}
	for _, suite := range suites {
		all = append(all, part{"upstream " + suite, 20 * time.Minute, "make upstream SUITES=" + suite})
	}
	for _, pkg := range long {
		if !elsewhere.MatchString(pkg) {
			command := "KUBENERGY_LONG=1 go test " + pkg + " -v -count=1 -timeout 3h"
			all = append(all, part{"long " + pkg, usualLong, command})
		}
	}
	return all
}

// load loads the state. Results for other code are discarded.
func (n *night) load(code string) error {
	lock, err := resume.Lock(folder)
	if err != nil {
		return err
	}
	n.alone = lock
	text, err := os.ReadFile(filepath.Join(folder, "state.json"))
	if err == nil {
		err = json.Unmarshal(text, n)
	}
	if n.Code != code || n.Done == nil {
		n.Code, n.Done = code, map[string]outcome{}
	}
	if n.Times == nil {
		n.Times = map[string]float64{}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// identify returns a digest of the working tree without documents, and the commit. Because documents are excluded,
// committing new fuzzing totals does not invalidate the results.
func identify() (code, commit string, err error) {
	sum := sha256.New()
	for _, command := range [][]string{{"ls-files", "-s"}, {"diff"}} {
		out, err := exec.Command("git", append(command, "--", ".", ":!docs", ":!*.md")...).Output()
		if err != nil {
			return "", "", fmt.Errorf("listing the tracked files: %w", err)
		}
		if sum.Write(out); command[0] == "diff" && len(out) > 0 {
			commit = "+"
		}
	}
	out, err := exec.Command("git", "rev-parse", "--short=12", "HEAD").Output()
	return hex.EncodeToString(sum.Sum(nil)[:6]), strings.TrimSpace(string(out)) + commit, err
}

var fuzzFunc = regexp.MustCompile(`(?m)^func (Fuzz\w+)\(\w+ \*testing\.F\)`)

// discover returns the packages with tests that depend on KUBENERGY_LONG, and all fuzz targets.
func discover(root string) (long []string, targets []target, err error) {
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		name := entry.Name()
		if err == nil && entry.IsDir() && isExcluded(path, root, name) {
			return fs.SkipDir
		}
		if err != nil || !strings.HasSuffix(name, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		rel, _ := filepath.Rel(root, filepath.Dir(path))
		pkg := "./" + filepath.ToSlash(rel)
		if strings.Contains(string(text), `"KUBENERGY_LONG"`) && !slices.Contains(long, pkg) {
			long = append(long, pkg)
		}
		for _, match := range fuzzFunc.FindAllStringSubmatch(string(text), -1) {
			targets = append(targets, target{pkg, match[1]})
		}
		return err
	})
	return long, targets, err
}

// isExcluded reports whether a directory is not searched for tests.
func isExcluded(path, root, name string) bool {
	return path != root && (name[0] == '.' || slices.Contains([]string{"out", "bin", "hack", "shared", "testdata"}, name))
}

func (n *night) isOpen(p part) bool {
	_, done := n.Done[p.name]
	return !done
}

// takes returns the expected duration of a part.
func (n *night) takes(p part) time.Duration {
	if seconds := n.Times[p.name]; seconds > 0 {
		return time.Duration(seconds * float64(time.Second))
	}
	return p.usual
}

// plan returns a description of the remaining work with its expected duration, and marks parts that exceed the time
// limit.
func (n *night) plan() string {
	var b strings.Builder
	left := time.Until(n.end)
	var all time.Duration
	say := func(name string, d time.Duration) {
		late := ""
		if all += d; !n.end.IsZero() && d > left {
			late = "   does not fit"
		} else {
			left -= d
		}
		fmt.Fprintf(&b, "   %-28s %8s%s\n", name, about(d), late)
	}
	for _, p := range n.parts {
		if n.isOpen(p) {
			say(p.name, n.takes(p))
		}
	}
	if open := n.openTargets(); len(open) > 0 {
		var d time.Duration
		for _, t := range open {
			d += n.rest(t)
		}
		d /= time.Duration(n.workers)
		name := fmt.Sprintf("fuzz: %d targets, %d at once", len(open), n.workers)
		if !n.end.IsZero() && d > left && left > 0 {
			all += d - left
			name, d = name+", starting with the least fuzzed", left
		}
		say(name, d)
	}
	return fmt.Sprintf("== %s: %s in total, %d parts are completed\n%s", n.commit, about(all), len(n.Done), b.String())
}

func about(d time.Duration) string {
	if d < time.Minute {
		return d.Round(time.Second).String()
	}
	return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
}

// work runs all parts that fit within the time limit. Interrupted parts are not recorded as completed, but their
// expected duration is increased to at least the elapsed time.
func (n *night) work(ctx context.Context) error {
	defer n.beat()()
	for _, p := range n.parts {
		if !n.isOpen(p) || ctx.Err() != nil || !n.end.IsZero() && n.takes(p) > time.Until(n.end) {
			continue
		}
		began := time.Now()
		out, err := n.run(ctx, p.name, p.command)
		took := time.Since(began)
		if ctx.Err() != nil {
			// The part takes longer than this. Otherwise, the next run with the same limit would start it again.
			took += took / 10
			n.lock.Lock()
			n.Times[p.name] = max(n.takes(p), took).Seconds()
			n.lock.Unlock()
			fmt.Printf("%-10s  %s: starts again if %s are left\n", cut, p.name, about(n.takes(p)))
			break
		}
		o := judge(out, err)
		o.Seconds = took.Seconds()
		n.lock.Lock()
		n.Done[p.name], n.Times[p.name] = o, o.Seconds
		n.lock.Unlock()
		fmt.Printf("%-10s  %s  %s: %s\n", o.Verdict, p.name, about(took), o.Detail)
		if err := errors.Join(n.save(), n.records.add(recordsFile, p.name, n.commit, o)); err != nil {
			return err
		}
	}
	return errors.Join(n.fuzz(ctx), n.save())
}

// beat prints the running parts every few seconds until stop is called.
func (n *night) beat() (stop func()) {
	ticker := time.NewTicker(5 * time.Second)
	go func() {
		for range ticker.C {
			n.lock.Lock()
			var all []string
			for name, began := range n.running {
				all = append(all, fmt.Sprintf("%s for %s", name, time.Since(began).Round(time.Second)))
			}
			n.lock.Unlock()
			slices.Sort(all)
			fmt.Println("   running:", strings.Join(all, ", "))
		}
	}()
	return ticker.Stop
}

// run runs a command and returns its output. When the context is cancelled, it stops the command and all of its
// children.
func (n *night) run(ctx context.Context, name, command string) (string, error) {
	n.lock.Lock()
	n.running[name] = time.Now()
	n.lock.Unlock()
	defer func() {
		n.lock.Lock()
		defer n.lock.Unlock()
		delete(n.running, name)
	}()
	log := filepath.Join(folder, strings.NewReplacer("./", "", "/", "-", " ", "-").Replace(name)+".log")
	return resume.Run(ctx, log, command)
}

var (
	testLine = regexp.MustCompile(`(?m)^--- (PASS|FAIL): (\S+)`)
	okLine   = regexp.MustCompile(`(?m)^ok\s`)
	noAnswer = regexp.MustCompile(`govulncheck: fetching vulnerabilities: `)
	// The lines that start or continue a test, log a message, or end a skipped test, with the name or the message.
	skipLine = regexp.MustCompile(`(?m)^(?:=== (?:RUN|NAME|CONT) +(\S+)|\s+\S+\.go:\d+: (.*)|\s*--- SKIP: (\S+).*)$`)
)

// judge returns the verdict for the output of a part. The part is not judged if all tests were skipped or if the
// vulnerability database is unreachable. It fails if it contains no tests to run.
func judge(out string, err error) outcome {
	names := map[string][]string{}
	for _, match := range testLine.FindAllStringSubmatch(out, -1) {
		names[match[1]] = append(names[match[1]], match[2])
	}
	passes, fails := names["PASS"], names["FAIL"]
	skipped, first, count := skips(out)
	o := outcome{Skipped: skipped}
	last := out[strings.LastIndexByte(strings.TrimSpace(out), '\n')+1:]
	switch {
	case noAnswer.MatchString(out):
		o.Verdict, o.Detail = notJudged, "the vulnerability database cannot be reached"
	case err != nil && len(fails) > 0:
		o.Verdict, o.Detail = failed, strings.Join(fails, ", ")
	case err != nil:
		o.Verdict, o.Detail = failed, fmt.Sprintf("%v: %.200s", err, strings.TrimSpace(last))
	case len(passes) == 0 && count > 0:
		o.Verdict, o.Detail = notJudged, first
	case len(passes) > 0:
		o.Verdict, o.Detail = passed, fmt.Sprintf("%d tests, %d skipped", len(passes), count)
	case strings.Contains(out, "no tests to run"):
		o.Verdict, o.Detail = failed, "no tests to run"
	default:
		o.Verdict, o.Detail = passed, fmt.Sprintf("%d packages", len(okLine.FindAllString(out, -1)))
	}
	return o
}

// skips returns the skipped tests, including subtests, by reason, the reason of the first one, and their number. The
// output of go test -v contains the reason in the last message of a test.
func skips(out string) (byReason map[string][]string, first string, n int) {
	test, messages := "", map[string]string{}
	for _, match := range skipLine.FindAllStringSubmatch(out, -1) {
		switch started, message, skipped := match[1], match[2], match[3]; {
		case started != "":
			test = started
		case skipped == "":
			messages[test] = message
		default:
			reason := cmp.Or(messages[skipped], "no reason given")
			if delete(messages, skipped); n == 0 {
				byReason, first = map[string][]string{}, reason
			}
			byReason[reason] = append(byReason[reason], skipped)
			n++
		}
	}
	return byReason, first, n
}

// failures returns the names of the selected parts that failed.
func (n *night) failures() (names []string) {
	for _, p := range n.parts {
		names = append(names, p.name)
	}
	for _, t := range n.targets {
		names = append(names, t.part())
	}
	return slices.DeleteFunc(names, func(name string) bool { return n.Done[name].Verdict != failed })
}

// save writes the state and the report.
func (n *night) save() error {
	n.lock.Lock()
	defer n.lock.Unlock()
	text, err := json.MarshalIndent(n, "", " ")
	if err != nil {
		return err
	}
	return errors.Join(resume.Replace(filepath.Join(folder, "state.json"), text),
		resume.Replace(filepath.Join(folder, "report.md"), []byte(n.report())))
}
