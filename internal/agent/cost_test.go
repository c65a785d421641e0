package agent_test

import (
	"bufio"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kubenergy/kubenergy/internal/agent/delivery/sinktest"
	"github.com/kubenergy/kubenergy/internal/agent/host/hosttest"
	"github.com/kubenergy/kubenergy/test/kit"
	"github.com/kubenergy/kubenergy/test/paired"
)

// TestCost measures the agent's cost on a node with many busy containers, each with one process that wakes up 20
// times a second. RAPL is read at each tick, batches are pushed, the state is saved and metrics are scraped. CPU
// time is measured as accounted by the kernel for the process.
//
// The limit is a multiple of the CPU time of a naive program that opens, reads and closes the cpu.stat file of each
// control group once a second during the same period, so the limit also holds on slow and busy machines. `make
// bench-agent` measures for longer, also with 1,000 containers. With 250 containers, the agent may use as much CPU
// time as the naive program, which is 0.5 % of a core on the machine of docs/measurements.
//
//test:norace
func TestCost(t *testing.T) {
	if testing.Short() {
		t.Skip("runs agents for several seconds")
	}
	warm, windows, seconds, sizes, limit := 2*time.Second, 4, 2, []int{100}, 4. // fixed costs dominate
	if os.Getenv("KUBENERGY_BENCH") != "" {
		warm, windows, seconds, sizes, limit = 20*time.Second, 12, 5, []int{250, 1000}, 1
	}
	for _, containers := range sizes {
		t.Run(strconv.Itoa(containers), func(t *testing.T) {
			mount := hosttest.Containers(t, hosttest.Load{
				Version: 2, Containers: containers, Burst: 50 * time.Microsecond,
			})
			sink := &sinktest.Sink{}
			server := httptest.NewServer(sink)
			defer server.Close()
			a := start(t, "--cgroup-root", mount, "--powercap-root", powercap(t), "--meters", "rapl",
				"--push-url", server.URL, "--batch-interval", "5s", "--state-dir", t.TempDir())
			naive := newNaiveReader(t, mount)
			time.Sleep(warm)
			before, began, used := a.metrics(t), time.Now(), kit.CPUTimeOf(a.cmd.Process.Pid)
			var ratios []float64
			var reading time.Duration
			for range windows {
				from, read := kit.CPUTimeOf(a.cmd.Process.Pid), time.Duration(0)
				for range seconds {
					read += kit.CPUTime(naive.read)
					time.Sleep(time.Second) // the agent ticks once per second
				}
				a.metrics(t)
				ratios = append(ratios, float64(kit.CPUTimeOf(a.cmd.Process.Pid)-from)/float64(read))
				reading += read
			}
			after, took := a.metrics(t), time.Since(began).Seconds()
			cpu := (kit.CPUTimeOf(a.cmd.Process.Pid) - used).Seconds() / took
			sweep := (after["kubenergy_agent_sweep_seconds_total"] - before["kubenergy_agent_sweep_seconds_total"]) /
				took
			rss := after["process_resident_memory_bytes"] / (1 << 20)
			ratio := paired.MedianOf(ratios, 1)
			t.Logf("%d busy containers, 1 s: %.3f %% of a core, including %.3f %% for the sweep (wall time); %.1f "+
				"MiB resident, %.0f descriptors; a naive reader takes %.3f %%: ratio %v",
				containers, 100*cpu, 100*sweep, rss, after["process_open_fds"], 100*reading.Seconds()/took, ratio)
			if got := after[`kubenergy_agent_consumers{state="living"}`]; got < float64(containers) {
				t.Errorf("%.0f consumers, want at least %d", got, containers)
			}
			if containers > 250 {
				return
			}
			if ratio.Exceeds(limit) {
				t.Errorf("the agent's CPU time ÷ that of a naive reader: %v, want at most %v", ratio, limit)
			}
			if rss > 25 {
				t.Errorf("%.1f MiB resident, want at most 25 MiB", rss)
			}
			if totals := sink.Totals(); totals.Batches == 0 || totals.Measured == 0 {
				t.Errorf("recorded %d batches with %v", totals.Batches, totals.Measured)
			}
		})
	}
}

// naiveReader opens, reads and closes the CPU time file of each control group.
type naiveReader struct {
	t     *testing.T
	files []string
	text  []byte
}

func newNaiveReader(t *testing.T, root string) *naiveReader {
	t.Helper()
	r := &naiveReader{t: t, text: make([]byte, 4096)}
	if err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Name() == "cpu.stat" {
			r.files = append(r.files, path)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *naiveReader) read() {
	for _, path := range r.files {
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err == nil {
			_, err = unix.Read(fd, r.text)
			unix.Close(fd)
		}
		if err != nil {
			r.t.Errorf("reading %s: %v", path, err)
		}
	}
}

// metrics scrapes the agent. It removes the node label from the keys.
func (a *process) metrics(t *testing.T) map[string]float64 {
	t.Helper()
	resp, err := http.Get("http://" + a.address + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	found := map[string]float64{}
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		series, value, ok := strings.Cut(lines.Text(), "} ")
		if !ok {
			series, value, _ = strings.Cut(lines.Text(), " ")
		} else {
			series += "}"
		}
		series = strings.Replace(strings.Replace(series, `{node="`+node+`"}`, "", 1), `{node="`+node+`",`, "{", 1)
		if v, err := strconv.ParseFloat(value, 64); err == nil {
			found[series] = v
		}
	}
	return found
}
