package sqlite_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/ledger/ledgertest"
	"github.com/kubenergy/kubenergy/internal/ledger/sqlite"
)

var hundred = ledgertest.World{Nodes: 64, Pods: 100, Epoch: "1"}

// cpu returns the CPU time used by the process, which is more reliable than elapsed time on a busy machine.
func cpu(b *testing.B) time.Duration {
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// rounds prepares bookings of all nodes, records the first ones so that all names exist, and measures the others.
func rounds(b *testing.B, measure func(s *sqlite.Store, all []*ledger.Booking), after func(s *sqlite.Store)) {
	s := openBench(b)
	round(b, s, hundred, 1)
	ledgertest.FoldAll(b, s)
	used := time.Duration(0)
	for number := uint64(2); b.Loop(); number++ {
		b.StopTimer()
		all := make([]*ledger.Booking, hundred.Nodes)
		for node := range all {
			all[node] = hundred.Booking(node, number)
		}
		b.StartTimer()
		before := cpu(b)
		measure(s, all)
		used += cpu(b) - before
		b.StopTimer()
		after(s)
		b.StartTimer()
	}
	b.ReportMetric(float64(used.Microseconds())/float64(b.N*hundred.Nodes), "cpu-µs/batch")
}

// BenchmarkBook measures a transaction of 64 batches of 100 pods, which a cluster of 5,000 nodes sends in 0.2 s.
func BenchmarkBook(b *testing.B) {
	rounds(b, func(s *sqlite.Store, all []*ledger.Booking) { ledgertest.MustBook(b, s, all...) },
		func(s *sqlite.Store) { ledgertest.FoldAll(b, s) })
}

// BenchmarkFold measures folding batches of 100 pods with four batches per node, which is the load of one minute.
func BenchmarkFold(b *testing.B) {
	s := openBench(b)
	used, number := time.Duration(0), uint64(0)
	const each = 4
	for b.Loop() {
		b.StopTimer()
		for range each {
			number++
			round(b, s, hundred, number)
		}
		b.StartTimer()
		before := cpu(b)
		ledgertest.FoldAll(b, s)
		used += cpu(b) - before
	}
	b.ReportMetric(float64(used.Microseconds())/float64(b.N*hundred.Nodes*each), "cpu-µs/batch")
}

func round(tb testing.TB, s ledger.Store, w ledgertest.World, number uint64) {
	const group = 256
	for node := 0; node < w.Nodes; {
		var all []*ledger.Booking
		for ; node < w.Nodes && len(all) < group; node++ {
			b := w.Booking(node, number)
			b.Batch.Quality = energy.Measured // the quality of a node is constant
			all = append(all, b)
		}
		ledgertest.MustBook(tb, s, all...)
	}
}

func openBench(tb testing.TB) *sqlite.Store {
	s, err := sqlite.Open(context.Background(), filepath.Join(tb.TempDir(), "ledger.db"), sqlite.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = s.Close() })
	return s
}

// The limit is 6 GB per day for 5,000 nodes of 100 pods, which is 41 bytes per pod and window including sums and
// names.
func TestRowsAreSmall(t *testing.T) {
	ledgertest.OfContent(t)
	const (
		most    = 30
		windows = 8
	)
	w := ledgertest.World{Nodes: 12, Pods: 100, Epoch: "1"}
	s := openBench(t)
	size := func() int64 {
		if err := s.Checkpoint(t.Context()); err != nil {
			t.Fatal(err)
		}
		stats, err := s.Statistics(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return stats.Bytes
	}
	const inWindow = uint64(ledger.WindowLength / ledgertest.Interval)
	number := uint64(0)
	notify := func(n int) {
		for range n {
			for range inWindow {
				number++
				round(t, s, w, number)
				if number%4 == 0 { // once a minute
					ledgertest.FoldAll(t, s)
				}
			}
		}
	}
	notify(4) // allocates names, journal pages and pages of the first sums
	before := size()
	notify(windows)
	if each := float64(size()-before) / float64(w.Nodes*w.Pods*windows); each > most {
		t.Errorf("got %.1f bytes per window of a pod, want at most %d", each, most)
	} else {
		t.Logf("%.1f bytes per window of a pod", each)
	}
}
