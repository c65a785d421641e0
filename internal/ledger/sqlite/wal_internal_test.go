package sqlite

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/kubenergy/kubenergy/internal/ledger/ledgertest"
	"github.com/kubenergy/kubenergy/test/kit/memtest"
)

// written returns a log with some transactions.
func written(tb testing.TB) []byte {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "ledger.db")
	s, err := Open(tb.Context(), path, Options{})
	if err != nil {
		tb.Fatal(err)
	}
	defer s.Close()
	w := ledgertest.World{Nodes: 1, Pods: 2, Epoch: "1"}
	for number := range uint64(5) {
		ledgertest.MustBook(tb, s, w.Booking(0, number+1))
	}
	b, err := os.ReadFile(path + walSuffix)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func TestScanLog(t *testing.T) {
	whole := written(t)
	const frame = frameHeader + pageSize
	l, err := scanLog(bytes.NewReader(whole), int64(len(whole)))
	if err != nil || l.bad != "" || l.frames != (len(whole)-walHeaderBytes)/frame || l.frames < 5 {
		t.Fatalf("unexpected log %+v or error %v for %d bytes", l, err, len(whole))
	}
	frames := l.frames
	changed := bytes.Clone(whole)
	changed[walHeaderBytes+frame/2] ^= 1
	if l, err := scanLog(bytes.NewReader(changed), int64(len(changed))); err != nil || l.bad == "" || l.frames != 0 {
		t.Errorf("unexpected result for a corrupt first frame: %+v, %v", l, err)
	}
	half := whole[:len(whole)-frame/2] // as left by a process that was killed during a write
	if l, err := scanLog(bytes.NewReader(half), int64(len(half))); err != nil || l.bad != "" || l.frames >= frames ||
		l.frames == 0 {
		t.Errorf("unexpected result for an incomplete transaction: %+v, %v", l, err)
	}
	old := bytes.Clone(whole) // a restarted log contains frames of the previous generation at its end
	copy(old[len(old)-frame+8:], "another generation")
	if l, err := scanLog(bytes.NewReader(old), int64(len(old))); err != nil || l.bad != "" {
		t.Errorf("unexpected result for frames of the previous generation: %+v, %v", l, err)
	}
	for at := range walHeaderBytes {
		changed := bytes.Clone(whole)
		changed[at] ^= 64
		if l, err := scanLog(bytes.NewReader(changed), int64(len(changed))); err != nil || !l.headerBad {
			t.Errorf("unexpected result for corrupt header byte %d: %+v, %v", at, l, err)
		}
	}
	if l, err := scanLog(bytes.NewReader(whole[:20]), 20); l != nil || err != nil {
		t.Errorf("unexpected result without a header: %+v, %v", l, err)
	}
}

func FuzzScanLog(f *testing.F) {
	whole := written(f)
	f.Add(whole)
	f.Add(whole[:100])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		defer memtest.Limit(t, 100*len(b))()
		l, err := scanLog(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			t.Fatal(err)
		}
		if l != nil && l.frames*(frameHeader+minPage) > len(b) {
			t.Fatalf("got %d frames in %d bytes", l.frames, len(b))
		}
	})
}
