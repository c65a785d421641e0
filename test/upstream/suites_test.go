package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/test/upstream/enabled"
)

// smallest is the fastest suite with pods that are scored.
const smallest = "extender"

// TestSmallestSuite verifies that the plugins can be added to this version of Kubernetes and that one suite passes
// in all modes. `make upstream` runs the other suites.
func TestSmallestSuite(t *testing.T) {
	if os.Getenv("KUBENERGY_LONG") == "" {
		t.Skip("compiles Kubernetes again, which takes minutes: set KUBENERGY_LONG=1")
	}
	dir, err := filepath.Abs("../../out/upstream") // share the build results with make upstream
	if err != nil {
		t.Fatal(err)
	}
	tr := &trial{runner: runner{dir: dir, timeout: 5 * time.Minute}, modes: enabled.Modes, out: t.Output()}
	if err := tr.prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	results, err := tr.suite(t.Context(), smallest)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		if len(r.Wrong) > 0 {
			t.Errorf("mode %s: %v (see %s)", r.Mode, r.Wrong, dir)
		}
		if scored := r.Counts.Scored > 0; r.Counts.Cycles == 0 || scored != (r.Mode == enabled.Scored) {
			t.Errorf("mode %s: unexpected number of plugin calls: %+v", r.Mode, r.Counts)
		}
	}
	if len(results) != len(enabled.Modes) {
		t.Errorf("got %d results, want one for each of %v", len(results), enabled.Modes)
	}
}

func TestSuites(t *testing.T) {
	s, err := published(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	every, err := s.suites(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"scheduler", "scoring", "filters", "queueing", "preemption", "preemption/misc", "plugins", smallest,
	} {
		if !slices.Contains(every, want) {
			t.Errorf("suite %s not found in %v", want, every)
		}
	}
	// Listed suites must exist, otherwise the lists belong to another version of Kubernetes.
	for suite := range podless {
		if !slices.Contains(every, suite) {
			t.Errorf("suite %s without pods does not exist", suite)
		}
	}
	for mode, suites := range excuses {
		for suite := range suites {
			if !slices.Contains(every, suite) {
				t.Errorf("mode %s has excuses for %s, which does not exist", mode, suite)
			}
		}
	}
	if got, err := s.suites(t.Context(), []string{"queueing", "queueing/former", "bind"}); err != nil ||
		!slices.Equal(got, []string{"queueing", "queueing/former", "queueing/queueinghint", "bind"}) {
		t.Errorf("unexpected suites for a selection: %v, error %v", got, err)
	}
	if _, err := s.suites(t.Context(), []string{"scor"}); err == nil ||
		!strings.Contains(err.Error(), `no suite "scor"`) {
		t.Errorf("unexpected error for an unknown suite: %v", err)
	}
}
