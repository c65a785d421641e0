package agent_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/agent/delivery/sinktest"
	"github.com/kubenergy/kubenergy/internal/agent/host/hosttest"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
	"github.com/kubenergy/kubenergy/test/kit"
)

// TestHostAndGuest runs an agent on a host and one in a virtual machine of libvirt, and verifies that the guest's
// energy equals the energy that the host attributed to it, and is counted only once.
func TestHostAndGuest(t *testing.T) {
	if testing.Short() {
		t.Skip("runs agents for several seconds")
	}
	mount := hosttest.Mount(t, 2)
	folder := hosttest.Folder(t, mount)
	scope := hosttest.Make(t, folder, "machine.slice", `machine-qemu\x2d1\x2dvm\x2da.scope`)
	hosttest.Start(t, scope).Wake(10*time.Millisecond, 50*time.Millisecond)

	sink := &sinktest.Sink{}
	var reported atomic.Pointer[string]
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if value := r.Header.Get(batch.HardwareHeader); value != "" {
			reported.Store(&value)
		}
		sink.ServeHTTP(w, r)
	}))
	defer server.Close()
	guests := t.TempDir()
	push := []string{"--push-url", server.URL, "--batch-interval", "1s"}
	host := start(t, append(push, "--cgroup-root", mount, "--powercap-root", powercap(t), "--meters", "rapl", "--vms",
		"--guests-dir", guests,
		"--idle", "equal")...)
	kit.Eventually(t, 30*time.Second, "the guest's directory exists", func() bool {
		_, err := os.Stat(filepath.Join(guests, "vm-a", "kubenergy.json"))
		return err == nil
	})
	guest := start(t, append(push, "--node-name", "vm-a", "--cgroup-root", mount, "--meters", "guest", "--guest-dir",
		filepath.Join(guests, "vm-a"))...)
	kit.Eventually(t, 30*time.Second, "several batches of the guest are recorded", func() bool {
		booked := 0
		for _, b := range sink.Batches() {
			if b.Stream.Node == "vm-a" && b.Measured > 0 {
				booked++
			}
		}
		return booked >= 4
	})
	guest.stop(syscall.SIGTERM)
	host.stop(syscall.SIGTERM)

	if value := reported.Load(); value == nil {
		t.Error("no hardware reported")
	} else if h, err := batch.DecodeHardware(*value); err != nil || h.Threads < 1 || h.Memory < 1<<20 {
		t.Errorf("reported hardware = %s, %v", *value, err)
	}
	batches := sink.Batches()
	var ofVM, inVM energy.Microjoules
	for _, b := range batches {
		switch b.Stream.Node {
		case node:
			for _, s := range b.Shares {
				if s.ID == energy.VMID("vm-a") {
					ofVM += s.Dynamic + s.Idle
				}
			}
		case "vm-a":
			inVM += b.Measured
			if b.Parent == nil || *b.Parent != (batch.Parent{Host: node, VM: "vm-a"}) {
				t.Errorf("parent of the guest = %+v", b.Parent)
			}
			if b.Quality != energy.Derived {
				t.Errorf("quality of the guest's energy = %v, want derived", b.Quality)
			}
		}
	}
	if inVM == 0 || inVM > ofVM {
		t.Errorf("guest recorded %v, want the %v attributed by its host", inVM, ofVM)
	}
}
