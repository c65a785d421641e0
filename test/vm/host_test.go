//go:build linux && amd64

package vm

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/agent/delivery/killtest"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/test/kit"
	"github.com/kubenergy/kubenergy/test/kit/guest"
)

// Power of the host with a simulated counter: when idle, and for each core used by the guests.
const (
	restWatts = 25
	coreWatts = 12
	feeding   = 50 * time.Millisecond
)

const hostName = "host"

// host is the hypervisor with its meter, its agent and the shared directories.
type host struct {
	agent  *kit.Process
	url    string // metrics URL of the agent
	guests string // parent of the shared directories
	meter  string // description of the meter

	tree *killtest.Powercap // simulated counter, or nil if the machine has RAPL

	mu   sync.Mutex // held while the counter is stopped
	pids []int      // process IDs of the guests
}

// startHost runs the agent in hypervisor mode with the RAPL counters of the machine, or with a simulated counter
// based on the CPU time of the guests.
func startHost(t *testing.T, dir string) *host {
	t.Helper()
	folder, err := os.MkdirTemp("/dev/shm", "kubenergy-guests")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	address := kit.Address(t)
	h := &host{url: "http://" + address + "/metrics", guests: folder, meter: "RAPL of the machine"}
	args := []string{
		"--node-name", hostName, "--vms", "--guests-dir", folder, "--meters", "rapl", "--listen", address,
	}
	if _, err := os.Stat("/sys/class/powercap/intel-rapl:0/energy_uj"); err != nil {
		if h.tree, err = killtest.NewPowercap(folder + "-powercap"); err != nil {
			t.Fatal(err)
		}
		h.tree.Roomy = true
		t.Cleanup(func() { _, _ = h.tree.Close(), os.RemoveAll(h.tree.Root) })
		args = append(args, "--powercap-root", h.tree.Root)
		h.meter = fmt.Sprintf("a simulated counter of %d W plus %d W for each core used by the guests",
			restWatts, coreWatts)
	}
	h.agent = kit.Start(t, dir, "agent", exec.Command(kit.Build(t, "./cmd/kubenergy-agent"), args...))
	kit.Eventually(t, 20*time.Second, "the agent of the host has read its meter", func() bool {
		ticks, _ := kit.Metric(t, h.page(t.Context()), "kubenergy_agent_tick_duration_seconds_count")
		return ticks > 1
	}, h.agent)
	if h.tree != nil {
		h.feed(t)
	}
	t.Logf("meter of the host: %s", h.meter)
	return h
}

// feed updates the simulated counter until the test ends.
func (h *host) feed(t *testing.T) {
	done := make(chan struct{})
	var feeder sync.WaitGroup
	feeder.Go(func() {
		for last, before := time.Now(), time.Duration(0); ; {
			select {
			case <-done:
				return
			case <-time.After(feeding):
			}
			h.mu.Lock()
			now, used := time.Now(), time.Duration(0)
			for _, pid := range h.pids {
				used += cpuTime(pid)
			}
			seconds := min(now.Sub(last), time.Second).Seconds() // the counter may have been stopped
			h.tree.Add(uint64(1e6 * (restWatts*seconds + coreWatts*max(0, used-before).Seconds())))
			last, before = now, used
			h.mu.Unlock()
		}
	})
	t.Cleanup(func() {
		close(done)
		feeder.Wait()
	})
}

// page returns the metrics page of the agent, or "" if the request fails.
func (h *host) page(ctx context.Context) string { return page(ctx, h.url) }

func page(ctx context.Context, url string) string {
	if status, text := kit.Get(ctx, http.DefaultClient, url, ""); status == http.StatusOK {
		return text
	}
	return ""
}

// total returns the sum of the series of a metric.
func total(t *testing.T, page, name string, labels ...string) energy.Microjoules {
	t.Helper()
	joules, _ := kit.Metric(t, page, name, labels...)
	return energy.Joules(joules).Microjoules()
}

// parts lists the consumer metrics that contribute to the energy of a node.
var parts = []string{"container", "vm", "cgroup", "system", "other", "ended"}

const (
	nodeEnergy = "kubenergy_node_energy_joules_total"
	ofParts    = "kubenergy_%s_energy_joules_total"
)

// sum returns the sum of all parts of a node's energy.
func sum(t *testing.T, page string) (all energy.Microjoules) {
	t.Helper()
	for _, part := range parts {
		all += total(t, page, fmt.Sprintf(ofParts, part))
	}
	for _, part := range []string{"idle", "platform", "unknown"} {
		all += total(t, page, "kubenergy_node_"+part+"_joules_total")
	}
	return all
}

// counter returns the value of a guest's counter.
func (h *host) counter(t *testing.T, name string) energy.Microjoules {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(h.guests, name, "intel-rapl:0", "energy_uj"))
	if err != nil {
		t.Fatal(err)
	}
	v, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return energy.Microjoules(v)
}

// add starts a guest with a counter that is updated by the host and reads the output of its probe.
func (h *host) add(t *testing.T, m *guest.Machine) *listener {
	t.Helper()
	from, to, err := os.Pipe()
	if err == nil {
		err = m.Start(to)
	}
	if err != nil {
		t.Fatal(err)
	}
	to.Close()
	l := &listener{cpu: map[string]time.Duration{}}
	go l.listen(from)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pids = append(h.pids, m.On().Cmd.Process.Pid)
	return l
}

// share shares the directory of a guest and returns the required QEMU arguments, including those for the output of
// the probe.
func (h *host) share(t *testing.T, dir, name, memory string) (p *kit.Process, args []string) {
	t.Helper()
	folder := filepath.Join(h.guests, name)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	p, args = guest.Share(t, dir, folder, memory)
	return p, append(args, "-chardev", "file,id=probe,path=/dev/fd/3", "-serial", "chardev:probe")
}

// A listener collects the output of a guest's probe.
type listener struct {
	mu   sync.Mutex
	ages []time.Duration
	cpu  map[string]time.Duration // by control group
}

func (l *listener) listen(from *os.File) {
	defer from.Close()
	for lines := bufio.NewScanner(from); lines.Scan(); {
		now, fields := time.Now(), strings.Fields(lines.Text())
		if len(fields) < 2 {
			continue
		}
		number, err := strconv.ParseInt(fields[len(fields)-1], 10, 64)
		if err != nil {
			continue // truncated line
		}
		l.mu.Lock()
		switch fields[0] {
		case "reading": // the transmission can only increase the age
			l.ages = append(l.ages, now.Sub(time.Unix(0, number)))
		case "cpu":
			l.cpu[fields[1]] = time.Duration(number) * time.Microsecond
		}
		l.mu.Unlock()
	}
}

// forget discards the collected ages.
func (l *listener) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ages = nil
}

func (l *listener) reported() []time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.ages)
}

// used returns the CPU time of the control group with the given path suffix.
func (l *listener) used(end string) (time.Duration, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for path, used := range l.cpu {
		if strings.HasSuffix(path, end) {
			return used, nil
		}
	}
	return 0, errors.New("no output of the probe for " + end)
}

// cpuTime returns the CPU time of a process and its children, or 0 if it has exited.
func cpuTime(pid int) time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	used := time.Duration(user+system) * (time.Second / 100)
	children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid)) // virtiofsd runs in a child process
	for child := range strings.FieldsSeq(string(children)) {
		if pid, err := strconv.Atoi(child); err == nil {
			used += cpuTime(pid)
		}
	}
	return used
}
