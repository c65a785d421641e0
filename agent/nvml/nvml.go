//go:build linux && (amd64 || arm64)

// Package nvml reads NVIDIA's boards through the library of their driver, which the system's loader brings in without
// cgo. It is of kubenergy-gpu alone, which the agent starts: the agent's own binary stays static, and a driver that
// hangs or crashes does not take the agent along (docs/decisions/0034).
package nvml

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"strings"
	"time"
	"unsafe"

	"github.com/ebitengine/purego"
	"golang.org/x/sys/unix"

	"github.com/kubenergy/kubenergy/agent/gpu"
)

// code is what NVML's functions return.
type code uint32

const (
	success          code = 0
	notFound         code = 6
	functionNotFound code = 13
)

type library struct {
	handle  uintptr
	symbols map[string]uintptr
	seen    map[string]uint64 // by UUID: of the youngest sample of processes, in the driver's microseconds
}

// The structures of nvml.h.
type (
	utilization struct{ gpu, _ uint32 }
	processInfo struct {
		pid          uint32
		memory       uint64
		gpu, compute uint32 // instances
	}
	processSample struct {
		pid         uint32
		at          uint64
		sm, _, _, _ uint32 // memory, encoder and decoder
	}
	attributes struct {
		_                [6]uint32 // multiprocessors and other engines
		_, computeSlices uint32    // of the GPU instance, of the compute instance
		_                uint64    // megabytes
	}
)

// Serve writes what it reads of all boards as a line of JSON, at every interval, until it cannot.
func Serve(out io.Writer, path string, interval time.Duration) error {
	handle, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_GLOBAL)
	if err != nil {
		return fmt.Errorf("loading the driver's library: %w", err)
	}
	l := &library{handle: handle, symbols: map[string]uintptr{}, seen: map[string]uint64{}}
	if c := l.call("nvmlInit_v2"); c != success {
		return l.failure("nvmlInit_v2", c)
	}
	lines := json.NewEncoder(out)
	for tick := time.NewTicker(interval); ; <-tick.C {
		boards, err := l.boards()
		if err != nil {
			return err
		}
		if err := lines.Encode(boards); err != nil {
			return fmt.Errorf("telling the agent: %w", err)
		}
	}
}

// An arg of a function is a number, or where something is.
type arg struct {
	number  uintptr
	pointer unsafe.Pointer
}

func value[T ~uint32 | ~uint64 | ~uintptr](v T) arg { return arg{number: uintptr(v)} }

func to[T any](v *T) arg { return arg{pointer: unsafe.Pointer(v)} }

// call calls a function. What it is pointed to neither moves nor goes meanwhile.
func (l *library) call(name string, args ...arg) code {
	symbol, known := l.symbols[name]
	if !known {
		symbol, _ = purego.Dlsym(l.handle, name)
		l.symbols[name] = symbol
	}
	if symbol == 0 {
		return functionNotFound
	}
	var pins runtime.Pinner
	defer pins.Unpin()
	words := make([]uintptr, 0, len(args))
	for _, a := range args {
		if a.pointer != nil {
			pins.Pin(a.pointer)
			a.number = uintptr(a.pointer)
		}
		words = append(words, a.number)
	}
	r, _, _ := purego.SyscallN(symbol, words...)
	return code(r)
}

func (l *library) failure(name string, c code) error {
	return fmt.Errorf("%s fails with NVML's error %d", name, c)
}

// boards reads all boards; one that cannot be read is left out.
func (l *library) boards() ([]gpu.Board, error) {
	count := new(uint32)
	if c := l.call("nvmlDeviceGetCount_v2", to(count)); c != success {
		return nil, l.failure("nvmlDeviceGetCount_v2", c)
	}
	boards := []gpu.Board{}
	for i := range *count {
		device := new(uintptr)
		if l.call("nvmlDeviceGetHandleByIndex_v2", value(i), to(device)) != success {
			continue
		}
		if b, ok := l.board(*device); ok {
			boards = append(boards, b)
		}
	}
	return boards, nil
}

