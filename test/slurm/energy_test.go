package slurm

import (
	"crypto/sha256"
	"encoding/csv"
	"fmt"
	"math"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/test/kit"
)

// metering contains lines of slurm.conf that enable control groups, energy accounting and the epilog that prints
// the energy of jobs.
var metering = []string{
	"ProctrackType=proctrack/cgroup", "JobAcctGatherType=jobacct_gather/cgroup",
	"JobAcctGatherFrequency=task=1,energy=1", "AcctGatherNodeFreq=1",
	"AcctGatherEnergyType=acct_gather_energy/pm_counters", "Epilog=DIR/kubenergy-epilog.sh",
	"PartitionName=debug Nodes=n[1-2] MaxTime=INFINITE State=UP",
}

// Power of a simulated node: when idle, and per second of CPU time. The idle power is low because these tests do
// not cover how well agents estimate it, which is described in docs/measurements/agent.md.
const (
	idleWatts = 2.0
	perSecond = 40.0
	before    = 1_000_000 // initial value of the counter in microjoules
)

// node is a Slurm node from the perspective of its meter and its agent. Only processes of Slurm run on it.
type node struct {
	name    string
	group   string // control group of version 1 created by slurmd
	counter string // path of the RAPL counter
	proc    string // directory with the CPU time of the node
	agent   *kit.Process
	page    string // base URL of the agent
	stop    chan struct{}
	final   chan int64 // receives the total in microjoules after the counter was stopped
}

func newNode(s *stage, name string) *node {
	s.t.Helper()
	n := &node{
		name: name, group: "/sys/fs/cgroup/cpuacct/slurm_" + name, counter: s.path(name + "-rapl/intel-rapl:0/energy_uj"),
		proc: s.path(name + "-proc"), stop: make(chan struct{}), final: make(chan int64, 1),
	}
	if err := os.MkdirAll(n.group, 0o755); err != nil {
		s.t.Fatal(err)
	}
	for file, text := range map[string]string{
		n.counter: idText(before) + "\n", filepath.Join(filepath.Dir(n.counter), "name"): "package-0\n",
		filepath.Join(filepath.Dir(n.counter), "max_energy_range_uj"): "9223372036854775807\n",
		filepath.Join(n.proc, "stat"):                                 procStat(0),
	} {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			s.t.Fatal(err)
		}
		kit.Write(s.t, file, text)
	}
	return n
}

// procStat returns the content of /proc/stat for a node with two CPUs and the given busy time.
func procStat(seconds float64) string {
	return fmt.Sprintf("cpu  %020.0f 0 0 0 0 0 0 0 0 0\ncpu0 0 0 0 0 0 0 0 0 0 0\ncpu1 0 0 0 0 0 0 0 0 0 0\n", 100*seconds)
}

// watch starts the agent of a node, the program that passes its counter to Slurm and the counter itself.
func (n *node) watch(s *stage, groups string) {
	s.t.Helper()
	view, address := s.path(n.name+"-groups"), kit.Address(s.t)
	if err := os.MkdirAll(view, 0o755); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Symlink(n.group, filepath.Join(view, "cpuacct")); err != nil {
		s.t.Fatal(err)
	}
	n.page = "http://" + address
	_, port, _ := net.SplitHostPort(s.api)
	n.agent = kit.Start(s.t, s.dir, "agent-"+n.name, exec.Command(kit.Build(s.t, "./cmd/kubenergy-agent"),
		"--node-name="+n.name, "--interval=250ms", "--meters=rapl", "--idle=apart", "--listen="+address,
		"--powercap-root="+filepath.Dir(filepath.Dir(n.counter)), "--cgroup-root="+view, "--cgroup="+groups,
		"--proc-root="+n.proc,
		"--batch-interval=1s", "--push-url=https://localhost:"+port+"/api/v1/batches",
		"--push-token-file="+kit.Write(s.t, s.path(n.name+"-token"), n.name+"-secret"),
		"--push-ca-file="+s.path("ours/api.crt")))
	kit.Eventually(s.t, time.Minute, "the agent has finished its first tick", func() bool {
		status, _ := kit.Get(s.t.Context(), http.DefaultClient, n.page+"/healthz", "")
		return status == http.StatusOK
	}, n.agent)
	kit.Start(s.t, s.dir, "feed-"+n.name,
		s.command(s.path("pm-counters.sh"), "feed", s.path("pm-"+n.name), n.page+"/metrics"))
	go n.feed(s.t)
}

