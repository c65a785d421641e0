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

// outcome is the result of a test, or "" if it did not run.
type outcome string

const (
	passed     outcome = "pass"
	failed     outcome = "fail"
	skipped    outcome = "skip"
	unfinished outcome = "unfinished" // the process exited during the test
)

const (
	// whole is the name used for the process, which may fail although no test fails.
	whole = ""
	// leaks is the name used for the upstream check for remaining goroutines after all tests.
	leaks = "(goroutines)"
)

// leaked is part of the message of that check.
const leaked = "EtcdMain goroutine check"

// outcomes contains the outcomes of all tests of one run, including subtests, [whole] and [leaks].
type outcomes map[string]outcome

// A binary is a compiled test suite.
type binary struct {
	suite, path string
	dir         string       // source directory of the suite, in which go test would run it
	mode        enabled.Mode // empty for the stock suite
}

func (b *binary) variant() string {
	if b.mode == "" {
		return "stock"
	}
	return string(b.mode)
}

// A runner runs test binaries, each with a separate etcd.
type runner struct {
	dir     string // directory for logs and temporary files
	timeout time.Duration
}

// gaveUp is the exit status if the API server did not start in time, which occasionally happens on a busy machine.
// It terminates the process and is unrelated to the tests. Panics and failing tests lead to a different status.
const gaveUp = 255

// observed is the result of one run.
type observed struct {
	outcomes
	enabled.Counts
	status    int // exit status of the process
	took, cpu time.Duration
	again     int // number of previous runs in which the API server did not start
}

// run runs all tests of a binary, or a single test. The run is repeated if the API server does not start.
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
	// The timeout of the process prints hanging goroutines. The timeout of the context kills a process that does
	// not exit.
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
		err = ctx.Err() // canceled by the caller
	}
	if err != nil {
		return nil, err
	}
	o.Counts, err = enabled.ReadCounts(counts)
	return o, err
}

// observe runs the command and returns the outcomes of its tests. A failing command is not an error.
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
	out.Close() // do not block the process if the log cannot be written
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

// exactly returns the -test.run pattern that selects one test. [whole] and [leaks] select all tests.
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

// statement matches the output of -test.v=test2json for a test, which starts with a special byte.
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
