//go:build linux && (amd64 || arm64)

// Package nvml reads NVIDIA's boards through the library of their driver, which the system's loader brings in without
// cgo. It is of kubenergy-gpu alone, which the agent starts: the agent's own binary stays static, and a driver that
// hangs or crashes does not take the agent along (docs/decisions/0034).
package nvml

import (
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/ebitengine/purego"

	"github.com/kubenergy/kubenergy/internal/agent/gpu"
	"github.com/kubenergy/kubenergy/internal/agent/host"
)

// code is what NVML's functions return.
type code uint32

const (
	success          code = 0
	notFound         code = 6
	functionNotFound code = 13
)

type library struct {
	handle uintptr
	seen   map[string]uint64 // by UUID: of the youngest sample of processes, in the driver's microseconds
}

// The structures of nvml.h.
type (
	utilization struct{ gpu, _ uint32 }
	processInfo struct {
		pid    uint32
		memory uint64
		_, _   uint32 // GPU instance, compute instance
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

const room = 1024 // processes

// Serve writes what it reads of all boards as a line of JSON, at every interval, until it cannot.
func Serve(out io.Writer, path string, interval time.Duration) error {
	handle, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_GLOBAL)
	if err != nil {
		return fmt.Errorf("loading the driver's library: %w", err)
	}
	l := &library{handle: handle, seen: map[string]uint64{}}
	if c := l.call("nvmlInit_v2"); c != success {
		return fmt.Errorf("nvmlInit_v2 fails with NVML's error %d", c)
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

// call calls a function with numbers and pointers. What it is pointed to neither moves nor goes meanwhile.
func (l *library) call(name string, args ...any) code {
	symbol, err := purego.Dlsym(l.handle, name)
	if err != nil {
		return functionNotFound
	}
	var pins runtime.Pinner
	defer pins.Unpin()
	words := make([]uintptr, len(args))
	for i, arg := range args {
		if v := reflect.ValueOf(arg); v.Kind() == reflect.Pointer {
			pins.Pin(arg)
			words[i] = v.Pointer()
		} else {
			words[i] = uintptr(v.Uint())
		}
	}
	r, _, _ := purego.SyscallN(symbol, words...)
	return code(r)
}

// read returns what a function says of a device; nil: it says nothing.
func read[T any](l *library, name string, device uintptr) *T {
	v := new(T)
	if l.call(name, device, v) != success {
		return nil
	}
	return v
}

// boards reads all boards; one that cannot be read is left out.
func (l *library) boards() ([]gpu.Board, error) {
	count := new(uint32)
	if c := l.call("nvmlDeviceGetCount_v2", count); c != success {
		return nil, fmt.Errorf("nvmlDeviceGetCount_v2 fails with NVML's error %d", c)
	}
	boards := []gpu.Board{}
	for i := range *count {
		device, uuid := new(uintptr), new([96]byte)
		if l.call("nvmlDeviceGetHandleByIndex_v2", i, device) == success &&
			l.call("nvmlDeviceGetUUID", *device, uuid, uint32(len(uuid))) == success {
			id, _, _ := strings.Cut(string(uuid[:]), "\x00")
			boards = append(boards, l.board(*device, id))
		}
	}
	return boards, nil
}

func (l *library) board(device uintptr, id string) gpu.Board {
	b := gpu.Board{
		ID: id, At: host.Now(),
		Millijoules: read[uint64](l, "nvmlDeviceGetTotalEnergyConsumption", device),
		Milliwatts:  read[uint32](l, "nvmlDeviceGetPowerUsage", device),
	}
	if celsius := new(uint32); l.call("nvmlDeviceGetTemperature", device, uint32(0), celsius) == success {
		b.Celsius = celsius // of the GPU itself, which sensor 0 is
	}
	mig, pending := new(uint32), new(uint32)
	if l.call("nvmlDeviceGetMigMode", device, mig, pending) == success && *mig == 1 {
		b.Parts = l.instances(device)
	} else {
		b.Parts = []gpu.Part{l.part(device, id)}
	}
	return b
}

// part reads who ran on a board, or on a MIG instance. How busy instances are is not told: one on which a process runs
// is.
func (l *library) part(device uintptr, id string) gpu.Part {
	p := gpu.Part{SMs: 1}
	var used map[uint32]float64
	used, p.Reported = l.used(device, id)
	for pid, memory := range l.processes(device) {
		p.Uses = append(p.Uses, gpu.Use{PID: int(pid), SM: used[pid], Memory: memory})
	}
	slices.SortFunc(p.Uses, func(a, b gpu.Use) int { return a.PID - b.PID })
	if v := read[utilization](l, "nvmlDeviceGetUtilizationRates", device); v != nil {
		p.Busy = float64(v.gpu) / 100
	} else {
		p.Busy = float64(min(len(p.Uses), 1))
	}
	return p
}

// instances reads the MIG instances of a board.
func (l *library) instances(device uintptr) (parts []gpu.Part) {
	most := read[uint32](l, "nvmlDeviceGetMaxMigDeviceCount", device) // each of a slice: 7, or 4 on smaller boards
	if most == nil {
		return nil
	}
	for i := range *most {
		mig := new(uintptr)
		if l.call("nvmlDeviceGetMigDeviceHandleByIndex", device, i, mig) != success {
			continue
		}
		gi := read[uint32](l, "nvmlDeviceGetGpuInstanceId", *mig)
		ci := read[uint32](l, "nvmlDeviceGetComputeInstanceId", *mig)
		a := read[attributes](l, "nvmlDeviceGetAttributes_v2", *mig)
		if gi != nil && ci != nil && a != nil {
			p := l.part(*mig, "")
			p.Instance, p.SMs = fmt.Sprintf("%d/%d", *gi, *ci), min(float64(a.computeSlices)/float64(*most), 1)
			parts = append(parts, p)
		}
	}
	return parts
}

// processes returns the memory of those that compute or draw; NVML knows that of some only.
func (l *library) processes(device uintptr) map[uint32]uint64 {
	all := map[uint32]uint64{}
	for _, name := range []string{
		"nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetGraphicsRunningProcesses_v3",
	} {
		list, n := new([room]processInfo), new(uint32(room))
		if l.call(name, device, n, list) != success {
			continue
		}
		for _, p := range list[:min(*n, room)] {
			if p.memory == ^uint64(0) {
				p.memory = 0
			}
			all[p.pid] = max(all[p.pid], p.memory)
		}
	}
	return all
}

// used returns how much of a board's multiprocessor time processes used since they were asked for last, and whether the
// driver tells.
func (l *library) used(device uintptr, id string) (shares map[uint32]float64, reported bool) {
	list, n := new([room]processSample), new(uint32(room))
	switch c := l.call("nvmlDeviceGetProcessUtilization", device, list, n, l.seen[id]); {
	case c == notFound:
		return nil, true
	case c != success:
		return nil, false
	}
	shares = map[uint32]float64{}
	for _, s := range list[:min(*n, room)] {
		l.seen[id] = max(l.seen[id], s.at)
		shares[s.pid] = float64(min(s.sm, 100)) / 100
	}
	return shares, true
}
