package meter

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/kubenergy/kubenergy/agent/gpu"
	"github.com/kubenergy/kubenergy/energy"
)

// NVML reads NVIDIA's boards. Their driver's library is loaded by another process, kubenergy-gpu, for two reasons: the
// agent is a static program, in an image without a loader and a C library; and calls into a driver whose board fell off
// the bus may hang. The other process is started by the loader that stands beside the driver's library.
type NVML struct {
	boards
	command []string
	stop    context.CancelFunc
	done    chan struct{}

	mu      sync.Mutex
	line    []gpu.Board // the last one
	failure error
}

const (
	libraryNVML = "libnvidia-ml.so.1"
	restartGPU  = 10 * time.Second
	maxGPULine  = 1 << 20
)

// libraryFolders are where distributions, and images of drivers, have their libraries.
var libraryFolders = []string{
	"usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib64", "usr/lib", "usr/local/nvidia/lib64",
}

// driver returns the folders of libraries, the driver's library and the loader that there are: below the root that was
// given, and in the agent's own container, into which NVIDIA's container runtime puts the library.
func (c *Config) driver() (folders []string, library, loader string) {
	if c.GPURoot == "" {
		return nil, "", ""
	}
	for _, root := range []string{c.GPURoot, "/"} {
		for _, folder := range libraryFolders {
			folder = filepath.Join(root, folder)
			if !exists(folder) || strings.Contains(folder, ":") {
				continue
			}
			folders = append(folders, folder)
			if path := filepath.Join(folder, libraryNVML); library == "" && exists(path) {
				library = path
			}
			if found, _ := filepath.Glob(filepath.Join(folder, "ld-linux-*.so.*")); loader == "" && len(found) > 0 {
				loader = found[0]
			}
		}
	}
	return folders, library, loader
}

// hasDriver reports whether there is a library of NVIDIA's driver.
func (c *Config) hasDriver() bool {
	_, library, _ := c.driver()
	return library != ""
}

// NewNVML starts to read the boards of NVIDIA's driver.
func NewNVML(c Config, log *slog.Logger) (*NVML, error) {
	folders, library, loader := c.driver()
	if library == "" {
		return nil, fmt.Errorf("opening nvml: there is no %s below %s: name the driver's folder with --gpu-root",
			libraryNVML, c.GPURoot)
	}
	helper := c.GPUHelper
	if helper == "" {
		own, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("opening nvml: finding kubenergy-gpu: %w", err)
		}
		helper = filepath.Join(filepath.Dir(own), "kubenergy-gpu")
	}
	if !exists(helper) {
		return nil, fmt.Errorf("opening nvml: there is no %s, which reads GPUs for the agent: put it there", helper)
	}
	m := &NVML{
		boards:  newBoards(&c, NameNVML, energy.Measured, c.stale()),
		command: []string{helper, library, c.Interval.String()}, done: make(chan struct{}), failure: errNoAnswer,
	}
	if loader != "" {
		m.command = append([]string{loader, "--library-path", strings.Join(folders, ":")}, m.command...)
	}
	ctx, stop := context.WithCancel(context.Background())
	m.stop = stop
	go m.keep(ctx, log)
	for range 100 { // the first line comes at once, if the driver is well
		if _, err := m.latest(); !errors.Is(err, errNoAnswer) {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	return m, nil
}

// keep runs the other process, and starts it again where it ends.
func (m *NVML) keep(ctx context.Context, log *slog.Logger) {
	defer close(m.done)
	for {
		err := m.run(ctx)
		if ctx.Err() != nil {
			return
		}
		log.Warn("reading GPUs ended, and begins again", "after", restartGPU.String(), "err", err)
		m.mu.Lock()
		m.failure = err
		m.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-time.After(restartGPU):
		}
	}
}

// run reads what one process says until it ends. When the agent ends, it cannot write any more, and ends too.
func (m *NVML) run(ctx context.Context) error {
	var complaint bytes.Buffer
	cmd := exec.CommandContext(ctx, m.command[0], m.command[1:]...)
	cmd.Stderr = &limited{to: &complaint}
	cmd.WaitDelay = time.Second
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, maxGPULine)
	for lines.Scan() && err == nil {
		var read []gpu.Board
		if err = json.Unmarshal(lines.Bytes(), &read); err == nil {
			m.mu.Lock()
			m.line, m.failure = read, nil
			m.mu.Unlock()
		}
	}
	_ = cmd.Process.Kill() // what it writes is no line of ours
	failed := cmd.Wait()   // now all of its complaint is there
	said := strings.TrimSpace(complaint.String())
	if said != "" {
		said = ": " + said
	}
	return fmt.Errorf("%w%s", errors.Join(err, lines.Err(), failed), said)
}

// limited keeps the beginning of what is written.
type limited struct{ to *bytes.Buffer }

func (l *limited) Write(p []byte) (int, error) {
	const most = 1024
	l.to.Write(p[:min(len(p), most-min(l.to.Len(), most))])
	return len(p), nil
}

func (m *NVML) latest() ([]gpu.Board, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.line, m.failure
}

// Read implements Meter.
func (m *NVML) Read(t Tick, into []energy.Reading) ([]energy.Reading, error) {
	line, failure := m.latest()
	into, err := m.readings(line, t.Now(), into)
	return into, errors.Join(failure, err)
}

// Close implements Meter.
func (m *NVML) Close() error {
	m.stop()
	<-m.done
	return nil
}
