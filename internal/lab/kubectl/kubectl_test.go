package kubectl

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
)

func TestChooseCluster(t *testing.T) {
	lab := filepath.Join(Home, "kubeconfig")
	get := []string{"get", "nodes"}
	for name, c := range map[string]struct {
		args          []string
		env           string
		runs, earlier bool   // a lab is running in the directory, or a previous one left its kubeconfig there
		linked        bool   // invoked as kubectl
		home          bool   // ~/.kube/config exists
		want          string // of KUBECONFIG
		wantError     string
	}{
		"the lab of this directory":          {args: get, runs: true, want: lab},
		"the lab, by name":                   {args: get, runs: true, linked: true, home: true, want: lab},
		"an earlier lab":                     {args: get, earlier: true, wantError: "no lab is running in this directory"},
		"an earlier lab, by name":            {args: get, earlier: true, linked: true, home: true},
		"no lab here":                        {args: get, home: true, wantError: "no lab is running in this directory"},
		"no lab, by name":                    {args: get, linked: true, home: true},
		"nothing, by name":                   {args: get, linked: true, wantError: "config is missing: start a lab"},
		"no lab, and no cluster is required": {args: []string{"version", "--client"}},
		"help":                               {args: []string{"get", "-h"}},
		"completion":                         {args: []string{"completion", "bash"}},
		"creating a kubeconfig":              {args: []string{"config", "set-cluster", "mine"}, linked: true},
		"the environment wins":               {args: get, env: "mine", runs: true, want: "mine"},
		"a flag wins":                        {args: append(get, "--kubeconfig", "mine"), runs: true, want: ""},
		"a flag with an equals sign wins":    {args: []string{"--kubeconfig=mine", "get", "nodes"}, want: ""},
		"a server is named":                  {args: []string{"-s", "https://localhost", "get", "nodes"}, linked: true},
		"a server is named in a word":        {args: append(get, "--server=https://localhost"), runs: true, want: ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			t.Setenv("KUBECONFIG", c.env)
			previous := clientcmd.RecommendedHomeFile
			clientcmd.RecommendedHomeFile = filepath.Join("home", "config")
			t.Cleanup(func() { clientcmd.RecommendedHomeFile = previous })
			for file, there := range map[string]bool{lab: c.runs || c.earlier, clientcmd.RecommendedHomeFile: c.home} {
				if !there {
					continue
				}
				if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			err := chooseCluster(c.args, c.linked, func(home string) bool { return c.runs && home == Home })
			switch {
			case c.wantError == "" && err != nil:
				t.Fatal(err)
			case c.wantError != "":
				if err == nil || !strings.Contains(err.Error(), c.wantError) {
					t.Errorf("unexpected error: %v", err)
				}
			case os.Getenv("KUBECONFIG") != c.want:
				t.Errorf("KUBECONFIG = %q, want %q", os.Getenv("KUBECONFIG"), c.want)
			}
		})
	}
}
