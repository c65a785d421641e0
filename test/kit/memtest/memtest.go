// Package memtest measures the memory allocated by a function so that tests and fuzz targets can verify that the
// cost of untrusted input is bounded by its size.
package memtest

import (
	"runtime/metrics"
	"testing"
)

// slack is the number of bytes that may be allocated regardless of the size of the input: fixed buffers, error
// texts and the bookkeeping of the test.
const slack = 4 << 20

// Limit fails the test if more than 4 MiB plus limit bytes are allocated between the call of Limit and the call of
// the returned function. Memory that the garbage collector has freed in the meantime and allocations of other
// goroutines are included, so tests that use Limit must not run in parallel. A fuzz target bounds the cost of an
// input with
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

// allocated returns the number of bytes that this process has allocated on the heap since it started.
func allocated() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
