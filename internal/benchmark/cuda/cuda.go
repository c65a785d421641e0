// Package cuda loads an NVIDIA GPU through the driver's libraries, which it opens at runtime. Programs that import
// it need the system's dynamic linker, but no NVIDIA software at build time.
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
	blocks      = 8   // per multiprocessor
	steps       = 4096
	flopsOfStep = 2 * 32
)

// GPU is the first GPU reported by the driver. It must only be used by one goroutine. Values that are passed to the
// driver by address are fields of the struct, so that they are allocated on the heap and do not move.
type GPU struct {
	library, context, module, function uintptr
	device, multiprocessors            int32
	out                                uint64 // output of the threads, in GPU memory
	steps                              uint32
	arguments                          [2]uintptr
}

// Null-terminated strings for the driver.
var text, name = []byte(kernel + "\x00"), []byte("multiply\x00")

// at returns an address in the form that the driver expects.
func at[T any](p *T) uintptr { return uintptr(unsafe.Pointer(p)) } //nolint:gosec // required by the C API

// call calls a function of the driver. All of its functions return 0 on success.
func (g *GPU) call(name string, arguments ...uintptr) error {
	function, err := purego.Dlsym(g.library, name)
	if err != nil {
		return err
	}
	if code, _, _ := purego.SyscallN(function, arguments...); int32(code) != 0 {
		return fmt.Errorf("%s: driver returned error %d", name, int32(code))
	}
	return nil
}

// Open opens and initializes the GPU.
func Open() (g *GPU, err error) {
	runtime.LockOSThread() // contexts are bound to threads
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

// Work executes the given number of rounds. It returns the work done in billions of 32-bit floating-point
// operations.
func (g *GPU) Work(rounds int) (done float64, err error) {
	for i := 0; i < rounds && err == nil; i++ {
		err = g.call("cuLaunchKernel", g.function, g.blocks(), 1, 1, block, 1, 1, 0, 0, at(&g.arguments), 0)
	}
	return float64(rounds) * float64(g.blocks()) * block * steps * flopsOfStep / 1e9,
		cmp.Or(err, g.call("cuCtxSynchronize"))
}
