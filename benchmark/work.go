package benchmark

import (
	"crypto/sha256"
	"fmt"
	"os"
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

// A load is a work that is ready to run.
type load interface {
	// do does some rounds of it. It returns the work done, in the unit of the rate times a second, and the time that it
	// took: CPU time of each worker, or the GPU's.
	do(rounds int) (done float64, took time.Duration, err error)
	// joules is what the GPU has drawn so far; false: not known.
	joules() (float64, bool)
	close()
}

func (m *Machine) load(name string, rep time.Duration) (load, error) {
	cpus := m.CPUs
	switch name {
	case Idle:
		l := &rest{rep: rep}
		if m.GPUProgram == "" {
			return l, nil
		}
		var err error
		l.gpu, err = startGPU(m.GPUProgram)
		return l, err
	case GPU:
		return startGPU(m.GPUProgram)
	case Half:
		return newTeam(max(1, cpus/2), newProduct), nil
	case CPU:
		return newTeam(cpus, newProduct), nil
	case Sequential:
		return newTeam(1, newChain), nil
	case Memory:
		return newTeam(cpus, newTriad), nil
	}
	return nil, fmt.Errorf("there is no work %q", name)
}

// rest does nothing, and looks at the GPU meanwhile.
type rest struct {
	rep time.Duration
	gpu *gpu // nil: none
}

func (r *rest) do(int) (float64, time.Duration, error) {
	time.Sleep(r.rep)
	if r.gpu == nil {
		return 0, r.rep, nil
	}
	_, _, err := r.gpu.do(0)
	return 0, r.rep, err
}

func (r *rest) joules() (float64, bool) {
	if r.gpu == nil {
		return 0, false
	}
	return r.gpu.joules()
}

func (r *rest) close() {
	if r.gpu != nil {
		r.gpu.close()
	}
}

// A worker does one round on one CPU, and returns how much that was.
type worker func() (done float64)

// team are workers side by side.
type team []worker

func newTeam(n int, hire func() worker) (t team) {
	for range n {
		t = append(t, hire())
	}
	return t
}

func (t team) do(rounds int) (done float64, took time.Duration, err error) {
	var working sync.WaitGroup
	each := make([]float64, len(t))
	began := CPUTime()
	for i, work := range t {
		working.Go(func() {
			for range rounds {
				each[i] += work()
			}
		})
	}
	working.Wait()
	for _, d := range each {
		done += d
	}
	return done, max((CPUTime()-began)/time.Duration(len(t)), 1), nil
}

func (team) joules() (float64, bool) { return 0, false }
func (team) close()                  {}

// CPUTime is what the process has computed so far.
func CPUTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// newProduct multiplies matrices of numbers of 32 bits that fit the nearest cache: what training does, without vector
// units, which Go does not use.
func newProduct() worker {
	const n = 96
	a, b, c := make([]float32, n*n), make([]float32, n*n), make([]float32, n*n)
	for i := range a {
		a[i], b[i] = float32(i%7)/7, float32(i%5)/5
	}
	return func() float64 {
		for i := range n {
			row := c[i*n : (i+1)*n]
			clear(row)
			for k := range n {
				factor, other := a[i*n+k], b[k*n:(k+1)*n]
				for j := range row {
					row[j] += factor * other[j]
				}
			}
		}
		return 2 * n * n * n / 1e9
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

// NodeBusy returns the CPU time that the node has used since its boot; 0: not known.
func NodeBusy() time.Duration {
	text, _ := os.ReadFile("/proc/stat")
	var ticks [7]int64 // user, nice, system, idle, iowait, irq, softirq: guests' are in the first two
	_, err := fmt.Sscanf(string(text), "cpu %d %d %d %d %d %d %d",
		&ticks[0], &ticks[1], &ticks[2], &ticks[3], &ticks[4], &ticks[5], &ticks[6])
	if err != nil {
		return 0
	}
	return time.Duration(ticks[0]+ticks[1]+ticks[2]+ticks[5]+ticks[6]) * (time.Second / 100)
}
