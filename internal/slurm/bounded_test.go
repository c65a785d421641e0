package slurm_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/sched/sleep"
	"github.com/kubenergy/kubenergy/internal/slurm"
	"github.com/kubenergy/kubenergy/test/kit"
	"github.com/kubenergy/kubenergy/test/kit/bubble"
	"github.com/kubenergy/kubenergy/test/kit/memtest"
)

// TestAnswersAreBounded verifies that endless responses result in an error and use a limited amount of memory.
//
//test:norace
func TestAnswersAreBounded(t *testing.T) {
	for _, c := range []struct{ name, start, again, want string }{
		{"jobs", `{"jobs":[{}`, `,{}`, "want at most 250000"},
		{"jobs in pieces", `{"jobs":[{}`, `],"jobs":[{}`, "want at most 250000"},
		{"texts", `{"jobs":[{}`, `,{"comment":"` + strings.Repeat("x", 1<<19) + `"}`, "256 MiB of text"},
		{"a text", `{"jobs":[{"comment":"`, "xxxxxxxx", "larger than 1024 KiB"},
		{"states", `{"jobs":[{"job_state":[""`, `,""`, "larger than 1024 KiB"},
		{"fields", `{"jobs":[{"a":1`, `,"a":1`, "larger than 1024 KiB"},
		{"brackets", `{"jobs":[`, "[", ""},
		{"blanks", `{"jobs":[`, "        ", "larger than 1024 KiB"},
		{"another field", `{"meta":[0`, ",0", "larger than 1024 KiB"},
		{"errors", `{"errors":[{}`, ",{}", "larger than 1024 KiB"},
		{"a key", `{"`, "kkkkkkkk", "larger than 1024 KiB"},
		{"nothing", "", "        ", "larger than 1024 KiB"},
	} {
		t.Run(c.name, func(t *testing.T) {
			written := 0
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if !strings.HasSuffix(r.URL.Path, "/jobs/") {
					fmt.Fprint(w, `{}`)
					return
				}
				chunk := []byte(strings.Repeat(c.again, max((1<<16)/len(c.again), 1)))
				_, err := w.Write([]byte(c.start))
				for ; err == nil && written < 2<<30; written += len(chunk) {
					_, err = w.Write(chunk)
				}
			}))
			defer server.Close()
			token := kit.Write(t, filepath.Join(t.TempDir(), "token"), "x")
			client, err := slurm.NewClient(slurm.ClientOptions{URL: server.URL, TokenFile: token})
			if err != nil {
				t.Fatal(err)
			}
			defer memtest.Limit(t, 2<<30)() // total allocations; at most a third is in use at a time
			jobs, err := client.Jobs(t.Context())
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%d jobs, %v, want %q", len(jobs), err, c.want)
			}
		})
	}
}

// TestManyJobs verifies that the response of a large cluster is accepted.
//
//test:norace
func TestManyJobs(t *testing.T) {
	w := newWorld(t, "v0.0.45")
	const count = 100_000
	one := `{"job_id":{"set":true,"number":7},"account":"physics","job_state":["PENDING"],"comment":"nightly run",` +
		`"nodes":"n[0001-0128]","tres_req_str":"cpu=128,mem=512G,node=1,billing=128,gres/gpu=4","unread":` +
		`{"set":true,"infinite":false,"number":1}}`
	w.refuse = func(rw http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, "/jobs/") {
			return false
		}
		fmt.Fprintf(rw, `{"jobs":[%s%s],"meta":{"slurm":{}}}`, one, strings.Repeat(","+one, count-1))
		return true
	}
	client, err := slurm.NewClient(slurm.ClientOptions{URL: w.url, TokenFile: w.token})
	if err != nil {
		t.Fatal(err)
	}
	client.SetTransport(w.fake)
	if jobs, err := client.Jobs(t.Context()); err != nil || len(jobs) != count || jobs[count-1].Account != "physics" {
		t.Errorf("%d jobs, %v", len(jobs), err)
	}
}

// hang returns a handler that does not respond to changes of jobs until the client closes the connection.
func hang(asked *[]string) func(http.ResponseWriter, *http.Request) bool {
	return func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPost {
			return false
		}
		*asked = append(*asked, r.URL.Path)
		<-r.Context().Done()
		return true
	}
}

// TestChangesThatHang verifies that only one change is attempted per pass if slurmrestd hangs, and that releases
// come first.
func TestChangesThatHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "v0.0.45")
		w.cpus = 1 << 20
		for id := range int64(50) {
			w.add(id+1, mayWait)
		}
		w.look()
		for id := range int64(50) {
			w.add(id+51, mayWait)
		}
		w.runNow["team-a/slurm-33"] = true
		var asked []string
		w.refuse = hang(&asked)
		began := time.Now()
		err := w.driver.Look(t.Context())
		if took := time.Since(began); took != slurm.Timeout || !slurm.Unreachable(err) {
			t.Errorf("the pass took %v: %v", took, err)
		}
		if !slices.Equal(asked, []string{"/slurm/v0.0.45/job/33"}) {
			t.Errorf("unexpected changes: %q", asked)
		}
		w.refuse = nil
		w.look()
		for id, j := range w.jobs {
			want := valley
			if id == 33 {
				want = 0
			}
			w.begins(j, want, "after slurmrestd responds again")
		}
	})
}

