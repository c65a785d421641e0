package kubectl

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestChooseCluster(t *testing.T) {
	for name, c := range map[string]struct {
		args      []string
		env       string
		lab       bool
		want      string // of KUBECONFIG
		wantError string
	}{
		"the lab of this folder":     {args: []string{"get", "nodes"}, lab: true, want: Kubeconfig},
		"no lab here":                {args: []string{"get", "nodes"}, wantError: "there is no lab in this folder"},
		"no lab, and none is needed": {args: []string{"version", "--client"}, want: Kubeconfig},
		"help":                       {args: []string{"get", "-h"}, want: Kubeconfig},
		"completion":                 {args: []string{"completion", "bash"}, want: Kubeconfig},
		"the environment wins":       {args: []string{"get", "nodes"}, env: "mine", lab: true, want: "mine"},
		"a flag wins":                {args: []string{"get", "nodes", "--kubeconfig", "mine"}, lab: true, want: ""},
		"a flag in one word wins":    {args: []string{"--kubeconfig=mine", "get", "nodes"}, want: ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			t.Setenv("KUBECONFIG", c.env)
			if c.lab {
				if err := os.MkdirAll(filepath.Dir(Kubeconfig), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(Kubeconfig, nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			err := chooseCluster(c.args)
			switch {
			case c.wantError == "" && err != nil:
				t.Fatal(err)
			case c.wantError != "":
				if err == nil || !strings.Contains(err.Error(), c.wantError) {
					t.Errorf("error is %v", err)
				}
			case os.Getenv("KUBECONFIG") != c.want:
				t.Errorf("KUBECONFIG is %q, want %q", os.Getenv("KUBECONFIG"), c.want)
			}
		})
	}
}
