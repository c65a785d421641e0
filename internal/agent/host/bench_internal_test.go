package host

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kubenergy/kubenergy/internal/agent/host/hosttest"
)

// BenchmarkSweep measures sweeps over real control groups once a second, with and without a process in each group
// that wakes up 20 times per second. cpu-µs/sweep is the CPU time of the sweeping thread; %core is the same as a
// percentage of one core.
//
//	go test -run '^$' -bench Sweep -benchtime 20x ./internal/agent/host
func BenchmarkSweep(b *testing.B) {
	for _, version := range []int{1, 2} {
		for _, load := range []string{"idle", "busy"} {
			for _, containers := range []int{250, 1000} {
				b.Run(fmt.Sprintf("v%d/%s/%d", version, load, containers), func(b *testing.B) {
					l := hosttest.Load{Version: version, Containers: containers}
					if load == "busy" {
						l.Burst = 20 * time.Microsecond
					}
					benchmarkSweep(b, l)
				})
			}
		}
	}
}

func benchmarkSweep(b *testing.B, l hosttest.Load) {
	mount := hosttest.Containers(b, l)
	h := openReal(b, mount, Options{})
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var sweep Sweep
	for range 3 {
		if err := h.Sweep(&sweep); err != nil {
			b.Fatal(err)
		}
		time.Sleep(time.Second)
	}
	b.ReportAllocs()
	b.ResetTimer()
	spent := time.Duration(0)
	reads := h.stats.Reads
	for range b.N {
		b.StopTimer()
		time.Sleep(time.Second)
		b.StartTimer()
		began := threadTime(b)
		if err := h.Sweep(&sweep); err != nil {
			b.Fatal(err)
		}
		spent += threadTime(b) - began
	}
	b.StopTimer()
	each := spent / time.Duration(b.N)
	b.ReportMetric(float64(each)/1e3, "cpu-µs/sweep")
	b.ReportMetric(each.Seconds()*100, "%core")
	b.ReportMetric(float64(h.stats.Reads-reads)/float64(b.N), "reads/sweep")
	if got := h.counts(container); got < l.Containers {
		b.Fatalf("found %d of %d containers", got, l.Containers)
	}
}

func threadTime(b *testing.B) time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		b.Fatal(err)
	}
	return time.Duration(t.Nano())
}
