package slurm_test

import (
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/sched/codec"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
	"github.com/kubenergy/kubenergy/internal/slurm"
)

func TestJobsWaitForTheValley(t *testing.T) {
	for _, version := range []string{"v0.0.38", "v0.0.42", "v0.0.45"} {
		t.Run(version, func(t *testing.T) {
			w := newWorld(t, version)
			waits := w.add(1, "nightly kubenergy:allowed-delay=8h,expected-duration=1h of ada")
			short := w.add(2, "kubenergy:allowed-delay=30m")
			plain := w.add(3, "not for you")
			graced := w.add(4, mayWait, func(j *job) {
				j.admin, j.begin = "kubenergy: looked at", j.submit.Add(time.Minute)
			})
			array := w.add(5, mayWait, func(j *job) { j.array, j.cpus = "1-10%2", 1 })
			w.look()
			w.begins(waits, valley, "its best hour")
			w.begins(short, 0, "no cheaper hour within the delay")
			w.begins(plain, 0, "no annotations in the comment")
			w.begins(graced, valley, "delayed by job_submit.lua until the first pass")
			w.begins(array, valley, "an array is one job")
			if !slices.Equal(w.sets, []int64{1, 4, 5}) || len(w.keys) != 3 || w.keys[0] != "begin_time" {
				t.Errorf("changed fields %v of jobs %v, want only begin_time", w.keys, w.sets)
			}
			if len(w.held) != 3 || w.held[0].Namespace != "team-a" || w.held[0].Latest != noon.Add(8*time.Hour) {
				t.Errorf("unexpected held jobs: %+v", w.held)
			}
			for range 3 {
				w.look()
			}
			if len(w.sets) != 3 {
				t.Errorf("unexpected changes without a new forecast: %v", w.sets)
			}
		})
	}
}

// TestRecordsAreReplayed verifies that recorded decisions can be reproduced from their recorded input.
func TestRecordsAreReplayed(t *testing.T) {
	w := newWorld(t, "v0.0.45")
	w.cpus = 4
	w.add(1, mayWait)
	w.add(2, mayWait)
	w.add(3, mayWait)
	w.look()
	if len(w.records) != 2 {
		t.Fatalf("got %d records, want 2", len(w.records))
	}
	for i, r := range w.records {
		text, err := codec.Encode(w.questions[i])
		if err != nil {
			t.Fatal(err)
		}
		q, err := codec.Decode(text)
		if err != nil {
			t.Fatal(err)
		}
		strategy, err := strategy.New(r.Strategy)
		if err != nil {
			t.Fatal(err)
		}
		if d := strategy.Plan(q)[0]; !d.Window.Start.Equal(r.Start) || d.Reason.Kind.String() != r.Reason {
			t.Errorf("job %s: decided %s at %v, replayed %v at %v", r.Owner, r.Reason, r.Start, d.Reason.Kind,
				d.Window.Start)
		}
	}
}

// TestRoom verifies that three jobs of one hour that each need the complete partition do not start at the same time
// in a valley of two hours.
func TestRoom(t *testing.T) {
	w := newWorld(t, "v0.0.45")
	w.cpus = 4
	var starts []time.Duration
	for id := range int64(3) {
		j := w.add(id+1, mayWait)
		w.look()
		starts = append(starts, j.begin.Sub(noon))
	}
	for i, a := range starts {
		for _, b := range starts[:i] {
			if (a - b).Abs() < time.Hour {
				t.Errorf("jobs start at %v and %v, but the partition has capacity for one", a, b)
			}
		}
	}
	if !slices.Contains(starts, valley) {
		t.Errorf("no job starts in the valley: %v", starts)
	}
	w = newWorld(t, "v0.0.45")
	w.cpus = 4
	long := w.add(1, "kubenergy:allowed-delay=8h,expected-duration=2h")
	w.look()
	w.valley = valley - time.Hour
	w.at(10 * time.Minute)
	w.begins(long, valley-time.Hour, "a job does not compete with itself")
	array := w.add(9, mayWait, func(j *job) { j.array, j.cpus = "1-4%2", 1 })
	w.look()
	if array.begin.After(noon.Add(8 * time.Hour)) {
		t.Errorf("the array starts at %v, after its deadline", array.begin)
	}
}

// TestOthersPass verifies that a delayable job waits while other jobs are queued, and that it starts immediately
// after others have been queued, even after a restart.
func TestOthersPass(t *testing.T) {
	w := newWorld(t, "v0.0.45")
	w.cpus = 8
	others := w.add(1, "")
	late := w.add(2, mayWait)
	w.look()
	w.begins(late, valley, "other jobs are waiting for resources")
	w.at(time.Hour)
	others.state, others.reason, others.hosts = "RUNNING", "None", "n1"
	w.at(time.Hour + time.Minute)
	w.begins(late, time.Hour+time.Minute, "other jobs have waited for resources before")
	w.restart()
	later := w.add(3, mayWait)
	w.at(time.Hour + 2*time.Minute)
	w.begins(later, time.Hour+time.Minute, "the queue is restored after a restart")
}

