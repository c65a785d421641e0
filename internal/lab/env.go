package lab

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/wait"
)

// The cluster of kubenergy-lab up is in clusterName below the given directory, which defaults to defaultDir.
const (
	defaultDir     = "out/lab"
	clusterName    = "cluster"
	kubeconfigName = "kubeconfig"
	readyName      = "ready" // an empty file that is created when the whole cluster has started
)

func newEnv() *cobra.Command {
	var dir string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "env",
		Short: "Print shell commands that make kubectl, helm and kubenergy use the running cluster",
		Long: `Print shell commands that set KUBECONFIG to the cluster of kubenergy-lab up and add the directory of
this program to the front of PATH. make build tools installs kubectl, helm and kubenergy there. No port or token is
required, because the controller is reachable through the proxy of the API server.`,
		Example: "  eval \"$(bin/kubenergy-lab env)\"\n" +
			"  bin/kubenergy-lab up --stock &\n  eval \"$(bin/kubenergy-lab env --wait 5m)\"",
		RunE: func(cmd *cobra.Command, _ []string) error {
			home, err := filepath.Abs(filepath.Join(dir, clusterName))
			if err != nil {
				return err
			}
			if !waitReady(cmd.Context(), home, timeout) {
				return usageError{fmt.Errorf("no lab is ready in %s: start one with kubenergy-lab up, set --wait "+
					"if it is starting, or set its directory with --dir", dir)}
			}
			binary, err := os.Executable()
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			fmt.Fprintf(out, "export KUBECONFIG=%s\n", quote(filepath.Join(home, kubeconfigName)))
			if bin := filepath.Dir(binary); !strings.HasPrefix(os.Getenv("PATH")+":", bin+":") {
				fmt.Fprintf(out, "export PATH=%s:\"$PATH\"\n", quote(bin))
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&dir, "dir", defaultDir, "directory of kubenergy-lab up")
	cmd.Flags().DurationVar(&timeout, "wait", 0, "maximum time to wait for a cluster that is starting")
	return cmd
}

// waitReady reports whether the cluster in home is ready, or becomes ready before the timeout.
func waitReady(ctx context.Context, home string, timeout time.Duration) bool {
	return wait.PollUntilContextTimeout(ctx, 10*pollInterval, timeout, true, func(context.Context) (bool, error) {
		_, err := os.Stat(filepath.Join(home, readyName))
		return err == nil && IsRunning(home), nil
	}) == nil
}

// quote quotes text as a single word for a shell.
func quote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
