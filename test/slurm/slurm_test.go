package slurm

import (
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/test/kit"
)

// TestJobsOverKills submits 300 jobs while kubenergy-slurm is killed fifty times. Half of the jobs have an allowed
// delay. Every job must be eligible by its deadline and run.
func TestJobsOverKills(t *testing.T) {
	s := newStage(t)
	s.token(operator)
	const jobs, kills, pause = 300, 50, 9 * time.Second
	r := rand.New(rand.NewPCG(24, 1))
	process := s.ours()
	defer func() { process.End(t) }()
	latest, plain := map[int64]time.Duration{}, map[int64]bool{}
	killed, next := 0, time.Now().Add(pause)
	for n := 0; n < jobs || killed < kills; n++ {
		switch seconds := 1 + r.IntN(4); {
		case n >= jobs:
		case r.IntN(2) == 0:
			id, _ := s.submit(seconds, "plain")
			plain[id] = true
		default:
			delay := time.Duration(60+r.IntN(180)) * time.Second
			id, _ := s.submit(seconds, "kubenergy:allowed-delay="+delay.String()+",expected-duration=10s")
			latest[id] = delay
		}
		if time.Now().After(next) && killed < kills {
			process.Kill()
			killed++
			process = s.ours()
			next = time.Now().Add(pause/2 + time.Duration(r.Int64N(int64(pause))))
		}
		time.Sleep(time.Duration(r.IntN(2800)) * time.Millisecond)
	}
	kit.Eventually(t, 6*time.Minute, "all jobs have completed", func() bool {
		text, _ := s.output("squeue", "-h")
		return strings.TrimSpace(text) == ""
	})
	time.Sleep(5 * time.Second) // until slurmdbd has been updated
	all, delayed, inTime := s.jobs(), 0, 0
	for id, delay := range latest {
		j := all[id]
		by := j.submit.Add(delay)
		if j.state != "COMPLETED" || j.eligible.After(by.Add(time.Second)) {
			t.Errorf("job %d: state %s, eligible %v after its deadline", id, j.state, j.eligible.Sub(by))
		}
		if j.eligible.Sub(j.submit) > 5*time.Second {
			delayed++
		}
		if clean(j.eligible) {
			inTime++
		}
		if late := j.start.Sub(by); late > 20*time.Second { // the nodes are never full
			t.Errorf("job %d started %v after its deadline", id, late)
		}
	}
	for id := range plain {
		if j := all[id]; j.eligible.Sub(j.submit) > time.Second {
			t.Errorf("job %d without an allowed delay was eligible after %v", id, j.eligible.Sub(j.submit))
		}
	}
	t.Logf("%d kills; of %d jobs with an allowed delay, %d were delayed and %d were eligible in a clean minute",
		killed,
		len(latest), delayed, inTime)
	if 5*delayed < 2*len(latest) || 2*inTime < len(latest) {
		t.Error("too few delayed jobs")
	}
}

// TestFailsOpen verifies that jobs run as without kubenergy-slurm if a component fails, and that the failure is
// logged.
func TestFailsOpen(t *testing.T) {
	s := newStage(t)
	s.token(operator)
	// runs verifies that a job with an allowed delay of one hour becomes eligible soon and that kubenergy-slurm
	// logs description.
	runs := func(t *testing.T, description string, p *kit.Process) {
		t.Helper()
		id, _ := s.submit(1, "kubenergy:allowed-delay=1h,expected-duration=10s")
		if description != "" {
			kit.Eventually(t, time.Minute, "the log contains "+description,
				func() bool { return strings.Contains(p.Output(), description) })
		}
		kit.Eventually(t, 3*time.Minute, "the job has completed",
			func() bool { return s.jobs()[id].state == "COMPLETED" })
		if j := s.jobs()[id]; j.eligible.Sub(j.submit) > 70*time.Second {
			t.Errorf("job was eligible after %v, want at most 70 s", j.eligible.Sub(j.submit))
		}
	}
	with := func(name, description string, spoil, mend func()) {
		t.Run(name, func(t *testing.T) {
			spoil()
			p := s.ours()
			runs(t, description, p)
			p.End(t)
			mend()
		})
	}
	t.Run("Absent", func(t *testing.T) { runs(t, "", nil) })
	with("Gone", "check whether it is running", func() { s.restd.Kill() }, func() { s.startRest() })
	with("Slow", "has not responded within", func() { _ = s.restd.Cmd.Process.Signal(syscall.SIGSTOP) },
		func() { _ = s.restd.Cmd.Process.Signal(syscall.SIGCONT) })
	with("Forbidden", "adminlevel=operator", func() { s.token("bin") }, func() { s.token(operator) })
	with("NoToken", "needs a valid token", func() { s.write("token", 0o600, "a.b.c") }, func() { s.token(operator) })
	with("ForgedToken", "check both", func() {
		valid, err := os.ReadFile(s.path("token"))
		if err != nil {
			t.Fatal(err)
		}
		s.write("token", 0o600, strings.TrimSpace(string(valid))+"x")
	}, func() { s.token(operator) })
	with("Version", "supports none of", func() {
		s.restd.Kill()
		s.startRest("-s", "openapi/v0.0.36")
	}, func() {
		s.restd.Kill()
		s.startRest()
	})
	t.Run("Lua", func(t *testing.T) {
		for _, broken := range []string{"os.time = nil\n" + s.lua, s.lua + "function (", ""} {
			s.write("job_submit.lua", 0o644, broken)
			time.Sleep(time.Second)
			if _, reported := s.submit(1, "kubenergy:allowed-delay=1h"); strings.Contains(reported, "error") {
				t.Errorf("unexpected message for the submitter: %q", reported)
			}
		}
		s.write("job_submit.lua", 0o644, s.lua)
	})
	t.Run("Told", func(t *testing.T) {
		for comment, want := range map[string]string{
			"kubenergy:allowed-delay=6h": "up to 360 minutes", "kubenergy:alowed-delay=6h": "alowed-delay has no effect",
			"kubenergy:allowed-delay=soon": "makes no sense", "anything": "",
		} {
			if _, reported := s.submit(1, comment); !strings.Contains(reported, want) || want == "" && reported != "" {
				t.Errorf("message for comment %s = %q, want %q", comment, reported, want)
			}
		}
	})
}

