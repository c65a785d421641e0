package slurm_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/slurm"
)

// noon is the start time of tests. The carbon intensity is low for two hours, starting four hours later.
var noon = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)

const (
	valley    = 4 * time.Hour
	valleyEnd = 6 * time.Hour
)

// job is a job in the fake slurmrestd.
type job struct {
	id, cpus             int64
	comment, admin       string
	state, reason        string
	submit, begin        time.Time
	limit                time.Duration
	deadline             time.Time
	array, resv, account string
	tres                 string
	hosts, sluid         string
	flags                []string
}

// fakeNode is a node with some allocated CPUs.
type fakeNode struct {
	name, features, state string
	taken                 int64
}

// fake is a fake slurmrestd that supports an old and the current versions of the API.
type fake struct {
	version string
	refuse  func(w http.ResponseWriter, r *http.Request) bool // handles the request instead of the fake

	mu    sync.Mutex
	now   time.Time
	jobs  map[int64]*job
	nodes []fakeNode
	cpus  int64    // per node
	tres  string   // per node
	sets  []int64  // IDs of changed jobs, in order
	keys  []string // keys in request bodies
}

func (f *fake) number(n int64) any {
	if f.version == "v0.0.38" {
		return n
	}
	return map[string]any{"set": true, "infinite": false, "number": n}
}

func (f *fake) word(s string) any {
	if f.version == "v0.0.38" {
		return s
	}
	return []string{s}
}

func unix(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.Unix()
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refuse != nil && f.refuse(w, r) {
		return
	}
	path, known := strings.CutPrefix(strings.TrimSuffix(r.URL.Path, "/"), "/slurm/"+f.version+"/")
	answer := map[string]any{"errors": []any{}}
	switch {
	case !known:
		http.NotFound(w, r)
		return
	case path == "nodes":
		var all []any
		for _, n := range f.nodes {
			all = append(all, map[string]any{
				"name": n.name, "cpus": f.cpus, "state": f.word(n.state), "partitions": []string{"main"},
				"features": f.word(n.features), "alloc_cpus": n.taken, "real_memory": 1000, "tres": f.tres,
			})
		}
		answer["nodes"] = all
	case path == "jobs":
		var all []any
		for _, id := range slices.Sorted(maps.Keys(f.jobs)) {
			j := f.jobs[id]
			all = append(all, map[string]any{
				"job_id": j.id, "account": j.account, "user_name": "ada", "partition": "main", "comment": j.comment,
				"admin_comment": j.admin, "job_state": f.word(j.state), "state_reason": j.reason, "resv_name": j.resv,
				"submit_time": f.number(unix(j.submit)), "eligible_time": f.number(unix(j.begin)),
				"deadline": f.number(unix(j.deadline)), "time_limit": f.number(int64(j.limit / time.Minute)),
				"cpus": f.number(j.cpus), "array_task_string": j.array, "nodes": j.hosts, "flags": j.flags,
				"tres_req_str": j.tres, "step_id": map[string]any{"sluid": j.sluid},
			})
		}
		answer["jobs"] = all
	case strings.HasPrefix(path, "job/") && r.Method == http.MethodPost:
		id, _ := strconv.ParseInt(strings.TrimPrefix(path, "job/"), 10, 64)
		if err := f.update(id, r); err == nil && f.version == "v0.0.38" && f.jobs[id].array != "" {
			answer["errors"] = []any{map[string]any{"description": "job array update failed", "source": "x"}}
		} else if err != nil {
			w.WriteHeader(http.StatusInternalServerError)
			answer["errors"] = []any{map[string]any{"error": err.Error(), "error_number": 2009}}
		}
	}
	_ = json.NewEncoder(w).Encode(answer)
}

func (f *fake) update(n int64, r *http.Request) error {
	var body map[string]json.RawMessage
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		return err
	}
	f.keys = slices.AppendSeq(f.keys, maps.Keys(body))
	j := f.jobs[n]
	if j == nil {
		return fmt.Errorf("invalid job id %d", n)
	}
	var begin int64
	if f.version == "v0.0.38" {
		var text string
		if err := json.Unmarshal(body["begin_time"], &text); err != nil {
			return fmt.Errorf("unable to parse time: %w", err)
		}
		begin, _ = strconv.ParseInt(strings.TrimPrefix(text, "uts"), 10, 64)
	} else {
		var long struct {
			Set    bool
			Number int64
		}
		if err := json.Unmarshal(body["begin_time"], &long); err != nil || !long.Set {
			return fmt.Errorf("parsing begin_time: %s %w", body["begin_time"], err)
		}
		begin = long.Number
	}
	j.begin, f.sets = time.Unix(begin, 0), append(f.sets, n)
	return nil
}

