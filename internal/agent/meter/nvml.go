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

// libraryFolders are the library directories of Linux distributions and driver images.
var libraryFolders = []string{
	"usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib64", "usr/lib", "usr/local/nvidia/lib64",
}

// driver returns the library directories, the path of the driver's library and the path of the dynamic loader. It
// searches the configured root directory and the agent's own container, in which NVIDIA's container runtime mounts
// the library.
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

// hasDriver reports whether the library of NVIDIA's driver exists.
func (c *Config) hasDriver() bool {
	_, library, _ := c.driver()
	return library != ""
}

// NewNVML starts reading NVIDIA GPUs. A child process, kubenergy-gpu, loads the library of the driver, for two
// reasons: the agent is a static binary in an image without a dynamic loader and C library, and calls to a driver
// may hang if a GPU has fallen off the bus. The child process is started with the dynamic loader found next to the
// library.
func NewNVML(c Config, log *slog.Logger) (*Boards, error) {
	folders, library, loader := c.driver()
	if library == "" {
		return nil, fmt.Errorf("opening nvml: %s not found below %s: set --gpu-root to the driver's root directory",
			libraryNVML, c.GPURoot)
	}
	own, err := os.Executable()
	program := filepath.Join(filepath.Dir(own), "kubenergy-gpu")
	if err != nil || !exists(program) {
		return nil, fmt.Errorf("opening nvml: %s not found, which is required to read GPUs", program)
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
			case <-time.After(endGPU): // a process cannot exit while a call to the driver hangs
			}
			return nil
		},
	}
}

// gpuAnswer is the last output of the child process, or the reason of its exit.
type gpuAnswer struct {
	boards []gpu.Board
	err    error
}

// keepGPU runs the child process, and restarts it when it exits.
func keepGPU(ctx context.Context, command []string, answer *atomic.Pointer[gpuAnswer], log *slog.Logger) {
	for {
		err := runGPU(ctx, command, answer)
		if ctx.Err() != nil {
			return
		}
		log.Warn("Failed to read GPUs, retrying", "after", restartGPU.String(), "err", err)
		answer.Store(&gpuAnswer{err: err})
		select {
		case <-ctx.Done():
		case <-time.After(restartGPU):
		}
	}
}

// runGPU reads the output of a child process until it exits. When the agent exits, the child process fails to write
// and exits too.
func runGPU(ctx context.Context, command []string, answer *atomic.Pointer[gpuAnswer]) error {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stderr = os.Stderr // contains the reason of its exit
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
	_ = cmd.Process.Kill() // its output may be invalid
	return errors.Join(cmd.Wait(), err)
}
