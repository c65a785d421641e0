package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestJudge(t *testing.T) {
	skipped := "=== RUN   TestPods\n    real_test.go:22: only root can run pods\n--- SKIP: TestPods (0.00s)\nPASS\n"
	status := errors.New("exit status 1")
	for _, c := range []struct {
		out                  string
		err                  error
		verdict, description string
	}{
		{"--- PASS: TestA (1s)\n    --- PASS: TestA/b (1s)\n" + skipped + "ok  \tx\n", nil, passed, "1 tests, 1 skipped"},
		{"testing: warning: no tests to run\nPASS\nok  \tx\t1s [no tests to run]\n", nil, failed, "no tests to run"},
		{"ok  \tx\t1s\nok  \ty\t1s\n?   \tz\t[no test files]\n", nil, passed, "2 packages"},
		{skipped, nil, notJudged, "only root can run pods"},
		{"--- FAIL: TestB (1s)\nFAIL\n", status, failed, "TestB"},
		{"x.go:1: syntax error\nmake: *** Error 1\n", status, failed, "exit status 1: make: *** Error 1"},
		{
			"govulncheck: fetching vulnerabilities: no such host\nexit status 1\n", status, notJudged,
			"the vulnerability database cannot be reached",
		},
	} {
		if o := judge(c.out, c.err); o.Verdict != c.verdict || o.Detail != c.description {
			t.Errorf("judge(%q) = %s, %q", c.out, o.Verdict, o.Detail)
		}
	}
}

// TestSkips parses the output of go test -v with parallel and sequential subtests.
func TestSkips(t *testing.T) {
	o := judge(`=== RUN   TestA
=== RUN   TestA/b
    a_test.go:3: begins
    a_test.go:4: no data: open x: gone
=== RUN   TestA/c
=== PAUSE TestA/c
=== CONT  TestA/c
=== RUN   TestA/d
    a_test.go:9: fine
=== NAME  TestA/c
    a_test.go:4: no data: open x: gone
--- PASS: TestA (0.00s)
    --- SKIP: TestA/b (0.00s)
    --- SKIP: TestA/c (0.00s)
    --- PASS: TestA/d (0.00s)
=== RUN   TestE
--- SKIP: TestE (0.00s)
PASS
ok  	x	0.1s
`, nil)
	want := map[string][]string{"no data: open x: gone": {"TestA/b", "TestA/c"}, "no reason given": {"TestE"}}
	if o.Verdict != passed || o.Detail != "1 tests, 3 skipped" || !reflect.DeepEqual(o.Skipped, want) {
		t.Errorf("judge() = %+v", o)
	}
	n := &night{Done: map[string]outcome{"a": o}}
	if report := n.report(); !strings.Contains(report,
		"\n## Skipped tests\n\n* a: no data: open x: gone: TestA/b, TestA/c\n* a: no reason given: TestE\n") {
		t.Error(report)
	}
}

func TestFuzzed(t *testing.T) {
	seconds, execs, crashers := fuzzed(`fuzz: elapsed: 0s, gathering baseline coverage: 0/2 completed
fuzz: elapsed: 3s, execs: 99 (33/sec), new interesting: 0 (total: 2)
fuzz: elapsed: 10m0s, execs: 123456 (789/sec), new interesting: 1 (total: 2)
--- FAIL: FuzzX (600.11s)
    Failing input written to testdata/fuzz/FuzzX/0123
`)
	if seconds != 600 || execs != 123456 || crashers != 1 {
		t.Error(seconds, execs, crashers)
	}
	if seconds, execs, crashers := fuzzed("FAIL\tx [build failed]\n"); seconds != 0 || execs != 0 || crashers != 0 {
		t.Error(seconds, execs, crashers)
	}
}

// TestEndOfTheTime checks that reaching the deadline while an input is running is not reported as a failure.
func TestEndOfTheTime(t *testing.T) {
	for out, want := range map[string]bool{
		"fuzz: elapsed: 10s, execs: 9 (0/sec)\n--- FAIL: FuzzX (10.1s)\n    context deadline exceeded\nFAIL\n":       true,
		"--- FAIL: FuzzX (3s)\n    panic: context deadline exceeded\n":                                               false,
		"--- FAIL: FuzzX (3s)\n    context deadline exceeded\n    Failing input written to testdata/fuzz/FuzzX/01\n": false,
		"FAIL\tx [build failed]\n": false,
	} {
		if got := deadline(out); got != want {
			t.Errorf("deadline(%q) = %v", out, got)
		}
	}
}

