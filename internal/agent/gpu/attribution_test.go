package gpu_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/agent/gpu"
	"github.com/kubenergy/kubenergy/internal/energy"
)

// history generates successive random readings of GPUs.
type history struct {
	r      *rand.Rand
	now    time.Duration
	boards []*source
}

type source struct {
	board gpu.Board
	total uint64 // mJ
}

var consumers = []string{"", energy.System, "pod/a", "pod/a/1", "pod/a/2", "pod/b/1", "pod/c/1", "vm/x", "cgroup/s"}

func newHistory(seed uint64) *history {
	h := &history{r: rand.New(rand.NewPCG(seed, 23)), now: time.Second}
	for i := range 1 + h.r.IntN(3) {
		h.boards = append(h.boards, &source{
			board: gpu.Board{ID: fmt.Sprintf("GPU-%d", i)}, total: h.r.Uint64N(1e9),
		})
	}
	return h
}

// step advances the GPUs by a random time. Whole GPUs are shared by time slicing, and others by instances that are
// created and deleted.
func (h *history) step() (boards []gpu.Board) {
	dt := time.Duration(1 + h.r.Int64N(int64(3*time.Second)))
	h.now += dt
	for _, s := range h.boards {
		switch h.r.IntN(12) {
		case 0:
			continue // no reading
		case 1: // the counter does not advance
		default:
			s.total += uint64(h.r.Float64() * 700_000 * dt.Seconds())
		}
		s.board.Parts = h.parts()
		boards = append(boards, s.read(h.now))
	}
	return boards
}

func (s *source) read(at time.Duration) gpu.Board {
	b := s.board
	b.At = at
	b.Reading = energy.Reading{
		Domain: b.Domain(), At: at, Total: energy.Microjoules(s.total) * 1000, Quality: energy.Measured,
	}
	return b
}

func (h *history) parts() (parts []gpu.Part) {
	if h.r.IntN(2) == 0 {
		return []gpu.Part{{SMs: 1, Busy: h.share(), Reported: h.r.IntN(4) > 0, Uses: h.uses(4)}}
	}
	left := 7
	for i := 0; left > 0; i++ {
		slices := 1 + h.r.IntN(left)
		left -= slices
		p := gpu.Part{Instance: fmt.Sprint(i, "/0"), SMs: float64(slices) / 7, Uses: h.uses(2)}
		if len(p.Uses) > 0 {
			p.Busy = h.share()
		}
		parts = append(parts, p)
	}
	return parts
}

// share usually returns a valid fraction, and sometimes an invalid value that a driver might report.
func (h *history) share() float64 {
	return []float64{0, 1, h.r.Float64(), h.r.Float64(), 1.7, -1, math.NaN()}[h.r.IntN(7)]
}

func (h *history) uses(most int) (uses []gpu.Use) {
	for range h.r.IntN(most + 1) {
		uses = append(uses, gpu.Use{PID: 1 + h.r.IntN(len(consumers)), SM: h.share() / float64(most)})
	}
	return uses
}

func who(u *gpu.Use) string { return consumers[u.PID-1] }

// conserve plays a history with a restart at a random step, and returns an error if energy is lost or created.
func conserve(seed uint64) error {
	h := newHistory(seed)
	options := energy.AttributorOptions{Idle: energy.IdlePolicy(h.r.IntN(3))}
	books := gpu.NewAttribution(options)
	var node energy.Attribution
	counted := map[string][2]energy.Microjoules{}
	observe := func(boards []gpu.Board) {
		for _, b := range boards {
			of, known := counted[b.ID]
			if !known {
				of[0] = b.Reading.Total
			}
			of[1] = b.Reading.Total
			counted[b.ID] = of
		}
		books.Observe(boards, who, &node)
	}
	steps, restart := 3+h.r.IntN(5), h.r.IntN(8)
	for step := range steps {
		observe(h.step())
		if err := node.Check(); err != nil {
			return fmt.Errorf("step %d: %w", step, err)
		}
		if step == restart {
			again := gpu.NewAttribution(options)
			if err := again.RestoreState(books.AppendState(nil)); err != nil {
				return err
			}
			books = again
		}
	}
	// Read each counter once more to attribute the energy of counters that did not advance in the last step.
	h.now += time.Second
	var boards []gpu.Board
	for _, s := range h.boards {
		s.total++
		boards = append(boards, s.read(h.now))
	}
	observe(boards)
	var want, gpus energy.Microjoules
	for _, of := range counted {
		want += of[1] - of[0]
	}
	gpus = node.GPUIdle + node.GPUUnknown
	for i := range node.Shares {
		gpus += node.Shares[i].GPU
	}
	if err := node.Check(); err != nil || node.Measured != want || gpus != want {
		return fmt.Errorf("counters advanced by %d µJ, recorded %d, %d for GPUs: %w", want, node.Measured, gpus, err)
	}
	return nil
}

// TestHistoriesConserve verifies that all counted energy is attributed exactly once while consumers start and stop,
// with time slicing and on MIG instances.
func TestHistoriesConserve(t *testing.T) {
	histories := uint64(5_000)
	if os.Getenv("KUBENERGY_LONG") != "" {
		histories = 10_000_000
	}
	var all sync.WaitGroup
	var played atomic.Uint64
	workers := uint64(runtime.GOMAXPROCS(0))
	for w := range workers {
		all.Go(func() {
			for seed := w; seed < histories && !t.Failed(); seed += workers {
				if err := conserve(seed); err != nil {
					t.Errorf("history %d: %v", seed, err)
				}
				if n := played.Add(1); n%100_000 == 0 { // report progress in case the run is interrupted
					fmt.Println(n, "histories of", histories, "passed")
				}
			}
		})
	}
	all.Wait()
	t.Logf("%d histories", played.Load())
}

