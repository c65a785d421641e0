package main

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// victim names the environment variable that makes [TestVictim] the subject of another test.
const victim = "KUBENERGY_UPSTREAM_VICTIM"

// TestVictim has every outcome that a test may have.
func TestVictim(t *testing.T) {
	role := os.Getenv(victim)
	if role == "" {
		t.Skip("it is run by TestObserve")
	}
	t.Run("passes", func(*testing.T) { os.Stdout.WriteString("half a line") })
	t.Run("fails, with a/slash", func(t *testing.T) { t.Error("on purpose") })
	t.Run("is skipped", func(t *testing.T) { t.Skip("on purpose") })
	if role == "leaks" {
		os.Stderr.WriteString("E1122 13:00:00 1 etcd.go:1] " + leaked + " err=\"found unexpected goroutines\"\n")
	}
	if role == "dies" {
		t.Run("dies", func(*testing.T) { os.Exit(7) })
		t.Run("never runs", func(*testing.T) {})
	}
}

func TestObserve(t *testing.T) {
	observeVictim := func(role, only string) outcomes {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.v=test2json", "-test.run="+exactly(only))
		cmd.Env = append(os.Environ(), victim+"="+role)
		var log bytes.Buffer
		seen, err := observe(cmd, &log)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(log.String(), "half a line") {
			t.Errorf("the log lacks what a test printed:\n%s", &log)
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
		want       outcomes
	}{
		{"lives", "TestVictim", outcomesOf(nil)},
		{"leaks", "TestVictim", outcomesOf(outcomes{leaks: failed})},
		{"dies", "TestVictim", outcomesOf(outcomes{"TestVictim": unfinished, "TestVictim/dies": unfinished})},
		{"lives", "TestVictim/passes", outcomes{whole: passed, leaks: passed, "TestVictim": passed, "TestVictim/passes": passed}},
	} {
		if diff := cmp.Diff(c.want, observeVictim(c.role, c.only)); diff != "" {
			t.Errorf("%s: %s", c.role, diff)
		}
	}
	if _, err := observe(exec.CommandContext(t.Context(), "/nowhere/at.all"), new(bytes.Buffer)); err == nil {
		t.Error("a binary that is not there is no error")
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
			t.Errorf("%s: %s, want %s", test, got, want)
		}
	}
}
