package dashboard

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os/exec"
	"runtime"
	"time"

	"github.com/kubenergy/kubenergy/internal/daemon"
)

const maxConnections = 256 // all from this machine

// Serve serves the page of a source on an address of this machine until ctx is canceled, which is not an error. It
// prints the URL, and opens it in a browser if browser is true.
func Serve(ctx context.Context, source Source, at *net.TCPAddr, browser bool, out, err io.Writer) error {
	listener, failed := daemon.Listen(at.String(), maxConnections, maxConnections)
	if failed != nil {
		return fmt.Errorf("serving the page on %s: %w", at, failed)
	}
	page := NewServer(source, listener.Addr(), time.Now)
	server := newHTTP(ctx, page)
	address := page.Address()
	fmt.Fprintln(out, address)
	fmt.Fprintln(err, "The page is served until you press Ctrl-C. The URL is valid once.")
	if browser {
		if failed := openBrowser(address); failed != nil {
			fmt.Fprintf(err, "Failed to open a browser: %v. Open the URL manually.\n", failed)
		}
	}
	if failed := daemon.Serve(ctx, listener, server); failed != nil {
		return fmt.Errorf("serving the page: %w", failed)
	}
	return nil
}

func newHTTP(ctx context.Context, page *Server) *http.Server {
	server := daemon.NewServer(page.Handler(), slog.Default())
	server.BaseContext = func(net.Listener) context.Context { return ctx }
	server.WriteTimeout = 3 * timeout // for a model and the other data of its page
	return server
}

// openBrowser opens a URL with the default browser of the system.
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
	go func() { _ = cmd.Wait() }() // the process exits when it has notified the browser
	return nil
}
