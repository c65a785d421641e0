package agent

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/agent/exposition"
	"github.com/kubenergy/kubenergy/internal/agent/host"
	"github.com/kubenergy/kubenergy/internal/agent/meter"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/test/kit/memtest"
)

// TestTroubleIsSaidOnce verifies that a meter that fails every other tick is logged only once.
func TestTroubleIsSaidOnce(t *testing.T) {
	var log bytes.Buffer
	var tr logThrottle
	for i := range 1000 {
		err := errors.New("no")
		if i%2 == 1 {
			err = nil
		}
		tr.note(slog.New(slog.NewTextHandler(&log, nil)), "it", "nothing happens", err)
	}
	if n := strings.Count(log.String(), "\n"); n != 1 {
		t.Errorf("got %d log lines, want 1:\n%s", n, log.String())
	}
}

// TestRootChange verifies that a wall meter that cannot be read is replaced, which is logged and counted, and that the
// energy of the next meter is attributed.
func TestRootChange(t *testing.T) {
	dir := t.TempDir()
	put := func(path, content string) {
		t.Helper()
		path = filepath.Join(dir, path)
		err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o644))
		if err != nil {
			t.Fatal(err)
		}
	}
	put("hwmon/hwmon0/device/name", "power_meter\n")
	put("hwmon/hwmon0/device/power1_average", "\n")
	put("powercap/intel-rapl:0/name", "package-0\n")
	put("powercap/intel-rapl:0/energy_uj", "1000000\n")
	var log bytes.Buffer
	a := &agent{
		log: slog.New(slog.NewTextHandler(&log, nil)), attributor: energy.NewAttributor(energy.AttributorOptions{}),
	}
	o := DefaultOptions()
	o.Meters.Meters = []string{"hwmon", "rapl", "model"}
	o.Meters.HwmonRoot, o.Meters.PowercapRoot = filepath.Join(dir, "hwmon"), filepath.Join(dir, "powercap")
	var err error
	if a.meters, err = meter.Open(o.Meters, a.log); err != nil {
		t.Fatal(err)
	}
	defer meter.Close(a.meters)
	a.meterLogs = make([]logThrottle, len(a.meters))
	a.status.Meters = make([]exposition.MeterStatus, len(a.meters))
	a.root = meter.NewRoot(&o.Meters, a.meters)
	a.openGPUs()
	var measured energy.Microjoules
	for i := range 10 {
		if source, want := a.root.Source(), "wall (hwmon)"; i < 2 && source != want {
			t.Errorf("before tick %d: Source() = %s, want %s", i, source, want)
		}
		put("powercap/intel-rapl:0/energy_uj", fmt.Sprint(1_000_000+100*i))
		a.readMeters()
		a.observation.At = host.Now()
		a.splitRoot(&a.observation)
		if a.attributor.Observe(&a.observation, &a.attribution) {
			measured += a.attribution.Measured
		}
	}
	if a.root.Source() != "package (rapl)" || a.status.RootChanges != 1 || measured < 500 || measured > 700 {
		t.Errorf("source %s after %d changes, %d µJ, want package (rapl), 1 change, and about 7 intervals of 100 µJ",
			a.root.Source(), a.status.RootChanges, measured)
	}
	if n := strings.Count(log.String(), `from="wall (hwmon)" to="package (rapl)"`); n != 1 {
		t.Errorf("%d log entries of the change, want 1:\n%s", n, log.String())
	}
}

func FuzzRestore(f *testing.F) {
	f.Add([]byte{stateVersion})
	f.Add([]byte{stateVersion, 3, 1, 2, 3})
	f.Fuzz(func(t *testing.T, state []byte) {
		defer memtest.Limit(t, 100*len(state))()
		h, err := host.Open(DefaultOptions().Host, slog.New(slog.DiscardHandler))
		if err != nil {
			return
		}
		defer h.Close()
		a := &agent{host: h, attributor: energy.NewAttributor(energy.AttributorOptions{})}
		a.openGPUs()
		_ = a.restore(state)
	})
}

func TestPulse(t *testing.T) {
	a := &agent{options: Options{Interval: time.Second}}
	a.lastTick.Store(int64(host.Now()))
	if err := a.healthy(); err != nil {
		t.Error(err)
	}
	a.lastTick.Store(int64(host.Now() - time.Minute))
	if err := a.healthy(); err == nil {
		t.Error("healthy() = nil after a minute without a tick, want an error")
	}
}
