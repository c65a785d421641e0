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

// The works. Idle is none, and Half is CPU on half of the CPUs: they tell the machine's curve.
const (
	Idle       = "idle"
	Half       = "half"
	CPU        = "cpu"
	Sequential = "sequential"
	Memory     = "memory"
	GPU        = "gpu"
)

// Units are those of rates, by work.
var Units = map[string]string{
	Half: "GFLOP/s", CPU: "GFLOP/s", Sequential: "hashes/ms", Memory: "GB/s", GPU: "GFLOP/s",
}

// A load does some rounds of a work. It returns the work done, in the unit of the rate times a second, and the time
// that it took: CPU time of each worker, or the GPU's.
type load func(rounds int) (done float64, took time.Duration, err error)

// load returns one that lasts until ctx ends.
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
	return nil, fmt.Errorf("there is no work %q", name)
}

// loadGPU starts the program that loads a GPU: it needs libraries of the driver, which a program that runs everywhere
// cannot link. It reads rounds, and writes seconds and the work done.
func loadGPU(ctx context.Context) (load, error) {
	command := exec.CommandContext(ctx, "kubenergy-gpu")
	var said bytes.Buffer
	command.Stderr, command.WaitDelay = &said, time.Second // then it is killed: its driver hangs
	in, errIn := command.StdinPipe()
	out, errOut := command.StdoutPipe()
	command.Cancel = in.Close // it ends at the end of its input
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
		if err != nil { // it has ended, and has said why
			wait()
			err = errors.New(cmp.Or(string(bytes.TrimSpace(said.Bytes())), err.Error()))
		}
		return done, max(1, time.Duration(seconds*float64(time.Second))), err
	}, nil
}

// A worker does one round on one CPU, and returns how much that was.
type worker func() (done float64)

// team has workers work side by side.
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

// CPUTime is what the process has computed so far.
func CPUTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

const side = 96 // of matrices that stay in the caches of a core

type matrix [side * side]float32

// newProduct multiplies matrices of numbers of 32 bits: what training does, without vector units, which Go does not
// use.
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

// multiply is the same code for all works, and steps by eight: a loop of few instructions is twice as fast or slow by
// where the linker puts it.
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

// newChain hashes what it hashed before, so that nothing can be done beside it: preprocessing.
func newChain() worker {
	var sum [sha256.Size]byte
	return func() float64 {
		const hashes = 1000
		for range hashes {
			sum = sha256.Sum256(sum[:])
		}
		return hashes / 1000.0 // a rate of one in a millisecond
	}
}

// newTriad reads two long rows of numbers and writes a third: more than any cache holds.
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
