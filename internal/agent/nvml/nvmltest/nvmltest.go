// Package nvmltest provides fake NVIDIA drivers: C libraries with the functions and structures of NVML. It is for
// testing only. Tests are skipped if no C compiler is installed.
package nvmltest

import (
	_ "embed" // for the C library
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Library is the source of a library with two GPUs of 300 and 200 W, the second with MIG instances. The first
// process on the first GPU uses 60 % of it. Its PID is the value of the environment variable PID, 4101 by default.
//
//go:embed testdata/nvml.c
var Library string

// PID is the name of an environment variable. See Library.
const PID = "KUBENERGY_TEST_PID"

// Driver compiles source and returns a root directory that contains the library in the driver's usual location.
func Driver(t *testing.T, source string) (root string) {
	t.Helper()
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("requires a C compiler")
	}
	root = t.TempDir()
	folder, file := filepath.Join(root, "usr/lib64"), filepath.Join(root, "nvml.c")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	library := filepath.Join(folder, "libnvidia-ml.so.1")
	if out, err := exec.Command(cc, "-shared", "-fPIC", "-o", library, file).CombinedOutput(); err != nil {
		t.Fatalf("compiling the library: %v: %s", err, out)
	}
	return root
}

// Build builds kubenergy-gpu without cgo into dir, as in the container image.
func Build(dir string) error {
	cmd := exec.Command("go", "build", "-o", dir+"/", "github.com/kubenergy/kubenergy/cmd/kubenergy-gpu")
	cmd.Env, cmd.Stderr = append(os.Environ(), "CGO_ENABLED=0"), os.Stderr
	return cmd.Run()
}
