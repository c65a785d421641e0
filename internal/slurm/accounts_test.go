package slurm_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubenergy/kubenergy/internal/ledger"
)

func TestAccounts(t *testing.T) { synctest.Test(t, testAccounts) }

func testAccounts(t *testing.T) {
	w := newWorld(t, "v0.0.45")
	for id, hosts := range map[int64]string{1: "n[1-2]", 2: "n[08-10,12],login", 3: "rack[1-2]n[1-4]", 4: ""} {
		w.add(id, "", func(j *job) { j.state, j.hosts = "RUNNING", hosts })
	}
	w.jobs[1].sluid = "s5K1KKYAYG5D00"
	w.look()
	go func() { _ = w.driver.Run(t.Context()) }() // queries Slurm again for unknown jobs
	const v1, v2 = "/slurm/uid_1000", "/system.slice/slurmstepd.scope"
	for _, c := range []struct{ node, path, step string }{
		{"n1", v1 + "/job_1/step_0", "slurm-1.0"},
		{"n2", v2 + "/job_1/step_batch/user/task_0", "slurm-1.batch.0"},
		{"n2", v1 + "/job_1/step_0/task_3", "slurm-1.0.3"},
		{"n1", v2 + "/s5K1KKYAYG5D00/step_0/user/task_0", "slurm-1.0.0"}, // Slurm 26.05
		{"n1", "/system.slice/n1_slurmstepd.scope/s5K1KKYAYG5D00/step_batch", "slurm-1.batch"},
		{"n3", v2 + "/s5K1KKYAYG5D00/step_0", ""},
		{"n1", v2 + "/sEKNKTV3WPV500/step_0", ""},
		{"n3", v2 + "/job_1/step_0", ""}, // the job does not run on this node
		{"n11", v2 + "/job_1/step_0", ""},
		{"n09", v2 + "/job_2/step_0", "slurm-2.0"},
		{"n9", v2 + "/job_2/step_0", ""},
		{"n12", v2 + "/job_2/step_0", "slurm-2.0"},
		{"login", v2 + "/job_2/step_0", "slurm-2.0"},
		{"rack2n4", v2 + "/job_3/step_extern", "slurm-3.extern"},
		{"rack3n4", v2 + "/job_3/step_0", ""},
		{"n1", v2 + "/job_4/step_0", ""}, // not started
		{"n1", v2 + "/job_99/step_0", ""},
		{"n1", "/user.slice", ""},
	} {
		step, a, ok := w.driver.Account(c.node, c.path)
		if step != c.step || ok != (c.step != "") {
			t.Errorf("Account(%s, %s) = %q, %v, want %q", c.node, c.path, step, ok, c.step)
		}
		if want := (ledger.Account{
			Namespace: "team-a", OwnerKind: "Job", Owner: a.Owner, Parent: "Partition/main", Team: "ada",
		}); ok && a != want {
			t.Errorf("unexpected account %+v", a)
		}
	}
}

// TestSLUIDsAreNotReported verifies the warning if control groups are named by SLUID, but slurmrestd uses a version
// without them.
func TestSLUIDsAreNotReported(t *testing.T) { synctest.Test(t, testSLUIDsAreNotReported) }

func testSLUIDsAreNotReported(t *testing.T) {
	w := newWorld(t, "v0.0.43")
	w.add(7, "", func(j *job) { j.state, j.hosts = "RUNNING", "n1" })
	w.look()
	for range 2 {
		if _, _, ok := w.driver.Account("n1", "/system.slice/slurmstepd.scope/s5K1KKYAYG5D00/step_0"); ok {
			t.Error("Account() of an unknown SLUID succeeded")
		}
	}
	if got := strings.Count(w.log.String(), "named by SLUID"); got != 1 {
		t.Errorf("%d warnings, want 1:\n%s", got, w.log.String())
	}
}

// TestAccountOfANewJob verifies that a job that started after the last query of Slurm is found.
func TestAccountOfANewJob(t *testing.T) { synctest.Test(t, testAccountOfANewJob) }

func testAccountOfANewJob(t *testing.T) {
	w := newWorld(t, "v0.0.45")
	go func() { _ = w.driver.Run(t.Context()) }()
	if _, _, ok := w.driver.Account("n1", "/slurm/uid_0/job_7/step_0"); ok {
		t.Error("Account() of a job that does not exist succeeded")
	}
	w.add(7, "", func(j *job) { j.state, j.hosts = "RUNNING", "n2" })
	if _, _, ok := w.driver.Account("n2", "/slurm/uid_0/job_7/step_0"); !ok {
		t.Error("Account() of a job that has just started failed")
	}
	began := time.Now()
	for id := range 100 {
		w.driver.Account("n1", fmt.Sprintf("/slurm/uid_0/job_%d/step_0", 100+id))
	}
	if took := time.Since(began); took > time.Minute {
		t.Errorf("100 lookups for a node with unknown jobs took %v, want at most 1m", took)
	}
}
