package slurm

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubenergy/kubenergy/internal/power"
	"github.com/kubenergy/kubenergy/internal/sched/sleep"
	"github.com/kubenergy/kubenergy/test/kit"
)

// TestSleep verifies that slurmd processes are stopped and started by Slurm's SuspendProgram and ResumeProgram
// according to the decisions of the core while jobs are submitted. No job may fail, and all decisions must be
// reproducible from their records.
func TestSleep(t *testing.T) {
	s := newStage(t, "ProctrackType=proctrack/linuxproc", "SuspendProgram=DIR/suspend.sh", "ResumeProgram=DIR/resume.sh",
		"SuspendTime=1000000", "SuspendTimeout=10", "ResumeTimeout=120", "SuspendRate=0", "ResumeRate=0", "DebugFlags=Power")
	s.token(operator)
	for name, todo := range map[string]string{
		"suspend.sh": `kill $(cat DIR/slurmd-$n.pid); echo $n >> DIR/suspended`,
		"resume.sh":  `sleep 3; setsid slurmd -b -N $n; echo $n >> DIR/resumed`, // simulates the boot time
	} {
		s.write(name, 0o755, strings.ReplaceAll("#!/bin/sh\n"+
			"export SLURM_CONF=DIR/slurm.conf PATH=/usr/sbin:/usr/bin:/sbin:/bin\n"+
			"for n in $(scontrol show hostnames \"$1\"); do "+todo+"; done > /dev/null 2>&1\n", "DIR", s.dir))
	}
	s.run("scontrol", "reconfigure") // Slurm requires the programs to exist
	t.Cleanup(func() { _, _ = s.output("sh", "-c", "kill $(cat "+s.path("slurmd-n?.pid")+")") })
	script := filepath.Join(kit.Root, "deploy", "slurm", "kubenergy-power.sh")
	wrapper := s.path("power.sh") // kubenergy-slurm does not use this slurm.conf
	s.write("power.sh", 0o755, "#!/bin/sh\nexport SLURM_CONF="+s.conf+"\nexec "+script+" \"$@\"\n")
	record := s.path("decisions")
	p := s.ours("--slurm-power-program="+wrapper, "--slurm-power-record="+record, "--slurm-min-awake=0")
	defer func() { p.End(t) }()

	r := rand.New(rand.NewPCG(24, 3))
	var ids []int64
	for range 6 { // a node sleeps between bursts
		for range 3 + r.IntN(4) {
			id, _ := s.submit(2+r.IntN(6), "plain", fmt.Sprintf("--cpus-per-task=%d", 3+r.IntN(6)))
			ids = append(ids, id)
			time.Sleep(time.Duration(r.IntN(4000)) * time.Millisecond)
		}
		time.Sleep(time.Duration(25+r.IntN(20)) * time.Second)
	}
	s.ended(ids...)
	count := func(name string) int {
		text, _ := os.ReadFile(s.path(name))
		return strings.Count(string(text), "\n")
	}
	t.Logf("%d jobs; nodes were suspended %d times and resumed %d times",
		len(ids), count("suspended"), count("resumed"))
	if count("suspended") < 3 || count("resumed") < 2 {
		t.Error("too few nodes were suspended or resumed")
	}
	text, err := os.ReadFile(record)
	if err != nil {
		t.Fatal(err)
	}
	decisions := 0
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); decisions++ {
		var recorded power.Recorded
		if err := json.Unmarshal(lines.Bytes(), &recorded); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(*recorded.Plan, sleep.Decide(recorded.Snapshot)); diff != "" {
			t.Errorf("replayed decision differs (-want,+got):\n%s", diff)
		}
	}
	if decisions < 4 {
		t.Errorf("got %d recorded decisions, want at least 4", decisions)
	}
}
