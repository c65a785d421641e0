package kit

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestMetric(t *testing.T) {
	const page = `# HELP held Number of objects held.
held{kind="job",node="a"} 2
held{kind="job",node="b"} 3 1700000000000
held{kind="pod",node="a"} 5
held_total 7
idle 0
`
	for _, c := range []struct {
		name   string
		labels []string
		sum    float64
		found  bool
	}{
		{"held", nil, 10, true},
		{"held", []string{`kind="job"`}, 5, true},
		{"held", []string{`kind="job"`, `node="b"`}, 3, true},
		{"held", []string{`kind="node"`}, 0, false},
		{"held_total", nil, 7, true},
		{"idle", nil, 0, true},
		{"hel", nil, 0, false},
	} {
		if sum, found := Metric(t, page, c.name, c.labels...); sum != c.sum || found != c.found {
			t.Errorf("Metric(%s, %v) = %v, %v, want %v, %v", c.name, c.labels, sum, found, c.sum, c.found)
		}
	}
}

// Addresses are reserved until the test ends, also across processes. The lock conflicts between open file
// descriptions, so a second call in this process behaves like one in another process.
func TestAddressIsReserved(t *testing.T) {
	seen := map[string]bool{}
	for range 500 {
		address := Address(t)
		if seen[address] {
			t.Fatalf("Address() returned %s twice", address)
		}
		seen[address] = true
		_, port, err := net.SplitHostPort(address)
		if number, errPort := strconv.Atoi(port); err != nil || errPort != nil || number < firstPort ||
			number >= firstPort+portCount {
			t.Fatalf("Address() = %s, want a port in the reserved range", address)
		}
	}
}

// Work uses processor time, and the processor time of the process includes it.
func TestWork(t *testing.T) {
	before := CPUTimeOf(os.Getpid())
	took := Work()
	if all := CPUTimeOf(os.Getpid()) - before; took <= 0 || all < took {
		t.Errorf("Work() = %v, want a positive duration of at most %v, the processor time of the process", took, all)
	}
	t.Logf("Work() = %v", took)
}

func TestProcess(t *testing.T) {
	dir := t.TempDir()
	p := Start(t, dir, "sleeper", exec.Command("sh", "-c", "echo up; sleep 60"))
	Eventually(t, time.Minute, "the process prints its output", func() bool { return p.Output() == "up\n" }, p)
	if p.Ended() {
		t.Error("process exited unexpectedly")
	}
	p.Kill()
	p.Kill() // Kill is idempotent
	if !p.Ended() {
		t.Error("process is still running after Kill()")
	}
	failing, err := Launch(dir, "failing", exec.Command("sh", "-c", "echo no >&2; exit 3"))
	if err != nil {
		t.Fatal(err)
	}
	<-failing.Done()
	if err := failing.Stop(time.Minute); err == nil || failing.Tail() != "no\n" {
		t.Errorf("Stop() = %v, Tail() = %q, want an error and the output of the process", err, failing.Tail())
	}
	if _, err := Launch(dir, "nothing", exec.Command(filepath.Join(dir, "nothing"))); err == nil {
		t.Error("Launch() of a nonexistent program succeeded, want an error")
	}
}

func TestGoSaysWhatIsWrong(t *testing.T) {
	_, err := Go("build", "./no/such/folder")
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || !strings.Contains(err.Error(), "no/such/folder") {
		t.Error(err)
	}
}

// verdictOf records whether a test was failed or skipped.
type verdictOf struct {
	testing.TB
	failed, skipped bool
}

func (v *verdictOf) Skipf(string, ...any)  { v.skipped = true }
func (v *verdictOf) Errorf(string, ...any) { v.failed = true }

func TestABusyMachineIsNotJudged(t *testing.T) {
	for _, c := range []struct {
		share           float64
		slow            bool
		failed, skipped bool
	}{
		{0.9, true, true, false}, {0.3, true, false, true}, {0.9, false, false, false}, {0.3, false, false, false},
	} {
		verdict := &verdictOf{TB: t}
		m := &Machine{t: verdict, shares: []float64{1, c.share, c.share}}
		if c.slow {
			m.TooSlow("operation took %v", time.Hour)
		}
		m.judge()
		if verdict.failed != c.failed || verdict.skipped != c.skipped {
			t.Errorf("free processor %v, slow %v: failed = %v, skipped = %v", c.share, c.slow, verdict.failed,
				verdict.skipped)
		}
	}
	if m := WatchMachine(t); m.free() <= 0 || m.free() > 1.01 {
		t.Errorf("free() = %v, want a fraction of a processor", m.free())
	}
}
