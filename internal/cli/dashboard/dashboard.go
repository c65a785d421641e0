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
	var dir, listen string
	var noBrowser bool
	cmd := &cobra.Command{
		Use:   "dashboard",
		Short: "Open a page of the grid, the watts and the work, from yesterday over now to the day after tomorrow",
		Long: `Serve a page on this machine and open it in the browser: what the grid, the machines and held work do,
from yesterday over now to the day after tomorrow, what decisions saved and how sure that is, why each Job waits, and
what is broken. It reads the cluster with your own rights; what you may not see is named. Jobs are started and modes
are switched with your own rights, too, after the page has shown what that means.

With --dir it shows what simulate, compare or a lab have written, and needs no cluster.

The page is served to this machine alone. The address that is printed holds a secret that is good for once, in one
browser. The command runs until it is interrupted.`,
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
	f.Add(flags)
	f.AddNamespace(flags, "show only this namespace (default: all)")
	flags.StringVar(&dir, "dir", "", "`folder` that simulate, compare or a lab wrote; no cluster is asked")
	flags.StringVar(&listen, "listen", "127.0.0.1:0", "address of this machine to serve on; port 0 is any that is free")
	flags.BoolVar(&noBrowser, "no-browser", false, "only print the address")
	return cmd
}

// loopback parses an address that only this machine can reach.
func loopback(listen string) (*net.TCPAddr, error) {
	const want = "want an address of this machine and a port, as 127.0.0.1:8080"
	host, _, err := net.SplitHostPort(listen)
	if err != nil || host == "" {
		return nil, fmt.Errorf("--listen is %q: %s", listen, want)
	}
	address, err := net.ResolveTCPAddr("tcp", listen)
	if err != nil || !address.IP.IsLoopback() {
		return nil, fmt.Errorf("--listen is %q: others would reach it: %s", listen, want)
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
		return nil, cmdutil.NewUsageError(fmt.Errorf("--dir asks no cluster: leave out %s", strings.Join(idle, ", ")))
	}
	folder, err := dashboard.OpenFolder(dir)
	if err != nil {
		return nil, cmdutil.NewUsageError(fmt.Errorf("--dir: %w", err))
	}
	return folder, nil
}
