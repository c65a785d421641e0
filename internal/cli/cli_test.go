package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/kubenergy/kubenergy/internal/cli"
	"github.com/kubenergy/kubenergy/internal/report"
	"github.com/kubenergy/kubenergy/internal/sim"
	"github.com/kubenergy/kubenergy/test/kit"
)

func TestMain(m *testing.M) {
	program := func() {
		cli.HideProgress()
		os.Exit(cli.Run(context.Background(), os.Args[1:], os.Environ(), os.Stdout, os.Stderr))
	}
	testscript.Main(m, map[string]func(){"kubenergy": program, "kubectl-energy": program})
}

//test:norace
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:  "testdata",
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"rejects": rejects},
		// The flag is shared with the golden files.
		UpdateScripts: flag.Lookup("rewrite").Value.String() == "true",
	})
}

// rejects PATTERN ARGS… runs kubenergy and expects exit code 2, no output, and one line on standard error that
// matches.
func rejects(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: rejects pattern args...")
	}
	// File names are relative to the directory of the script instead of the working directory.
	for i := range args[1:] {
		if _, err := os.Stat(ts.MkAbs(args[i+1])); err == nil || strings.HasPrefix(args[i+1], "missing") {
			args[i+1] = ts.MkAbs(args[i+1])
		}
	}
	var stdout, stderr bytes.Buffer
	code := cli.Run(context.Background(), args[1:], []string{"NO_COLOR=1"}, &stdout, &stderr)
	// Remove progress messages, which are printed on slow machines.
	message := strings.TrimSuffix(regexp.MustCompile(`(?m)^kubenergy compare: reading .*\n`).ReplaceAllString(
		stderr.String(), ""), "\n")
	switch {
	case code != 2:
		ts.Fatalf("exit code %d, want 2; error: %s", code, message)
	case stdout.Len() > 0:
		ts.Fatalf("unexpected output: %s", stdout.String())
	case strings.Contains(message, "\n"):
		ts.Fatalf("expected one line of error, got:\n%s", message)
	case !regexp.MustCompile(args[0]).MatchString(message):
		ts.Fatalf("error %q does not match %q", message, args[0])
	}
	ts.Logf("%s", message)
}

// Reproduces the published experiment of the README with the grid data of a real year.
//
//test:norace
func TestECSchedOnTheGermanGrid(t *testing.T) {
	data := kit.Data(t, "ecsched/ecsched_input_9549jobs.txt", "electricity-maps/DE_2022.csv")
	var stdout, stderr bytes.Buffer
	machine, began := kit.WatchMachine(t), time.Now()
	code := cli.Run(t.Context(), []string{
		"simulate", "--workload", filepath.Join(data, "ecsched/ecsched_input_9549jobs.txt"), "--format",
		"ecsched",
		"--nodes", "ecsched50", "--grid", filepath.Join(data, "electricity-maps/DE_2022.csv"), "--zone", "DE",
		"--start", "2022-06-01", "--max-delay", "6h", "--strategy", "least-allocated,energy,carbon+window", "-o",
		"json",
	}, nil, &stdout, &stderr)
	took := time.Since(began)
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, stderr.String())
	}
	var r report.Report
	if err := json.Unmarshal(stdout.Bytes(), &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Runs) != 6 || r.Runs[2].EmptyNodes != sim.EmptyNodesIdle {
		t.Fatalf("got %d runs, want three without sleep and three with sleep", len(r.Runs))
	}
	stock, green := r.Runs[0], r.Runs[2]
	for _, run := range r.Runs {
		if run.Jobs != 9549 || run.UnplacedJobs != 0 || run.DelayViolations != 0 {
			t.Errorf("%s: %d jobs, %d unplaced, %d violations", run.Strategy, run.Jobs, run.UnplacedJobs,
				run.DelayViolations)
		}
	}
	if green.EmissionsKg >= stock.EmissionsKg {
		t.Errorf("carbon+window emits %v kg, want less than %v kg of least-allocated", green.EmissionsKg, stock.EmissionsKg)
	}
	if limit := 5 * time.Second; took > limit {
		machine.TooSlow("six runs took %v, want less than %v", took, limit)
	}
	// Other implementations measured a mean completion time of 1227 s for stock scoring over the whole queue of
	// this trace.
	if m := stock.MeanCompletionSeconds; m < 1190 || m > 1265 {
		t.Errorf("mean completion time of least-allocated is %.0f s, want about 1227 s for this trace", m)
	}
	t.Logf("took %v; emissions %.2f and %.2f kg, mean completion time %.0f s", took, stock.EmissionsKg, green.EmissionsKg,
		stock.MeanCompletionSeconds)
}
