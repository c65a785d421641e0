package lab

import (
	"bytes"
	"strings"
	"testing"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/hardware"
)

func TestStockTakesNoScenario(t *testing.T) {
	var stdout, stderr bytes.Buffer
	code := Main(t.Context(), []string{"up", "--stock", "--dir", t.TempDir(), "--nodes", "demo24"}, &stdout, &stderr)
	if code != 2 || !strings.Contains(stderr.String(), "--nodes cannot be combined with --stock") {
		t.Errorf("exit code %d: %s", code, &stderr)
	}
}

// TestCloudNodes verifies the labels required to detect machines and grid zones, and that there are no labels set
// only by KubEnergy.
func TestCloudNodes(t *testing.T) {
	names := map[string]bool{}
	for _, n := range CloudNodes() {
		names[n.Name] = true
		for _, key := range []string{
			"topology.kubernetes.io/region", "topology.kubernetes.io/zone", "node.kubernetes.io/instance-type",
		} {
			if n.Labels[key] == "" {
				t.Errorf("node %s has no label %s", n.Name, key)
			}
		}
		for key := range n.Labels {
			if strings.HasPrefix(key, "kubenergy.io/") {
				t.Errorf("node %s has unexpected label %s", n.Name, key)
			}
		}
	}
	if len(names) < 4 {
		t.Errorf("got only %d nodes, want at least 4", len(names))
	}
	// The machines must differ, so that placement is visible.
	perCore := map[energy.Watts]bool{}
	for _, n := range CloudNodes() {
		cpus, memory := n.Capacity.Cpu().Value(), n.Capacity.Memory().Value()
		p, _, ok := hardware.Default().Detect(n.Labels, nil, "aws:///x", cpus, memory, 0)
		if !ok {
			t.Fatalf("node %s has unknown hardware", n.Name)
		}
		perCore[(p.Max-p.Idle)/energy.Watts(cpus)] = true
	}
	if len(perCore) < 2 {
		t.Errorf("all nodes draw the same power per core: %v", perCore)
	}
}

// For a mistyped file, the demo only prints an error with the flag, without the note about the bundled input.
func TestDemoOfAMistypedFile(t *testing.T) {
	for want, args := range map[string][]string{
		"kubenergy-lab: --workload: ":                           {"--workload", "jbos.csv"},
		"kubenergy-lab: --grid: ":                               {"--grid", "DE_2202.csv"},
		"kubenergy-lab: --strategy: unknown strategy \"enrgy\"": {"--strategy", "enrgy"},
		"kubenergy-lab: -o: unknown output format \"xml\"":      {"-o", "xml"},
	} {
		var stdout, stderr bytes.Buffer
		code := Main(t.Context(), append([]string{"demo", "--dir", t.TempDir()}, args...), &stdout, &stderr)
		if code != 2 || stdout.Len() > 0 || !strings.HasPrefix(stderr.String(), want) ||
			strings.Count(stderr.String(), "\n") != 1 {
			t.Errorf("%v: exit code %d: %s%s, want one line with prefix %s", args, code, stdout.String(),
				stderr.String(), want)
		}
	}
}

// A mistyped command or flag results in a single line with a suggestion.
func TestDidYouMean(t *testing.T) {
	for typed, want := range map[string]string{
		"upp":          `unknown command "upp" (did you mean up?) (see kubenergy-lab --help)`,
		"nonsense":     `unknown command "nonsense" (see kubenergy-lab --help)`,
		"up more":      `unknown command "more" (see kubenergy-lab --help)`,
		"env --wait 5": `--wait: "5" has no unit: want 6h or 90m (see kubenergy-lab env --help)`,
		"up --stok":    "unknown flag: --stok (did you mean --stock?) (see kubenergy-lab up --help)",
	} {
		var out, complaint bytes.Buffer
		if code := Main(t.Context(), strings.Fields(typed), &out, &complaint); code != 2 || out.Len() > 0 ||
			complaint.String() != "kubenergy-lab: "+want+"\n" {
			t.Errorf("%s: exit code %d, %s%s", typed, code, &out, &complaint)
		}
	}
}
