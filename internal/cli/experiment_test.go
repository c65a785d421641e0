package cli

import (
	"path/filepath"
	"strings"
	"testing"
)

// What is wrong with the command line or with the file is said before anything is started.
func TestExperimentRefuses(t *testing.T) {
	shipped := filepath.Join("../..", "scenarios", "experiments", "control.yaml")
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "want an experiment file: -f FILE"},
		{[]string{"-f", shipped, "--faster", "0"}, "--faster is 0"},
		{[]string{"-f", shipped, "--faster", "1e6"}, "want a duration of a second or more, after --faster"},
		{[]string{"-f", shipped, "--target", "cluster"}, "image is missing"},
		{[]string{"-f", shipped, "--target", "cluster"}, "nodes, objects and monitor are of the lab"},
		{[]string{"-f", shipped, "--target", "moon"}, `unknown target "moon"`},
		{[]string{"-f", filepath.Join("../..", "scenarios", "demo", "comparison.yaml")}, "use kubenergy compare -f"},
	} {
		var stdout, stderr strings.Builder
		code := Run(t.Context(), append([]string{"experiment"}, c.args...), nil, &stdout, &stderr)
		if code != 2 || !strings.Contains(stderr.String(), c.want) {
			t.Errorf("%q: exit code %d: %s", c.args, code, stderr.String())
		}
	}
	// No program stands beside this test.
	var stdout, stderr strings.Builder
	code := Run(t.Context(), []string{"experiment", "-f", shipped}, nil, &stdout, &stderr)
	if code != 1 || !strings.Contains(stderr.String(), "/kubenergy-lab is missing") || strings.Contains(stderr.String(), "about") {
		t.Errorf("exit code %d: %s", code, stderr.String())
	}
}
