package slurm_test

import (
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/test/kit/memtest"
)

// FuzzAnswers verifies that arbitrary data from slurmrestd, users and agents neither causes a crash nor a BeginTime
// after the deadline, and that the memory usage is proportional to the size of the data.
func FuzzAnswers(f *testing.F) {
	f.Add(`{"jobs":[{"job_id":1,"account":"a","job_state":["PENDING"],"comment":"kubenergy:allowed-delay=8h",`+
		`"submit_time":{"set":true,"number":1795694400},"eligible_time":{"set":true,"number":1795694400},"cpus":4}]}`,
		"n[1-3,07]", "n07", "/slurm/uid_1/job_1/step_0")
	f.Add(`{"jobs":[{"job_id":-2,"job_state":"RUNNING","nodes":"a[1-","cpus":18446744073709550973,"tres_req_str":"mem=1e99P"}],`+
		`"errors":[{"error_number":null}]}`, "[", "", "/job_99999999999999999999/step_")
	f.Add(`{"jobs":[{},{},{},{},{},{},{},{}],"jobs":[{"flags":["","","","","","","",""]}]}`, "n", "n", "/job_1/step_0")
	w := newWorld(f, "v0.0.45")
	w.driver.AskOnce()
	f.Fuzz(func(t *testing.T, jobs, hosts, node, path string) {
		w.held = nil
		w.refuse = func(rw http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path != "/slurm/v0.0.45/jobs/" || jobs == "" {
				return false
			}
			_, _ = rw.Write([]byte(jobs))
			return true
		}
		w.add(1, mayWait, func(j *job) { j.hosts = hosts })
		// Two bytes of a response may be decoded into a job of 400 bytes, slices grow by doubling, and each job is
		// processed.
		defer memtest.Limit(t, 4000*(len(jobs)+len(hosts)+len(node)+len(path)))()
		_ = w.driver.Look(t.Context())
		w.driver.Account(node, path)
		for _, h := range w.held {
			if h.Begin.After(h.Latest.Add(time.Second)) {
				t.Fatalf("job starts after its latest start: %+v", h)
			}
		}
	})
}

// FuzzMemory runs a pass with an arbitrary state file.
func FuzzMemory(f *testing.F) {
	f.Add([]byte(`{"jobs":{"1":{"submit":1795694400,"ours":1795708800,"reason":"x"}},"queues":{"main":{"Share":0.1}}}`))
	f.Add([]byte(`{"jobs":{"1":null},"queues":{"":{"Share":1e308,"Over":-1}}}`))
	f.Fuzz(func(t *testing.T, memory []byte) {
		w := newWorld(t, "v0.0.45")
		defer memtest.Limit(t, 1000*len(memory))()
		if err := os.WriteFile(w.state, memory, 0o600); err != nil {
			t.Fatal(err)
		}
		w.restart()
		w.add(1, mayWait)
		w.look()
		for _, h := range w.held {
			if h.Begin.After(h.Latest.Add(time.Second)) {
				t.Fatalf("job starts after its latest start: %+v", h)
			}
		}
	})
}
