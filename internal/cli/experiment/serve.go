package experiment

import (
	"context"
	"crypto/sha256"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/kubenergy/kubenergy/internal/daemon"
)

// Serve runs the server of an experiment's service until ctx is done. It responds to each request with the pod's
// name after using approximately the given CPU time.
func Serve(ctx context.Context, listen, pod string, work time.Duration) error {
	const hash = 150 * time.Nanosecond // approximate time to hash 64 bytes; all contestants have the same work
	mux := http.NewServeMux()
	mux.HandleFunc("/ready", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		var block [64]byte
		for range work / hash {
			sum := sha256.Sum256(block[:])
			copy(block[:], sum[:])
		}
		_, _ = io.WriteString(w, pod) // the client may have disconnected
	})
	const connections = 10_000 // also per client, because experiments generate load
	l, err := daemon.Listen(listen, connections, connections)
	if err != nil {
		return err
	}
	return daemon.Serve(ctx, l, daemon.NewServer(mux, slog.Default()))
}
