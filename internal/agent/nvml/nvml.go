//go:build linux && (amd64 || arm64)

// Package nvml reads NVIDIA GPUs through the driver's library, which it loads with the system's dynamic loader and
// without cgo. Only kubenergy-gpu, which the agent runs as a child process, may import it. This keeps the agent's
// binary static and isolates the agent from drivers that hang or crash (docs/decisions/0034).
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

// code is a return code of NVML.
type code uint32

const (
	success          code = 0
	notFound         code = 6
	functionNotFound code = 13
)

type library struct {
	handle uintptr
	seen   map[string]uint64 // latest timestamp of process samples by UUID, in microseconds of the driver's clock
}

// Structures of nvml.h.
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

const room = 1024 // maximum number of processes per query

// Serve writes the readings of all GPUs to out at every interval, one line of JSON each, until an error occurs.
func Serve(out io.Writer, path string, interval time.Duration) error {
	handle, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_GLOBAL)
	if err != nil {
		return fmt.Errorf("loading the driver's library: %w", err)
	}
	l := &library{handle: handle, seen: map[string]uint64{}}
	if c := l.call("nvmlInit_v2"); c != success {
		return fmt.Errorf("nvmlInit_v2: NVML error %d", c)
	}
	lines := json.NewEncoder(out)
	for tick := time.NewTicker(interval); ; <-tick.C {
		boards, err := l.boards()
		if err != nil {
			return err
		}
		if err := lines.Encode(boards); err != nil {
			return fmt.Errorf("writing to the agent: %w", err)
		}
	}
}

// call calls an NVML function with integer and pointer arguments. Pointer targets are pinned during the call.
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

// read calls a function that returns one value for a device. It returns nil if the call fails.
func read[T any](l *library, name string, device uintptr) *T {
	v := new(T)
	if l.call(name, device, v) != success {
		return nil
	}
	return v
}

// boards reads all GPUs. It skips GPUs that cannot be identified.
func (l *library) boards() ([]gpu.Board, error) {
	count := new(uint32)
	if c := l.call("nvmlDeviceGetCount_v2", count); c != success {
		return nil, fmt.Errorf("nvmlDeviceGetCount_v2: NVML error %d", c)
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
		b.Celsius = celsius // sensor 0 is the GPU die
	}
	mig, pending := new(uint32), new(uint32)
	if l.call("nvmlDeviceGetMigMode", device, mig, pending) == success && *mig == 1 {
		b.Parts = l.instances(device)
	} else {
		b.Parts = []gpu.Part{l.part(device, id)}
	}
	return b
}

// part reads the processes of a GPU or MIG instance. NVML does not report the utilization of MIG instances, so an
// instance with at least one process is considered busy.
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

// instances reads the MIG instances of a GPU.
func (l *library) instances(device uintptr) (parts []gpu.Part) {
	most := read[uint32](l, "nvmlDeviceGetMaxMigDeviceCount", device) // number of slices: 7, or 4 on smaller GPUs
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

// processes returns the memory of compute and graphics processes by PID, 0 if NVML does not report it.
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

// used returns the fraction of multiprocessor time that each process used since the previous call, and whether the
// driver reports it.
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
