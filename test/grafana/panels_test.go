package grafana

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/kubenergy/kubenergy/test/kit"
)

// absent lists panels that remain empty in this test, as DASHBOARD/TITLE. They require failures, meters on the
// network or more than an hour. All other panels that may be empty must show values.
var absent = []string{
	"nodes/Wall meters", "nodes/Ratio of wall meter to agent", "nodes/Temperature",
	"decisions/Cycles restricted to few nodes", "decisions/Plans for all pending pods",
	"savings/Pods with missing data", "savings/Forecast error", "holds/Overdue",
	"health/Alerts", "health/Requests to sources", "health/Rejected responses",
}

// A prometheus scrapes the KubEnergy programs and evaluates the queries of the dashboards.
type prometheus struct {
	*kit.Process
	url string
}

func startPrometheus(t *testing.T, w *world) *prometheus {
	t.Helper()
	controller, scheduler, agents := w.programs(t)
	job := func(name, scheme string, targets ...map[string]any) map[string]any {
		return map[string]any{
			"job_name": name, "scheme": scheme, "tls_config": map[string]any{"insecure_skip_verify": true},
			"static_configs": targets,
		}
	}
	target := func(address string, labels map[string]string) map[string]any {
		return map[string]any{"targets": []string{address}, "labels": labels}
	}
	withToken := job("kubenergy-controller", "https", target(controller, nil))
	withToken["authorization"] = map[string]any{
		"credentials_file": kit.Write(t, filepath.Join(t.TempDir(), "token"), w.scraper(t)),
	}
	var nodes []map[string]any
	for node, address := range agents {
		nodes = append(nodes, target(address, map[string]string{"node": node, "instance": node}))
	}
	// The node label is taken from the target and overrides that of the page, as described in
	// docs/reference/metrics.md.
	ofAgents := job("kubenergy-agent", "http", nodes...)
	ofAgents["metric_relabel_configs"] = []map[string]any{
		{"action": "labeldrop", "regex": "(exported_)+(node|instance|job)"},
	}
	config, err := yaml.Marshal(map[string]any{
		"global": map[string]any{"scrape_interval": "2s", "evaluation_interval": "5s"},
		"scrape_configs": []map[string]any{
			withToken, job("kubenergy-scheduler", "https", target(scheduler, nil)), ofAgents,
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	p := &prometheus{}
	p.Process, p.url = kit.StartPrometheus(t, w.Dir, config)
	return p
}

// query returns the number of series of an expression with a value other than NaN.
func (p *prometheus) query(ctx context.Context, expr string) (n int, err error) {
	samples, err := kit.Query(ctx, p.url, expr)
	for _, s := range samples {
		if s.Value != "NaN" {
			n++
		}
	}
	return n, err
}

// asGrafana replaces the variables in an expression like Grafana with the selection All.
func asGrafana(expr string) string {
	return strings.NewReplacer("$__rate_interval", "20s", "$__range", "10m", "$node", ".*", "$namespace", ".*",
		"$signal", "average").Replace(expr)
}

// TestEveryPanelShows runs Prometheus and all KubEnergy programs with a workload. Every query of every panel must
// return a number at some point.
func TestEveryPanelShows(t *testing.T) {
	if !long {
		t.Skip("runs Prometheus and all programs for three minutes: run make grafana")
	}
	kit.Prometheus(t, "prometheus") // skips the test before anything is started
	for _, name := range absent {
		if !slices.Contains(quietPanels(), name) {
			t.Errorf("panel %s is not marked as possibly empty", name)
		}
	}
	w := start(t)
	p := startPrometheus(t, w)
	waits, quiet := map[string]string{}, map[string]string{}
	for i := range dashboards {
		for _, panel := range read(t, &dashboards[i]).Panels {
			name := dashboards[i].name + "/" + panel.Title
			for j, q := range panel.Targets {
				to := waits
				if slices.Contains(absent, name) {
					to = quiet
				}
				to[fmt.Sprintf("%s/%d/%c", name, panel.ID, 'A'+j)] = asGrafana(q.Expr)
			}
		}
	}
	all, began, next := len(waits), time.Now(), time.Now()
	kit.Await(t, 8*time.Minute, "every query has returned a value", func(ctx context.Context) (bool, error) {
		if time.Now().After(next) {
			w.submit(t)
			next = time.Now().Add(10 * time.Second)
		}
		for name, expr := range waits {
			n, err := p.query(ctx, expr)
			if err != nil {
				return false, err
			}
			if n > 0 {
				delete(waits, name)
			}
		}
		time.Sleep(2 * time.Second)
		return len(waits) == 0, fmt.Errorf("%d of %d queries have not returned a value: %q", len(waits), all,
			slices.Sorted(maps.Keys(waits)))
	}, p.Process)
	for name, expr := range quiet {
		n, err := p.query(t.Context(), expr)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		t.Logf("%s returns %d series", name, n)
	}
	t.Logf("%d queries returned values within %v; %d may be empty",
		all, time.Since(began).Round(time.Second), len(quiet))
	p.variables(t)
	// Verify that a query of a nonexistent metric returns no series.
	if n, err := p.query(t.Context(), "sum(kubenergy_helt)"); n != 0 || err != nil {
		t.Errorf("nonexistent metric has %d series, error %v", n, err)
	}
}

// variables checks that each variable has values.
func (p *prometheus) variables(t *testing.T) {
	t.Helper()
	for name, want := range map[string]string{"namespace": "team-a", "node": "node-3"} {
		match, seen := "", 0
		for i := range dashboards {
			for _, v := range dashboards[i].variables {
				if v["name"] != name {
					continue
				}
				seen++
				list, _ := v["query"].(object)["query"].(string)
				match = strings.TrimSuffix(strings.TrimPrefix(list, "label_values("), ", "+name+")")
			}
		}
		_, body := kit.Get(t.Context(), http.DefaultClient, p.url+"/api/v1/label/"+name+"/values?"+
			url.Values{"match[]": {match}}.Encode(), "")
		if seen == 0 || !strings.Contains(body, `"`+want+`"`) {
			t.Errorf("variable %s has unexpected values %s", name, body)
		}
	}
}

func quietPanels() (names []string) {
	for i := range dashboards {
		for _, r := range dashboards[i].rows {
			for _, p := range r.panels {
				if p.quiet != "" {
					names = append(names, dashboards[i].name+"/"+p.title)
				}
			}
		}
	}
	return names
}