// TestSlowChanges verifies that slow changes are distributed over several passes.
func TestSlowChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "v0.0.45")
		w.cpus = 1 << 20
		for id := range int64(40) {
			w.add(id+1, mayWait)
		}
		w.refuse = func(_ http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodPost {
				bubble.Advance(time.Second)
			}
			return false
		}
		for range 3 {
			began := time.Now()
			w.look()
			if took := time.Since(began); took > slurm.Changing+2*time.Second {
				t.Errorf("a pass took %v", took)
			}
		}
		for _, j := range w.jobs {
			w.begins(j, valley, "after three passes")
		}
	})
}

// TestUnreadableMemory verifies that an unreadable state file is renamed, that the BeginTimes of existing jobs are
// not changed, as users may have set them, and that new jobs are delayed.
func TestUnreadableMemory(t *testing.T) {
	for _, torn := range []string{"", `{"jobs":{"1":{"submit":17`, `[]`, `{"jobs":null}`, "\x00\x00"} {
		w := newWorld(t, "v0.0.45")
		released, moved := w.add(1, mayWait), w.add(2, mayWait)
		w.look()
		w.now = noon.Add(time.Minute)
		released.begin, moved.begin = w.now, noon.Add(7*time.Hour) // changed by their users
		w.look()
		if err := os.WriteFile(w.state, []byte(torn), 0o600); err != nil {
			t.Fatal(err)
		}
		w.now = noon.Add(2 * time.Minute)
		w.restart()
		if text, err := os.ReadFile(w.state + ".unreadable"); string(text) != torn || err != nil {
			t.Errorf("content of the renamed file = %q, %v", text, err)
		}
		w.restart() // killed before the first pass
		w.now = noon.Add(3 * time.Minute)
		fresh := w.add(3, mayWait)
		w.look()
		w.restart()
		w.at(4 * time.Minute)
		w.begins(released, time.Minute, "released by its user")
		w.begins(moved, 7*time.Hour, "moved by its user")
		w.begins(fresh, valley, "submitted after the restart")
		if !strings.Contains(w.log.String(), "Failed to read the state file") {
			t.Errorf("the log does not report the unreadable state %q: %s", torn, w.log.String())
		}
	}
}

func TestManyNodesSleep(t *testing.T) {
	var names []string
	for i := range 2_000 {
		names = append(names, fmt.Sprintf("node-%0200d", i))
	}
	w := newWorld(t, "v0.0.45")
	w.nodes = nil
	for _, name := range names {
		w.nodes = append(w.nodes, fakeNode{name, slurm.MaySleep, "IDLE", 0})
	}
	said := filepath.Join(t.TempDir(), "said")
	program := kit.Write(t, filepath.Join(t.TempDir(), "program"), "#!/bin/sh\necho $2 >> "+said+"\n")
	if err := os.Chmod(program, 0o700); err != nil {
		t.Fatal(err)
	}
	w.power = slurm.PowerOptions{
		Program: program, Policy: sleep.Policy{MinAwake: 1, Lead: time.Minute},
		Profile: func(*slurm.Node) *energy.Profile {
			return &energy.Profile{Idle: 100, Max: 200, WakeUp: 60_000, BootSeconds: 120}
		},
	}
	w.restart()
	w.look()
	w.at(time.Hour)
	text, err := os.ReadFile(said)
	if got := strings.Count(string(text), "node-"); err != nil || got < len(names)-1 {
		t.Errorf("%d of %d nodes were suspended: %v: %s", got, len(names), err, w.log.String()[:min(500, w.log.Len())])
	}
}

// TestPowerProgramIsBoundedInTime verifies that a pass starts no batch of nodes later than one minute after its
// decision, and that the next pass continues.
func TestPowerProgramIsBoundedInTime(t *testing.T) {
	const nodes, maxNames = 3001, 500
	w := newWorld(t, "v0.0.45")
	w.nodes, w.takes = nil, 25*time.Second
	for i := range nodes {
		w.nodes = append(w.nodes, fakeNode{fmt.Sprintf("n%04d", i), slurm.MaySleep, "IDLE", 0})
	}
	said := filepath.Join(t.TempDir(), "said")
	w.power = slurm.PowerOptions{
		Program: kit.Write(t, filepath.Join(t.TempDir(), "program"), "#!/bin/sh\necho $2 >> "+said+"\n"),
		Policy:  sleep.Policy{MinAwake: 1},
		Profile: func(*slurm.Node) *energy.Profile {
			return &energy.Profile{Idle: 100, Max: 200, WakeUp: 60_000, BootSeconds: 120}
		},
	}
	if err := os.Chmod(w.power.Program, 0o700); err != nil {
		t.Fatal(err)
	}
	w.restart()
	w.look()
	for look, want := range []int{3 * maxNames, 6 * maxNames, 6 * maxNames} {
		w.at(time.Duration(look+1) * time.Hour)
		text, err := os.ReadFile(said)
		if got := strings.Count(string(text), "n"); err != nil || got != want {
			t.Errorf("pass %d: %d nodes have been suspended, want %d: %v", look, got, want, err)
		}
		for i := range w.nodes {
			if strings.Contains(string(text), w.nodes[i].name) {
				w.nodes[i].state = "POWERED_DOWN"
			}
		}
	}
}

func TestClearText(t *testing.T) {
	for url, warns := range map[string]bool{
		"http://127.0.0.1:6820": false, "http://localhost:6820": false, "http://[::1]:6820": false,
		"https://slurm.example": false, "unix:/run/s": false, "http://slurm.example:6820": true, "http://10.0.0.1": true,
	} {
		client, err := slurm.NewClient(slurm.ClientOptions{URL: url, TokenFile: "token"})
		if err != nil {
			t.Fatal(err)
		}
		if err := client.CheckURL(); (err != nil) != warns {
			t.Errorf("%s: %v", url, err)
		}
	}
}
