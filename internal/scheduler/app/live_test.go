package app

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// TestLiveWattsAreAskedFor verifies that live power is requested from the controller only if a URL is configured.
func TestLiveWattsAreAskedFor(t *testing.T) {
	asked := make(chan string, 10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case asked <- r.URL.Path:
		default:
		}
		w.Write([]byte(`{}`))
	}))
	defer server.Close()
	start := func(url string) (feed any, stop func()) {
		s := &shared{options: defaultOptions(), log: slog.New(slog.DiscardHandler)}
		s.options.controller.live.URL = url
		ctx, cancel := context.WithCancel(t.Context())
		deps, err := s.start(ctx, &rest.Config{Host: "http://127.0.0.1:1"})
		if err != nil {
			t.Fatal(err)
		}
		if url == "" && deps.Live != nil || url != "" && deps.Live == nil {
			t.Errorf("%q: feed %v", url, deps.Live)
		}
		return deps.Live, func() { cancel(); s.wait() }
	}
	_, stop := start(server.URL)
	select {
	case path := <-asked:
		if path != "/api/v1/nodes/power" {
			t.Errorf("unexpected request for %s", path)
		}
	case <-time.After(time.Minute):
		t.Error("no request was sent")
	}
	stop()
	_, stop = start("")
	stop()
	s := &shared{options: defaultOptions(), log: slog.New(slog.DiscardHandler)}
	s.options.controller.live.URL, s.options.controller.live.TokenFile = "http://controller:9443", "token"
	if _, err := s.start(t.Context(), &rest.Config{Host: "http://127.0.0.1:1"}); err == nil ||
		!strings.Contains(err.Error(), "https") {
		t.Errorf("a token over HTTP results in %v", err)
	}
}
