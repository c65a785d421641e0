// Package cuda loads one of NVIDIA's GPUs through the driver's libraries, which it opens when it runs: programs that
// import it need the system's dynamic linker, and nothing of NVIDIA's to be built.
package cuda

import (
	"fmt"
	"runtime"
	"time"
	"unsafe"

	"github.com/ebitengine/purego"
)

// kernel has each thread do steps of 32 multiplications with additions, in eight chains that do not wait for each
// other. The driver compiles it for the GPU that is there.
const kernel = `.version 6.0
.target sm_50
.address_size 64
.visible .entry multiply(.param .u64 out, .param .u32 steps)
{
	.reg .pred %p; .reg .f32 %f<10>; .reg .b32 %r<6>; .reg .b64 %d<4>;
	ld.param.u64 %d1, [out]; ld.param.u32 %r1, [steps];
	mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x; mad.lo.s32 %r5, %r2, %r3, %r4;
	cvt.rn.f32.s32 %f0, %r5; mov.f32 %f8, 0f3F7FFFFE; mov.f32 %f9, 0f3F000000;
	mov.f32 %f1, %f0; mov.f32 %f2, %f0; mov.f32 %f3, %f0; mov.f32 %f4, %f0;
	mov.f32 %f5, %f0; mov.f32 %f6, %f0; mov.f32 %f7, %f0;
again:
` + four + four + four + four + `
	sub.s32 %r1, %r1, 1; setp.gt.s32 %p, %r1, 0; @%p bra again;
	add.f32 %f0, %f0, %f1; add.f32 %f2, %f2, %f3; add.f32 %f4, %f4, %f5; add.f32 %f6, %f6, %f7;
	add.f32 %f0, %f0, %f2; add.f32 %f4, %f4, %f6; add.f32 %f0, %f0, %f4;
	mul.wide.s32 %d2, %r5, 4; add.s64 %d3, %d1, %d2; st.global.f32 [%d3], %f0;
	ret;
}`

const four = `	fma.rn.f32 %f0, %f0, %f8, %f9; fma.rn.f32 %f1, %f1, %f8, %f9;
	fma.rn.f32 %f2, %f2, %f8, %f9; fma.rn.f32 %f3, %f3, %f8, %f9;
	fma.rn.f32 %f4, %f4, %f8, %f9; fma.rn.f32 %f5, %f5, %f8, %f9;
	fma.rn.f32 %f6, %f6, %f8, %f9; fma.rn.f32 %f7, %f7, %f8, %f9;
`

const (
	block          = 256 // threads
	blocks         = 8   // of each multiprocessor
	steps          = 4096
	flopsOfStep    = 2 * 32
	multiprocessor = 16 // CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
)

// GPU is the first one that the driver shows. It belongs to one goroutine.
type GPU struct {
	device, multiprocessors int32
	function                uintptr // 0: there is no context yet, which alone makes a GPU draw more
	out                     uint64
	handle                  uintptr // NVML's; 0: it has none
}

// The driver's functions, by their C signatures; all return 0 for success.
var (
	cuInit                   func(flags uint32) int32
	cuDeviceGet              func(device *int32, ordinal int32) int32
	cuDeviceGetPCIBusId      func(id *byte, size, device int32) int32
	cuDeviceGetAttribute     func(value *int32, attribute, device int32) int32
	cuDevicePrimaryCtxRetain func(context *uintptr, device int32) int32
	cuCtxSetCurrent          func(context uintptr) int32
	cuModuleLoadData         func(module *uintptr, image *byte) int32
	cuModuleGetFunction      func(function *uintptr, module uintptr, name *byte) int32
	cuMemAlloc               func(address *uint64, size uintptr) int32
	cuLaunchKernel           func(function uintptr, gx, gy, gz, bx, by, bz, shared uint32, stream uintptr,
		arguments *unsafe.Pointer, extra uintptr) int32
	cuCtxSynchronize func() int32

	nvmlInit        func() int32
	nvmlHandle      func(id *byte, handle *uintptr) int32
	nvmlTotalEnergy func(handle uintptr, millijoules *uint64) int32
)

