package sim_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sim"
	"github.com/kubenergy/kubenergy/internal/timeutil"
)

// inOrder returns a scenario with a node of four cores and jobs that are submitted one second apart, with known
// lengths.
func inOrder(t testing.TB, every time.Duration, jobs ...sched.Job) *sim.Scenario {
	t.Helper()
	home := site(t, "home", 1, 500, 400, 300)
	s := &sim.Scenario{
		Start: start, Sites: []*sched.Site{home}, Queue: sim.QueueRules{Backfill: every},
		Nodes: []sched.Node{node("n", home, 4, &energy.Profile{Idle: 100, Max: 300})},
	}
	for i, j := range jobs {
		j.ID, j.Submitted = fmt.Sprint("j", i), start.Add(time.Duration(i)*time.Second)
		j.Request.MilliCPU *= 1000
		s.Jobs = append(s.Jobs, j)
	}
	return s
}

func cores(n int64, length, limit time.Duration) sched.Job {
	return sched.Job{Request: sched.Resources{MilliCPU: n}, Duration: length, TimeLimit: limit}
}

func TestBackfill(t *testing.T) {
	const every = 10 * time.Second
	for name, c := range map[string]struct {
		jobs   []sched.Job
		starts []string
	}{
		"jobs behind one that does not fit wait until the next interval": {
			[]sched.Job{cores(3, time.Minute, 0), cores(4, time.Minute, 0), cores(1, 20*time.Second, 0)},
			[]string{"j0 0s", "j1 1m0s", "j2 10s"},
		},
		"a job is not delayed by jobs with later time limits": {
			[]sched.Job{cores(3, time.Minute, 0), cores(4, time.Minute, 0), cores(1, 20*time.Second, time.Hour)},
			[]string{"j0 0s", "j1 1m0s", "j2 2m0s"},
		},
		"plans use time limits, and jobs that end early free capacity": {
			[]sched.Job{cores(3, time.Minute, time.Hour), cores(4, time.Minute, 0), cores(1, 20*time.Second, 50*time.Minute)},
			[]string{"j0 0s", "j1 1m0s", "j2 10s"},
		},
		"every job behind the first one keeps its place": {
			[]sched.Job{
				cores(3, time.Minute, 0), cores(4, time.Minute, 0), cores(3, time.Minute, 0), cores(2, time.Minute, 0),
				cores(1, 3*time.Minute, 0),
			},
			[]string{"j0 0s", "j1 1m0s", "j2 2m0s", "j3 3m0s", "j4 2m0s"},
		},
		"a job that fits on no node does not block others": {
			[]sched.Job{cores(5, time.Minute, 0), cores(4, time.Minute, 0)},
			[]string{"j1 1s"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := run(t, inOrder(t, every, c.jobs...), "fcfs")
			if diff := cmp.Diff(c.starts, starts(r)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Jobs that may wait choose among the times at which they fit next to the running jobs and earlier held jobs, as
// with kubenergy-slurm. They take precedence over jobs that were submitted later.
func TestBackfillSharesTheCleanHour(t *testing.T) {
	job := func(n int64) sched.Job {
		j := cores(n, time.Hour, 0)
		j.AllowedDelay = 3 * time.Hour
		return j
	}
	s := inOrder(t, time.Minute, job(3), job(3), job(1)) // the intensity decreases every hour
	r := run(t, s, "fcfs+window")
	want := []string{"j0 2h0m0s", "j1 1h0m0s", "j2 2h0m0s"}
	if diff := cmp.Diff(want, starts(r)); diff != "" {
		t.Error(diff)
	}
}

// The cores of a job become free after its epilog.
func TestEpilog(t *testing.T) {
	s := inOrder(t, time.Minute, cores(4, time.Minute, 0), cores(2, time.Minute, 0), cores(4, time.Minute, 0))
	s.Queue.Epilog = 10 * time.Second
	want := []string{"j0 0s", "j1 1m10s", "j2 2m20s"}
	if diff := cmp.Diff(want, starts(run(t, s, "fcfs"))); diff != "" {
		t.Error(diff)
	}
}

// A held job yields to queued jobs, and uses the remaining capacity once the queue is empty.
func TestBackfillLetsOthersPass(t *testing.T) {
	late := cores(2, time.Hour, 0)
	late.AllowedDelay = 4 * time.Hour
	s := inOrder(t, time.Minute, cores(4, time.Hour, 0), cores(4, 30*time.Minute, 0), late, cores(2, time.Hour, 0))
	r := run(t, s, "fcfs+window")
	want := []string{"j0 0s", "j1 1h0m0s", "j2 1h30m0s", "j3 1h30m0s"} // the cleanest hour starts at 2h
	if diff := cmp.Diff(want, starts(r)); diff != "" {
		t.Error(diff)
	}
}

// On a single node with accurate time limits, no job starts later than in strict order of submission.
func TestBackfillDelaysNone(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		var jobs []sched.Job
		for range rapid.IntRange(1, 12).Draw(r, "jobs") {
			length := time.Duration(rapid.IntRange(1, 90).Draw(r, "seconds")) * time.Second
			jobs = append(jobs, cores(rapid.Int64Range(1, 4).Draw(r, "cores"), length, 0))
		}
		s := inOrder(t, time.Second, jobs...)
		free := []time.Time{start, start, start, start} // time at which each core becomes free
		last := start
		for i, o := range run(t, s, "fcfs").Outcomes {
			j := &s.Jobs[i]
			slices.SortFunc(free, time.Time.Compare)
			n := j.Request.MilliCPU / 1000
			last = timeutil.Later(timeutil.Later(last, j.Submitted), free[n-1])
			for k := range n {
				free[k] = last.Add(j.Duration)
			}
			if o.Start.After(last) {
				r.Errorf("%s starts %v later than in order of submission", j.ID, o.Start.Sub(last))
			}
		}
	})
}
