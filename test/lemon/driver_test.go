package lemon

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/kubenergy/kubenergy/mincost"
)

// headers are where LEMON's may be: what make lemon unpacks, and what the system has installed.
var headers = []string{"../../out/lemon/usr/include", "/usr/include", "/usr/local/include"}

// reference is a process that solves instances with LEMON.
type reference struct {
	in  io.WriteCloser
	out *bufio.Reader
}

// startReference compiles and starts the driver.
func startReference(t testing.TB) *reference {
	t.Helper()
	compiler, err := exec.LookPath("c++")
	if err != nil {
		t.Skip("no C++ compiler: nothing to compare with")
	}
	var include string
	for _, folder := range headers {
		if _, err := os.Stat(filepath.Join(folder, "lemon", "network_simplex.h")); err == nil {
			include = folder
			break
		}
	}
	if include == "" {
		t.Skip("no headers of LEMON: run make lemon")
	}
	binary := filepath.Join(t.TempDir(), "driver")
	build := exec.CommandContext(t.Context(), compiler, "-O2", "-std=c++14", "-I", include, "-o", binary,
		"driver/driver.cc")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("compiling the driver: %v\n%s", err, out)
	}
	driver := exec.Command(binary)
	driver.Stderr = os.Stderr
	in, err := driver.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := driver.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := driver.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		if err := driver.Wait(); err != nil {
			t.Errorf("running the driver: %v", err)
		}
	})
	return &reference{in: in, out: bufio.NewReader(out)}
}

// answer is what LEMON says of an instance.
type answer struct {
	status     string // optimal, infeasible or unbounded
	cost       int64
	build, run float64 // seconds
}

// load sends an instance that is to be solved so many times, each time that solve is called.
func (r *reference) load(i *instance, repeats int) error {
	var b bytes.Buffer
	for _, part := range []any{
		[]int64{int64(len(i.supply)), int64(len(i.ends) / 2), int64(repeats)}, i.supply, i.ends, i.limits(), i.cost,
	} {
		if err := binary.Write(&b, binary.NativeEndian, part); err != nil {
			return err
		}
	}
	_, err := r.in.Write(b.Bytes())
	return err
}

func (r *reference) solve() (a answer, err error) {
	if _, err := r.in.Write([]byte{'\n'}); err != nil {
		return a, err
	}
	line, err := r.out.ReadString('\n')
	if err != nil {
		return a, err
	}
	_, err = fmt.Sscan(line, &a.status, &a.cost, &a.build, &a.run)
	return a, err
}

// instance is a minimum-cost flow problem as both get it.
type instance struct {
	supply   []int64
	ends     []int32 // tail and head of each arc
	capacity []int64
	cost     []int64

	jobs, choices int // of a placement, whose first arcs are those of its jobs
}

func (i *instance) arc(tail, head int, capacity, cost int64) {
	i.ends = append(i.ends, int32(tail), int32(head))
	i.capacity = append(i.capacity, capacity)
	i.cost = append(i.cost, cost)
}

// limits returns capacities as the driver reads them.
func (i *instance) limits() []int64 {
	limits := make([]int64, len(i.capacity))
	for arc, c := range i.capacity {
		if limits[arc] = c; c == mincost.Unlimited {
			limits[arc] = -1
		}
	}
	return limits
}

func (i *instance) network() *mincost.Network {
	n := mincost.NewNetwork(len(i.supply))
	n.Grow(len(i.cost))
	for node, units := range i.supply {
		n.SetSupply(node, units)
	}
	for arc, cost := range i.cost {
		n.AddArc(int(i.ends[2*arc]), int(i.ends[2*arc+1]), i.capacity[arc], cost)
	}
	return n
}
