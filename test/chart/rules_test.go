package chart

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
)

// rule is a Prometheus recording or alerting rule.
type rule struct {
	Record      string            `json:"record"`
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	For         string            `json:"for"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

func rules(t *testing.T, args ...string) map[string][]rule {
	t.Helper()
	documents, err := Template(t.Context(), append([]string{"--set", "metrics.rules.enabled=true"}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	groups := map[string][]rule{}
	for i := range documents {
		if documents[i].Object.GetKind() != "PrometheusRule" {
			continue
		}
		var object struct {
			Spec struct {
				Groups []struct {
					Name  string `json:"name"`
					Rules []rule `json:"rules"`
				} `json:"groups"`
			} `json:"spec"`
		}
		if err := yaml.Unmarshal([]byte(documents[i].Text), &object); err != nil {
			t.Fatal(err)
		}
		for _, g := range object.Spec.Groups {
			groups[g.Name] = g.Rules
		}
	}
	return groups
}

// foreign lists the metrics of other programs that the rules read.
var foreign = []string{
	"up", "leader_election_master_status", "scheduler_schedule_attempts_total",
	"scheduler_scheduling_attempt_duration_seconds",
}

// TestRulesReadMetricsThatExist performs the checks that do not require Prometheus. Rules may only read registered
// metrics, brackets must be balanced and alerts must have all annotations.
func TestRulesReadMetricsThatExist(t *testing.T) {
	registered := registeredMetrics(t)
	groups := rules(t, "--set",
		"agent.enabled=true,metrics.computeGardenerNames.code=true,metrics.computeGardenerNames.documents=true")
	want := []string{"compute-gardener-code", "compute-gardener-documents", "kubenergy", "kubenergy-agent"}
	if got := slices.Sorted(maps.Keys(groups)); !slices.Equal(got, want) {
		t.Errorf("unexpected groups: %q", got)
	}
	for group, rules := range groups {
		for _, r := range rules {
			name := group + "/" + r.Alert + r.Record
			if (r.Alert == "") == (r.Record == "") || r.Expr == "" {
				t.Errorf("rule %s must have an expression and either an alert or a record name", name)
			}
			read := Metrics(r.Expr)
			if len(read) == 0 {
				t.Errorf("rule %s reads no metric: %s", name, r.Expr)
			}
			for _, metric := range read {
				if !slices.Contains(foreign, metric) && !registered[metric] {
					t.Errorf("rule %s reads the metric %s, which no program registers", name, metric)
				}
			}
			if err := Balanced(r.Expr); err != nil {
				t.Errorf("rule %s: %v: %s", name, err, r.Expr)
			}
			if r.Alert == "" {
				continue
			}
			if r.Annotations["summary"] == "" || r.Annotations["description"] == "" || r.Labels["severity"] == "" {
				t.Errorf("alert %s lacks a summary, a description or a severity", name)
			}
			if _, err := time.ParseDuration(r.For); r.For != "" && err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// TestGardenerNames verifies that both spellings of Compute Gardener's metric names are available, but only if
// enabled.
func TestGardenerNames(t *testing.T) {
	if groups := rules(t); len(groups) != 1 {
		t.Errorf("got %d groups without the option, want 1", len(groups))
	}
	for option, prefix := range map[string]string{
		"code": "compute_gardener_scheduler_", "documents": "scheduler_compute_gardener_",
	} {
		names := map[string]bool{}
		for _, r := range rules(t, "--set", "metrics.computeGardenerNames."+option+"=true")["compute-gardener-"+option] {
			names[r.Record] = true
		}
		for _, suffix := range []string{
			"carbon_intensity", "electricity_rate", "node_power_estimate_watts", "node_pue", "node_efficiency",
			"power_filtered_nodes_total",
			"scheduling_attempt_total", "pod_scheduling_duration_seconds_bucket", "carbon_delay_total",
			"job_energy_usage_kwh",
			"job_carbon_emissions_grams", "job_counterfactual_carbon_emissions_grams", "estimated_savings",
			"energy_budget_usage_percent", "energy_budget_exceeded_total",
		} {
			if !names[prefix+suffix] {
				t.Errorf("with the option %s, metric %s is missing", option, prefix+suffix)
			}
		}
	}
}

// registeredMetrics returns the metric names that occur as string literals in the sources of the programs.
func registeredMetrics(t *testing.T) map[string]bool {
	t.Helper()
	literal := regexp.MustCompile(`"(kubenergy_[a-z_]+)"`)
	names := map[string]bool{}
	for _, folder := range []string{"agent", "controller", "kube", "power", "scheduler"} {
		err := filepath.WalkDir(filepath.Join(root, "internal", folder), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			for _, match := range literal.FindAllStringSubmatch(string(text), -1) {
				names[match[1]] = true
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return names
}
