// Package kit holds what tests share that start programs and wait for them: ports, polling, building, processes with
// logs, requests, metrics, and whether the machine is too busy to judge speed. It links nothing of Kubernetes, so every
// test may use it; package cluster adds a control plane. It is for tests only.
package kit

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"
)

const (
	minPause = time.Millisecond      // between the first two looks at a condition; it doubles up to maxPause
	maxPause = 50 * time.Millisecond // between two looks at a condition
	timeout  = 3                     // so many times longer a busy machine may take
	minWait  = time.Minute           // for what must happen: a test that judges time measures it
)

// Eventually waits until done reports true. The test fails after the timeout, which is at least a minute and three
// times as long on a busy machine, or when one of the processes ends.
func Eventually(t testing.TB, within time.Duration, what string, done func() bool, needs ...*Process) {
	t.Helper()
	Await(t, within, what, func(context.Context) (bool, error) { return done(), nil }, needs...)
}

// Await is Eventually for what can tell why it is not done yet: the last error is shown when the time is up.
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
				return fmt.Errorf("waiting until %s: %s has ended: %v\n%s", what, p.Name, p.Cmd.ProcessState, p.Tail())
			}
		}
		if took := time.Since(began); ctx.Err() != nil || took > within && LoopShare(loop) >= minFree {
			reason := ""
			if last != nil {
				reason = fmt.Sprintf(" (last error: %v)", last)
			}
			return fmt.Errorf("after %v it is not true that %s%s", took.Round(maxPause), what, reason)
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// Dir makes a folder that is removed after the test. Unlike t.TempDir, its path is short enough for Unix sockets.
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

// Write writes a file that only this user can read, as files with tokens must be, and returns its path.
func Write[T string | []byte](t testing.TB, path string, content T) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
