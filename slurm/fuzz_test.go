package slurm_test

import (
	"net/http"
	"testing"
	"time"
)

// Whatever slurmrestd, a submitter or an agent writes, we neither crash nor give a BeginTime after the deadline.
func FuzzAnswers(f *testing.F) {
	f.Add(`{"jobs":[{"job_id":1,"account":"a","job_state":["PENDING"],"comment":"kubenergy:allowed-delay=8h",`+
		`"submit_time":{"set":true,"number":1795694400},"eligible_time":{"set":true,"number":1795694400},"cpus":4}]}`,
		"n[1-3,07]", "n07", "/slurm/uid_1/job_1/step_0")
	f.Add(`{"jobs":[{"job_id":-2,"job_state":"RUNNING","nodes":"a[1-","cpus":18446744073709550973,"tres_req_str":"mem=1e99P"}],`+
		`"errors":[{"error_number":null}]}`, "[", "", "/job_99999999999999999999/step_")
	w := newWorld(f, "v0.0.45")
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
		_ = w.driver.Look(t.Context())
		w.driver.Account(node, path)
		for _, h := range w.held {
			if h.Begin.After(h.Latest.Add(time.Second)) {
				t.Fatalf("%+v begins after its latest start", h)
			}
		}
	})
}
