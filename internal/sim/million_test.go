//go:build unix

package sim_test

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"syscall"
	"testing"
	"time"
)

// A million jobs on a thousand nodes of twelve kinds take less than 120 s and 2 GB, including the trace. The limit
// applies to CPU time, including the garbage collector, because elapsed time depends on the load of the machine.
func TestAMillionJobs(t *testing.T) {
	if os.Getenv("KUBENERGY_LONG") == "" {
		t.Skip("set KUBENERGY_LONG=1 to run a million jobs")
	}
	const jobs = 1_000_000
	// The limit makes the garbage collector run more often instead of doubling the heap. Memory usage is checked
	// separately.
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(1800 << 20))
	s := fleet(t, 1000, 12, jobs)
	for _, name := range []string{"round-robin", "energy"} {
		began, before := time.Now(), processorTime(t)
		r := run(t, s, name)
		clock, took := time.Since(began), processorTime(t)-before
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		runtime.KeepAlive(r)
		t.Logf("%s: %.1f s of CPU time, %.1f s elapsed, %.0f jobs per second of CPU time, %d MB from "+
			"the system",
			name, took.Seconds(), clock.Seconds(), jobs/took.Seconds(), m.Sys>>20)
		if took > 120*time.Second {
			t.Errorf("%s: CPU time = %v, want less than 120 s", name, took)
		}
		if m.Sys > 2_000_000_000 {
			t.Errorf("%s: memory = %d bytes, want less than 2 GB", name, m.Sys)
		}
		for i := range r.Outcomes {
			if o := &r.Outcomes[i]; o.Placed.Node == "" || !o.Finish.After(o.Start) {
				t.Fatal(fmt.Sprint(name, ": job ", i, " did not run"))
			}
		}
	}
}

// processorTime returns the CPU time used by this process.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
