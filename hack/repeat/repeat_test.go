package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

func clean() (string, error) { return "0123456789ab", nil }

// counting returns a command that counts its runs in a file and fails in the run with the given number.
func counting(t *testing.T, fails string) (command, file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "count")
	return `echo "$SHUFFLE" >> ` + file + `; if [ "$(wc -l < ` + file + `)" -eq ` + fails + ` ]; then
echo "--- FAIL: TestRare (0.01s)"; echo "FAIL  sim  1.0s  -shuffle=$SHUFFLE"; exit 1; fi; echo "ok    sim  1.0s"`, file
}

func ran(t *testing.T, file string) int {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return bytes.Count(text, []byte("\n"))
}

func TestRepeatListsFailures(t *testing.T) {
	command, file := counting(t, "2")
	var out bytes.Buffer
	c := campaign{folder: t.TempDir(), command: command, runs: 3, load: 1, revision: clean, out: &out}
	runs, err := c.repeat(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if n := ran(t, file); n != 3 || len(runs) != 3 {
		t.Fatalf("ran %d times and recorded %d runs, want 3", n, len(runs))
	}
	if len(runs[0].Failed) != 0 || !slices.Equal(runs[1].Failed, []string{"sim TestRare"}) || len(runs[2].Failed) != 0 {
		t.Errorf("unexpected runs: %+v", runs)
	}
	if runs[0].Seed == runs[1].Seed {
		t.Error("two runs have the same seed")
	}
	out.Reset()
	if !report(&out, runs) || !strings.Contains(out.String(), "2 passed, 1 failed") ||
		!strings.Contains(out.String(), "sim TestRare  "+runs[1].Log) {
		t.Errorf("unexpected report:\n%s", out.String())
	}
	log, err := os.ReadFile(runs[1].Log)
	if err != nil || !strings.Contains(string(log), "--- FAIL: TestRare") {
		t.Errorf("unexpected log %q, error %v", log, err)
	}
}

// TestRepeatContinues checks that an interruption loses only the current run and that the next call continues.
func TestRepeatContinues(t *testing.T) {
	command, file := counting(t, "0")
	folder := t.TempDir()
	c := campaign{folder: folder, command: command, runs: 2, revision: clean, out: &bytes.Buffer{}}
	if _, err := c.repeat(t.Context()); err != nil {
		t.Fatal(err)
	}
	interrupted := c
	interrupted.runs = 5
	ctx, cancel := context.WithCancel(t.Context())
	interrupted.revision = func() (string, error) {
		if ran(t, file) == 4 { // after the run, before it is recorded
			cancel()
			return "", errors.New("interrupted")
		}
		return clean()
	}
	runs, err := interrupted.repeat(ctx)
	if err == nil || len(runs) != 3 {
		t.Fatalf("recorded %d runs with error %v, want 3 runs and an error", len(runs), err)
	}
	c.runs = 5
	if runs, err = c.repeat(t.Context()); err != nil || len(runs) != 5 || ran(t, file) != 6 {
		t.Fatalf("recorded %d runs after %d executions, error %v; want 5 runs after 6", len(runs), ran(t, file), err)
	}
	if runs, err = c.repeat(t.Context()); err != nil || len(runs) != 5 || ran(t, file) != 6 {
		t.Errorf("the command was repeated after completion: %d executions, error %v", ran(t, file), err)
	}
	// Other revisions and loads are counted separately.
	c.revision = func() (string, error) { return "ba9876543210", nil }
	c.runs = 1
	if runs, err = c.repeat(t.Context()); err != nil || len(runs) != 1 || ran(t, file) != 7 {
		t.Errorf("recorded %d runs of another revision with error %v, want 1", len(runs), err)
	}
}

// TestRepeatEndsTheCommand checks that cancelling the context terminates the command and its children.
func TestRepeatEndsTheCommand(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { // the child keeps the pipe open until it exits
		child, err := os.Open(pipe)
		if err == nil {
			defer child.Close()
			_, err = io.ReadFull(child, make([]byte, len("ready\n")))
		}
		cancel()
		if err == nil {
			_, err = io.ReadAll(child)
		}
		ended <- err
	}()
	c := campaign{
		folder: t.TempDir(), command: "sh -c 'echo ready; exec sleep 600' > " + pipe + "; exit 1", runs: 1, load: 2,
		revision: clean, out: &bytes.Buffer{},
	}
	runs, err := c.repeat(ctx)
	if !errors.Is(err, context.Canceled) || len(runs) != 0 {
		t.Fatalf("recorded %+v with error %v, want no runs and a cancelled context", runs, err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestRepeatRefusesChanges(t *testing.T) {
	changed := errors.New("the working tree has uncommitted changes")
	command, file := counting(t, "0")
	c := campaign{
		folder: t.TempDir(), command: command, runs: 1, out: &bytes.Buffer{},
		revision: func() (string, error) { return "", changed },
	}
	if _, err := c.repeat(t.Context()); !errors.Is(err, changed) || ran(t, file) != 0 {
		t.Errorf("ran %d times, %v", ran(t, file), err)
	}
	c.revision = func() (string, error) { return []string{"a", "b"}[ran(t, file)], nil }
	if runs, err := c.repeat(t.Context()); err == nil || len(runs) != 0 {
		t.Errorf("recorded a run although the commit changed: %+v", runs)
	}
}

func TestFailures(t *testing.T) {
	for log, want := range map[string][]string{
		"--- FAIL: TestA (1s)\n    --- FAIL: TestA/b (1s)\n--- FAIL: TestC (0s)\nFAIL  agent  1.0s  -shuffle=3\n": {
			"agent TestA", "agent TestC",
		},
		"ok    sim  1.0s\npanic: test timed out\nFAIL  cli  1200.0s\nmake: *** [test] Error 1\n": {"cli"},
		"--- FAIL: TestA (1s)\nFAIL\nFAIL\texample.com/x\t0.1s\nFAIL\n":                          {"example.com/x TestA"},
		"== gofmt\ngofmt would change:\na.go\nmake: *** [Makefile:81: static] Error 1\n\n":       {"make: *** [Makefile:81: static] Error 1"},
		"": {"no output"},
	} {
		if got := failures(log); !slices.Equal(got, want) {
			t.Errorf("failures(%q) = %q, want %q", log, got, want)
		}
	}
}

// TestBusy checks that the load uses processor time.
func TestBusy(t *testing.T) {
	stop := busy(2)
	defer stop()
	for began := cpuTime(t); cpuTime(t)-began < 200*time.Millisecond; {
		runtime.Gosched()
	}
}

func TestWithParent(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	withParent(ctx, os.Getppid()+1, cancel) // simulates a changed parent
	if ctx.Err() == nil {
		t.Error("the context was not cancelled after the parent exited")
	}
}

func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		t.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano())
}
