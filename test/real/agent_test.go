//go:build linux

package real

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/kubenergy/kubenergy/test/kit"
	"github.com/kubenergy/kubenergy/test/kit/node"
)

// profile is the profile of a small server. Its values are arbitrary, because the test only compares energy values
// with each other.
const profile = `{"name":"e2e","idleWatts":60,"maxWatts":160}`

// agent is the released agent, metering this machine.
type agent struct {
	daemon *kit.Process
	sink   *sink
	url    string
}

// startAgent runs the agent with its default configuration and a power model, because this machine may have no
// meter.
func (w *world) startAgent(t *testing.T) *agent {
	t.Helper()
	kit.Write(t, filepath.Join(w.dir, "profile.json"), profile)
	kit.Write(t, filepath.Join(w.dir, "token"), token+"\n")
	a := &agent{sink: newSink(t, w.client)}
	address := kit.Address(t)
	a.url = "http://" + address
	a.daemon = start(t, w.dir, "agent", exec.Command(kit.Build(t, "./cmd/kubenergy-agent"),
		"--node-name", nodeName, "--cgroup-root", node.Groups, "--meters", "model", "--profile",
		filepath.Join(w.dir, "profile.json"),
		"--listen", address, "--batch-interval", "5s", "--state-dir", filepath.Join(w.dir, "state-of-agent"),
		"--push-url", a.sink.url, "--push-token-file", filepath.Join(w.dir, "token")))
	kit.Await(t, 20*time.Second, "the agent is healthy", func(ctx context.Context) (bool, error) {
		_, err := a.call(ctx, http.MethodGet, "/healthz")
		return err == nil, err
	}, a.daemon)
	return a
}

func (a *agent) call(ctx context.Context, method, path string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, a.url+path, nil)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s: %s: %s", method, path, response.Status, body)
	}
	return string(body), err
}

// forward makes the agent deliver all metered energy.
func (a *agent) forward(ctx context.Context) error {
	_, err := a.call(ctx, http.MethodPost, "/forward-metrics")
	return err
}

// A series is a series of the metric kubenergy_container_energy_joules_total.
type series struct {
	labels map[string]string
	joules float64
}

func (a *agent) scrape(ctx context.Context) ([]series, error) {
	page, err := a.call(ctx, http.MethodGet, "/metrics")
	if err != nil {
		return nil, err
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(page))
	if err != nil {
		return nil, err
	}
	var found []series
	for _, m := range families["kubenergy_container_energy_joules_total"].GetMetric() {
		labels := map[string]string{}
		for _, l := range m.GetLabel() {
			labels[l.GetName()] = l.GetValue()
		}
		found = append(found, series{labels, m.GetCounter().GetValue()})
	}
	return found, nil
}

// joules returns the energy of the containers of each burner according to /metrics, by mode.
func (a *agent) joules(ctx context.Context, burners []*burner) ([]map[string]float64, error) {
	found, err := a.scrape(ctx)
	if err != nil {
		return nil, err
	}
	sums := make([]map[string]float64, len(burners))
	for i, b := range burners {
		sums[i] = map[string]float64{}
		for _, s := range found {
			if s.labels["pod_uid"] == string(b.pod.UID) && s.labels["container_id"] == b.id {
				sums[i][s.labels["mode"]] += s.joules
			}
		}
	}
	return sums, nil
}

// awaitNames waits until the series of all burners have the names of their containers and checks that their quality
// is "estimated".
func (a *agent) awaitNames(t *testing.T, burners ...*burner) {
	t.Helper()
	kit.Await(t, 30*time.Second, "the energy series have the names of their containers",
		func(ctx context.Context) (bool, error) {
			found, err := a.scrape(ctx)
			if err != nil {
				return false, err
			}
			for _, b := range burners {
				if !named(found, b) {
					return false, fmt.Errorf("no series for pod %s in %v", b.pod.Name, found)
				}
			}
			return true, nil
		}, a.daemon)
	found, err := a.scrape(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range found {
		if s.labels["quality"] != "estimated" {
			t.Errorf("quality of energy from a model = %q, want estimated: %v", s.labels["quality"], s.labels)
		}
	}
}

func named(found []series, b *burner) bool {
	want := map[string]string{
		"pod_uid": string(b.pod.UID), "container_id": b.id,
		"namespace": b.pod.Namespace, "pod": b.pod.Name, "container": container, "mode": "dynamic",
	}
	for _, s := range found {
		same := s.joules > 0
		for name, value := range want {
			same = same && s.labels[name] == value
		}
		if same {
			return true
		}
	}
	return false
}