// feed updates the counter of the node until it is stopped.
func (n *node) feed(t *testing.T) {
	counter, err := os.OpenFile(n.counter, os.O_WRONLY, 0)
	stat, errStat := os.OpenFile(filepath.Join(n.proc, "stat"), os.O_WRONLY, 0)
	if err != nil || errStat != nil {
		t.Error(err, errStat)
		return
	}
	defer counter.Close()
	defer stat.Close()
	began, first, last := time.Now(), n.cpu(t), int64(0)
	for tick := time.NewTicker(50 * time.Millisecond); ; {
		busy := n.cpu(t) - first
		last = int64(1e6 * (idleWatts*time.Since(began).Seconds() + perSecond*busy))
		_, _ = stat.WriteAt([]byte(procStat(busy)), 0) // overwrite in place, like the files of the kernel
		_, _ = counter.WriteAt([]byte(idText(before+last)+"\n"), 0)
		select {
		case <-tick.C:
		case <-n.stop:
			tick.Stop()
			n.final <- last
			return
		}
	}
}

// cpu returns the CPU time in seconds used by Slurm on the node.
func (n *node) cpu(t *testing.T) float64 {
	text, err := os.ReadFile(n.group + "/cpuacct.usage")
	ns, errText := strconv.ParseFloat(strings.TrimSpace(string(text)), 64)
	if err != nil || errText != nil {
		t.Errorf("reading the CPU time: %v, %v", err, errText)
	}
	return ns / 1e9
}

// settle stops the counter, makes the agent deliver all batches and returns the total energy in microjoules.
func (n *node) settle(s *stage) int64 {
	s.t.Helper()
	close(n.stop)
	fed := <-n.final
	time.Sleep(2 * time.Second) // until the agent has read the counter again
	kit.Eventually(s.t, time.Minute, "all batches are delivered", func() bool {
		answer, err := http.Post(n.page+"/forward-metrics", "", nil)
		if err != nil {
			return false
		}
		defer answer.Body.Close()
		return answer.StatusCode == http.StatusOK
	})
	return fed
}

// meter starts all programs that meter a Slurm cluster with two nodes.
func (s *stage) meter(groups string) (nodes []*node) {
	s.t.Helper()
	s.token(operator)
	var hosts strings.Builder
	fmt.Fprintln(&hosts, "hosts:")
	for _, name := range []string{"n1", "n2"} {
		fmt.Fprintf(&hosts, "- {node: %s, tokenSHA256: %x}\n", name, sha256.Sum256([]byte(name+"-secret")))
	}
	p := s.ours("--host-tokens-file=" + kit.Write(s.t, s.path("hosts"), hosts.String()))
	s.t.Cleanup(func() { p.End(s.t) })
	kit.Eventually(s.t, 2*time.Minute, "the ledger API is available", func() bool {
		client, err := kit.Trusting(s.path("ours/api.crt"))
		if err != nil {
			return false
		}
		_, port, _ := net.SplitHostPort(s.api)
		status, _ := kit.Get(s.t.Context(), client, "https://localhost:"+port+"/api/v1/ledger", s.reader())
		return status == http.StatusOK
	}, p)
	s.write("kubenergy-epilog.conf", 0o600, fmt.Sprintf("SERVER=%s TOKEN=%s CA=%s KUBENERGY=%s WAIT=5\n",
		s.server(), s.path("ours/reader-token"), s.path("ours/api.crt"), s.path("kubenergy")))
	s.run("cp", kit.Build(s.t, "./cmd/kubenergy"), s.path("kubenergy")) // visible to slurmd
	for _, name := range []string{"n1", "n2"} {
		n := newNode(s, name)
		n.watch(s, groups)
		nodes = append(nodes, n)
	}
	return nodes
}

func (s *stage) server() string {
	_, port, _ := net.SplitHostPort(s.api)
	return "https://localhost:" + port
}

