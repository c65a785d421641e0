package agent_test

import (
	"bufio"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/agent/delivery/sinktest"
	"github.com/kubenergy/kubenergy/agent/host/hosttest"
)

// What the agent costs on a node with so many busy containers, each of them a process that wakes 20 times a second: all
// of it, RAPL read at each tick, batches pushed, state saved, metrics scraped. Its CPU time is what the kernel
// accounts to its process.
//
// `make bench-agent` measures for longer, with 1,000 containers as well, and holds the bounds; otherwise the bounds
// leave room for a machine that does other work.
func TestCost(t *testing.T) {
	if testing.Short() {
		t.Skip("runs agents for a while")
	}
	long := os.Getenv("KUBENERGY_BENCH") != ""
	warm, during, most := 2*time.Second, 6*time.Second, 0.02
	sizes := []int{100}
	if long {
		warm, during, most = 20*time.Second, time.Minute, 0.005
		sizes = []int{250, 1000}
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
			time.Sleep(warm)
			before, began := a.metrics(t), time.Now()
			for time.Since(began) < during {
				time.Sleep(during / 4)
				a.metrics(t)
			}
			after, took := a.metrics(t), time.Since(began).Seconds()
			cpu := (after["process_cpu_seconds_total"] - before["process_cpu_seconds_total"]) / took
			sweep := (after["kubenergy_agent_sweep_seconds_total"] - before["kubenergy_agent_sweep_seconds_total"]) /
				took
			rss := after["process_resident_memory_bytes"] / (1 << 20)
			t.Logf("%d busy containers, 1 s: %.3f %% of a core in all, of which the sweep %.3f %% (wall time); %.1f "+
				"MiB resident, %.0f descriptors",
				containers, 100*cpu, 100*sweep, rss, after["process_open_fds"])
			if got := after[`kubenergy_agent_consumers{state="living"}`]; got < float64(containers) {
				t.Errorf("%.0f consumers, want at least %d", got, containers)
			}
			if containers > 250 {
				return
			}
			if cpu > most {
				t.Errorf("%.3f %% of a core, want at most %.1f %%", 100*cpu, 100*most)
			}
			if rss > 25 {
				t.Errorf("%.1f MiB resident, want at most 25 MiB", rss)
			}
			if totals := sink.Totals(); totals.Batches == 0 || totals.Measured == 0 {
				t.Errorf("pushed %d batches with %v", totals.Batches, totals.Measured)
			}
		})
	}
}

// metrics scrapes; labels that say where and what of a node are left out of the keys.
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
