package panics_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/kubenergy/kubenergy/internal/kube/panics"
)

func TestBreaker(t *testing.T) {
	now := time.Now()
	var b panics.Breaker
	count := func(after time.Duration) bool {
		now = now.Add(after)
		b.Count("part", now)
		return b.Open(now)
	}
	if b.Open(now) || count(0) || count(29*time.Second) || count(31*time.Second) {
		t.Error("the breaker is open after three panics in more than a minute")
	}
	if !count(28 * time.Second) {
		t.Error("the breaker is closed after three panics within a minute")
	}
	if now = now.Add(10*time.Minute - 1); !b.Open(now) {
		t.Error("the breaker closes before ten minutes have passed")
	}
	if now = now.Add(1); b.Open(now) || count(0) || count(time.Second) || !count(time.Second) {
		t.Error("the breaker does not close after ten minutes, or does not open again")
	}
	if err := testutil.CollectAndCompare(&b, strings.NewReader(`
		# HELP kubenergy_panics_total Number of recovered panics that each affected one object or decision.
		# TYPE kubenergy_panics_total counter
		kubenergy_panics_total{part="part"} 7
	`), "kubenergy_panics_total"); err != nil {
		t.Error(err)
	}
}

func TestSurvive(t *testing.T) {
	t.Cleanup(panics.Reset)
	var log bytes.Buffer
	for range 9 {
		if panics.Survive(slog.New(slog.NewTextHandler(&log, nil)), "part", "a test", func() { panic("planted") }) {
			t.Error("Survive() = true after a panic")
		}
	}
	if !panics.Survive(nil, "part", "a test", func() {}) {
		t.Error("Survive() = false without a panic")
	}
	if n := strings.Count(log.String(), "panic=planted"); n != 4 || panics.Note("part") != 10 || panics.Open() {
		t.Errorf("%d of 9 panics are logged, or the breaker is open:\n%s", n, &log)
	}
}

func TestKeep(t *testing.T) {
	t.Cleanup(panics.Reset)
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		if err := panics.Keep(t.Context(), slog.New(slog.DiscardHandler), "loop", "a test", func(context.Context) error {
			if runs++; runs < 3 {
				panic("planted")
			}
			return io.EOF
		}); runs != 3 || !errors.Is(err, io.EOF) {
			t.Errorf("%d runs, error %v", runs, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := panics.Keep(ctx, slog.New(slog.DiscardHandler), "loop", "a test", func(context.Context) error {
			panic("planted")
		}); err != nil || panics.Note("loop") != 4 {
			t.Error(err)
		}
	})
}

// TestCollector verifies that a panic in a collector does not affect the metrics of other collectors in the
// registry.
func TestCollector(t *testing.T) {
	t.Cleanup(panics.Reset)
	registry := prometheus.NewRegistry()
	good := prometheus.NewCounter(prometheus.CounterOpts{Name: "good_total"})
	bad := panics.Collector(slog.New(slog.DiscardHandler), planted{})
	if err := errors.Join(registry.Register(good), registry.Register(bad)); err != nil {
		t.Fatal(err)
	}
	if all, err := registry.Gather(); err != nil || len(all) != 1 || panics.Note("metrics") != 2 {
		t.Error(all, err)
	}
}

type planted struct{}

func (planted) Describe(chan<- *prometheus.Desc) {}

func (planted) Collect(chan<- prometheus.Metric) { panic("planted") }
