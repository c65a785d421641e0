// Package dashboard implements the dashboard command for a live cluster or a results directory.
package dashboard

import (
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kubenergy/kubenergy/internal/cli/cmdutil"
	"github.com/kubenergy/kubenergy/internal/dashboard"
)

// NewCommand returns the dashboard command, which serves a page about a cluster, or about results in a directory,
// on this machine.
func NewCommand(t cmdutil.Terminal) *cobra.Command {
	var f cmdutil.ControllerFlags
	f.Offline = ", or use --dir"
	var dir, listen string
	var noBrowser bool
	cmd := &cobra.Command{
		Use:   "dashboard",
		Short: "Open a web page that shows grid, power and workloads from yesterday to the day after tomorrow",
		Long: `Serve a page on this machine and open it in the browser. It shows the grid, the power of machines and
held work from yesterday to the day after tomorrow, the savings of decisions with their uncertainty, the reason why
each Job waits, and problems. It reads the cluster with your permissions and lists the data that you may not see. It
also starts Jobs and changes modes with your permissions, after it has shown the effect.

With --dir, it shows results of simulate, compare or a lab and does not need a cluster.

The page is only served to this machine. The printed URL contains a secret that is valid once, in one browser. The
command runs until it is interrupted.`,
		Example: `  kubenergy dashboard
  kubenergy dashboard --dir results
  kubenergy dashboard --listen 127.0.0.1:8080 --no-browser`,
		Args: cmdutil.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			address, err := loopback(listen)
			if err != nil {
				return cmdutil.NewUsageError(err)
			}
			source, err := openSource(cmd, t, &f, dir)
			if err != nil {
				return err
			}
			return dashboard.Serve(cmd.Context(), source, address, !noBrowser, t.Out, t.Err)
		},
	}
	flags := cmd.Flags()
	f.Add(flags, "namespace to show (default: all)")
	flags.StringVar(&dir, "dir", "", "`folder` with results of simulate, compare or a lab, instead of a cluster")
	flags.StringVar(&listen, "listen", "127.0.0.1:0", "loopback address and port; port 0 selects a free port")
	flags.BoolVar(&noBrowser, "no-browser", false, "print the URL without opening a browser")
	return cmd
}

// loopback parses an address that only this machine can reach.
func loopback(listen string) (*net.TCPAddr, error) {
	const want = "want a loopback address and a port, for example 127.0.0.1:8080"
	host, _, err := net.SplitHostPort(listen)
	if err != nil || host == "" {
		return nil, fmt.Errorf("--listen is %q: %s", listen, want)
	}
	address, err := net.ResolveTCPAddr("tcp", listen)
	if err != nil || !address.IP.IsLoopback() {
		return nil, fmt.Errorf("--listen is %q, which other machines can reach: %s", listen, want)
	}
	return address, nil
}

func openSource(cmd *cobra.Command, t cmdutil.Terminal, f *cmdutil.ControllerFlags,
	dir string,
) (dashboard.Source, error) {
	if dir == "" {
		return OpenLive(cmd.Context(), t, f)
	}
	var idle []string
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if !slices.Contains([]string{"dir", "listen", "no-browser"}, f.Name) {
			idle = append(idle, "--"+f.Name)
		}
	})
	if len(idle) > 0 {
		return nil, cmdutil.UsageErrorf("--dir uses no cluster: remove %s", strings.Join(idle, ", "))
	}
	folder, err := dashboard.OpenFolder(dir)
	if err != nil {
		return nil, cmdutil.UsageErrorf("--dir: %w", err)
	}
	return folder, nil
}
