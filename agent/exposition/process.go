package exposition

import (
	"bytes"
	"errors"
	"io"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"time"
)

// process is the agent's own, as every Prometheus client shows it. The library for it would be the larger part of the
// agent's memory.
type process struct {
	start time.Time
	buf   [256]byte
}

func (p *process) append(t *text) {
	t.head("process_start_time_seconds", "gauge", "Start time of the process since the Unix epoch.")
	t.sample("process_start_time_seconds", nil, "").micros(p.start.UnixMicro())
	t.head("go_goroutines", "gauge", "Number of goroutines.")
	t.sample("go_goroutines", nil, "").count(uint64(runtime.NumGoroutine()))
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err == nil {
		t.head("process_cpu_seconds_total", "counter", "CPU time of the process, user and system.")
		t.sample("process_cpu_seconds_total", nil, "").nanos(usage.Utime.Nano() + usage.Stime.Nano())
	}
	if virtual, resident, ok := p.memory(); ok {
		t.head("process_virtual_memory_bytes", "gauge", "Size of the process' address space.")
		t.sample("process_virtual_memory_bytes", nil, "").count(virtual)
		t.head("process_resident_memory_bytes", "gauge", "Memory that the process occupies.")
		t.sample("process_resident_memory_bytes", nil, "").count(resident)
	}
	if fds, err := openDescriptors(); err == nil {
		t.head("process_open_fds", "gauge", "Number of open file descriptors.")
		t.sample("process_open_fds", nil, "").count(uint64(fds))
	}
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err == nil {
		t.head("process_max_fds", "gauge", "Number of file descriptors that may be open.")
		t.sample("process_max_fds", nil, "").count(limit.Cur)
	}
}

// memory returns the process' sizes in bytes.
func (p *process) memory() (virtual, resident uint64, ok bool) {
	f, err := os.Open("/proc/self/statm")
	if err != nil {
		return 0, 0, false
	}
	defer f.Close()
	n, err := io.ReadFull(f, p.buf[:])
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		return 0, 0, false
	}
	fields := bytes.Fields(p.buf[:n])
	if len(fields) < 2 {
		return 0, 0, false
	}
	var pages [2]uint64
	for i := range pages {
		if pages[i], err = strconv.ParseUint(string(fields[i]), 10, 64); err != nil {
			return 0, 0, false
		}
	}
	size := uint64(os.Getpagesize())
	return pages[0] * size, pages[1] * size, true
}

func openDescriptors() (int, error) {
	dir, err := os.Open("/proc/self/fd")
	if err != nil {
		return 0, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	return len(names) - 1, err // one of them is that of the listing
}