// TestOthersWin verifies that changes by users and administrators take precedence, that arrays are delayed as a
// whole and that the QOS, priority and nodes of jobs are not modified.
func TestOthersWin(t *testing.T) {
	s := newStage(t)
	s.token(operator)
	p := s.ours()
	defer func() { p.End(t) }()
	const comment = "kubenergy:allowed-delay=3m30s,expected-duration=10s"
	show := func(id int64) string { return s.run("scontrol", "show", "job", idText(id)) }
	field := func(id int64, key string) string {
		_, rest, _ := strings.Cut(show(id), key+"=")
		value, _, _ := strings.Cut(rest, " ")
		return strings.TrimSpace(value)
	}
	wait := func(id int64) string {
		t.Helper()
		kit.Eventually(t, 30*time.Second, "kubenergy-slurm sets the begin time", func() bool {
			return strings.Contains(p.Output(), `"job":"slurm-`+idText(id)+`"`) || field(id, "JobState") == "RUNNING"
		})
		return field(id, "EligibleTime")
	}
	for time.Now().Minute()%4 != 1 { // three minutes before the next clean minute
		time.Sleep(time.Second)
	}
	array, _ := s.submit(1, comment, "--array=1-4%2")
	dependent, _ := s.submit(1, comment, "--dependency=afterok:"+idText(array))
	let, _ := s.submit(1, comment)
	moved, _ := s.submit(1, comment)
	held, _ := s.submit(1, comment)
	before := field(let, "Priority") + field(let, "QOS")
	wait(array)
	ours := wait(let)
	wait(moved)
	wait(held)
	if after := field(let, "Priority") + field(let, "QOS"); after != before && !strings.HasPrefix(after, "0") {
		t.Logf("priority and QOS changed from %s to %s", before, after) // the priority includes the age
	}
	if got := field(array, "EligibleTime"); got != ours {
		t.Errorf("array is eligible at %s, want %s as for a single job", got, ours)
	}
	s.run("scontrol", "update", "JobId="+idText(let), "StartTime=now")
	s.run("scontrol", "update", "JobId="+idText(moved), "StartTime=now+1200")
	s.run("scontrol", "hold", idText(held))
	theirs := field(moved, "EligibleTime")
	time.Sleep(10 * time.Second)
	if got := field(moved, "EligibleTime"); got != theirs {
		t.Errorf("StartTime set by the user was changed to %s", got)
	}
	if got := field(held, "Reason"); !strings.HasPrefix(got, "JobHeld") {
		t.Errorf("unexpected reason of a held job: %s", got)
	}
	kit.Eventually(t, time.Minute, "the released job has completed",
		func() bool { return s.jobs()[let].state == "COMPLETED" })
	kit.Eventually(t, 5*time.Minute, "the array and the dependent job have completed", func() bool {
		return s.jobs()[dependent].state == "COMPLETED"
	})
}

func idText(id int64) string { return strconv.FormatInt(id, 10) }
