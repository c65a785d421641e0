package cuda_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubenergy/kubenergy/test/kit"
)

// driver implements the functions of NVIDIA's driver that are called, with their real signatures. It fails if its
// arguments are invalid, and simulates a computation by writing to standard error.
const driver = `
#include <stdint.h>
#include <stdio.h>
#include <string.h>
typedef struct { int set; } thing;
static thing context, module, function;
static uint64_t memory = 0x700000000000ull;
int cuInit(unsigned flags) { return flags; }
int cuDeviceGet(int *device, int ordinal) { *device = 7; return ordinal; }
int cuDeviceGetAttribute(int *value, int attribute, int device) { *value = 3; return attribute != 16 || device != 7; }
int cuDevicePrimaryCtxRetain(thing **c, int device) { *c = &context; return device != 7; }
int cuCtxSetCurrent(thing *c) { return c != &context; }
int cuModuleLoadData(thing **m, const char *text) { *m = &module; return !strstr(text, ".entry multiply("); }
int cuModuleGetFunction(thing **f, thing *m, const char *name) { *f = &function; return m != &module || strcmp(name, "multiply"); }
int cuMemAlloc_v2(uint64_t *address, size_t size) { *address = memory; return size != 3 * 8 * 256 * 4; }
int cuLaunchKernel(thing *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
	unsigned shared, void *stream, void **arguments, void **extra) {
	if (f != &function || gx != 24 || gy != 1 || gz != 1 || bx != 256 || by != 1 || bz != 1 || shared || stream || extra) return 1;
	if (*(uint64_t *)arguments[0] != memory || *(uint32_t *)arguments[1] != 4096) return 2;
	fputs("launched\n", stderr);
	return 0;
}
int cuCtxSynchronize(void) { return 0; }
`

// TestCallsTheDriver runs the program with a driver that validates its arguments.
func TestCallsTheDriver(t *testing.T) {
	compiler, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("skipping because the test driver cannot be built without a C compiler")
	}
	dir := t.TempDir()
	kit.Write(t, filepath.Join(dir, "driver.c"), driver)
	library := exec.Command(compiler, "-shared", "-fPIC", "-w", "-o", filepath.Join(dir, "libcuda.so.1"),
		filepath.Join(dir, "driver.c"))
	if out, err := library.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	program := kit.Build(t, "./cmd/kubenergy-gpu")
	run := func(input string, env ...string) (stdout, stderr string, err error) {
		var out, errs strings.Builder
		command := exec.Command(program)
		command.Env = append(os.Environ(), env...)
		command.Stdin, command.Stdout, command.Stderr = strings.NewReader(input), &out, &errs
		err = command.Run()
		return out.String(), errs.String(), err
	}
	stdout, stderr, err := run("0\n2\n", "LD_LIBRARY_PATH="+dir)
	lines := strings.Split(stdout, "\n")
	// 2 rounds of 3 multiprocessors, 8 blocks of 256 threads, 4096 steps of 64 operations
	if err != nil || strings.Count(stderr, "launched\n") != 2 || len(lines) != 3 ||
		!strings.HasSuffix(lines[0], " 0") || !strings.HasSuffix(lines[1], " 3.221225472") {
		t.Errorf("unexpected output, error %v: %q\n%s", err, stdout, stderr)
	}
	if _, stderr, err = run("1\n", "LD_LIBRARY_PATH=/nonexistent"); err == nil || !strings.Contains(stderr, "libcuda.so.1") {
		t.Errorf("unexpected result without a driver: %v, %s", err, stderr)
	}
	if _, stderr, err = run("x\n", "LD_LIBRARY_PATH="+dir); err == nil {
		t.Errorf("an invalid number was accepted: %s", stderr)
	}
}
