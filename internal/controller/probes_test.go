package controller

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubenergy/kubenergy/internal/daemon"
	"github.com/kubenergy/kubenergy/test/kit/bubble"
)

// TestStuckLoopFailsTheProbe checks that /healthz fails and identifies the loop if a loop of the controller is
// stuck in a round. A waiting loop is healthy.
func TestStuckLoopFailsTheProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &app{beats: new(daemon.Heartbeats), log: slog.New(slog.DiscardHandler)}
		probe := func() (int, string) {
			w := httptest.NewRecorder()
			p.probes(time.Now()).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/healthz/loops", nil))
			return w.Code, w.Body.String()
		}
		ctx, stop := context.WithCancel(t.Context())
		begin, release, ended := make(chan struct{}), make(chan struct{}), make(chan error)
		go func() {
			ended <- p.kept("overdue", func(ctx context.Context) error {
				<-begin
				daemon.Round(ctx, func() { <-release })
				<-ctx.Done()
				return nil
			}).Start(ctx)
		}()
		bubble.Advance(24 * time.Hour)
		if code, text := probe(); code != http.StatusOK {
			t.Errorf("while waiting: status = %d %s", code, text)
		}
		close(begin)
		bubble.Advance(daemon.MaxRound + time.Second)
		if code, text := probe(); code != http.StatusInternalServerError || !strings.Contains(text, `"overdue"`) {
			t.Errorf("while stuck: status = %d %s", code, text)
		}
		close(release)
		synctest.Wait()
		if code, text := probe(); code != http.StatusOK {
			t.Errorf("after the round: status = %d %s", code, text)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestMetricsAskForCredentials checks that /metrics is served over TLS and requires credentials.
func TestMetricsAskForCredentials(t *testing.T) {
	o := quiet(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o.MetricsAddress = listener.Addr().String()
	listener.Close()
	start(t, newAPIServer(t), o)
	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true,
	}}
	for path, want := range map[string]int{"/metrics": http.StatusUnauthorized, "/": http.StatusNotFound} {
		answer, err := client.Get("https://" + o.MetricsAddress + path) // start opens the listener before it returns
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != want {
			t.Errorf("%s: status = %s, want %d", path, answer.Status, want)
		}
	}
}