func (s *stage) reader() string {
	text, _ := os.ReadFile(s.path("ours/reader-token"))
	return string(text)
}

// report runs kubenergy report with the reader's token and returns the keys and energies in microjoules.
func (s *stage) report(group string, args ...string) (keys [][]string, joules []int64) {
	s.t.Helper()
	args = append([]string{
		"report", "--server", s.server(), "--token-file", s.path("ours/reader-token"), "--ca-file",
		s.path("ours/api.crt"), "--from", "-1h", "--group-by", group,
	}, args...)
	s.t.Log(s.run(kit.Build(s.t, "./cmd/kubenergy"), args...))
	rows, err := csv.NewReader(strings.NewReader(s.run(kit.Build(s.t, "./cmd/kubenergy"), append(args, "-o", "csv")...))).
		ReadAll()
	if err != nil {
		s.t.Fatal(err)
	}
	column := slices.Index(rows[0], "energy_kwh")
	for _, row := range rows[1:] {
		kwh, err := strconv.ParseFloat(row[column], 64)
		if err != nil {
			s.t.Fatal(err)
		}
		keys, joules = append(keys, row[:column]), append(joules, int64(math.Round(kwh*3.6e12)))
	}
	return keys, joules
}

// work submits a job that computes for the given time and then prints its CPU time.
func (s *stage) work(account, partition, node string, seconds int) int64 {
	id, _ := s.sbatch(account, "--output=%j.out", "--time=10", "--partition="+partition, "--nodelist="+node,
		s.script(fmt.Sprintf(`#!/bin/bash
end=$((SECONDS + %d))
while [ $SECONDS -lt $end ]; do for ((i = 0; i < 100000; i++)); do :; done; done
awk '{ print "CPU", ($14 + $15) / 100 }' /proc/$$/stat
`, seconds)))
	return id
}

// learn runs jobs until the agents have estimated the idle power of their nodes.
func (s *stage) learn() {
	s.t.Helper()
	for range 3 {
		s.ended(s.work(submitter, "main", "n1", 8), s.work(submitter, "main", "n2", 8))
		time.Sleep(15 * time.Second)
	}
}

// script writes a script and returns its path.
func (s *stage) script(text string) string {
	s.t.Helper()
	name := fmt.Sprintf("script-%x.sh", sha256.Sum256([]byte(text)))
	s.write(name, 0o755, text)
	return s.path(name)
}

// cpuOf returns the CPU times in seconds that the processes of a job have printed, and the complete output of the
// job.
func (s *stage) cpuOf(id int64) (seconds []float64, out string) {
	s.t.Helper()
	text, err := os.ReadFile(s.path("out/" + idText(id) + ".out"))
	if err != nil {
		s.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if _, said, ok := strings.Cut(strings.TrimSpace(line), "CPU "); ok {
			f, err := strconv.ParseFloat(said, 64)
			if err != nil {
				s.t.Fatal(err)
			}
			seconds = append(seconds, f)
		}
	}
	return seconds, string(text)
}

func (s *stage) ended(ids ...int64) {
	s.t.Helper()
	kit.Eventually(s.t, 10*time.Minute, "the jobs have completed", func() bool {
		all := s.jobs()
		return !slices.ContainsFunc(ids, func(id int64) bool { return all[id].state != "COMPLETED" })
	})
}

// reported waits until the epilogs have appended the energy to the output of the jobs. They wait until the agents have
// delivered their batches.
func (s *stage) reported(ids ...int64) {
	s.t.Helper()
	kit.Eventually(s.t, 2*time.Minute, "the epilogs have written", func() bool {
		return !slices.ContainsFunc(ids, func(id int64) bool {
			_, out := s.cpuOf(id)
			return !strings.Contains(out, "Slurm counted ")
		})
	})
}