func TestOthersWin(t *testing.T) {
	w := newWorld(t, "v0.0.45")
	own := w.add(1, mayWait, func(j *job) { j.begin = w.now.Add(time.Hour) })
	reserved := w.add(2, mayWait, func(j *job) { j.resv = "r" })
	cron := w.add(6, mayWait, func(j *job) { j.flags = []string{"CRON_JOB"} })
	moved, let, held := w.add(3, mayWait), w.add(4, mayWait), w.add(5, mayWait)
	w.look()
	w.begins(own, time.Hour, "submitted with --begin")
	w.begins(reserved, 0, "in a reservation")
	w.begins(cron, 0, "job of a crontab")
	w.begins(moved, valley, "")
	w.now = noon.Add(time.Hour)
	moved.begin, let.begin = noon.Add(7*time.Hour), w.now
	held.reason = "JobHeldUser"
	before := len(w.sets)
	w.look()
	w.valley = 2 * time.Hour // a better forecast
	w.at(90 * time.Minute)
	w.begins(moved, 7*time.Hour, "scontrol update StartTime=")
	w.begins(let, time.Hour, "scontrol update StartTime=now")
	w.begins(held, valley, "scontrol hold")
	if len(w.sets) != before {
		t.Errorf("jobs %v were changed after changes by their users", w.sets[before:])
	}
	held.reason = "BeginTime"
	w.at(95 * time.Minute)
	w.begins(held, 2*time.Hour, "released by its user, with a better forecast")
	w.restart()
	w.look()
	w.begins(moved, 7*time.Hour, "after a restart")
}

func TestNews(t *testing.T) {
	w := newWorld(t, "v0.0.45")
	j, asked, off := w.add(1, mayWait), w.add(2, mayWait), w.add(3, mayWait)
	w.look()
	w.valley = 2 * time.Hour
	w.at(time.Minute)
	w.begins(j, valley, "new forecast within five minutes")
	w.runNow["team-a/slurm-2"] = true
	off.comment = "no more"
	w.at(10 * time.Minute)
	w.begins(j, 2*time.Hour, "an earlier valley")
	w.begins(asked, 10*time.Minute, "run-now")
	w.begins(off, 10*time.Minute, "its comment has no annotations anymore")
	w.signals = false
	w.at(30 * time.Minute)
	w.begins(j, 2*time.Hour, "the plan is not changed without signals")
	w.signals, w.mode = true, v1alpha1.ModeShadow
	w.at(40 * time.Minute)
	w.begins(j, 40*time.Minute, "shadow mode")
	shadow := w.add(4, mayWait)
	w.look()
	w.begins(shadow, 40*time.Minute, "shadow mode does not delay jobs")
}

// TestShorterDelay verifies that a shorter maximum delay in the cluster's policy takes effect immediately.
func TestShorterDelay(t *testing.T) {
	w := newWorld(t, "v0.0.45")
	j := w.add(1, mayWait)
	w.look()
	w.begins(j, valley, "its best hour")
	w.maxDelay = valley - 30*time.Second
	w.at(time.Minute)
	if late := j.begin.Sub(noon.Add(w.maxDelay)); late > 0 {
		t.Errorf("the job starts %v after its new deadline", late)
	}
}

func TestReleasedIsFinal(t *testing.T) {
	w := newWorld(t, "v0.0.45")
	j := w.add(1, mayWait)
	w.look()
	w.valley = 7 * time.Hour // the forecast changes when the valley should have started
	w.at(valley + time.Minute)
	w.at(valley + 10*time.Minute)
	w.begins(j, valley, "after its BeginTime")
	last := w.records[len(w.records)-1]
	if last.Action != "release" || last.Owner != "slurm-1" {
		t.Errorf("unexpected last record: %+v", last)
	}
}

// TestDeadlines verifies that no BeginTime is later than the deadline with random restarts and failures.
//
//test:norace
func TestDeadlines(t *testing.T) {
	for seed := range uint64(12) {
		r := rand.New(rand.NewPCG(seed, 1))
		w := newWorld(t, []string{"v0.0.38", "v0.0.44"}[seed%2])
		w.cpus = 8
		latest := map[*job]time.Time{}
		var fails bool
		w.refuse = func(rw http.ResponseWriter, q *http.Request) bool {
			if fails && q.Method == http.MethodPost && r.IntN(2) == 0 {
				rw.WriteHeader(http.StatusInternalServerError)
				return true
			}
			return false
		}
		for step := range 40 {
			w.now = noon.Add(time.Duration(step) * 11 * time.Minute)
			if step < 15 {
				delay := time.Duration(r.IntN(400)) * time.Minute
				comment := fmt.Sprintf("kubenergy:allowed-delay=%v,expected-duration=%v", delay,
					time.Duration(1+r.IntN(90))*time.Minute)
				j := w.add(int64(step+1), comment)
				latest[j] = j.submit.Add(delay)
				if r.IntN(3) == 0 {
					j.deadline = w.now.Add(5 * time.Hour)
					latest[j] = sooner(latest[j], j.deadline.Add(-j.limit-time.Minute)) // time for the start
				}
			}
			w.valley = time.Duration(r.IntN(12)) * time.Hour
			w.signals, fails = r.IntN(5) > 0, r.IntN(3) == 0
			if r.IntN(4) == 0 {
				w.restart()
			}
			_ = w.driver.Look(t.Context())
			for j, by := range latest {
				if late := j.begin.Sub(by); late > 0 && j.begin.After(j.submit) && late > w.now.Sub(by) {
					t.Fatalf("seed %d: job %d starts %v after its deadline", seed, j.id, late)
				}
			}
		}
	}
}

