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

// Serve answers requests with the pod's name, each after about so much CPU time, until ctx ends. It is what an
// experiment's services run.
func Serve(ctx context.Context, listen, pod string, work time.Duration) error {
	const hash = 150 * time.Nanosecond // of 64 bytes, about: all contestants have the same work
	mux := http.NewServeMux()
	mux.HandleFunc("/ready", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		var block [64]byte
		for range work / hash {
			sum := sha256.Sum256(block[:])
			copy(block[:], sum[:])
		}
		_, _ = io.WriteString(w, pod) // to one that may have gone
	})
	const connections = 10_000 // also of one client: experiments load it
	l, err := daemon.Listen(listen, connections, connections)
	if err != nil {
		return err
	}
	return daemon.Serve(ctx, l, daemon.NewServer(mux, slog.Default()))
}