// TestEnergy verifies that the recorded energy of jobs, idle and unknown equals that of the counters to the
// microjoule. The energy of each job must be accurate within 1 % and must be printed in its output alongside the
// value of Slurm.
func TestEnergy(t *testing.T) {
	s := newStage(t, metering...)
	nodes := s.meter("/uid_*/job_*/step_*")
	s.learn()
	jobs := []int64{
		s.work(submitter, "main", "n1", 90), s.work(physicist, "debug", "n2", 75), s.work(physicist, "main", "n1", 60),
	}
	s.ended(jobs...)
	s.reported(jobs...)
	fed := int64(0)
	for _, n := range nodes {
		current := n.settle(s)
		fed += current
		if _, joules := s.report("kind", "--node", n.name); sum(joules) != current {
			t.Errorf("node %s: recorded %d µJ, want %d", n.name, sum(joules), current)
		}
	}
	keys, joules := s.report("account,user,partition,kind")
	if sum(joules) != fed {
		t.Errorf("recorded %d µJ, want %d", sum(joules), fed)
	}
	for _, want := range [][]string{
		{"team", submitter, "Partition/main", "workload"},
		{"physics", physicist, "Partition/debug", "workload"},
		{"physics", physicist, "Partition/main", "workload"},
	} {
		if !slices.ContainsFunc(keys, func(key []string) bool { return slices.Equal(key, want) }) {
			t.Errorf("report contains no row for %v", want)
		}
	}
	for _, id := range jobs {
		_, joules := s.report("owner", "--owner", "Job/slurm-"+idText(id))
		seconds, out := s.cpuOf(id)
		drawn, booked := perSecond*seconds[0], float64(sum(joules))/1e6
		t.Logf("job %d: recorded %.1f J, used %.1f J", id, booked, drawn)
		if math.Abs(booked/drawn-1) > 0.01 {
			t.Errorf("job %d: recorded energy deviates by more than 1 %%", id)
		}
		t.Log(out)
		if said := fmt.Sprintf("kubenergy: %.0f J", float64(sum(joules))/1e6); !strings.Contains(out, said) ||
			!strings.Contains(out, "gCO2e, ") || !strings.Contains(out, " EUR;") ||
			!strings.Contains(out, "Slurm counted ") {
			t.Errorf("output of job %d does not contain %s:\n%s", id, said, out)
		}
	}
}

// TestRanks runs an Open MPI job on two nodes and verifies that the energy is proportional to the CPU time by node
// and by rank.
func TestRanks(t *testing.T) {
	s := newStage(t, metering...)
	s.run("mpicc", "-O1", "-o", s.path("ranks"), filepath.Join(kit.Root, "test", "slurm", "testdata", "ranks.c"))
	s.meter("/uid_*/job_*/step_*/task_*")
	s.learn()
	id, _ := s.sbatch(submitter, "--output=%j.out", "--time=10", "--nodes=2", "--ntasks=2", "--ntasks-per-node=1",
		s.script("#!/bin/sh\nOMPI_MCA_btl_tcp_if_include=lo exec srun --mpi=pmix "+s.path("ranks")+" 90\n"))
	s.ended(id)
	s.reported(id)
	cpu, out := s.cpuOf(id)
	t.Log(out)
	if len(cpu) != 2 {
		t.Fatal("expected the output of two ranks")
	}
	least, most := slices.Min(cpu), slices.Max(cpu)
	if least/most > 0.7 {
		t.Errorf("CPU times %v of the ranks are too similar", cpu)
	}
	for group, keys := range map[string][]string{
		"node": {"n1", "n2"}, "pod": {"team/slurm-" + idText(id) + ".0.0", "team/slurm-" + idText(id) + ".0.1"},
	} {
		found, joules := s.report(group, "--owner", "Job/slurm-"+idText(id))
		var of []float64
		for _, want := range keys {
			for i, key := range found {
				if key[0] == want {
					of = append(of, float64(joules[i]))
				}
			}
		}
		if len(of) != 2 {
			t.Fatalf("unexpected report by %s: %v", group, found)
		}
		current := slices.Max(of) / slices.Min(of)
		t.Logf("by %s: energies %.0f µJ with ratio %.3f, CPU times %v with ratio %.3f",
			group, of, current, cpu, most/least)
		if math.Abs(current*least/most-1) > 0.03 {
			t.Errorf("by %s: ratio of energies deviates by more than 3 %%", group)
		}
	}
}

func sum(of []int64) (total int64) {
	for _, v := range of {
		total += v
	}
	return total
}
