//go:build linux

package nodes

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/report"
	"github.com/kubenergy/kubenergy/test/kit"
)

// testExperiment compares the default scheduler with the KubEnergy scheduler, which runs both as a local program
// and from its image on a node.
func (w *world) testExperiment(t *testing.T) {
	text, err := os.ReadFile("testdata/experiment.yaml")
	if err != nil {
		t.Fatal(err)
	}
	file := kit.Write(t, filepath.Join(w.Dir, "experiment.yaml"),
		strings.ReplaceAll(string(text), "IMAGE", strings.TrimSuffix(w.image(t), ":"+tag)))
	out := filepath.Join(w.Dir, "experiment")
	if _, err := w.run("kubenergy", "experiment", "-f", file, "--target", "cluster", "--force", "--out", out,
		"--allow-program", strings.TrimSuffix(w.image(t), ":"+tag)+"-scheduler:0.1.0"); err != nil {
		t.Fatal(err)
	}
	var e report.Experiment
	result, err := os.ReadFile(filepath.Join(out, "experiment.json"))
	if err == nil {
		err = json.Unmarshal(result, &e)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, metric := range []string{"energyJoules", "requestP50Ms", "startP50Ms", "jobsFinished"} {
		var values []float64
		for _, r := range e.Rows {
			if r.Metric == metric && r.Mean.Value > 0 {
				values = append(values, r.Mean.Value)
			}
		}
		t.Logf("%s: %.3g", metric, values)
		if len(values) != 3 {
			t.Errorf("metric %s must have values for three contestants, got %v", metric, values)
		}
	}
	if notes := strings.Join(e.Notes, "\n"); !strings.Contains(notes, "Meter: package (rapl) (measured)") {
		t.Errorf("notes do not state that energy was metered:\n%s", notes)
	}
	w.wantNothingLeft(t)
}

// wantNothingLeft verifies that all objects created by an experiment and the containers of its pods have been
// removed.
func (w *world) wantNothingLeft(t *testing.T) {
	t.Helper()
	marked := metav1.ListOptions{LabelSelector: v1alpha1.LabelExperiment}
	namespaces, err := w.Client.CoreV1().Namespaces().List(t.Context(), marked)
	if err != nil || len(namespaces.Items) > 0 {
		t.Errorf("namespaces were not removed: %v, error %v", namespaces, err)
	}
	rights, err := w.Client.RbacV1().ClusterRoleBindings().List(t.Context(), marked)
	if err != nil || len(rights.Items) > 0 {
		t.Errorf("role bindings were not removed: %v, error %v", rights, err)
	}
	pods, err := w.Client.CoreV1().Pods(corev1.NamespaceAll).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, p := range pods.Items {
		known[string(p.UID)] = true
	}
	for _, n := range w.nodes {
		for _, pod := range n.groups(t) {
			if !known[pod] {
				t.Errorf("node %s has a control group of the deleted pod %s", n.Name, pod)
			}
		}
	}
}

// groups returns the UIDs of the pods that have a control group on a node.
func (m *machine) groups(t *testing.T) (pods []string) {
	t.Helper()
	folder := filepath.Join("/sys/fs/cgroup/memory", m.Group)
	if _, err := os.Stat(folder); err != nil {
		folder = filepath.Join("/sys/fs/cgroup", m.Group)
	}
	for _, class := range []string{"", "burstable", "besteffort"} {
		found, err := filepath.Glob(filepath.Join(folder, "kubepods", class, "pod*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range found {
			pods = append(pods, strings.TrimPrefix(filepath.Base(path), "pod"))
		}
	}
	return pods
}
