package delivery

import (
	"fmt"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// BenchmarkSave measures one tick: adding an attribution of all consumers, and saving 60 bytes of state per
// consumer.
func BenchmarkSave(b *testing.B) {
	for _, n := range []int{250, 1000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			q, _, state := benchmarked(b, n)
			b.ReportAllocs()
			before := processorTime(b)
			for b.Loop() {
				if err := q.Save(state); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(processorTime(b)-before)/float64(b.N), "cpu-ns/op")
			b.ReportMetric(float64(len(q.disk.buf)), "file-bytes")
		})
	}
}

func BenchmarkAdd(b *testing.B) {
	for _, n := range []int{250, 1000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			q, a, _ := benchmarked(b, n)
			b.ReportAllocs()
			before := processorTime(b)
			for b.Loop() {
				next(b, q, a)
			}
			b.ReportMetric(float64(processorTime(b)-before)/float64(b.N), "cpu-ns/op")
		})
	}
}

// processorTime returns the CPU time of the process, which is more reliable than wall time on a shared machine.
func processorTime(tb testing.TB) time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func benchmarked(tb testing.TB, n int) (*Queue, *energy.Attribution, []byte) {
	q, err := OpenQueue(QueueOptions{Dir: tb.TempDir(), Node: "node1", Boot: "boot"}, quiet)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { q.Close() })
	a := &energy.Attribution{Quality: energy.Measured}
	for i := range n {
		a.Shares = append(a.Shares, energy.Share{
			ID:      fmt.Sprintf("pod/6b0d7f8e-4c1f-4a57-9c55-%012d/%064x", i, i),
			Dynamic: 123456, Idle: 12345, CPU: 123456789,
		})
		a.Measured += 123456 + 12345
	}
	next(tb, q, a)
	state := make([]byte, 60*n)
	if err := q.Save(state); err != nil {
		tb.Fatal(err)
	}
	return q, a, state
}

func next(tb testing.TB, q *Queue, a *energy.Attribution) {
	a.Start, a.End = a.End, a.End+time.Second
	if err := q.Add(a, Meta{Wall: time.Unix(1e9, 0), Source: "package (rapl)", IdlePolicy: "requests"}); err != nil {
		tb.Fatal(err)
	}
}

// TestSaveAllocatesLittle verifies that a tick allocates only the memory needed to open a slot, because garbage
// collection would otherwise cost more than metering.
func TestSaveAllocatesLittle(t *testing.T) {
	q, a, state := benchmarked(t, 250)
	if n := testing.AllocsPerRun(20, func() {
		next(t, q, a)
		if err := q.Save(state); err != nil {
			t.Fatal(err)
		}
	}); n > 6 {
		t.Errorf("%v allocations per tick", n)
	}
}
