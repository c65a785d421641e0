package kit

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// Prometheus returns the path of prometheus or promtool. It is either installed or has been unpacked by make
// prometheus. The test is skipped if the program is missing.
func Prometheus(t testing.TB, program string) string {
	t.Helper()
	if path, err := exec.LookPath(program); err == nil {
		return path
	}
	path := filepath.Join(Root, "out", "prometheus", "usr", "bin", program)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("%s is not installed: run make prometheus, which requires apt", program)
	}
	return path
}

// StartPrometheus runs Prometheus until the test ends and returns its process and the base URL of its API.
func StartPrometheus(t testing.TB, dir string, config []byte) (p *Process, address string) {
	t.Helper()
	program, listen := Prometheus(t, "prometheus"), Address(t)
	address = "http://" + listen
	p = Start(t, dir, "prometheus", exec.Command(program,
		"--config.file="+Write(t, filepath.Join(dir, "prometheus.yml"), config),
		"--storage.tsdb.path="+filepath.Join(dir, "prometheus"), "--web.listen-address="+listen))
	Eventually(t, time.Minute, "Prometheus answers", func() bool {
		status, _ := Get(t.Context(), http.DefaultClient, address+"/-/ready", "")
		return status == http.StatusOK
	}, p)
	return p, address
}

// Sample is the value of a Prometheus series at one timestamp. Value has the format that Prometheus returns.
type Sample struct {
	Labels map[string]string
	Value  string
}

// Query evaluates a PromQL expression at the current time.
func Query(ctx context.Context, address, expr string) (samples []Sample, err error) {
	var answer struct {
		Error string
		Data  struct {
			Result []struct {
				Metric map[string]string
				Value  [2]any
			}
		}
	}
	status, body := Get(ctx, http.DefaultClient, address+"/api/v1/query?"+url.Values{"query": {expr}}.Encode(), "")
	if err := json.Unmarshal([]byte(body), &answer); err != nil || status != http.StatusOK {
		return nil, fmt.Errorf("%s: %d %s%s", expr, status, answer.Error, body[:min(len(body), 200)])
	}
	for _, r := range answer.Data.Result {
		samples = append(samples, Sample{r.Metric, fmt.Sprint(r.Value[1])})
	}
	return samples, nil
}
