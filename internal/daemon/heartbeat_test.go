package daemon

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubenergy/kubenergy/test/kit/bubble"
)

// TestStuckLoop verifies that a loop is reported while its round exceeds the limit, but not while it waits between
// rounds or after a panic, and that a process without a liveness probe exits.
func TestStuckLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var beats Heartbeats
		ctx, cancel := context.WithCancel(t.Context())
		var exits atomic.Int32
		go beats.Watch(ctx, slog.New(slog.DiscardHandler), func() { exits.Add(1) })
		loop := beats.Loop(ctx, "releases")
		Round(ctx, func() {}) // without a loop
		Round(loop, func() {})
		func() {
			defer func() { _ = recover() }()
			Round(loop, func() { panic("planted") })
		}()
		bubble.Advance(24 * time.Hour)
		if err := beats.Check(); err != nil {
			t.Errorf("idle: Check() = %v", err)
		}
		release := make(chan struct{})
		go Round(loop, func() { <-release })
		go Round(beats.Loop(ctx, "moves"), func() {})
		bubble.Advance(MaxRound)
		if err := beats.Check(); err != nil || exits.Load() != 0 {
			t.Errorf("at the limit: Check() = %v, %d exits", err, exits.Load())
		}
		bubble.Advance(MaxRound / 10)
		if err := beats.Check(); err == nil || !strings.Contains(err.Error(), `"releases"`) || exits.Load() != 1 {
			t.Errorf("stuck: Check() = %v, %d exits", err, exits.Load())
		}
		w := httptest.NewRecorder()
		if beats.ServeHTTP(w, nil); w.Code != http.StatusServiceUnavailable {
			t.Errorf("stuck: probe returned status %d", w.Code)
		}
		close(release)
		synctest.Wait()
		if err := beats.Check(); err != nil {
			t.Errorf("after the round: Check() = %v", err)
		}
		cancel()
		synctest.Wait()
	})
}
