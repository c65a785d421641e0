package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/test/upstream/enabled"
)

// outcome is what became of a test; "" if it did not run.
type outcome string

const (
	passed     outcome = "pass"
	failed     outcome = "fail"
	skipped    outcome = "skip"
	unfinished outcome = "unfinished" // it began, and the process ended
)

const (
	// whole stands among the tests for the process, which may fail although no test does.
	whole = ""
	// leaks stands among them for upstream's check, after all tests, that no goroutine is left.
	leaks = "(goroutines)"
)

// leaked is what that check says.
const leaked = "EtcdMain goroutine check"

// outcomes are those of the tests of one run: subtests, [whole] and [leaks] among them.
type outcomes map[string]outcome

// A binary is a compiled suite.
type binary struct {
	suite, path string
	dir         string       // where the suite's sources are, and go test would run it
	mode        enabled.Mode // "": it is stock's
}

func (b *binary) variant() string {
	if b.mode == "" {
		return "stock"
	}
	return string(b.mode)
}

// A runner runs binaries, each with an etcd of its own.
type runner struct {
	dir     string // for logs and what does not outlive a run
	timeout time.Duration
}

// gaveUp is the exit status of an API server that did not come up in time. It takes the process along, on a busy
// machine now and then, and says nothing about the tests. A panic ends with another status, and so do tests that
// fail.
const gaveUp = 255

// observed is what came of one run.
type observed struct {
	outcomes
	enabled.Counts
	status    int // of the process
	took, cpu time.Duration
	again     int // runs before it whose API server gave up
}

// run runs the tests of a binary, or the only one that is named. Where the API server gives up, it runs them again.
func (r *runner) run(ctx context.Context, b *binary, only string) (*observed, error) {
	for again := 0; ; again++ {
		began := time.Now()
		o, err := r.once(ctx, b, only)
		if err != nil {
			return nil, fmt.Errorf("running the tests of %s: %w", b.suite, err)
		}
		o.took, o.again = time.Since(began), again
		if o.status != gaveUp || again == reruns {
			return o, nil
		}
	}
}

func (r *runner) once(ctx context.Context, b *binary, only string) (*observed, error) {
	scratch, err := os.MkdirTemp(r.dir, "run-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(scratch)
	address, stop, err := startEtcd(scratch)
	if err != nil {
		return nil, err
	}
	defer stop()
	log, err := os.OpenFile(r.logFile(b), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	counts := filepath.Join(scratch, "counts")
	// The time limit within the process says which goroutines hang; that of the context is for one that does not end
	// at all.
	ctx, cancel := context.WithTimeout(ctx, r.timeout+time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, b.path, "-test.v=test2json", "-test.timeout="+r.timeout.String(),
		"-test.run="+exactly(only))
	cmd.Dir = b.dir
	cmd.Env = append(os.Environ(),
		"KUBE_INTEGRATION_ETCD_URL="+address, enabled.ModeVariable+"="+string(b.mode),
		enabled.CountsVariable+"="+counts)
	fmt.Fprintf(log, "\n%s %s\n", b.suite, strings.Join(cmd.Args[1:], " "))
	o, err := observe(cmd, log)
	if errors.Is(ctx.Err(), context.Canceled) {
		err = ctx.Err() // we are asked to stop
	}
	if err != nil {
		return nil, err
	}
	o.Counts, err = enabled.ReadCounts(counts)
	return o, err
}

// observe runs the command and returns what it says of its tests. That it fails is no error.
func observe(cmd *exec.Cmd, log io.Writer) (*observed, error) {
	out, in := io.Pipe()
	cmd.Stdout, cmd.Stderr = in, in
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	go func() {
		ended <- cmd.Wait()
		in.Close()
	}()
	seen, readErr := readOutcomes(io.TeeReader(out, log))
	out.Close() // so that a log that cannot be written does not keep the process waiting
	err := <-ended
	if readErr != nil {
		return nil, readErr
	}
	seen[whole] = passed
	if err != nil {
		seen[whole] = failed
		if _, exited := errors.AsType[*exec.ExitError](err); !exited {
			return nil, err
		}
	}
	return &observed{
		outcomes: seen, status: cmd.ProcessState.ExitCode(), cpu: cmd.ProcessState.UserTime() +
			cmd.ProcessState.SystemTime(),
	}, nil
}

func (r *runner) logFile(b *binary) string {
	return filepath.Join(r.dir, strings.ReplaceAll(b.suite, "/", "-")+"."+b.variant()+".log")
}

// exactly returns the pattern for -test.run that one test answers to; [whole] and [leaks] are of all tests.
func exactly(test string) string {
	if test == whole || test == leaks {
		return ""
	}
	parts := strings.Split(test, "/")
	for i, p := range parts {
		parts[i] = "^" + regexp.QuoteMeta(p) + "$"
	}
	return strings.Join(parts, "/")
}

// statement is what -test.v=test2json prints of a test, after a byte that nothing else prints.
var statement = regexp.MustCompile("\x16(=== RUN   |--- PASS: |--- FAIL: |--- SKIP: )([^\\s]+)")

func readOutcomes(r io.Reader) (outcomes, error) {
	seen := outcomes{leaks: passed}
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadString('\n')
		if strings.Contains(line, leaked) {
			seen[leaks] = failed
		}
		for _, m := range statement.FindAllStringSubmatch(line, -1) {
			switch test := m[2]; m[1] {
			case "=== RUN   ":
				seen[test] = unfinished
			case "--- PASS: ":
				seen[test] = passed
			case "--- FAIL: ":
				seen[test] = failed
			case "--- SKIP: ":
				seen[test] = skipped
			}
		}
		if err == io.EOF {
			return seen, nil
		}
		if err != nil {
			return nil, err
		}
	}
}