// Open finds the GPU.
func Open() (*GPU, error) {
	runtime.LockOSThread() // contexts are of threads
	library, err := purego.Dlopen("libcuda.so.1", purego.RTLD_NOW|purego.RTLD_GLOBAL)
	if err != nil {
		return nil, fmt.Errorf("opening NVIDIA's driver: %w", err)
	}
	for name, function := range map[string]any{
		"cuInit": &cuInit, "cuDeviceGet": &cuDeviceGet, "cuDeviceGetPCIBusId": &cuDeviceGetPCIBusId,
		"cuDeviceGetAttribute": &cuDeviceGetAttribute, "cuDevicePrimaryCtxRetain": &cuDevicePrimaryCtxRetain,
		"cuCtxSetCurrent": &cuCtxSetCurrent, "cuModuleLoadData": &cuModuleLoadData,
		"cuModuleGetFunction": &cuModuleGetFunction, "cuMemAlloc_v2": &cuMemAlloc,
		"cuLaunchKernel": &cuLaunchKernel, "cuCtxSynchronize": &cuCtxSynchronize,
	} {
		purego.RegisterLibFunc(function, library, name)
	}
	g := &GPU{}
	id := make([]byte, 32)
	if err := inTurn(
		func() int32 { return cuInit(0) }, func() int32 { return cuDeviceGet(&g.device, 0) },
		func() int32 { return cuDeviceGetAttribute(&g.multiprocessors, multiprocessor, g.device) },
		func() int32 { return cuDeviceGetPCIBusId(&id[0], int32(len(id)), g.device) },
	); err != nil {
		return nil, fmt.Errorf("finding a GPU: %w", err)
	}
	g.openMeter(&id[0])
	return g, nil
}

// openMeter finds the GPU's counter of energy, where it has one.
func (g *GPU) openMeter(id *byte) {
	library, err := purego.Dlopen("libnvidia-ml.so.1", purego.RTLD_NOW|purego.RTLD_GLOBAL)
	if err != nil {
		return
	}
	purego.RegisterLibFunc(&nvmlInit, library, "nvmlInit_v2")
	purego.RegisterLibFunc(&nvmlHandle, library, "nvmlDeviceGetHandleByPciBusId_v2")
	purego.RegisterLibFunc(&nvmlTotalEnergy, library, "nvmlDeviceGetTotalEnergyConsumption")
	if nvmlInit() != 0 || nvmlHandle(id, &g.handle) != 0 {
		g.handle = 0
	}
}

// Joules returns what the GPU has drawn since its driver was loaded; -1: it does not count that.
func (g *GPU) Joules() float64 {
	var millijoules uint64
	if g.handle == 0 || nvmlTotalEnergy(g.handle, &millijoules) != 0 {
		return -1
	}
	return float64(millijoules) / 1000
}

// Work does some rounds. It returns how many billion operations on numbers of 32 bits these were.
func (g *GPU) Work(rounds int) (done float64, took time.Duration, err error) {
	if rounds == 0 {
		return 0, 0, nil
	}
	if g.function == 0 {
		if err := g.prepare(); err != nil {
			return 0, 0, fmt.Errorf("preparing the GPU: %w", err)
		}
	}
	many := uint32(g.multiprocessors) * blocks
	count := uint32(steps)
	arguments := []unsafe.Pointer{unsafe.Pointer(&g.out), unsafe.Pointer(&count)} //nolint:gosec // as C wants them
	began := time.Now()
	for range rounds {
		if code := cuLaunchKernel(g.function, many, 1, 1, block, 1, 1, 0, 0, &arguments[0], 0); code != 0 {
			return 0, 0, fmt.Errorf("loading the GPU: error %d of the driver", code)
		}
	}
	if code := cuCtxSynchronize(); code != 0 {
		return 0, 0, fmt.Errorf("waiting for the GPU: error %d of the driver", code)
	}
	return float64(rounds) * float64(many) * block * steps * flopsOfStep / 1e9, time.Since(began), nil
}

func (g *GPU) prepare() error {
	var context, module uintptr
	text, name := []byte(kernel+"\x00"), []byte("multiply\x00")
	return inTurn(
		func() int32 { return cuDevicePrimaryCtxRetain(&context, g.device) },
		func() int32 { return cuCtxSetCurrent(context) },
		func() int32 { return cuModuleLoadData(&module, &text[0]) },
		func() int32 { return cuModuleGetFunction(&g.function, module, &name[0]) },
		func() int32 { return cuMemAlloc(&g.out, uintptr(g.multiprocessors)*blocks*block*4) },
	)
}

// inTurn calls until one fails.
func inTurn(calls ...func() int32) error {
	for i, call := range calls {
		if code := call(); code != 0 {
			return fmt.Errorf("step %d: error %d of the driver", i+1, code)
		}
	}
	return nil
}
