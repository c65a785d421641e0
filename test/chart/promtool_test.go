package chart

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/kubenergy/kubenergy/test/kit"
)

// promtool runs the test cases of a file, with PREFIX replaced, on groups of rules. Only the summaries of alerts
// are compared, because their descriptions are covered by the chart and docs/reference/alerts.md.
func promtool(t *testing.T, cases, prefix string, groups map[string][]rule) (out string, err error) {
	t.Helper()
	program, dir := kit.Prometheus(t, "promtool"), t.TempDir()
	var file struct {
		Groups []map[string]any `json:"groups"`
	}
	for name, rules := range groups {
		var brief []map[string]any
		for _, r := range rules {
			one := map[string]any{"expr": r.Expr, "labels": r.Labels}
			if r.Record != "" {
				one["record"] = r.Record
			} else {
				one["alert"], one["annotations"] = r.Alert, map[string]string{"summary": r.Annotations["summary"]}
				if r.For != "" {
					one["for"] = r.For
				}
			}
			brief = append(brief, one)
		}
		file.Groups = append(file.Groups, map[string]any{"name": name, "rules": brief})
	}
	text, err := yaml.Marshal(file)
	if err != nil {
		t.Fatal(err)
	}
	kit.Write(t, filepath.Join(dir, "rules.yaml"), text)
	path := kit.Write(t, filepath.Join(dir, "cases.yaml"), strings.ReplaceAll(casesOf(t, cases), "PREFIX", prefix))
	output, err := exec.CommandContext(t.Context(), program, "test", "rules", path).CombinedOutput()
	return string(output), err
}

func casesOf(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// broken returns a copy of a rule with all metric names misspelled.
func broken(r rule) rule {
	for _, name := range Metrics(r.Expr) {
		r.Expr = strings.ReplaceAll(r.Expr, name, "broken_"+name)
	}
	return r
}

// TestAlertsFire uses promtool to verify when alerts fire and when they do not. The cases of an alert must fail if
// its metrics are misspelled.
func TestAlertsFire(t *testing.T) {
	groups := rules(t, "--set", "agent.enabled=true")
	if out, err := promtool(t, "alerts.yaml", "", groups); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cases := casesOf(t, "alerts.yaml")
	for _, rules := range groups {
		for _, r := range rules {
			for _, name := range []string{r.Alert + " fires\n", r.Alert + " is silent\n"} {
				if !strings.Contains(cases, "- name: "+name) {
					t.Errorf("missing test case: %s", name)
				}
			}
			out, err := promtool(t, "alerts.yaml", "", map[string][]rule{"mutant": {broken(r)}})
			if err == nil || !strings.Contains(out, r.Alert) {
				t.Errorf("test cases of alert %s pass with misspelled metrics:\n%s", r.Alert, out)
			}
		}
	}
}

// TestGardenerNamesShow is like TestAlertsFire, for the recording rules with both prefixes.
func TestGardenerNamesShow(t *testing.T) {
	groups := rules(t, "--set",
		"metrics.computeGardenerNames.code=true,metrics.computeGardenerNames.documents=true")
	cases := casesOf(t, "gardener.yaml")
	for group, prefix := range map[string]string{
		"compute-gardener-code": "compute_gardener_scheduler", "compute-gardener-documents": "scheduler_compute_gardener",
	} {
		if out, err := promtool(t, "gardener.yaml", prefix, groups); err != nil {
			t.Errorf("%s: %v\n%s", group, err, out)
		}
		for i, r := range groups[group] {
			if !strings.Contains(cases, "- expr: "+strings.Replace(r.Record, prefix, "PREFIX", 1)+"\n") {
				t.Errorf("no test case for recording rule %s", r.Record)
			}
			groups[group][i] = broken(r)
			if out, err := promtool(t, "gardener.yaml", prefix, groups); err == nil {
				t.Errorf("test cases of recording rule %s pass with misspelled metrics:\n%s", r.Record, out)
			}
			groups[group][i] = r
		}
	}
}
