package chart

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
	"github.com/kubenergy/kubenergy/test/kit"
)

const generated = "# Generated from charts/kubenergy by `make manifests`: edit it there.\n"

// namespace is the object that Helm creates with --create-namespace.
const namespace = `apiVersion: v1
kind: Namespace
metadata:
  name: kubenergy-system
  labels:
    pod-security.kubernetes.io/enforce: restricted
`

// TestManifestsAreCurrent verifies that the plain manifests in deploy/ match the chart. They are used without Helm
// and by programs that set up a cluster themselves.
func TestManifestsAreCurrent(t *testing.T) {
	kit.Golden(t, filepath.Join(Folder, "files/hold/keys.yaml"), knownKeys(t), *rewrite)
	documents, err := Template(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	render := func(name string, first []string, wanted func(*Document) bool) {
		parts := slices.Clone(first)
		for i := range documents {
			if d := &documents[i]; wanted(d) {
				parts = append(parts, plain(d))
			}
		}
		kit.Golden(t, filepath.Join(root, "deploy", name), []byte(generated+strings.Join(parts, "---\n")), *rewrite)
	}
	fn := func(component string) func(*Document) bool {
		return func(d *Document) bool { return d.Object.GetLabels()["app.kubernetes.io/name"] == component }
	}
	hold, guard, knowledge := fn("kubenergy-hold"), fn("kubenergy-guard"), fn("kubenergy")
	render("kubenergy.yaml", []string{namespace}, func(d *Document) bool { return d.HookOf() == "" && !hold(d) })
	render("hold/guard.yaml", nil, guard)
	rights := func(d *Document) bool {
		kind := d.Object.GetKind()
		return (kind == "ServiceAccount" || strings.HasPrefix(d.Object.GetAPIVersion(), "rbac.")) &&
			d.Object.GetName() != "kubenergy-metrics-reader"
	}
	scheduler := fn("kubenergy-scheduler")
	render("scheduler/rbac.yaml", nil, func(d *Document) bool { return rights(d) && (scheduler(d) || knowledge(d)) })
	if documents, err = Template(t.Context(), "--set", "agent.enabled=true"); err != nil {
		t.Fatal(err)
	}
	render("agent/daemonset.yaml", nil, fn("kubenergy-agent"))
	for from, to := range map[string]string{
		"hold/admission.yaml": "hold/admission.yaml", "scheduler/config.yaml": "scheduler/config.yaml",
		"scheduler/config-default.yaml": "scheduler/config-default.yaml",
	} {
		text, err := os.ReadFile(filepath.Join(Folder, "files", from))
		if err != nil {
			t.Fatal(err)
		}
		kit.Golden(t, filepath.Join(root, "deploy", to), append([]byte(generated), text...), *rewrite)
	}
}

// knownKeys returns the file with the keys that the admission policy kubenergy-warnings accepts.
func knownKeys(t *testing.T) []byte {
	t.Helper()
	annotations, labels := policy.WorkKeys()
	annotations = slices.DeleteFunc(annotations, func(key string) bool { return key == "" }) // the missing alias of others
	placements, rules := strategy.Names()
	text, err := yaml.Marshal(map[string]any{
		"annotations": annotations, "labels": labels, "mistyped": policy.Mistyped, "placements": placements,
		"startRules": rules,
	})
	if err != nil {
		t.Fatal(err)
	}
	return append([]byte("# Generated from package policy by `make manifests`.\n"), text...)
}

// plain returns the text of a document without comments and labels that are specific to Helm.
func plain(d *Document) string {
	var kept []string
	for line := range strings.Lines(d.Text) {
		label := strings.TrimSpace(line)
		if strings.HasPrefix(label, "# Source: ") || strings.HasPrefix(label, "app.kubernetes.io/managed-by:") ||
			strings.HasPrefix(label, "helm.sh/chart:") {
			continue
		}
		kept = append(kept, line)
	}
	return strings.Join(kept, "")
}
