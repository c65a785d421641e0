package cli

import (
	"path/filepath"
	"strings"
	"testing"
)

// Invalid command lines and files are rejected before any process is started.
func TestExperimentRefuses(t *testing.T) {
	shipped := filepath.Join("../..", "scenarios", "experiments", "control.yaml")
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "want an experiment file: -f FILE"},
		{[]string{"-f", shipped, "--faster", "0"}, "--faster is 0"},
		{[]string{"-f", shipped, "--faster", "1e6"}, "want a duration of at least 1s after applying --faster"},
		{[]string{"-f", shipped, "--target", "cluster"}, "image is missing"},
		{[]string{"-f", shipped, "--target", "cluster"}, "nodes, objects and monitor only apply to the lab"},
		{[]string{"-f", shipped, "--target", "moon"}, `unknown target "moon"`},
		{[]string{"-f", filepath.Join("../..", "scenarios", "demo", "comparison.yaml")}, "use kubenergy compare -f"},
	} {
		var stdout, stderr strings.Builder
		code := Run(t.Context(), append([]string{"experiment"}, c.args...), nil, &stdout, &stderr)
		if code != 2 || !strings.Contains(stderr.String(), c.want) {
			t.Errorf("%q: exit code %d: %s", c.args, code, stderr.String())
		}
	}
	// The directory of the test binary contains no other programs.
	var stdout, stderr strings.Builder
	code := Run(t.Context(), []string{"experiment", "-f", shipped}, nil, &stdout, &stderr)
	if code != 1 || !strings.Contains(stderr.String(), "/kubenergy-lab is missing") || strings.Contains(stderr.String(), "about") {
		t.Errorf("exit code %d: %s", code, stderr.String())
	}
}
