package meter

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/kubenergy/kubenergy/internal/agent/gpu"
	"github.com/kubenergy/kubenergy/internal/energy"
)

const (
	libraryNVML = "libnvidia-ml.so.1"
	restartGPU  = 10 * time.Second
	endGPU      = time.Second
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
			find := func(pattern string) string {
				found, _ := filepath.Glob(filepath.Join(folder, pattern))
				return strings.Join(found[:min(len(found), 1)], "")
			}
			folders = append(folders, folder)
			library, loader = cmp.Or(library, find(libraryNVML)), cmp.Or(loader, find("ld-linux-*.so.*"))
		}
	}
	return folders, library, loader
}

// hasDriver reports whether there is a library of NVIDIA's driver.
func (c *Config) hasDriver() bool {
	_, library, _ := c.driver()
	return library != ""
}

// NewNVML starts to read NVIDIA's boards. Their driver's library is loaded by another process, kubenergy-gpu, for two
// reasons: the agent is a static program, in an image without a loader and a C library; and calls into a driver whose
// board fell off the bus may hang. The other process is started by the loader that stands beside the driver's library.
func NewNVML(c Config, log *slog.Logger) (*Boards, error) {
	folders, library, loader := c.driver()
	if library == "" {
		return nil, fmt.Errorf("opening nvml: there is no %s below %s: name the driver's folder with --gpu-root",
			libraryNVML, c.GPURoot)
	}
	own, err := os.Executable()
	program := filepath.Join(filepath.Dir(own), "kubenergy-gpu")
	if err != nil || !exists(program) {
		return nil, fmt.Errorf("opening nvml: there is no %s, which reads GPUs for the agent: put it there", program)
	}
	command := []string{program, library, c.Interval.String()}
	if loader != "" {
		command = append([]string{loader, "--library-path", strings.Join(folders, ":")}, command...)
	}
	return newNVML(&c, command, log), nil
}

func newNVML(c *Config, command []string, log *slog.Logger) *Boards {
	var answer atomic.Pointer[gpuAnswer]
	answer.Store(&gpuAnswer{err: errNoAnswer})
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		keepGPU(ctx, command, &answer, log)
	}()
	return &Boards{
		name: NameNVML, quality: energy.Measured, stale: c.stale(), scale: c.scale,
		counters: map[energy.Domain]boardCounter{},
		latest: func() ([]gpu.Board, error) {
			last := answer.Load()
			return last.boards, last.err
		},
		close: func() error {
			stop()
			select {
			case <-ended:
			case <-time.After(endGPU): // while a call into the driver hangs, its process cannot end
			}
			return nil
		},
	}
}

// A gpuAnswer is what the other process said last, or why it ended.
type gpuAnswer struct {
	boards []gpu.Board
	err    error
}

// keepGPU runs the process, and starts it again where it ends.
func keepGPU(ctx context.Context, command []string, answer *atomic.Pointer[gpuAnswer], log *slog.Logger) {
	for {
		err := runGPU(ctx, command, answer)
		if ctx.Err() != nil {
			return
		}
		log.Warn("reading GPUs ended, and begins again", "after", restartGPU.String(), "err", err)
		answer.Store(&gpuAnswer{err: err})
		select {
		case <-ctx.Done():
		case <-time.After(restartGPU):
		}
	}
}

// runGPU reads what one process says until it ends. When the agent ends, it cannot write any more, and ends too.
func runGPU(ctx context.Context, command []string, answer *atomic.Pointer[gpuAnswer]) error {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stderr = os.Stderr // there it says why it ends
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	for lines := json.NewDecoder(out); err == nil; {
		var read []gpu.Board
		if err = lines.Decode(&read); err == nil {
			answer.Store(&gpuAnswer{boards: read})
		}
	}
	_ = cmd.Process.Kill() // what it writes is no line of ours
	return errors.Join(cmd.Wait(), err)
}
