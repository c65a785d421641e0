package agent

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/agent/host"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/test/kit/memtest"
)

// TestTroubleIsSaidOnce verifies that a meter that fails every other tick is logged only once.
func TestTroubleIsSaidOnce(t *testing.T) {
	var log bytes.Buffer
	var tr logThrottle
	for i := range 1000 {
		err := errors.New("no")
		if i%2 == 1 {
			err = nil
		}
		tr.note(slog.New(slog.NewTextHandler(&log, nil)), "it", "nothing happens", err)
	}
	if n := strings.Count(log.String(), "\n"); n != 1 {
		t.Errorf("got %d log lines, want 1:\n%s", n, log.String())
	}
}

func FuzzRestore(f *testing.F) {
	f.Add([]byte{stateVersion})
	f.Add([]byte{stateVersion, 3, 1, 2, 3})
	f.Fuzz(func(t *testing.T, state []byte) {
		defer memtest.Limit(t, 100*len(state))()
		h, err := host.Open(DefaultOptions().Host, slog.New(slog.DiscardHandler))
		if err != nil {
			return
		}
		defer h.Close()
		a := &agent{host: h, attributor: energy.NewAttributor(energy.AttributorOptions{})}
		a.openGPUs()
		_ = a.restore(state)
	})
}

func TestPulse(t *testing.T) {
	a := &agent{options: Options{Interval: time.Second}}
	a.lastTick.Store(int64(host.Now()))
	if err := a.healthy(); err != nil {
		t.Error(err)
	}
	a.lastTick.Store(int64(host.Now() - time.Minute))
	if err := a.healthy(); err == nil {
		t.Error("healthy() = nil after a minute without a tick, want an error")
	}
}