func (l *library) board(device uintptr) (b gpu.Board, ok bool) {
	uuid := new([96]byte)
	if l.call("nvmlDeviceGetUUID", value(device), to(uuid), value(uint32(len(uuid)))) != success {
		return b, false
	}
	b.ID, _, _ = strings.Cut(string(uuid[:]), "\x00")
	b.At = now()
	if v := new(uint64); l.call("nvmlDeviceGetTotalEnergyConsumption", value(device), to(v)) == success {
		b.Millijoules = v
	}
	if v := new(uint32); l.call("nvmlDeviceGetPowerUsage", value(device), to(v)) == success {
		b.Milliwatts = new(uint64(*v))
	}
	if mode, pending := new(uint32), new(uint32); l.call("nvmlDeviceGetMigMode", value(device), to(mode),
		to(pending)) == success && *mode == 1 {
		b.Parts = l.instances(device)
	} else {
		b.Parts = []gpu.Part{l.whole(device, b.ID)}
	}
	return b, b.Millijoules != nil || b.Milliwatts != nil
}

// whole reads who ran on a board without instances.
func (l *library) whole(device uintptr, uuid string) gpu.Part {
	p := gpu.Part{SMs: 1}
	if v := new(utilization); l.call("nvmlDeviceGetUtilizationRates", value(device), to(v)) == success {
		p.Busy = float64(v.gpu) / 100
	}
	var used map[int]float64
	used, p.Told = l.used(device, uuid)
	for _, info := range l.processes(device) {
		p.Uses = append(p.Uses, use(&info, used[int(info.pid)]))
	}
	return p
}

// use tells of a process; NVML knows the memory of some only.
func use(info *processInfo, sm float64) gpu.Use {
	u := gpu.Use{PID: int(info.pid), SM: sm}
	if info.memory != ^uint64(0) {
		u.Memory = info.memory
	}
	return u
}

// instances reads the MIG instances of a board. How busy they are is not told: one on which a process runs is.
func (l *library) instances(device uintptr) (parts []gpu.Part) {
	most := new(uint32) // instances, each of a slice: 7, or 4 on smaller boards
	if l.call("nvmlDeviceGetMaxMigDeviceCount", value(device), to(most)) != success {
		return nil
	}
	processes := l.processes(device)
	for i := range *most {
		mig, gi, ci, a := new(uintptr), new(uint32), new(uint32), new(attributes)
		if l.call("nvmlDeviceGetMigDeviceHandleByIndex", value(device), value(i), to(mig)) != success ||
			l.call("nvmlDeviceGetGpuInstanceId", value(*mig), to(gi)) != success ||
			l.call("nvmlDeviceGetComputeInstanceId", value(*mig), to(ci)) != success ||
			l.call("nvmlDeviceGetAttributes_v2", value(*mig), to(a)) != success {
			continue
		}
		p := gpu.Part{
			Instance: fmt.Sprintf("%d/%d", *gi, *ci), SMs: min(float64(a.computeSlices)/float64(*most), 1),
		}
		for _, info := range processes {
			if info.gpu == *gi && info.compute == *ci {
				p.Busy = 1
				p.Uses = append(p.Uses, use(&info, 0))
			}
		}
		parts = append(parts, p)
	}
	return parts
}

// processes returns those that compute or draw on a board, each once for an instance.
func (l *library) processes(device uintptr) []processInfo {
	var all []processInfo
	for _, name := range []string{
		"nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetGraphicsRunningProcesses_v3",
	} {
		const room = 1024
		list, n := new([room]processInfo), new(uint32(room))
		if l.call(name, value(device), to(n), to(list)) == success {
			all = append(all, list[:min(*n, room)]...)
		}
	}
	seen := map[[3]uint32]bool{}
	kept := all[:0]
	for _, p := range all {
		if k := [3]uint32{p.pid, p.gpu, p.compute}; !seen[k] {
			seen[k] = true
			kept = append(kept, p)
		}
	}
	return kept
}

// used returns how much of a board's multiprocessor time processes used since they were asked for last, and whether the
// driver tells.
func (l *library) used(device uintptr, uuid string) (shares map[int]float64, told bool) {
	const room, percent = 1024, 100
	list, n := new([room]processSample), new(uint32(room))
	switch c := l.call("nvmlDeviceGetProcessUtilization", value(device), to(list), to(n), value(l.seen[uuid])); c {
	case success, notFound:
		if c == notFound {
			*n = 0
		}
	default:
		return nil, false
	}
	shares, counts := map[int]float64{}, map[int]float64{}
	for _, s := range list[:min(*n, room)] {
		if s.at > l.seen[uuid] {
			l.seen[uuid] = s.at
		}
		shares[int(s.pid)] += float64(min(s.sm, percent)) / percent
		counts[int(s.pid)]++
	}
	for pid := range shares {
		shares[pid] /= counts[pid]
	}
	return shares, true
}

// now is the time since boot, as the agent counts it.
func now() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return 0
	}
	return time.Duration(t.Nano())
}
