package benchmark

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"time"
)

// The benchmarks. Idle does no work and Half is CPU on half of the CPUs; both are required for the power curve.
const (
	Idle       = "idle"
	Half       = "half"
	CPU        = "cpu"
	Sequential = "sequential"
	Memory     = "memory"
	GPU        = "gpu"
)

// Units contains the unit of the rate of each benchmark.
var Units = map[string]string{
	Half: "GFLOP/s", CPU: "GFLOP/s", Sequential: "hashes/ms", Memory: "GB/s", GPU: "GFLOP/s",
}

// A load executes a number of rounds of a benchmark. It returns the work done, in the unit of the rate times a
// second, and the time used: the mean CPU time per worker, or the time of the GPU.
type load func(rounds int) (done float64, took time.Duration, err error)

// load returns the load of the named benchmark. It is valid until ctx is cancelled.
func (m *Machine) load(ctx context.Context, name string, rep time.Duration) (load, error) {
	switch name {
	case Idle:
		return func(int) (float64, time.Duration, error) {
			time.Sleep(rep)
			return 0, rep, nil
		}, nil
	case GPU:
		return loadGPU(ctx)
	case Half:
		return team(max(1, m.CPUs/2), newProduct), nil
	case CPU:
		return team(m.CPUs, newProduct), nil
	case Sequential:
		return team(1, newChain), nil
	case Memory:
		return team(m.CPUs, newTriad), nil
	}
	return nil, fmt.Errorf("unknown benchmark %q", name)
}

// loadGPU starts the program that loads a GPU. It is a separate program because it needs the libraries of the
// driver, which a portable binary cannot link. It reads the number of rounds and writes the seconds and the work
// done.
func loadGPU(ctx context.Context) (load, error) {
	command := exec.CommandContext(ctx, "kubenergy-gpu")
	var said bytes.Buffer
	command.Stderr, command.WaitDelay = &said, time.Second // kill the program if its driver hangs
	in, errIn := command.StdinPipe()
	out, errOut := command.StdoutPipe()
	command.Cancel = in.Close // the program exits at the end of its input
	if err := errors.Join(errIn, errOut, command.Start()); err != nil {
		return nil, err
	}
	wait := sync.OnceFunc(func() { _ = command.Wait() })
	context.AfterFunc(ctx, wait)
	return func(rounds int) (done float64, took time.Duration, err error) {
		var seconds float64
		if _, err = fmt.Fprintln(in, rounds); err == nil {
			_, err = fmt.Fscanln(out, &seconds, &done)
		}
		if err != nil { // the program has exited and reported the cause
			wait()
			err = errors.New(cmp.Or(string(bytes.TrimSpace(said.Bytes())), err.Error()))
		}
		return done, max(1, time.Duration(seconds*float64(time.Second))), err
	}, nil
}

// A worker executes one round on one CPU and returns the work done.
type worker func() (done float64)

// team runs n workers concurrently.
func team(n int, hire func() worker) load {
	workers, each := make([]worker, n), make([]float64, n)
	for i := range workers {
		workers[i] = hire()
	}
	return func(rounds int) (done float64, took time.Duration, err error) {
		var working sync.WaitGroup
		began := CPUTime()
		for i, work := range workers {
			working.Go(func() {
				each[i] = 0
				for range rounds {
					each[i] += work()
				}
			})
		}
		working.Wait()
		for _, d := range each {
			done += d
		}
		return done, max(1, (CPUTime()-began)/time.Duration(n)), nil
	}
}

// CPUTime returns the CPU time used by the process, or 0 if it is unknown.
func CPUTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

const side = 96 // of matrices that fit into the caches of a core

type matrix [side * side]float32

// newProduct multiplies matrices of 32-bit floats, as training does, but without vector instructions, which the Go
// compiler does not generate.
func newProduct() worker {
	var a, b, c matrix
	for i := range a {
		a[i], b[i] = float32(i%7)/7, float32(i%5)/5
	}
	return func() float64 {
		multiply(&a, &b, &c)
		return 2 * side * side * side / 1e9
	}
}

// multiply is shared by all benchmarks and unrolled by eight, because the speed of a short loop varies by a factor
// of two with its placement by the linker.
//
//go:noinline
func multiply(a, b, c *matrix) {
	clear(c[:])
	for i := range side {
		for k := range side {
			factor, row, other := a[i*side+k], c[i*side:(i+1)*side], b[k*side:(k+1)*side]
			for len(row) >= 8 && len(other) >= 8 {
				r, o := (*[8]float32)(row), (*[8]float32)(other)
				r[0] += factor * o[0]
				r[1] += factor * o[1]
				r[2] += factor * o[2]
				r[3] += factor * o[3]
				r[4] += factor * o[4]
				r[5] += factor * o[5]
				r[6] += factor * o[6]
				r[7] += factor * o[7]
				row, other = row[8:], other[8:]
			}
		}
	}
}

// newChain computes a chain of hashes in which each depends on the previous one, so that it cannot be parallelized,
// like preprocessing.
func newChain() worker {
	var sum [sha256.Size]byte
	return func() float64 {
		const hashes = 1000
		for range hashes {
			sum = sha256.Sum256(sum[:])
		}
		return hashes / 1000.0 // in hashes per millisecond
	}
}

// newTriad reads two arrays and writes a third. They are larger than any cache.
func newTriad() worker {
	const n = 2 << 20
	a := make([]float64, n)
	b, c := slices.Repeat([]float64{1}, n), slices.Repeat([]float64{2}, n)
	return func() float64 {
		for i := range a {
			a[i] = b[i] + 3*c[i]
		}
		return 3 * 8 * n / 1e9
	}
}