// world is a driver that is connected to a fake slurmrestd.
type world struct {
	*fake
	t         testing.TB
	url       string
	token     string
	state     string
	mode      v1alpha1.Mode
	signals   bool
	valley    time.Duration // after noon
	maxDelay  time.Duration // in the cluster's policy
	runNow    map[string]bool
	power     slurm.PowerOptions
	takes     time.Duration // duration of each run of the power program
	log       strings.Builder
	driver    *slurm.Driver
	records   []ledger.Record
	questions []*sched.Snapshot
	held      []slurm.Held
}

func newWorld(t testing.TB, version string) *world {
	t.Helper()
	w := &world{
		fake: &fake{
			version: version, now: noon, jobs: map[int64]*job{}, cpus: 64, nodes: []fakeNode{{name: "n1", state: "IDLE"}},
		}, t: t, mode: v1alpha1.ModeEnforce,
		signals: true, valley: valley, runNow: map[string]bool{}, state: filepath.Join(t.TempDir(), "slurm.json"),
		token: filepath.Join(t.TempDir(), "token"),
	}
	if err := os.WriteFile(w.token, []byte("SLURM_JWT=a.b.c\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.url = inProcess
	w.restart()
	return w
}

// inProcess is the URL of a fake without a network connection, so that time can be simulated.
const inProcess = "http://localhost"

// RoundTrip implements [http.RoundTripper].
func (f *fake) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	f.ServeHTTP(w, r)
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	return w.Result(), nil
}

// restart replaces the driver by a new one with the same state file, as after a crash.
func (w *world) restart() {
	w.t.Helper()
	client, err := slurm.NewClient(slurm.ClientOptions{URL: w.url, TokenFile: w.token})
	if err != nil {
		w.t.Fatal(err)
	}
	if w.url == inProcess {
		client.SetTransport(w.fake)
	}
	w.driver = slurm.New(slurm.Options{
		Client: client, State: w.state, Every: time.Hour, Power: w.power, Registerer: prometheus.NewRegistry(),
		Now: func() time.Time {
			return w.now.Add(w.takes * time.Duration(strings.Count(w.log.String(), "msg=\"Ran power program\" ")))
		},
		Log: slog.New(slog.NewTextHandler(&w.log, nil)), Rules: w.rules,
		Record: func(r ledger.Record, on *sched.Snapshot) {
			w.records, w.questions = append(w.records, r), append(w.questions, on)
		},
		Show:   func(held []slurm.Held) { w.held = held },
		RunNow: func(account, name string) bool { return w.runNow[account+"/"+name] },
	})
}

// rules returns the rules of a site with a low carbon intensity in the valley.
func (w *world) rules() (*policy.Rules, bool) {
	values := make([]float64, 48)
	for i := range values {
		at := time.Duration(i) * time.Hour
		if values[i] = 400; at >= w.valley && at < w.valley+valleyEnd-valley {
			values[i] = 100
		}
	}
	series, err := grid.NewSeries(noon, time.Hour, values)
	if err != nil {
		w.t.Fatal(err)
	}
	site := &sched.Site{Name: "de", Zone: "DE"}
	if w.signals {
		site.Carbon = grid.Signal{Series: series, AsOf: w.now}
	}
	defaults := policy.BuiltIn()
	defaults.Mode, defaults.MaxDelay = w.mode, cmp.Or(w.maxDelay, defaults.MaxDelay)
	rules := (&policy.Sources{Defaults: defaults, Sites: []*sched.Site{site}}).Rules()
	return &rules, true
}

const mayWait = "kubenergy:allowed-delay=8h,expected-duration=1h"

// add submits a job at the current time.
func (w *world) add(id int64, comment string, change ...func(*job)) *job {
	j := &job{
		id: id, cpus: 4, comment: comment, state: "PENDING", reason: "Priority", submit: w.now, begin: w.now,
		limit: 2 * time.Hour, account: "Team_A",
	}
	for _, c := range change {
		c(j)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.jobs[id] = j
	return j
}

func (w *world) look() {
	w.t.Helper()
	if err := w.driver.Look(w.t.Context()); err != nil {
		w.t.Errorf("Look() failed: %v", err)
	}
}

// at advances the clock to a time after noon and performs a pass.
func (w *world) at(d time.Duration) {
	w.t.Helper()
	w.now = noon.Add(d)
	w.look()
}

// begins verifies the BeginTime of a job, relative to noon.
func (w *world) begins(j *job, want time.Duration, why string) {
	w.t.Helper()
	if got := j.begin.Sub(noon); got != want {
		w.t.Errorf("%s: job %d starts %v after noon, want %v", why, j.id, got, want)
	}
}
