package experiment

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"net/http"
	"time"
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
	server := &http.Server{Addr: listen, Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
