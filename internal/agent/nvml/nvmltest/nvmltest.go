// Package nvmltest makes drivers without a GPU: libraries in C with the functions and structures of NVML. It is imported
// by tests only, which skip where there is no C compiler.
package nvmltest

import (
	_ "embed" // the library
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Library is a library of two boards of 300 and 200 W, the second with MIG instances. The first process on the first
// board, which uses 60 % of it, has the number that the variable of the name PID says, or 4101.
//
//go:embed testdata/nvml.c
var Library string

// PID names a variable: see Library.
const PID = "KUBENERGY_TEST_PID"

// Driver returns a folder that has a library where drivers have it.
func Driver(t *testing.T, source string) (root string) {
	t.Helper()
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("there is no C compiler, which makes a library with NVML's functions")
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
		t.Fatalf("compiling a library: %v: %s", err, out)
	}
	return root
}

// Build builds kubenergy-gpu into a folder, as images have it: without cgo.
func Build(dir string) error {
	cmd := exec.Command("go", "build", "-o", dir+"/", "github.com/kubenergy/kubenergy/cmd/kubenergy-gpu")
	cmd.Env, cmd.Stderr = append(os.Environ(), "CGO_ENABLED=0"), os.Stderr
	return cmd.Run()
}
