package memtest_test

import (
	"testing"

	"github.com/kubenergy/kubenergy/test/kit/memtest"
)

// recorder is a testing.TB that records whether the test failed.
type recorder struct {
	testing.TB
	failed bool
}

func (r *recorder) Errorf(string, ...any) { r.failed = true }

var sink []byte

func TestLimit(t *testing.T) {
	for _, c := range []struct {
		allocates, limit int
		fails            bool
	}{
		{0, 0, false}, {4 << 20, 1 << 20, false}, {8 << 20, 1 << 20, true}, {8 << 20, 8 << 20, false},
	} {
		r := recorder{TB: t}
		done := memtest.Limit(&r, c.limit)
		sink = make([]byte, c.allocates)
		sink = nil // collected memory counts as well
		if done(); r.failed != c.fails {
			t.Errorf("allocating %d bytes with a limit of %d: failed = %v", c.allocates, c.limit, r.failed)
		}
	}
}
