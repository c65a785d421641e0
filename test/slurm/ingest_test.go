package slurm

import (
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/test/kit"
)

// TestIngest verifies that a job description accepted by POST /ingest runs exactly once in Slurm under the account
// of its token and is delayed like any other job with an allowed delay. kubenergy-slurm is killed while the request
// is in progress.
func TestIngest(t *testing.T) {
	s := newStage(t)
	s.token(operator)
	s.write("batch-token", 0o600, s.run("scontrol", "token", "username="+submitter, "lifespan=3600"))
	options := []string{"--ingest-namespace=team", "--ingest-token-file=" + s.path("batch-token")}
	p := s.ours(options...)
	defer func() { p.End(t) }()
	post := func(body string) (int, string) {
		t.Helper()
		token, err := os.ReadFile(s.path("ours/token"))
		if err != nil {
			return 0, err.Error()
		}
		client, err := kit.Trusting(s.path("ours/api.crt"))
		if err != nil {
			return 0, err.Error()
		}
		_, port, _ := strings.Cut(s.api, ":")
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://localhost:"+port+"/ingest",
			strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+string(token))
		answer, err := client.Do(r)
		if err != nil {
			return 0, err.Error()
		}
		defer answer.Body.Close()
		said, _ := io.ReadAll(answer.Body)
		return answer.StatusCode, string(said)
	}
	status, said := 0, ""
	kit.Eventually(t, time.Minute, "the job description is accepted", func() bool {
		status, said = post(`{"id": "one", "namespace": "team", "cpu": 2, "memory": "100Mi", "duration": "10s",
			"command": ["/bin/sh", "-c", "sleep 1; echo \"it's done\""]}`)
		return status == http.StatusCreated
	}, p)
	if status, said := post(`{"id": "two", "cpu": 1, "backend": "moon"}`); status != http.StatusUnprocessableEntity {
		t.Errorf("unexpected response for an unknown backend: %d %s", status, said)
	}
	for range 3 {
		time.Sleep(700 * time.Millisecond)
		p.Kill()
		p = s.ours(options...)
	}
	t.Cleanup(func() {
		if text, _ := s.output("scontrol", "show", "job"); t.Failed() {
			t.Log(text)
		}
	})
	kit.Eventually(t, time.Minute, "the job has completed", func() bool {
		text, _ := s.output("sacct", "-a", "-X", "-n", "-P", "-S", "now-1days", "-o",
			"JobName%60,User,Account,State,ReqCPUS") // by default, sacct only lists jobs since midnight
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "kubenergy-") && strings.Contains(line, submitter+"|team|COMPLETED|2") {
				return true
			}
		}
		return false
	}, p)
	if status, said = post(`{"id": "three", "cpu": 1, "duration": "10s", "allowedDelay": "3m30s"}`); status != http.StatusCreated {
		t.Fatalf("unexpected response: %d %s", status, said)
	}
	kit.Eventually(t, 6*time.Minute, "the job with an allowed delay has completed", func() bool {
		text, _ := s.output("sacct", "-S", "now-1days", "-a", "-X", "-n", "-P", "-o", "JobName%60,State")
		return strings.Count(text, "kubenergy-") == 2 && strings.Count(text, "COMPLETED") == 2
	}, p)
	text := s.run("sacct", "-S", "now-1days", "-a", "-X", "-n", "-P", "-o", "JobName%60,State")
	if n := strings.Count(text, "\n"); n != 2 {
		t.Errorf("%d jobs were run, want 2:\n%s", n, text)
	}
}
