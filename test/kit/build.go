package kit

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// Root is the root directory of the repository. It is found from the working directory, because go test runs each
// test in the directory of its package. It is empty if a test binary runs outside the repository, in place of a
// program that the test executes.
var Root = func() string {
	dir, err := os.Getwd()
	if err != nil {
		panic(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			return ""
		}
		dir = filepath.Dir(dir)
	}
}()

// Build builds a main package of this module, such as "./cmd/kubenergy-agent", and returns the path of the binary.
// Binaries are kept in out/test so that other packages and later runs do not have to link them again.
func Build(t testing.TB, pkg string) string {
	t.Helper()
	path := filepath.Join(Root, "out", "test", filepath.Base(pkg))
	built, _ := builds.LoadOrStore(pkg, sync.OnceValue(func() error { return BuildTo(path, pkg) }))
	if err := built.(func() error)(); err != nil {
		t.Fatal(err)
	}
	return path
}

var builds sync.Map // maps a package to a func() error

// BuildTo builds a main package of this module with additional arguments for go build. It also reads the source
// directories of the program so that go test invalidates a cached test result when a source changes.
func BuildTo(path, pkg string, args ...string) error {
	// All tests use the same build arguments so that each package is compiled only once.
	if _, err := Go(append([]string{"build", "-p", "2", "-o", path}, append(args, pkg)...)...); err != nil {
		return err
	}
	folders, err := Go("list", "-deps", "-f", "{{with .Module}}{{if .Main}}{{$.Dir}}{{end}}{{end}}", pkg)
	if err != nil {
		return err
	}
	for folder := range strings.FieldsSeq(folders) {
		if _, err := os.ReadDir(folder); err != nil { // go test records the directories that a test reads
			return err
		}
	}
	return nil
}

// Kubernetes builds a binary, such as "kubelet", of the Kubernetes version that this module uses and returns its
// path.
func Kubernetes(t testing.TB, name string) string {
	t.Helper()
	version, err := Go("list", "-m", "-f", "{{.Version}}", "k8s.io/kubernetes")
	if err != nil {
		t.Fatal(err)
	}
	version = strings.TrimSpace(version)
	number := strings.Split(strings.TrimPrefix(version, "v"), ".")
	const variables = "-X k8s.io/component-base/version.git"
	path := filepath.Join(Root, "out", "test", name)
	if err := BuildTo(path, "k8s.io/kubernetes/cmd/"+name, "-ldflags",
		variables+"Version="+version+" "+variables+"Major="+number[0]+" "+variables+"Minor="+number[1]); err != nil {
		t.Fatal(err)
	}
	return path
}

// Go runs a go command in the repository and returns its standard output.
func Go(args ...string) (string, error) {
	cmd := exec.Command("go", args...)
	cmd.Dir = Root
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		err = fmt.Errorf("%w\n%s", err, exit.Stderr)
	}
	if err != nil {
		return "", fmt.Errorf("go %s: %w", strings.Join(args, " "), err)
	}
	return string(out), nil
}
