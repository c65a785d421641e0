package kit

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Machine measures the fraction of a processor that is available to a busy loop while a test checks time limits.
type Machine struct {
	t testing.TB

	mu     sync.Mutex
	shares []float64
	slow   []string // descriptions of operations that exceeded their limits
}

const (
	loop    = 20 * time.Millisecond  // duration of the busy loop
	every   = 500 * time.Millisecond // interval between two loops
	minFree = 0.6                    // fraction of a processor below which time limits are not enforced
)

// Work performs a fixed amount of work that is typical of KubEnergy (maps, sorting and number formatting) and
// returns the processor time it took. This is about 10 ms on the machines described in docs/measurements. Tests use
// it as the unit of limits that also have to hold on slower machines.
func Work() time.Duration {
	return CPUTime(func() {
		x, sum := uint64(88172645463325252), 0
		found, keys := map[uint64]string{}, make([]uint64, 0, workItems)
		for range workItems {
			x ^= x << 13
			x ^= x >> 7
			x ^= x << 17
			found[x], keys = strconv.FormatUint(x, 10), append(keys, x)
		}
		slices.Sort(keys)
		for _, key := range keys {
			n, err := strconv.ParseUint(found[key], 10, 64)
			if err != nil || n != key {
				panic("unexpected result of arithmetic")
			}
			sum += len(found[key])
		}
		runtime.KeepAlive(sum)
	})
}

const workItems = 30_000

// WatchMachine measures until the test ends. If TooSlow has been called by then, the test fails, or is skipped if
// the machine was busy.
func WatchMachine(t testing.TB) *Machine {
	m := &Machine{t: t}
	stop, stopped := make(chan struct{}), make(chan struct{})
	m.measure()
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			case <-time.After(every):
				m.measure()
			}
		}
	}()
	t.Cleanup(func() {
		close(stop)
		<-stopped
		m.judge()
	})
	return m
}

func (m *Machine) measure() {
	share := LoopShare(loop)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.shares = append(m.shares, share)
}

// TooSlow records that an operation exceeded its time limit.
func (m *Machine) TooSlow(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.slow = append(m.slow, fmt.Sprintf(format, args...))
}

// Eventually is like the function [Eventually], for conditions that can only fail because of a slow machine.
func (m *Machine) Eventually(within time.Duration, what string, done func() bool) {
	m.t.Helper()
	err := await(m.t.Context(), within, what, func(context.Context) (bool, error) { return done(), nil }, nil)
	if err != nil {
		m.TooSlow("%v", err)
		m.judge()
		m.t.FailNow()
	}
}

// free returns the median fraction of a processor that the busy loops obtained.
func (m *Machine) free() float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	sorted := slices.Sorted(slices.Values(m.shares))
	return sorted[len(sorted)/2]
}

func (m *Machine) judge() {
	m.t.Helper()
	free := m.free()
	m.mu.Lock()
	slow := strings.Join(m.slow, "; ")
	m.slow = nil
	m.mu.Unlock()
	switch {
	case slow == "":
	case free < minFree:
		m.t.Skipf("skipping time limits because the machine is busy (a busy loop got %.0f %% of a processor): %s",
			100*free,
			slow)
	default:
		m.t.Errorf("time limit exceeded although a busy loop got %.0f %% of a processor: %s", 100*free, slow)
	}
}
