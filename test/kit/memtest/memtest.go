// Package memtest measures how much memory a function allocates, so that tests and fuzz targets can require that the
// cost of foreign input is bounded by its size.
package memtest

import (
	"runtime/metrics"
	"testing"
)

// slack is what any input may allocate, whatever its size: fixed buffers, error texts, and the test's own bookkeeping.
const slack = 4 << 20

// Limit fails the test if more than 4 MiB and limit bytes are allocated between the call of Limit and the call of the
// function that it returns. It counts what the garbage collector has freed meanwhile, and what other goroutines
// allocate: tests that use it must not run in parallel. A fuzz target bounds what an input may cost with
//
//	defer memtest.Limit(t, 100*len(data))()
func Limit(t testing.TB, limit int) func() {
	t.Helper()
	before := allocated()
	return func() {
		t.Helper()
		if got := allocated() - before; got > slack+uint64(limit) {
			t.Errorf("%d bytes allocated, want at most %d", got, slack+limit)
		}
	}
}

// allocated returns the bytes that this process has allocated on the heap since it started.
func allocated() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
