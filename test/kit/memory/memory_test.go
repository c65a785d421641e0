package memory_test

import (
	"testing"

	"github.com/kubenergy/kubenergy/test/kit/memory"
)

// recorder is a test that records whether it was failed.
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
		{0, 0, false}, {1 << 20, 1 << 20, false}, {3 << 20, 1 << 20, true}, {3 << 20, 3 << 20, false},
	} {
		r := recorder{TB: t}
		done := memory.Limit(&r, c.limit)
		sink = make([]byte, c.allocates)
		sink = nil // collected memory counts, too
		if done(); r.failed != c.fails {
			t.Errorf("%d bytes allocated with a limit of %d: failed %v", c.allocates, c.limit, r.failed)
		}
	}
}
