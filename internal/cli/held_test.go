package cli

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/cli/explain"
	"github.com/kubenergy/kubenergy/internal/dashboard"
)

// Only held objects are listed, with the expected saving of their start.
func TestHeld(t *testing.T) {
	a := twoSites(t)
	a.add(t, jobsIn("ns"), workJob("nightly"))
	undated := workJob("undated")
	delete(undated.Annotations, v1alpha1.AnnotationHeldUntil)
	a.add(t, jobsIn("ns"), undated)
	runs := workJob("runs")
	runs.Labels, runs.Spec.Suspend = nil, nil
	a.add(t, jobsIn("ns"), runs)
	a.add(t, jobsIn("elsewhere"), workJob("other"))
	waits := markedPod("train")
	held(waits)
	a.add(t, podPath, waits)
	gated := markedPod("gated")
	held(gated)
	gated.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "x"}}
	a.add(t, podPath, gated)

	for file, args := range map[string][]string{
		"held.golden":      {"-n", "ns"},
		"held_all.golden":  {"-A"},
		"held_wide.golden": {"-A", "-o", "wide"},
		"held_csv.golden":  {"-A", "-o", "csv"},
	} {
		code, stdout, stderr := a.run(t, append([]string{"held"}, args...)...)
		if code != 0 || stderr != "" {
			t.Fatalf("%v: exit code %d: %s", args, code, stderr)
		}
		golden(t, file, stdout)
	}
	_, stdout, _ := a.run(t, "held", "-n", "ns", "-o", "json")
	var list explain.HeldList
	if err := json.Unmarshal([]byte(stdout), &list); err != nil || len(list.Items) != 3 || list.Kind != "HeldList" {
		t.Fatalf("%v: %s", err, stdout)
	}
	x := explained(t, a, "job", "nightly")
	if first := list.Items[0]; first.Name != "nightly" || !first.PlannedStart.Equal(*x.HeldUntil) ||
		!first.LatestStart.Equal(*x.LatestStart) || *first.Saving != x.Decision.Saving {
		t.Errorf("got %+v, want the decision of explain: %+v", first, x.Decision)
	}
	if code, stdout, _ := a.run(t, "held", "-n", "ns", "-o", "yaml"); code != 0 ||
		yaml.UnmarshalStrict([]byte(stdout), new(explain.HeldList)) != nil {
		t.Errorf("exit code %d, unexpected YAML:\n%s", code, stdout)
	}
	if a.writes > 0 {
		t.Errorf("held made %d write requests", a.writes)
	}
}

func TestNothingIsHeld(t *testing.T) {
	a := twoSites(t)
	for _, c := range []struct {
		args, description string
	}{
		{"held -n ns", "No held Jobs or pods found in namespace ns.\n"},
		{"held -A -o wide", "No held Jobs or pods found in any namespace.\n"},
		{"held -A -o json", ""},
	} {
		code, stdout, stderr := a.run(t, strings.Fields(c.args)...)
		if code != 0 || stderr != c.description || (c.description == "") != strings.Contains(stdout, `"items": []`) {
			t.Errorf("%s: exit code %d, %q, %q", c.args, code, stdout, stderr)
		}
	}
}

// With limited permissions, the readable objects are listed and unknown values are reported.
func TestHeldToATenant(t *testing.T) {
	a := twoSites(t)
	a.add(t, jobsIn("ns"), workJob("nightly"))
	a.refused["list all gridzones"], a.refused["list pods"] = true, true
	code, stdout, stderr := a.run(t, "held", "-n", "ns")
	if code != 0 || !strings.Contains(stdout, "nightly") || !strings.Contains(stdout, "67 %") ||
		!strings.Contains(stderr, "only the savings in reasons are known") || !strings.Contains(stderr, "not readable: pods: forbidden") {
		t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
	}
	a.delete(jobsIn("ns") + "/nightly")
	if _, _, stderr := a.run(t, "held", "-n", "ns"); strings.Contains(stderr, "Nothing") ||
		!strings.Contains(stderr, "No held Jobs found in namespace ns, pods are not readable.\n") {
		t.Errorf("unexpected message without Jobs and readable pods: %q", stderr)
	}
	a.refused["list jobs"] = true
	if code, _, stderr := a.run(t, "held", "-n", "ns"); code != 1 || !strings.Contains(stderr, "listing Jobs: forbidden") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}

func TestBriefly(t *testing.T) {
	for reason, want := range map[string]string{
		"held until 2026-03-02T12:00:00Z: saves an estimated 67 % (0.3 gCO2e); starts by 2026-03-02T16:00:00Z at the latest": "saves an estimated 67 %",
		"cleaner at noon": "cleaner at noon",
		"":                "",
	} {
		if got := dashboard.Briefly(reason); got != want {
			t.Errorf("Briefly(%q) = %q, want %q", reason, got, want)
		}
	}
	if got := (&explain.HeldList{Now: testNow}).Distance(new(testNow.Add(-time.Hour))); got != "1 h ago" {
		t.Errorf("Distance() = %q, want 1 h ago", got)
	}
}
