// Package killtest kills agents at random moments while an energy counter runs that does not stop with them. It is made
// for tests: of delivery alone, and of the whole agent.
package killtest

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A Powercap is a tree as the kernel's in /sys/class/powercap, of one package. Its counter runs while the test runs:
// that is what really was used.
type Powercap struct {
	Root string // for the agent's --powercap-root
	// Roomy counters take more than 100 J. About once in a hundred million readings one may be half of a value.
	Roomy bool

	mu      sync.Mutex
	file    *os.File
	value   uint64
	stop    chan struct{}
	stopped sync.WaitGroup
	closing sync.Once
}

// The counter has 16 digits, and less than 100 J are used in most tests, so that only the last eight change. Those are
// written in one piece: a reader never sees a value that is half old and half new.
const (
	first = 4_000_000_000_000_000
	most  = 100_000_000
)

// NewPowercap makes the tree; the counter stands still.
func NewPowercap(root string) (*Powercap, error) {
	zone := filepath.Join(root, "intel-rapl:0")
	if err := os.MkdirAll(zone, 0o755); err != nil {
		return nil, err
	}
	p := &Powercap{Root: root, value: first, stop: make(chan struct{})}
	for name, content := range map[string]string{
		"name": "package-0\n", "max_energy_range_uj": "9000000000000000\n", "energy_uj": p.text(),
	} {
		if err := os.WriteFile(filepath.Join(zone, name), []byte(content), 0o644); err != nil {
			return nil, err
		}
	}
	var err error
	p.file, err = os.OpenFile(filepath.Join(zone, "energy_uj"), os.O_WRONLY, 0)
	return p, err
}

func (p *Powercap) text() string { return fmt.Sprintf("%d\n", p.value) }

// Energy is the counter's file.
func (p *Powercap) Energy() string { return filepath.Join(p.Root, "intel-rapl:0", "energy_uj") }

// Start lets the counter run, at about so many watts.
func (p *Powercap) Start(watts float64) {
	p.stopped.Go(func() {
		last := time.Now()
		for {
			select {
			case <-p.stop:
				return
			case <-time.After(time.Millisecond):
			}
			p.Add(uint64(watts * (0.5 + rand.Float64()) * float64(time.Since(last).Microseconds())))
			last = time.Now()
		}
	})
}

// Add lets the counter jump.
func (p *Powercap) Add(microjoules uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.value+microjoules >= first+most && !p.Roomy {
		panic("killtest: the counter has no more room for energy that is written in one piece")
	}
	p.value += microjoules
	if _, err := p.file.WriteAt([]byte(p.text()), 0); err != nil {
		panic(err)
	}
}

// Used returns the energy since the beginning, in microjoules.
func (p *Powercap) Used() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.value - first
}

// Since returns the energy between the beginning and a value of the counter.
func Since(counter uint64) uint64 { return counter - first }

// Close ends the counting. The tree stays.
func (p *Powercap) Close() error {
	p.closing.Do(func() { close(p.stop) })
	p.stopped.Wait()
	return p.file.Close()
}

// A Killer runs a program again and again.
type Killer struct {
	Command func() *exec.Cmd
	Longest time.Duration // that a life lasts, from its first instruction

	current *exec.Cmd
	output  bytes.Buffer
}

// Start begins a life.
func (k *Killer) Start() error {
	k.current = k.Command()
	k.output.Reset()
	k.current.Stdout, k.current.Stderr = &k.output, &k.output
	return k.current.Start()
}

// Kill ends the life with SIGKILL. A program that had ended by itself is an error.
func (k *Killer) Kill() error {
	if err := k.current.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	err := k.current.Wait()
	exit := new(exec.ExitError)
	if errors.As(err, &exit) {
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signal() == syscall.SIGKILL {
			return nil
		}
	}
	return fmt.Errorf("the program ended by itself: %w\n%s", err, k.output.String())
}

// Close kills what still runs, when a test ends early.
func (k *Killer) Close() {
	if k.current != nil && k.current.ProcessState == nil {
		_ = k.current.Process.Kill()
		_ = k.current.Wait()
	}
}

// Lives starts and kills the program so many times, each after a random time.
func (k *Killer) Lives(kills int) error {
	for range kills {
		if err := k.Start(); err != nil {
			return err
		}
		time.Sleep(rand.N(k.Longest))
		if err := k.Kill(); err != nil {
			return err
		}
	}
	return nil
}

// End asks a program that was started to stop, and returns what it had to say.
func (k *Killer) End() (string, error) {
	if err := k.current.Process.Signal(syscall.SIGTERM); err != nil {
		return "", err
	}
	err := k.current.Wait()
	return strings.TrimSpace(k.output.String()), err
}
