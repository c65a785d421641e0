package agent_test

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/agent/delivery/sinktest"
	"github.com/kubenergy/kubenergy/internal/agent/host/hosttest"
	"github.com/kubenergy/kubenergy/internal/agent/nvml/nvmltest"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
	"github.com/kubenergy/kubenergy/test/kit"
)

// TestGPUs runs the released agent on a node with two fake GPUs. A library with NVML's functions reports that a
// container uses 60 % of the first GPU, which draws 300 W. All other processes that it reports do not exist on the
// node.
func TestGPUs(t *testing.T) {
	if testing.Short() {
		t.Skip("runs agents for several seconds")
	}
	root := nvmltest.Driver(t, nvmltest.Library)
	path, err := build()
	if err != nil {
		t.Fatal(err)
	}
	if err := nvmltest.Build(filepath.Dir(path)); err != nil {
		t.Fatal(err)
	}
	mount := hosttest.Mount(t, 2)
	uid, cid := hosttest.UID(1), hosttest.ContainerID(1)
	group := hosttest.Make(t, hosttest.Folder(t, mount), "kubepods", "pod"+uid, cid)
	worker := hosttest.Start(t, group)
	worker.Wake(10*time.Millisecond, 50*time.Millisecond)
	t.Setenv(nvmltest.PID, strconv.Itoa(worker.PID()))

	sink := &sinktest.Sink{}
	var hot atomic.Pointer[string]
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if value := r.Header.Get(batch.TemperatureHeader); value != "" {
			hot.Store(&value)
		}
		sink.ServeHTTP(w, r)
	}))
	defer server.Close()
	a := start(t, "--push-url", server.URL, "--batch-interval", "1s", "--cgroup-root", mount, "--powercap-root",
		powercap(t), "--meters", "rapl,nvml", "--gpu-root", root)
	id := energy.ContainerID(uid, cid)
	gpuOf := func(b *batch.Batch) (used energy.Microjoules) {
		for _, s := range b.Shares {
			if s.ID == id {
				used += s.GPU
			}
		}
		return used
	}
	// Wait long enough that the first second has little weight.
	kit.Eventually(t, time.Minute, "seven seconds of the container's GPU and a temperature are recorded", func() bool {
		var passed time.Duration
		for _, b := range sink.Batches() {
			if gpuOf(b) > 0 {
				passed += b.EndSinceBoot - b.StartSinceBoot
			}
		}
		return passed >= 7*time.Second && hot.Load() != nil
	})
	if got := *hot.Load(); got != "78.0" {
		t.Errorf("reported temperature = %s °C, want that of the hotter GPU", got)
	}
	a.stop(syscall.SIGTERM)
	if breaches := sink.Breaches(); breaches != nil {
		t.Errorf("breaches: %v", breaches)
	}
	var used, all energy.Microjoules
	var passed time.Duration
	for _, b := range sink.Batches() {
		if gpus := b.GPUIdle + b.GPUUnknown + gpuOf(b); gpus > 0 {
			used, all, passed = used+gpuOf(b), all+gpus, passed+b.EndSinceBoot-b.StartSinceBoot
			if want := "package (rapl) + gpu (nvml)"; b.Source != want || b.Quality != energy.Measured {
				t.Errorf("batch has quality %v and source %q, want source %q", b.Quality, b.Source, want)
			}
		}
	}
	if watts := float64(all.Joules()) / passed.Seconds(); watts < 400 || watts > 700 {
		t.Errorf("GPU power = %.0f W, want 500 W plus the energy of the first second", watts)
	}
	// The container used 60 % of the first GPU's time, and an unknown process 30 %. Idle energy is shared by the
	// known consumers.
	if share := float64(used) / float64(all); share < 0.35 || share > 0.65 {
		t.Errorf("container's fraction of the GPU energy = %.2f, want 0.4 or slightly more", share)
	}
}
