// Package cuda loads one of NVIDIA's GPUs through the driver's libraries, which it opens when it runs: programs that
// import it need the system's dynamic linker, and nothing of NVIDIA's to be built.
package cuda

import (
	"cmp"
	_ "embed"
	"fmt"
	"runtime"
	"unsafe"

	"github.com/ebitengine/purego"
)

//go:embed multiply.ptx
var kernel string

const (
	block       = 256 // threads
	blocks      = 8   // of each multiprocessor
	steps       = 4096
	flopsOfStep = 2 * 32
)

// GPU is the first one that the driver shows. It belongs to one goroutine. What the driver is handed the address of
// stands in it, and so on the heap, where it stays.
type GPU struct {
	library, context, module, function uintptr
	device, multiprocessors            int32
	out                                uint64 // where threads write, on the GPU
	steps                              uint32
	arguments                          [2]uintptr
}

// The texts that the driver reads.
var text, name = []byte(kernel + "\x00"), []byte("multiply\x00")

// at is an address as the driver takes it.
func at[T any](p *T) uintptr { return uintptr(unsafe.Pointer(p)) } //nolint:gosec // as C wants them

// call calls a function of the driver; all return 0 for success.
func (g *GPU) call(name string, arguments ...uintptr) error {
	function, err := purego.Dlsym(g.library, name)
	if err != nil {
		return err
	}
	if code, _, _ := purego.SyscallN(function, arguments...); int32(code) != 0 {
		return fmt.Errorf("%s: error %d of the driver", name, int32(code))
	}
	return nil
}

// Open finds the GPU and prepares it.
func Open() (g *GPU, err error) {
	runtime.LockOSThread() // contexts are of threads
	g = &GPU{steps: steps}
	if g.library, err = purego.Dlopen("libcuda.so.1", purego.RTLD_NOW|purego.RTLD_GLOBAL); err != nil {
		return nil, err
	}
	g.arguments = [2]uintptr{at(&g.out), at(&g.steps)}
	const multiprocessors = 16 // CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
	do := func(name string, arguments ...uintptr) {
		if err == nil {
			err = g.call(name, arguments...)
		}
	}
	do("cuInit", 0)
	do("cuDeviceGet", at(&g.device), 0)
	do("cuDeviceGetAttribute", at(&g.multiprocessors), multiprocessors, uintptr(g.device))
	do("cuDevicePrimaryCtxRetain", at(&g.context), uintptr(g.device))
	do("cuCtxSetCurrent", g.context)
	do("cuModuleLoadData", at(&g.module), at(&text[0]))
	do("cuModuleGetFunction", at(&g.function), g.module, at(&name[0]))
	do("cuMemAlloc_v2", at(&g.out), g.blocks()*block*4)
	return g, err
}

func (g *GPU) blocks() uintptr { return uintptr(g.multiprocessors) * blocks }

// Work does some rounds. It returns how many billion operations on numbers of 32 bits these were.
func (g *GPU) Work(rounds int) (done float64, err error) {
	for i := 0; i < rounds && err == nil; i++ {
		err = g.call("cuLaunchKernel", g.function, g.blocks(), 1, 1, block, 1, 1, 0, 0, at(&g.arguments), 0)
	}
	return float64(rounds) * float64(g.blocks()) * block * steps * flopsOfStep / 1e9,
		cmp.Or(err, g.call("cuCtxSynchronize"))
}