func TestTotalsAreKept(t *testing.T) {
	name := filepath.Join(t.TempDir(), "fuzzing.tsv")
	all, err := readTotals(name)
	if err != nil || len(all) != 0 {
		t.Fatal(all, err)
	}
	all[target{"./b", "FuzzB"}], all[target{"./a", "FuzzA"}] = total{60, 5, 0, "x"}, total{1e6, 1 << 40, 2, "y+"}
	if err := all.write(name); err != nil {
		t.Fatal(err)
	}
	text, _ := os.ReadFile(name)
	want := totalsHead + "./a\tFuzzA\t1000000\t1099511627776\t2\ty+\n./b\tFuzzB\t60\t5\t0\tx\n"
	if string(text) != want {
		t.Errorf("%s", text)
	}
	if again, err := readTotals(name); err != nil || again[target{"./a", "FuzzA"}] != all[target{"./a", "FuzzA"}] {
		t.Error(again, err)
	}
	if err := os.WriteFile(name, []byte("a\tb\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readTotals(name); err == nil {
		t.Error("expected an error for an incomplete row")
	}
}

// The outcomes of earlier nights are kept, and parts without an outcome are run first.
func TestRecords(t *testing.T) {
	name := filepath.Join(t.TempDir(), "nightly.tsv")
	all, err := readRecords(name)
	if err != nil || len(all) != 0 {
		t.Fatal(all, err)
	}
	all["old"] = record{"2026-01-01", "x", passed, 60, "3 tests"}
	if err := all.add(name, "b", "y+", outcome{Verdict: failed, Detail: "TestA\tand\nmore", Seconds: 7}); err != nil {
		t.Fatal(err)
	}
	again, err := readRecords(name)
	if err != nil || len(again) != 2 || again["old"] != all["old"] || again["b"].detail != "TestA and more" {
		t.Error(again, err)
	}
	parts := []part{{name: "b"}, {name: "new"}, {name: "old"}}
	again.order(parts)
	if parts[0].name != "new" || parts[1].name != "old" || parts[2].name != "b" {
		t.Errorf("order: %v", parts)
	}
	if err := os.WriteFile(name, []byte("a\tb\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readRecords(name); err == nil {
		t.Error("expected an error for an incomplete row")
	}
}

func TestDiscover(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"a/a_test.go":        "var long = os.Getenv(\"KUBENERGY_LONG\")\nfunc FuzzA(f *testing.F) {\n",
		"a/b_test.go":        "os.Getenv(\"KUBENERGY_LONG\")",
		"a.go":               "os.Getenv(\"KUBENERGY_LONG\")",
		"b/c/c_test.go":      "func FuzzC(f *testing.F) {}\n// func FuzzD(f *testing.F)\n",
		"testdata/x_test.go": "func FuzzX(f *testing.F) {",
	} {
		if err := os.MkdirAll(filepath.Join(root, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	long, targets, err := discover(root)
	if err != nil || !slices.Equal(long, []string{"./a"}) ||
		!slices.Equal(targets, []target{{"./a", "FuzzA"}, {"./b/c", "FuzzC"}}) {
		t.Error(long, targets, err)
	}
}

// TestTargets checks that every fuzz target in the repository is listed in the totals, limits the allocations for
// an input, and does not sleep, because sleeping would dominate the fuzzing time.
func TestTargets(t *testing.T) {
	root := filepath.Join("..", "..")
	_, targets, err := discover(root)
	if err != nil {
		t.Fatal(err)
	}
	listed, err := readTotals(filepath.Join(root, totalsFile))
	if err != nil {
		t.Fatal(err)
	}
	for _, found := range targets {
		if _, ok := listed[found]; !ok {
			t.Errorf("%v is missing in %s: fuzz it, or add a row of zeros", found, totalsFile)
		}
		delete(listed, found)
		body := bodyOf(t, filepath.Join(root, found.pkg), found.name)
		bytes := regexp.MustCompile(`f\.Fuzz\(func\([^)]*(string|\[\]byte)`).MatchString(body)
		if bytes && !strings.Contains(body, "memtest.Limit(") {
			t.Errorf("%v does not limit the allocations of an input: see test/kit/memtest", found)
		}
		if strings.Contains(body, "time.Sleep(") {
			t.Errorf("%v calls time.Sleep", found)
		}
	}
	for gone := range listed {
		t.Errorf("%v is listed in %s but does not exist: remove its row", gone, totalsFile)
	}
}

// bodyOf returns the source of a function in the tests of a package.
func bodyOf(t *testing.T, dir, name string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if _, after, found := strings.Cut(string(text), "\nfunc "+name+"("); found {
			body, _, _ := strings.Cut(after, "\n}\n")
			return body
		}
	}
	t.Fatalf("%s has no function %s", dir, name)
	return ""
}

// TestGoesOn interrupts a run. The next run must skip completed parts and repeat interrupted parts for the same
// code, and must run all parts for other code.
func TestGoesOn(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.MkdirAll(filepath.Dir(recordsFile), 0o750); err != nil {
		t.Fatal(err)
	}
	run := func(code string, limit time.Duration) *night {
		t.Helper()
		n := &night{workers: 1, running: map[string]time.Time{}, records: records{}, commit: "c", parts: []part{
			{"first", time.Millisecond, "echo >>first"},
			{"second", time.Millisecond, "echo >>second; [ $(wc -l <second) -gt 1 ] || sleep 60"},
			{"third", time.Hour, "echo >>third"},
		}}
		if err := n.load(code); err != nil {
			t.Fatal(err)
		}
		defer n.alone.Close()
		if err := new(night).load(code); err == nil {
			t.Error("two runs hold the lock at the same time")
		}
		n.end = time.Now().Add(limit)
		ctx, cancel := context.WithDeadline(t.Context(), n.end)
		defer cancel()
		if plan := n.plan(); !strings.Contains(plan, "third                            1h0m   does not fit") {
			t.Error(plan)
		}
		if err := n.work(ctx); err != nil {
			t.Fatal(err)
		}
		return n
	}
	began := time.Now()
	n := run("one", 5*time.Second) // for the first part, and too little for the second
	if _, done := n.Done["second"]; done || n.Done["first"].Verdict != passed || time.Since(began) > 50*time.Second {
		t.Errorf("unexpected state after %v: %+v", time.Since(began), n.Done)
	}
	if n.Times["second"] < 1.1 {
		t.Errorf("the stored duration of the interrupted part is %v s", n.Times["second"])
	}
	n = run("other", time.Duration(n.Times["second"]*float64(time.Second))) // too little for the second part
	if _, done := n.Done["first"]; !done {
		t.Error("the first part was not run")
	}
	if text, _ := os.ReadFile("second"); len(text) != 1 {
		t.Errorf("the second part was started although it does not fit, %d runs", len(text))
	}
	run("one", time.Minute)
	n = run("two", time.Minute)
	for name, times := range map[string]int{"first": 4, "second": 3, "third": 0} {
		if text, _ := os.ReadFile(name); len(text) != times {
			t.Errorf("%s ran %d times, want %d", name, len(text), times)
		}
	}
	report, err := os.ReadFile(filepath.Join(folder, "report.md"))
	if err != nil || !strings.Contains(string(report), "| second | passed | 0s |") ||
		!strings.Contains(string(report), "| third | not run yet | | about 1h0m |") || n.Times["first"] <= 0 {
		t.Errorf("%v\n%s", err, report)
	}
}

// TestTargetsThatAreOpen checks that failed and completed targets are skipped, and that the least fuzzed target is
// first.
func TestTargetsThatAreOpen(t *testing.T) {
	all := []target{
		{"./a", "FuzzLong"}, {"./a", "FuzzCut"}, {"./b", "FuzzFailed"}, {"./b", "FuzzDone"}, {"./c", "FuzzNew"},
	}
	n := &night{fuzztime: time.Minute, targets: all, Done: map[string]outcome{
		all[1].part(): {Verdict: cut, Seconds: 20}, all[2].part(): {Verdict: failed},
		all[3].part(): {Verdict: passed, Seconds: 61},
	}, totals: totals{all[0]: {seconds: 900}, all[1]: {seconds: 20}}}
	open := n.openTargets()
	if !slices.Equal(open, []target{all[4], all[1], all[0]}) || n.rest(all[1]) != 40*time.Second {
		t.Error(open, n.rest(all[1]))
	}
}

// exceptions lists gated packages that no part covers, with the reasons.
var exceptions = map[string]string{
	"./internal/agent KUBENERGY_BENCH":      "make bench-agent requires an idle machine",
	"./internal/agent/meter KUBENERGY_REAL": "make gpu-real requires a GPU",
	"./test/batch KUBENERGY_BENCH":          "make bench-batch requires an idle machine",
	"./test/perf KUBENERGY_BENCH":           "make bench-cycle requires an idle machine",
	"./test/scale KUBENERGY_BENCH":          "bench-controller, bench-dashboard and bench-hold require an idle machine",
}

// TestAllExperimentsAndSuitesAreParts verifies that there is a part for each experiment and each upstream suite.
func TestAllExperimentsAndSuitesAreParts(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("..", "..", "scenarios", "experiments", "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, file := range files {
		if name := strings.TrimSuffix(filepath.Base(file), ".yaml"); name != "machines" { // shared by the experiments
			names = append(names, name)
		}
	}
	if !slices.Equal(names, experiments) {
		t.Errorf("experiments: %q, files: %q", experiments, names)
	}
	list := exec.Command("go", "list", "-f", "{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}",
		"k8s.io/kubernetes/test/integration/scheduler/...")
	listed, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	names = nil
	for path := range strings.FieldsSeq(string(listed)) {
		_, rest, _ := strings.Cut(path, "/integration/")
		suite, _, _ := strings.Cut(strings.TrimPrefix(rest, "scheduler/"), "/")
		names = append(names, suite)
	}
	slices.Sort(names)
	if !slices.Equal(slices.Compact(names), suites) {
		t.Errorf("suites: %q, packages: %q", suites, names)
	}
}

// TestGatedPackagesAreCovered verifies that a part sets the environment variable of each test that make test skips
// without it.
func TestGatedPackagesAreCovered(t *testing.T) {
	root := filepath.Join("..", "..")
	long, _, err := discover(root)
	if err != nil {
		t.Fatal(err)
	}
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	var commands strings.Builder
	for _, p := range withLong(long) {
		commands.WriteString(p.command + "\n")
		if target, ok := strings.CutPrefix(p.command, "make "); ok {
			target, _, _ = strings.Cut(target, " ")
			_, recipe, found := strings.Cut(string(makefile), "\n"+target+":")
			if recipe, _, _ = strings.Cut(recipe, "\n\n"); !found {
				t.Errorf("%s: no make target %s", p.name, target)
			}
			commands.WriteString(recipe + "\n")
		}
	}
	covered := func(pkg, variable string) bool {
		for line := range strings.Lines(commands.String()) {
			env, packages, found := strings.Cut(line, "go test ")
			if !found || !strings.Contains(env, variable+"=1") {
				continue
			}
			for _, word := range strings.Fields(packages) {
				below, all := strings.CutSuffix(word, "/...")
				if word == pkg || all && (pkg == below || strings.HasPrefix(pkg, below+"/")) {
					return true
				}
			}
		}
		return false
	}
	gated := gates(t, root)
	if len(gated) < 20 {
		t.Errorf("only %d gated packages were found", len(gated))
	}
	for _, g := range gated {
		pkg, variable, _ := strings.Cut(g, " ")
		switch reason := exceptions[g]; {
		case reason == "" && !covered(pkg, variable):
			t.Errorf("no part runs the tests of %s with %s=1: add a part, or an exception with a reason", pkg, variable)
		case reason != "" && covered(pkg, variable):
			t.Errorf("%s is covered by a part, remove its exception", g)
		}
	}
	for g := range exceptions {
		if !slices.Contains(gated, g) {
			t.Errorf("%s has an exception but is not gated", g)
		}
	}
}

var (
	gate     = regexp.MustCompile(`"(KUBENERGY_(?:LONG|REAL|BENCH))"`)
	exported = regexp.MustCompile(`(?m)^func ([A-Z]\w*)\(`)
)

// gates returns the packages with tests that depend on an environment variable, in the form "PACKAGE VARIABLE". The
// tests contain the name of the variable, or call a function of a test kit in a file that contains it.
func gates(t *testing.T, root string) (all []string) {
	t.Helper()
	tests, kits := map[string]string{}, map[string]string{} // test sources by package, variables by function
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		name := entry.Name()
		if err == nil && entry.IsDir() && isExcluded(path, root, name) {
			return fs.SkipDir
		}
		if err != nil || filepath.Ext(name) != ".go" {
			return err
		}
		text, err := os.ReadFile(path)
		rel, _ := filepath.Rel(root, filepath.Dir(path))
		if match := gate.FindStringSubmatch(string(text)); strings.HasSuffix(name, "_test.go") {
			tests["./"+filepath.ToSlash(rel)] += string(text)
		} else if match != nil {
			for _, f := range exported.FindAllStringSubmatch(string(text), -1) {
				kits[filepath.Base(rel)+"."+f[1]+"("] = match[1]
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for pkg, text := range tests {
		for _, match := range gate.FindAllStringSubmatch(text, -1) {
			all = append(all, pkg+" "+match[1])
		}
		for call, variable := range kits {
			if strings.Contains(text, call) {
				all = append(all, pkg+" "+variable)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}
