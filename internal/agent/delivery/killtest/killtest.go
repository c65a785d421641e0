// Package killtest kills agents at random times while an energy counter continues to advance. It is for testing
// only, of package delivery and of the whole agent.
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

// Powercap is a fake /sys/class/powercap tree with one package. Its counter advances during the test and defines
// the energy that was actually used.
type Powercap struct {
	Root string // value of the agent's --powercap-root flag
	// Roomy allows the counter to exceed 100 J. In about one of 100 million readings, the value may then be half
	// written.
	Roomy bool

	mu      sync.Mutex
	file    *os.File
	value   uint64
	stop    chan struct{}
	stopped sync.WaitGroup
	closing sync.Once
}

// The counter has 16 digits, and most tests use less than 100 J, so that only the last eight digits change. These
// are written atomically, so a reader never reads a partially written value.
const (
	first = 4_000_000_000_000_000
	most  = 100_000_000
)

// NewPowercap creates the tree. The counter does not advance until Start is called.
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

// Energy returns the path of the counter's file.
func (p *Powercap) Energy() string { return filepath.Join(p.Root, "intel-rapl:0", "energy_uj") }

// Start advances the counter at approximately the given power.
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

// Add advances the counter by the given energy.
func (p *Powercap) Add(microjoules uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.value+microjoules >= first+most && !p.Roomy {
		panic("killtest: the counter exceeds the range that can be written atomically")
	}
	p.value += microjoules
	if _, err := p.file.WriteAt([]byte(p.text()), 0); err != nil {
		panic(err)
	}
}

// Used returns the energy counted so far, in microjoules.
func (p *Powercap) Used() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.value - first
}

// Since converts a counter value to the energy counted so far, in microjoules.
func Since(counter uint64) uint64 { return counter - first }

// Close stops the counter. The tree is kept.
func (p *Powercap) Close() error {
	p.closing.Do(func() { close(p.stop) })
	p.stopped.Wait()
	return p.file.Close()
}

// Killer repeatedly starts and kills a program.
type Killer struct {
	Command func() *exec.Cmd
	Longest time.Duration // maximum duration of a run

	current *exec.Cmd
	output  bytes.Buffer
}

// Start starts the program.
func (k *Killer) Start() error {
	k.current = k.Command()
	k.output.Reset()
	k.current.Stdout, k.current.Stderr = &k.output, &k.output
	return k.current.Start()
}

// Kill kills the program with SIGKILL. It returns an error if the program has already exited.
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
	return fmt.Errorf("program exited unexpectedly: %w\n%s", err, k.output.String())
}

// Close kills the program if it is still running.
func (k *Killer) Close() {
	if k.current != nil && k.current.ProcessState == nil {
		_ = k.current.Process.Kill()
		_ = k.current.Wait()
	}
}

// Lives starts and kills the program the given number of times, each time after a random duration.
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

// End terminates the running program with SIGTERM and returns its output.
func (k *Killer) End() (string, error) {
	err := k.current.Process.Signal(syscall.SIGTERM)
	if err == nil || errors.Is(err, os.ErrProcessDone) {
		err = k.current.Wait()
	}
	return strings.TrimSpace(k.output.String()), err
}
