package cli

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubenergy/kubenergy/internal/cli/cmdutil"
)

// The error must not suggest to set KUBECONFIG if it is already set.
func TestKubeconfigIsMissing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "missing")
	for value, want := range map[string]string{path: "no such file", "": "set --kubeconfig or KUBECONFIG"} {
		var f cmdutil.ClusterFlags
		_, _, err := f.Config(cmdutil.Terminal{Env: []string{"KUBECONFIG=" + value, "HOME=" + t.TempDir()}})
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), value) {
			t.Errorf("KUBECONFIG=%q: got error %v, want %q", value, err, want)
		}
	}
}
