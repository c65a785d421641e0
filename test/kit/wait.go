// Package kit provides helpers for tests that start programs and wait for them. They cover ports, polling, builds,
// processes with logs, HTTP requests, metrics and detection of a machine that is too busy to enforce time limits.
// The package does not import Kubernetes, so every test can use it. Package cluster adds a control plane. It is for
// tests only.
package kit

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"
)

const (
	minPause = time.Millisecond      // initial polling interval, doubled up to maxPause
	maxPause = 50 * time.Millisecond // maximum polling interval
	timeout  = 3                     // factor by which a busy machine extends a timeout
	minWait  = time.Minute           // minimum timeout; tests of speed measure the time themselves
)

// Eventually waits until done returns true. The test fails when the timeout expires or one of the processes exits.
// The timeout is at least one minute and three times as long on a busy machine.
func Eventually(t testing.TB, within time.Duration, what string, done func() bool, needs ...*Process) {
	t.Helper()
	Await(t, within, what, func(context.Context) (bool, error) { return done(), nil }, needs...)
}

// Await is like Eventually, for conditions that return the reason why they are not true yet. The last error is
// included in the failure message.
func Await(t testing.TB, within time.Duration, what string, done func(context.Context) (bool, error),
	needs ...*Process,
) {
	t.Helper()
	if err := await(t.Context(), max(within, minWait), what, done, needs); err != nil {
		t.Fatal(err)
	}
}

func await(ctx context.Context, within time.Duration, what string, done func(context.Context) (bool, error),
	needs []*Process,
) error {
	ctx, cancel := context.WithTimeout(ctx, timeout*within)
	defer cancel()
	began := time.Now()
	var last error
	for pause := minPause; ; pause = min(2*pause, maxPause) {
		ok, err := done(ctx)
		if ok {
			return nil
		}
		if err != nil && ctx.Err() == nil {
			last = err
		}
		for _, p := range needs {
			if p.Ended() {
				return fmt.Errorf("waiting until %s: %s exited: %v\n%s", what, p.Name, p.Cmd.ProcessState, p.Tail())
			}
		}
		if took := time.Since(began); ctx.Err() != nil || took > within && LoopShare(loop) >= minFree {
			reason := ""
			if last != nil {
				reason = fmt.Sprintf(" (last error: %v)", last)
			}
			return fmt.Errorf("timed out after %v waiting until %s%s", took.Round(maxPause), what, reason)
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// Dir creates a directory that is removed after the test. Unlike the path of t.TempDir, its path is short enough
// for Unix sockets.
func Dir(t testing.TB, name string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// Write writes a file that is readable only by the current user, as required for files with tokens, and returns its
// path.
func Write[T string | []byte](t testing.TB, path string, content T) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