// TestH100 verifies that the energy beyond the idle power of a GPU is attributed to its only process, or to two
// processes in proportion to their time. The input was recorded on an H100 with driver 580.159.04: idle, one
// process that multiplies matrices, idle, two processes.
func TestH100(t *testing.T) {
	file, err := os.Open("testdata/h100.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	books := gpu.NewAttribution(energy.AttributorOptions{Idle: energy.IdleByRequests})
	var node energy.Attribution
	var first, last uint64
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var boards []gpu.Board
		if err := json.Unmarshal(lines.Bytes(), &boards); err != nil {
			t.Fatal(err)
		}
		b := &boards[0]
		last = *b.Millijoules
		if first == 0 {
			first = last
		}
		b.Reading = energy.Reading{
			Domain: b.Domain(), At: b.At, Total: energy.Microjoules(last) * 1000, Quality: energy.Measured,
		}
		books.Observe(boards, func(u *gpu.Use) string { return fmt.Sprint("pod/", u.PID) }, &node)
	}
	if want := energy.Microjoules(last-first) * 1000; node.Measured != want || node.Check() != nil {
		t.Errorf("counted %v, recorded %v, %v", want, node.Measured, node.Check())
	}
	of := map[string]float64{"idle": float64(node.Idle.Joules()), "unknown": float64(node.Unknown.Joules())}
	for _, s := range node.Shares {
		of[s.ID] = float64(s.GPU.Joules())
	}
	t.Log(of)
	for id, want := range map[string][2]float64{
		"pod/501": {6_000, 6_800},                            // 10 s at 698 W, less a part of the first second
		"pod/531": {5_800, 7_200}, "pod/532": {2_000, 3_400}, // 14 s at 692 W, in proportion to their time
		"idle": {1_200, 2_000}, // 20 s at 72 W, plus the power after the first process ended
	} {
		if of[id] < want[0] || of[id] > want[1] {
			t.Errorf("%s used %.0f J, want %.0f to %.0f", id, of[id], want[0], want[1])
		}
	}
	if of["unknown"] > 0.05*float64(node.Measured.Joules()) {
		t.Errorf("unknown energy = %.0f J of %v", of["unknown"], node.Measured)
	}
}

// TestInstances verifies that the energy of an instance with one consumer is attributed in proportion to its size,
// and that the energy is unknown if several consumers share an instance or a process cannot be found.
func TestInstances(t *testing.T) {
	books := gpu.NewAttribution(energy.AttributorOptions{Idle: energy.IdleApart})
	var node energy.Attribution
	part := func(instance string, slices float64, pids ...int) gpu.Part {
		p := gpu.Part{Instance: instance, SMs: slices / 7, Busy: float64(min(len(pids), 1))}
		for _, pid := range pids {
			p.Uses = append(p.Uses, gpu.Use{PID: pid})
		}
		return p
	}
	total := energy.Microjoules(0)
	for second := range 200 {
		b := gpu.Board{ID: "GPU-1", At: time.Duration(second+1) * time.Second}
		watts := energy.Microjoules(50e6) // idle power
		if second > 100 {
			b.Parts = []gpu.Part{part("1/0", 3, 5), part("2/0", 2, 6, 5), part("3/0", 1, 4, 4), part("4/0", 1)}
			watts += 350e6
		} else {
			b.Parts = []gpu.Part{part("1/0", 3), part("4/0", 1)}
		}
		total += watts
		b.Reading = energy.Reading{Domain: b.Domain(), At: b.At, Total: total}
		books.Observe([]gpu.Board{b}, who, &node)
	}
	dynamic := 99 * 350.0
	want := map[string]float64{
		"pod/a/2": dynamic * 3 / 6, "pod/a/1": dynamic / 6, "pod/b/1": 0, "unknown": dynamic * 2 / 6, "idle": 199 * 50,
	}
	have := map[string]float64{"unknown": float64(node.GPUUnknown.Joules()), "idle": float64(node.GPUIdle.Joules())}
	for _, s := range node.Shares {
		have[s.ID] = float64(s.GPU.Joules())
	}
	for id, j := range want {
		if math.Abs(have[id]-j) > 0.03*dynamic {
			t.Errorf("%s used %.0f J, want %.0f", id, have[id], j)
		}
	}
}

func TestStatesThatAreDamaged(t *testing.T) {
	h := newHistory(1)
	books := gpu.NewAttribution(energy.AttributorOptions{})
	var node energy.Attribution
	for range 5 {
		books.Observe(h.step(), who, &node)
	}
	state := books.AppendState(nil)
	for end := range state {
		if gpu.NewAttribution(energy.AttributorOptions{}).RestoreState(state[:end]) == nil {
			t.Fatalf("restored a state truncated to %d of %d bytes", end, len(state))
		}
	}
	for _, state := range []string{`{"Boards":{"gpu-1":null}}`, `{"Boards":{"gpu-1":{}}}`} {
		if gpu.NewAttribution(energy.AttributorOptions{}).RestoreState([]byte(state)) == nil {
			t.Errorf("restored invalid state %s", state)
		}
	}
}