// TestDeadlineWithoutLimit verifies that a job with a --deadline but without a time limit starts early enough for
// its expected duration.
func TestDeadlineWithoutLimit(t *testing.T) {
	w := newWorld(t, "v0.0.45")
	w.valley = 4 * time.Hour
	j := w.add(1, mayWait, func(j *job) { j.limit, j.deadline = 0, noon.Add(4*time.Hour+30*time.Minute) })
	w.look()
	if end := j.begin.Add(time.Hour); end.After(j.deadline) {
		t.Errorf("the expected end is %v, after the deadline %v", end, j.deadline)
	}
}

func sooner(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func TestKilledBeforeSlurmWasTold(t *testing.T) {
	w := newWorld(t, "v0.0.45")
	j := w.add(1, mayWait)
	w.refuse = func(rw http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPost {
			return false
		}
		if text, err := os.ReadFile(w.state); !strings.Contains(string(text), `"1":`) {
			t.Errorf("the state file does not contain the change: %s %v", text, err)
		}
		rw.WriteHeader(http.StatusBadGateway)
		return true
	}
	if err := w.driver.Look(t.Context()); err == nil || !strings.Contains(err.Error(), "slurm-1") {
		t.Errorf("Look() with a rejected BeginTime: %v", err)
	}
	w.refuse = nil
	w.restart()
	w.at(time.Minute)
	w.begins(j, valley, "retried in the next pass")
	again := w.add(1, mayWait, func(j *job) { j.begin = noon.Add(valley) }) // another job with the same ID and --begin
	w.at(2 * time.Minute)
	w.valley = 2 * time.Hour
	w.at(30 * time.Minute)
	w.begins(again, valley, "another job with the same ID is not changed")
}

// TestFailsOpen verifies that no job is changed on errors and that the error contains advice for the operator.
func TestFailsOpen(t *testing.T) {
	claims := base64.RawURLEncoding.EncodeToString([]byte(`{"sun":"kubenergy","exp":1}`))
	for name, c := range map[string]struct {
		spoil func(*world)
		want  string
	}{
		"away":      {func(w *world) { w.url = "http://127.0.0.1:1" }, "check whether it is running"},
		"token":     {func(w *world) { _ = os.WriteFile(w.token, []byte("h."+claims+".s"), 0o600) }, "expired at"},
		"no token":  {func(w *world) { _ = os.Remove(w.token) }, "--slurm-token-file"},
		"forbidden": {func(w *world) { w.refuse = status(http.StatusUnauthorized) }, "adminlevel=operator"},
		"no operator": {func(w *world) {
			w.refuse = func(rw http.ResponseWriter, r *http.Request) bool {
				if r.Method != http.MethodPost {
					return false
				}
				rw.WriteHeader(http.StatusInternalServerError)
				fmt.Fprint(rw, `{"errors":[{"error":"Access/permission denied","error_number":2002}]}`)
				return true
			}
		}, "adminlevel=operator"},
		"slurmctld": {func(w *world) {
			w.refuse = func(rw http.ResponseWriter, _ *http.Request) bool {
				rw.WriteHeader(http.StatusInternalServerError)
				fmt.Fprint(rw, `{"errors":[{"error":"Unspecified error","error_number":-1}]}`)
				return true
			}
		}, "slurmctld does not respond"},
		"version": {func(w *world) { w.version = "v0.0.50" }, "v0.0.45"},
		"nonsense": {func(w *world) {
			w.refuse = func(rw http.ResponseWriter, r *http.Request) bool {
				if !strings.HasSuffix(strings.TrimSuffix(r.URL.Path, "/"), "jobs") {
					return false
				}
				fmt.Fprint(rw, `{"jobs":[{"job_id":{"number":[]}}]}`)
				return true
			}
		}, "decoding the response"},
		"signals": {func(w *world) { w.signals = false }, ""},
		"marks":   {func(w *world) { w.jobs[1].comment = "kubenergy:allowed-delay=soon" }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "v0.0.45")
			j := w.add(1, mayWait)
			c.spoil(w)
			w.restart()
			err := w.driver.Look(t.Context())
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("Look() = %v, want %q", err, c.want)
			}
			w.begins(j, 0, "unchanged")
		})
	}
}

func status(code int) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(code)
		return true
	}
}

func TestClientOptions(t *testing.T) {
	for _, o := range []slurm.ClientOptions{{URL: "localhost:6820"}, {URL: "http://localhost:6820"}} {
		if _, err := slurm.NewClient(o); err == nil || !strings.Contains(err.Error(), "--slurm-") {
			t.Errorf("%+v: %v", o, err)
		}
	}
}
