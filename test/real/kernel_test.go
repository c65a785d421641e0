//go:build linux

package real

import (
	"context"
	"fmt"
	"sort"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kubenergy/kubenergy/test/kit"
)

// A witness continuously records the CPU time of a control group to determine the usage between any two points in
// time.
type witness struct {
	mu    sync.Mutex
	notes []note
}

type note struct{ at, cpu time.Duration }

const noteInterval = 20 * time.Millisecond

// watch records the CPU time of a control group until the test ends or the group is removed.
func watch(t *testing.T, group string) *witness {
	t.Helper()
	w := &witness{}
	if err := w.note(group); err != nil {
		t.Fatal(err)
	}
	go func() {
		for t.Context().Err() == nil && w.note(group) == nil {
			time.Sleep(noteInterval)
		}
	}()
	return w
}

func (w *witness) note(group string) error {
	before, err := sinceBoot()
	if err != nil {
		return err
	}
	cpu, err := cpuTime(group)
	if err != nil {
		return err
	}
	after, err := sinceBoot()
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.notes = append(w.notes, note{(before + after) / 2, cpu})
	return nil
}

// sinceBoot returns the time since boot, which is the clock of batches.
func sinceBoot() (time.Duration, error) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return 0, err
	}
	return time.Duration(now.Nano()), nil
}

// at returns the CPU time at the given time since boot, interpolated between two records.
func (w *witness) at(instant time.Duration) (time.Duration, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := sort.Search(len(w.notes), func(i int) bool { return w.notes[i].at >= instant })
	if i == 0 || i == len(w.notes) {
		return 0, fmt.Errorf("time %v is not within the recorded interval", instant)
	}
	a, b := w.notes[i-1], w.notes[i]
	share := float64(instant-a.at) / float64(b.at-a.at)
	return a.cpu + time.Duration(share*float64(b.cpu-a.cpu)), nil
}

// between returns the CPU time used in an interval. It waits if the end of the interval has not been recorded yet.
func (w *witness) between(t *testing.T, from, to time.Duration) time.Duration {
	t.Helper()
	var a, b time.Duration
	kit.Await(t, 5*time.Second, "the CPU time of the control group is recorded",
		func(context.Context) (ok bool, err error) {
			if a, err = w.at(from); err == nil {
				b, err = w.at(to)
			}
			return err == nil, err
		})
	return b - a
}
