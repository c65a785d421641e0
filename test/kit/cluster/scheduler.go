package cluster

import (
	"context"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/kubenergy/kubenergy/deploy"
	"github.com/kubenergy/kubenergy/test/kit"
)

// Scheduler is the KubEnergy scheduler, running in its own process with the default configuration.
type Scheduler struct {
	*kit.Process
	url    string
	client *http.Client
}

// StartScheduler runs the released scheduler binary until the test ends. Its files are written to dir. If change is
// not nil, it can modify the configuration before the scheduler starts.
func StartScheduler(t testing.TB, dir, name, kubeconfig string, change func(config map[string]any),
	args ...string,
) *Scheduler {
	t.Helper()
	var config map[string]any
	if err := yaml.Unmarshal(deploy.SchedulerConfig, &config); err != nil {
		t.Fatal(err)
	}
	config["clientConnection"].(map[string]any)["kubeconfig"] = kubeconfig
	if change != nil {
		change(config)
	}
	raw, err := yaml.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	address := kit.Address(t)
	_, port, _ := strings.Cut(address, ":")
	cmd := exec.Command(kit.Build(t, "./cmd/kubenergy-scheduler"), append([]string{
		"--config=" + kit.Write(t, filepath.Join(dir, name+".yaml"), raw),
		"--bind-address=127.0.0.1", "--secure-port=" + port, "--cert-dir=" + filepath.Join(dir, name),
		"--authorization-always-allow-paths=/readyz,/metrics", "--authentication-skip-lookup",
	}, args...)...)
	return &Scheduler{kit.Start(t, dir, name, cmd), "https://" + address, kit.Insecure()}
}

// Ready reports whether the scheduler's caches have synced.
func (s *Scheduler) Ready(ctx context.Context) bool {
	status, _ := kit.Get(ctx, s.client, s.url+"/readyz", "")
	return status == http.StatusOK
}

// KeepsWindows waits until the hold loop of the scheduler has started.
func (s *Scheduler) KeepsWindows(t testing.TB, within time.Duration) {
	t.Helper()
	kit.Eventually(t, within, s.Name+" keeps windows",
		func() bool { return strings.Contains(s.Output(), "Acquired Lease of the hold loop") }, s.Process)
}

// Metric returns the sum of all series of a metric that have the given labels. found is false if there is no such
// series.
func (s *Scheduler) Metric(t testing.TB, name string, labels ...string) (sum float64, found bool) {
	t.Helper()
	status, page := kit.Get(t.Context(), s.client, s.url+"/metrics", "")
	if status != http.StatusOK {
		t.Fatalf("the metrics of %s: %d %s", s.Name, status, page)
	}
	return kit.Metric(t, page, name, labels...)
}
