package slurm_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/slurm"
)

// TestRecordedAnswers verifies that recorded responses of slurmrestd from Slurm 26.05 are decoded equally in all
// versions.
func TestRecordedAnswers(t *testing.T) {
	folder := filepath.Join("../..", "..", "shared", "data", "slurm-rest")
	if _, err := os.Stat(folder); err != nil {
		t.Skip("no recorded responses of slurmrestd in ../shared/data/slurm-rest")
	}
	for _, version := range []string{"v0.0.42", "v0.0.43", "v0.0.44", "v0.0.45"} {
		t.Run(version, func(t *testing.T) {
			state := ""
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				what, ok := strings.CutPrefix(strings.Trim(r.URL.Path, "/"), "slurm/"+version+"/")
				file := filepath.Join(folder, version+"-"+state+what+".json")
				if strings.HasPrefix(what, "job/") {
					file = filepath.Join(folder, "v0.0.43-update.json")
				}
				text, err := os.ReadFile(file)
				if !ok || err != nil {
					http.NotFound(w, r)
					return
				}
				_, _ = w.Write(text)
			}))
			defer server.Close()
			token := filepath.Join(t.TempDir(), "token")
			if err := os.WriteFile(token, []byte("t"), 0o600); err != nil {
				t.Fatal(err)
			}
			c, err := slurm.NewClient(slurm.ClientOptions{URL: server.URL, TokenFile: token})
			if err != nil {
				t.Fatal(err)
			}
			nodes, err := c.Nodes(t.Context())
			if err != nil || len(nodes) != 1 || nodes[0].CPUs != 2 || nodes[0].Partitions[0] != "main" ||
				c.Version() != version {
				t.Fatalf("%s: nodes %+v: %v", c.Version(), nodes, err)
			}
			if jobs, err := c.Jobs(t.Context()); err != nil || len(jobs) != 0 {
				t.Errorf("jobs %+v: %v", jobs, err)
			}
			state = "held-"
			held, err := c.Jobs(t.Context())
			if err != nil || len(held) != 1 {
				t.Fatalf("held: %+v: %v", held, err)
			}
			j := held[0]
			if j.State[0] != "PENDING" || j.Reason != "JobHeldUser" || j.Comment != "kubenergy" || j.Account != "team" ||
				j.TimeLimit != 5 || j.Deadline != 0 || j.CPUs != 1 || j.Eligible-j.Submit < 3000 || j.HetJob != 0 {
				t.Errorf("held: %+v", j)
			}
			state = "running-"
			if jobs, err := c.Jobs(t.Context()); err != nil || len(jobs) != 1 || jobs[0].State[0] != "RUNNING" ||
				jobs[0].End <= jobs[0].Submit {
				t.Errorf("running: %+v: %v", jobs, err)
			} else if sluid := jobs[0].Step.SLUID; (sluid == "s23DM84B4W7700") != (version >= "v0.0.44") {
				t.Errorf("unexpected SLUID %q", sluid)
			}
			if err := c.SetBegin(t.Context(), 1, time.Now()); err != nil {
				t.Error(err)
			}
		})
	}
}
