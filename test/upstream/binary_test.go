package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubenergy/kubenergy/test/upstream/enabled"
)

// victim is the environment variable that enables [TestVictim] when it is run by another test.
const victim = "KUBENERGY_UPSTREAM_VICTIM"

// TestVictim has subtests with every possible outcome.
func TestVictim(t *testing.T) {
	role := os.Getenv(victim)
	if role == "" {
		t.Skip("only run by TestObserve")
	}
	t.Run("passes", func(*testing.T) { os.Stdout.WriteString("half a line") })
	t.Run("fails, with a/slash", func(t *testing.T) { t.Error("on purpose") })
	t.Run("is skipped", func(t *testing.T) { t.Skip("on purpose") })
	if role == "leaks" {
		os.Stderr.WriteString("E1122 13:00:00 1 etcd.go:1] " + leaked + " err=\"found unexpected goroutines\"\n")
	}
	if role == "gives up" {
		os.Exit(gaveUp)
	}
	if role == "dies" {
		t.Run("dies", func(*testing.T) { os.Exit(7) })
		t.Run("never runs", func(*testing.T) {})
	}
}

func TestObserve(t *testing.T) {
	observeVictim := func(role, only string) *observed {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.v=test2json", "-test.run="+exactly(only))
		cmd.Env = append(os.Environ(), victim+"="+role)
		var log bytes.Buffer
		seen, err := observe(cmd, &log)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(log.String(), "half a line") {
			t.Errorf("log does not contain the output of a test:\n%s", &log)
		}
		return seen
	}
	outcomesOf := func(more outcomes) outcomes {
		return union(outcomes{
			whole: failed, leaks: passed, "TestVictim": failed, "TestVictim/passes": passed,
			"TestVictim/fails,_with_a/slash": failed, "TestVictim/is_skipped": skipped,
		}, more)
	}
	for _, c := range []struct {
		role, only string
		status     int
		want       outcomes
	}{
		{"lives", "TestVictim", 1, outcomesOf(nil)},
		{"leaks", "TestVictim", 1, outcomesOf(outcomes{leaks: failed})},
		{"gives up", "TestVictim", gaveUp, outcomesOf(outcomes{"TestVictim": unfinished})},
		{"dies", "TestVictim", 7, outcomesOf(outcomes{"TestVictim": unfinished, "TestVictim/dies": unfinished})},
		{"lives", "TestVictim/passes", 0, outcomes{
			whole: passed, leaks: passed, "TestVictim": passed, "TestVictim/passes": passed,
		}},
	} {
		got := observeVictim(c.role, c.only)
		if diff := cmp.Diff(c.want, got.outcomes); diff != "" || got.status != c.status {
			t.Errorf("role %s: status = %d, want %d; outcomes (-want,+got):\n%s", c.role, got.status, c.status, diff)
		}
	}
	if _, err := observe(exec.CommandContext(t.Context(), "/nowhere/at.all"), new(bytes.Buffer)); err == nil {
		t.Error("observe() of a nonexistent binary succeeded, want an error")
	}
}

// TestRunAgain verifies that a run is repeated if the API server did not start, but not if the process exited with
// another status.
func TestRunAgain(t *testing.T) {
	for role, want := range map[string]int{"gives up": reruns, "dies": 0} {
		t.Setenv(victim, role)
		r := &runner{dir: t.TempDir(), timeout: time.Minute}
		o, err := r.run(t.Context(), &binary{suite: "a/suite", path: os.Args[0], mode: enabled.Marked}, "TestVictim")
		if err != nil {
			t.Fatal(err)
		}
		log, err := os.ReadFile(filepath.Join(r.dir, "a-suite.marked.log"))
		if err != nil {
			t.Fatal(err)
		}
		if runs := strings.Count(string(log), "=== RUN   TestVictim\n"); o.again != want || runs != want+1 ||
			o.outcomes["TestVictim"] != unfinished {
			t.Errorf("role %s: %d runs, including %d repetitions, last outcome %s", role, runs, o.again,
				o.outcomes["TestVictim"])
		}
	}
}

func TestExactly(t *testing.T) {
	for test, want := range map[string]string{
		whole:            "",
		leaks:            "",
		"TestA":          "^TestA$",
		"TestA/b(c)/#01": `^TestA$/^b\(c\)$/^#01$`,
	} {
		if got := exactly(test); got != want {
			t.Errorf("exactly(%q) = %s, want %s", test, got, want)
		}
	}
}
