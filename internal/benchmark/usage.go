package benchmark

import (
	"os"
	"runtime"
	"time"

	"github.com/prometheus/procfs"
)

// Usage is a snapshot of the CPU time used by the machine and by this process with its descendants.
type Usage struct {
	at         time.Time
	busy, ours float64 // seconds
}

// Busy returns the CPU time in seconds that the machine has used since boot, or 0 if it is unknown.
func Busy() float64 {
	machine, err := procfs.NewDefaultFS()
	if err != nil {
		return 0
	}
	s, _ := machine.Stat() // zeros
	c := s.CPUTotal
	return c.User + c.Nice + c.System + c.IRQ + c.SoftIRQ + c.Steal
}

// ReadUsage returns the current usage. Unknown values are zero.
func ReadUsage() (u Usage) {
	u.at, u.busy = time.Now(), Busy()
	processes, _ := procfs.AllProcs()
	all := map[int]procfs.ProcStat{}
	for _, p := range processes {
		if s, err := p.Stat(); err == nil {
			all[s.PID] = s
		}
	}
	const ticks = 100 // per second; Linux reports CPU time in this unit on all architectures
	for pid, s := range all {
		for up := pid; up > 1; up = all[up].PPID {
			if up == os.Getpid() {
				u.ours += float64(int(s.UTime+s.STime)+s.CUTime+s.CSTime) / ticks
				break
			}
		}
	}
	return u
}

// Others returns the fraction of the machine's CPUs that other processes have used since the snapshot.
func (u Usage) Others() float64 {
	now := ReadUsage()
	return max(0, now.busy-u.busy-(now.ours-u.ours)) / now.at.Sub(u.at).Seconds() / float64(runtime.NumCPU())
}
