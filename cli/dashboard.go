package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubenergy/kubenergy/dashboard"
)

func newDashboard(t terminal) *cobra.Command {
	var f centralFlags
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
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			address, err := loopback(listen)
			if err != nil {
				return usageError{err}
			}
			source, err := openSource(cmd.Context(), t, &f, dir)
			if err != nil {
				return err
			}
			return serveDashboard(cmd.Context(), t, source, address, noBrowser)
		},
	}
	flags := cmd.Flags()
	f.add(flags)
	f.addNamespace(flags, "show only this namespace (default: all)")
	flags.StringVar(&dir, "dir", "", "`folder` that simulate, compare or a lab wrote; no cluster is asked")
	flags.StringVar(&listen, "listen", "127.0.0.1:0", "address of this machine to serve on; port 0 is any that is free")
	flags.BoolVar(&noBrowser, "no-browser", false, "only print the address")
	return cmd
}

// loopback reads an address that only this machine reaches.
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

func openSource(ctx context.Context, t terminal, f *centralFlags, dir string) (dashboard.Source, error) {
	if dir == "" {
		return openLive(ctx, t, f)
	}
	folder, err := dashboard.OpenFolder(dir)
	if err != nil {
		return nil, usageError{fmt.Errorf("--dir: %w", err)}
	}
	return folder, nil
}

// serveDashboard serves until it is interrupted, which is no failure.
func serveDashboard(ctx context.Context, t terminal, source dashboard.Source, at *net.TCPAddr, noBrowser bool) error {
	listener, err := net.ListenTCP("tcp", at)
	if err != nil {
		return fmt.Errorf("--listen %s: %w", at, err)
	}
	page := dashboard.NewServer(source, listener.Addr(), t.now)
	server := &http.Server{
		Handler: page.Handler(), ReadHeaderTimeout: 5 * time.Second, MaxHeaderBytes: 32 << 10,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	fmt.Fprintln(t.out, page.Address())
	fmt.Fprintln(t.err, "The page is served until you press Ctrl-C. The address is good for once.")
	if !noBrowser {
		if err := openBrowser(page.Address()); err != nil {
			fmt.Fprintf(t.err, "no browser could be opened (%v): open the address yourself\n", err)
		}
	}
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving the page: %w", err)
	}
	return nil
}

// openBrowser shows an address as this system does.
func openBrowser(address string) error {
	name, args := "xdg-open", []string{address}
	switch runtime.GOOS {
	case "darwin":
		name = "open"
	case "windows":
		name, args = "rundll32", []string{"url.dll,FileProtocolHandler", address}
	}
	cmd := exec.Command(name, args...)
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() { _ = cmd.Wait() }() // it ends when it has told the browser
	return nil
}
