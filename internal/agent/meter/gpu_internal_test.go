package meter

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubenergy/kubenergy/internal/agent/gpu"
	"github.com/kubenergy/kubenergy/internal/agent/nvml/nvmltest"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/test/kit"
)

// helper builds kubenergy-gpu once in the directory of the test binary, unless it exists.
var helper = sync.OnceValue(func() error {
	own, err := os.Executable()
	if err != nil || exists(filepath.Join(filepath.Dir(own), "kubenergy-gpu")) {
		return err
	}
	return nvmltest.Build(filepath.Dir(own))
})

// driver returns a configuration with a driver library compiled from source.
func driver(t *testing.T, source string) Config {
	t.Helper()
	if runtime.GOARCH != "amd64" && runtime.GOARCH != "arm64" {
		t.Skip("NVIDIA has no driver for " + runtime.GOARCH)
	}
	o := DefaultConfig()
	o.Now, o.GPURoot, o.Interval = sinceBoot, nvmltest.Driver(t, source), 100*time.Millisecond
	if err := helper(); err != nil {
		t.Fatal(err)
	}
	return o
}

func nvmlOf(t *testing.T, o Config) *Boards {
	t.Helper()
	m, err := NewNVML(o, quiet())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// soon reads a meter until done returns true.
func soon(t *testing.T, m Meter, done func([]energy.Reading, error) bool) []energy.Reading {
	t.Helper()
	var readings []energy.Reading
	kit.Await(t, 10*time.Second, m.Name()+" returns the expected readings", func(context.Context) (bool, error) {
		var err error
		if readings, err = m.Read(realTick(), nil); done(readings, err) {
			return true, nil
		}
		return false, fmt.Errorf("readings are %v, %w", readings, err)
	})
	return readings
}

// TestNVML verifies that the child process loads a library with NVML's functions through the dynamic loader.
func TestNVML(t *testing.T) {
	m := nvmlOf(t, driver(t, nvmltest.Library))
	both := func(r []energy.Reading, err error) bool { return err == nil && len(r) == 2 }
	first := soon(t, m, both)
	later := soon(t, m, func(r []energy.Reading, err error) bool {
		return both(r, err) && r[0].At-first[0].At > time.Second
	})
	for i, name := range []string{
		"gpu-aaaaaaaa-0000-4000-8000-000000000000", "gpu-bbbbbbbb-0000-4000-8000-000000000001",
	} {
		watts := float64(later[i].Total-first[i].Total) / 1e6 / (later[i].At - first[i].At).Seconds()
		if want := []float64{300, 200}[i]; later[i].Domain != (energy.Domain{Kind: energy.GPU, Name: name}) ||
			watts < 0.98*want || watts > 1.02*want || later[i].Quality != energy.Measured {
			t.Errorf("%+v: %.1f W, want %v of %s", later[i], watts, want, name)
		}
	}
	shown := []Temperature{
		{"nvml", "GPU-AAAAAAAA-0000-4000-8000-000000000000", 78}, {"nvml", "GPU-bbbbbbbb-0000-4000-8000-000000000001", 41},
	}
	if got := m.Temperatures(sinceBoot(), nil); !slices.Equal(got, shown) {
		t.Errorf("temperatures: %v", got)
	}
	if old := m.Temperatures(sinceBoot()+time.Hour, nil); old != nil {
		t.Errorf("temperatures of an hour ago: %v", old)
	}
	boards := slices.Clone(m.Boards())
	for i := range boards {
		boards[i].At, boards[i].Millijoules, boards[i].Reading = 0, nil, energy.Reading{}
	}
	want := []gpu.Board{
		{
			ID: "GPU-AAAAAAAA-0000-4000-8000-000000000000", Milliwatts: new(uint32(300_000)), Celsius: new(uint32(78)),
			Parts: []gpu.Part{{SMs: 1, Busy: 0.9, Reported: true, Uses: []gpu.Use{
				{PID: 4101, SM: 0.6, Memory: 5 << 30}, {PID: 4102, SM: 0.3},
			}}},
		},
		{
			ID: "GPU-bbbbbbbb-0000-4000-8000-000000000001", Milliwatts: new(uint32(200_000)), Celsius: new(uint32(41)),
			Parts: []gpu.Part{
				{Instance: "2/0", SMs: 3. / 7, Busy: 1, Uses: []gpu.Use{{PID: 4103, Memory: 5 << 30}}},
				{Instance: "9/0", SMs: 1. / 7},
			},
		},
	}
	if diff := cmp.Diff(want, boards); diff != "" {
		t.Error(diff)
	}
}

// TestNVMLThatFails verifies that a driver that fails, crashes or lacks functions only loses its own readings, and
// that the reason is logged.
func TestNVMLThatFails(t *testing.T) {
	for name, c := range map[string]struct{ source, want string }{
		"no driver": {"int nvmlInit_v2(void) { return 9; }", "exit status 1"},
		"empty":     {"int other;", "exit status 1"},
		"crash":     {"int nvmlInit_v2(void) { return *(volatile int *)0; }", "exit status 2"},
	} {
		t.Run(name, func(t *testing.T) {
			m := nvmlOf(t, driver(t, c.source))
			soon(t, m, func(r []energy.Reading, err error) bool {
				return len(r) == 0 && err != nil && strings.Contains(err.Error(), c.want)
			})
		})
	}
	o := DefaultConfig()
	o.Now, o.GPURoot = sinceBoot, t.TempDir()
	if _, err := NewNVML(o, quiet()); err == nil || !strings.Contains(err.Error(), "--gpu-root") {
		if !exists("/usr/local/nvidia/lib64/" + libraryNVML) {
			t.Errorf("without a library: %v", err)
		}
	}
}

// TestNVMLThatHangs verifies that a hanging library does not block Close.
func TestNVMLThatHangs(t *testing.T) {
	o := driver(t, "#include <unistd.h>\nint nvmlInit_v2(void) { for (;;) pause(); }")
	m, err := NewNVML(o, quiet())
	if err != nil {
		t.Fatal(err)
	}
	if r, err := m.Read(realTick(), nil); len(r) > 0 || !errors.Is(err, errNoAnswer) {
		t.Errorf("%v, %v", r, err)
	}
	closes(t, m)
}

// TestNVMLThatCannotBeEnded verifies that a child process that cannot be killed does not block Close. It is
// simulated by a process that keeps the pipe open.
func TestNVMLThatCannotBeEnded(t *testing.T) {
	o := DefaultConfig()
	m := newNVML(&o, []string{"sh", "-c", "sleep 90 2>/dev/null & echo '[]'; wait"}, quiet())
	soon(t, m, func(_ []energy.Reading, err error) bool { return err == nil })
	closes(t, m)
}

func closes(t *testing.T, m *Boards) {
	t.Helper()
	ended, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	go func() {
		m.Close()
		stop()
	}()
	if <-ended.Done(); errors.Is(ended.Err(), context.DeadlineExceeded) {
		t.Error("Close() is blocked by the library")
	}
}

func boardsOf(c *Config, latest func() ([]gpu.Board, error)) *Boards {
	return &Boards{
		name: NameDCGM, quality: energy.Derived, stale: 90 * time.Second, scale: c.scale, latest: latest,
		counters: map[energy.Domain]boardCounter{},
	}
}

// TestBoardsThatAreOld verifies that outdated readings are not returned, and that an error is returned for GPUs
// that are outdated or gone.
func TestBoardsThatAreOld(t *testing.T) {
	o := DefaultConfig()
	board := gpu.Board{ID: "GPU-1", At: time.Second, Milliwatts: new(uint32(50_000))}
	failure := errors.New("why")
	m := boardsOf(&o, func() ([]gpu.Board, error) { return []gpu.Board{board}, failure })
	for _, c := range []struct {
		now  time.Duration
		want int
	}{{time.Second, 1}, {91 * time.Second, 1}, {92 * time.Second, 0}} {
		now, want := c.now, c.want
		readings, err := m.Read(Tick{Now: func() time.Duration { return now }}, nil)
		if len(readings) != want || len(m.Boards()) != want || errors.Is(err, failure) != (want == 0) {
			t.Errorf("after %v: %v, %v, %v", now, readings, m.Boards(), err)
		}
	}
	m.latest = func() ([]gpu.Board, error) { return nil, nil }
	if readings, err := m.Read(realTick(), nil); len(readings) > 0 || err == nil {
		t.Errorf("no error for a missing GPU: %v", readings)
	}
}

func dcgmPage(t *testing.T, text string) []gpu.Board {
	t.Helper()
	p, err := readDCGM(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return p.boards
}

func TestDCGMPages(t *testing.T) {
	for name, want := range map[string][]gpu.Board{
		"dcgm/pods.prom": {
			{
				ID: "GPU-604ac76c-d9cf-fef3-62e9-d92044ab6e52", Millijoules: new(uint64(183902847261)),
				Milliwatts: new(uint32(312421)), Parts: []gpu.Part{{SMs: 1, Busy: 0.935, Uses: []gpu.Use{
					{Namespace: "ml", Pod: "job-1", Container: "train", Memory: 20480 << 20},
				}}},
			},
			{
				ID: "GPU-7d5e0f0a-1111-2222-3333-444455556666", Milliwatts: new(uint32(54100)),
				Parts: []gpu.Part{{SMs: 1}},
			},
		},
		"dcgm/mig.prom": {{
			ID: "GPU-11111111-2222-3333-4444-555555555555", Millijoules: new(uint64(5000000123)),
			Milliwatts: new(uint32(231500)), Parts: []gpu.Part{
				{Instance: "1", SMs: 3. / 7, Busy: 0.98, Uses: []gpu.Use{
					{Namespace: "team-a", Pod: "big-0", Container: "trainer", Memory: 30000 << 20},
				}},
				{Instance: "5", SMs: 2. / 7, Busy: 0.25, Uses: []gpu.Use{
					{Namespace: "team-b", Pod: "api-7d", Container: "server", Memory: 9000 << 20},
				}},
				{Instance: "13", SMs: 1. / 7},
			},
		}},
	} {
		if diff := cmp.Diff(want, dcgmPage(t, fixture(t, name))); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	// If several pods share a GPU by time slicing, each has samples with the totals of the same GPU.
	two := `DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{gpu="0",UUID="GPU-1",pod="a",namespace="n"} 7000
DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{gpu="0",UUID="GPU-1",pod="b",namespace="n",pod_uid="u"} 7000
`
	if b := dcgmPage(t, two); len(b) != 1 || *b[0].Millijoules != 7000 || len(b[0].Parts) != 1 ||
		len(b[0].Parts[0].Uses) != 2 || b[0].Parts[0].Reported {
		t.Errorf("two pods with time slicing: %+v", b)
	}
	if b := dcgmPage(t, `DCGM_FI_DEV_POWER_USAGE{UUID="GPU-1"} 9e18`+"\n"); *b[0].Milliwatts != math.MaxUint32 {
		t.Errorf("implausible power = %d mW", *b[0].Milliwatts)
	}
	if b := dcgmPage(t, `DCGM_FI_DEV_GPU_TEMP{UUID="GPU-1"} 63`+"\n"); b[0].Celsius == nil || *b[0].Celsius != 63 {
		t.Errorf("temperature: %+v", b[0])
	}
	uids := `DCGM_FI_DEV_FB_USED{UUID="GPU-1",pod_uid="a"} 1
DCGM_FI_DEV_FB_USED{UUID="GPU-1",pod_uid="b"} 2
`
	if b := dcgmPage(t, uids); len(b[0].Parts[0].Uses) != 2 {
		t.Errorf("two pods by their UIDs: %+v", b)
	}
	for _, bad := range []string{
		`DCGM_FI_DEV_POWER_USAGE{gpu="0"} 3`, `DCGM_FI_DEV_POWER_USAGE{UUID="GPU-1"} x`,
		`DCGM_FI_DEV_POWER_USAGE{UUID="GPU-1} 4`,
	} {
		p, err := readDCGM(strings.NewReader(bad + "\n" + `DCGM_FI_DEV_POWER_USAGE{UUID="GPU-1"} 3` + "\n"))
		if err != nil || p.invalid == nil || len(p.boards) != 1 || *p.boards[0].Milliwatts != 3000 {
			t.Errorf("with invalid sample %s: %+v, %v, %v, want only the next one", bad, p.boards, p.invalid, err)
		}
	}
	shared := string(shared(t, "dcgm_exporter_constructed.prom"))
	if b := dcgmPage(t, shared); len(b) != 2 || *b[0].Millijoules != 183902847261 || b[1].Millijoules != nil {
		t.Errorf("%+v", b)
	}
}

// TestDCGMUnknownProfile verifies that an instance with an unknown profile only affects how the energy of its own GPU
// is attributed. DCGM 3 reported such profiles as <<<NULL>>>. The pages are constructed.
func TestDCGMUnknownProfile(t *testing.T) {
	const page = `DCGM_FI_DEV_POWER_USAGE{UUID="GPU-1",GPU_I_PROFILE="3g.20gb",GPU_I_ID="1",pod="a"} 200
DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{UUID="GPU-1",GPU_I_PROFILE="3g.20gb",GPU_I_ID="1",pod="a"} 5000000
DCGM_FI_PROF_GR_ENGINE_ACTIVE{UUID="GPU-1",GPU_I_PROFILE="3g.20gb",GPU_I_ID="1",pod="a"} 0.5
DCGM_FI_DEV_POWER_USAGE{UUID="GPU-1",PROFILE,GPU_I_ID="2",pod="b"} 200
DCGM_FI_PROF_GR_ENGINE_ACTIVE{UUID="GPU-1",PROFILE,GPU_I_ID="2",pod="b"} 0.75
DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{UUID="GPU-2"} 7000000
`
	a, b := gpu.Use{Pod: "a"}, gpu.Use{Pod: "b"}
	for profile, want := range map[string][]gpu.Part{
		`GPU_I_PROFILE="<<<NULL>>>"`: {{SMs: 1, Busy: 0.75, Uses: []gpu.Use{a, b}}},
		`GPU_I_PROFILE=""`:           {{SMs: 1, Busy: 0.75, Uses: []gpu.Use{a, b}}},
		`GPU_I_PROFILE="9g.1gb"`:     {{SMs: 1, Busy: 0.75, Uses: []gpu.Use{a, b}}},
		`modelName="A100"`:           {{SMs: 1, Busy: 0.75, Uses: []gpu.Use{a, b}}},
		`GPU_I_PROFILE="MIG 2g.10gb"`: {
			{Instance: "1", SMs: 3. / 7, Busy: 0.5, Uses: []gpu.Use{a}},
			{Instance: "2", SMs: 2. / 7, Busy: 0.75, Uses: []gpu.Use{b}},
		},
	} {
		p, err := readDCGM(strings.NewReader(strings.ReplaceAll(page, "PROFILE,", profile+",")))
		if err != nil || (p.invalid == nil) != (len(want) == 2) || len(p.boards) != 2 {
			t.Fatalf("%s: %+v, %v, %v", profile, p.boards, p.invalid, err)
		}
		if diff := cmp.Diff(want, p.boards[0].Parts); diff != "" || *p.boards[0].Millijoules != 5_000_000 ||
			*p.boards[1].Millijoules != 7_000_000 {
			t.Errorf("%s: %s", profile, diff)
		}
	}
	// One invalid sample of an instance does not hide its profile.
	mixed := strings.Replace(page, "PROFILE", `GPU_I_PROFILE="<<<NULL>>>"`, 1)
	mixed = strings.Replace(mixed, "PROFILE,", `GPU_I_PROFILE="2g.10gb",`, 1)
	if parts := dcgmPage(t, mixed)[0].Parts; len(parts) != 2 {
		t.Errorf("parts are %+v, want two instances", parts)
	}
}

// TestDCGMAgreesWithTheCounter verifies that the recorded energy of an hour differs from the GPU's counter by at
// most 1 %, although the exporter updates its metrics only every 30 seconds. With power values only, this requires
// that the power changes more slowly.
func TestDCGMAgreesWithTheCounter(t *testing.T) {
	for _, c := range []struct {
		field   string
		changes int // interval of power changes, in seconds
	}{{dcgmEnergy, 7}, {dcgmPower, 300}} {
		field := c.field
		t.Run(field, func(t *testing.T) {
			o := DefaultConfig()
			var boards []gpu.Board
			m := boardsOf(&o, func() ([]gpu.Board, error) { return boards, nil })
			books := gpu.NewAttribution(energy.AttributorOptions{Idle: energy.IdleByRequests})
			var node energy.Attribution
			random := rand.New(rand.NewPCG(7, 7))
			counter, watts, shown := 5e9, 300.0, ""
			began := counter
			for second := range 3600 {
				if second%c.changes == 0 {
					watts = 70 + 600*random.Float64()
				}
				counter += watts * 1000
				if second%30 == 0 {
					value := fmt.Sprintf("%.0f", counter)
					if field == dcgmPower {
						value = fmt.Sprintf("%.6f", watts)
					}
					labels := `{gpu="0",UUID="GPU-1",pod="a",namespace="n",container="c"} `
					shown = field + labels + value + "\n" + dcgmUtilization + labels + "95\n"
				}
				if second%5 != 0 {
					continue
				}
				at := time.Duration(second+1) * time.Second
				boards = dcgmPage(t, shown)
				boards[0].At = at
				if _, err := m.Read(Tick{Now: func() time.Duration { return at }}, nil); err != nil {
					t.Fatal(err)
				}
				books.Observe(m.Boards(), func(*gpu.Use) string { return "pod/a/c" }, &node)
			}
			counted := (counter - began) / 1000
			have := float64(node.Measured.Joules())
			if diff := have/counted - 1; diff < -0.01 || diff > 0.01 || node.Check() != nil {
				t.Errorf("counted %.0f J, recorded %.0f J: %.2f %%, %v", counted, have, 100*diff, node.Check())
			}
		})
	}
}

// TestDCGM verifies that DCGM exporter is scraped like other agents.
func TestDCGM(t *testing.T) {
	e := serve(t, fixture(t, "dcgm/pods.prom"))
	o := DefaultConfig()
	o.Now, o.ScrapeInterval, o.DCGMURL = sinceBoot, 5*time.Millisecond, e.URL
	m, err := NewDCGM(o, quiet())
	if err != nil {
		t.Fatal(err)
	}
	readings := soon(t, m, func(r []energy.Reading, err error) bool { return err == nil && len(r) == 2 })
	if readings[0].Quality != energy.Derived || len(m.Boards()) != 2 || m.Boards()[0].At != readings[0].At {
		t.Errorf("%+v of %+v", readings, m.Boards())
	}
	m.Close()
	nothingLeft(t)
}

// TestRealGPU verifies that the counter of a real GPU agrees with its power, that its energy is attributed exactly,
// and that the process that uses it is found. KUBENERGY_GPU_LOAD is a command that uses the GPU for at least 30
// seconds.
func TestRealGPU(t *testing.T) {
	if os.Getenv("KUBENERGY_REAL") == "" {
		t.Skip("needs a GPU: make gpu-real")
	}
	o := DefaultConfig()
	o.Now = sinceBoot
	if err := helper(); err != nil {
		t.Fatal(err)
	}
	if !o.hasDriver() {
		t.Skipf("%s not found in %v: NVIDIA's driver is missing", libraryNVML, libraryFolders)
	}
	m := nvmlOf(t, o)
	load := os.Getenv("KUBENERGY_GPU_LOAD")
	if load == "" {
		t.Log("KUBENERGY_GPU_LOAD is not set: attribution to processes is not verified")
	} else {
		cmd := exec.Command("bash", "-c", load)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // kill all of its processes together
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() {
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
			_ = cmd.Wait()
		}()
	}
	books := gpu.NewAttribution(energy.AttributorOptions{Idle: energy.IdleByRequests})
	var node energy.Attribution
	first, last := map[string]energy.Reading{}, map[string]energy.Reading{}
	shown := map[string]energy.Joules{} // integrated power of the GPUs
	reported := true
	for range 30 {
		readings, err := m.Read(realTick(), nil)
		if err != nil {
			t.Log(err)
		}
		for i, r := range readings {
			name := r.Domain.Name
			if previous, known := last[name]; !known {
				first[name] = r
			} else if b := m.Boards()[i]; b.Milliwatts != nil {
				shown[name] += (energy.Watts(*b.Milliwatts) / 1000).For(r.At - previous.At)
			}
			last[name] = r
		}
		books.Observe(m.Boards(), func(u *gpu.Use) string { return fmt.Sprint("pod/", u.PID) }, &node)
		time.Sleep(time.Second)
	}
	var counted energy.Microjoules
	for _, b := range m.Boards() {
		name := b.Domain().Name
		used := last[name].Total - first[name].Total
		counted += used
		t.Logf("%s: %v by its counter, %v by its power; %d parts, reported %v", name, used, shown[name], len(b.Parts),
			b.Parts[0].Reported)
		reported = reported && b.Parts[0].Reported
		if ratio := float64(used.Joules() / shown[name]); ratio < 0.9 || ratio > 1.1 {
			t.Errorf("%s: ratio of counter to integrated power = %.2f", name, ratio)
		}
	}
	if counted == 0 || node.Measured != counted || node.Check() != nil {
		t.Errorf("counted %v, attributed %v, %v", counted, node.Measured, node.Check())
	}
	t.Logf("idle %v, unknown %v, processes %+v", node.Idle, node.Unknown, node.Shares)
	if load != "" && reported && len(node.Shares) == 0 {
		t.Error("no process was found")
	}
}

// TestTemperaturesOfBoardsAreBounded verifies that implausible temperatures are ignored, because the highest one is
// reported for the whole node.
func TestTemperaturesOfBoardsAreBounded(t *testing.T) {
	absurd := gpu.Board{ID: "GPU-a", Celsius: new(uint32(math.MaxUint32))}
	hot := gpu.Board{ID: "GPU-b", Celsius: new(uint32(90))}
	b := &Boards{name: "nvml", stale: time.Minute, latest: func() ([]gpu.Board, error) {
		return []gpu.Board{absurd, hot}, nil
	}}
	if got := b.Temperatures(time.Second, nil); len(got) != 1 || got[0].Celsius != 90 {
		t.Errorf("got %v", got)
	}
}
