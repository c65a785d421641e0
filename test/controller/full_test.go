package controller

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kubenergy/kubenergy/test/kit"
)

// TestFullDisk fills the disk that contains the ledger while agents deliver batches.
func TestFullDisk(t *testing.T) {
	w := shared
	state := t.TempDir()
	if err := unix.Mount("tmpfs", state, "tmpfs", 0, "size=24m"); err != nil {
		t.Skipf("mounting a file system failed: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(state, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	h := w.newHerd(t, 3)
	metrics := kit.Address(t)
	c := w.controllerIn(t, state, nil, "--agentless=false", "--host-tokens-file="+h.tokens,
		"--metrics-bind-address="+metrics)
	wi := newWire(t, c)
	h.connect(wi)
	if err := h.start(0)(); err != nil {
		t.Fatal(err)
	}
	kit.Eventually(t, 30*time.Second, "agents deliver batches", func() bool { return wi.progress() > 20 })
	if got := c.writable(t, metrics); got != 1 {
		t.Errorf("kubenergy_ledger_writable = %v, want 1", got)
	}

	nodes, before := c.sums(t, h.began)
	ballast := filepath.Join(state, "ballast")
	fill(t, ballast)
	kit.Eventually(t, time.Minute, "batches are no longer acknowledged", func() bool {
		refused := wi.count(http.StatusServiceUnavailable)
		before := wi.progress()
		time.Sleep(time.Second) // no acknowledgement must follow
		return refused > 0 && wi.progress() == before
	})
	fill(t, ballast) // space that was released in the meantime
	stopped := wi.progress()
	if got := c.writable(t, metrics); got != 0 {
		t.Errorf("kubenergy_ledger_writable = %v while the disk is full, want 0", got)
	}
	read := func() {
		t.Helper()
		if booked, total := c.sums(t, h.began); total < before || before == 0 || len(booked) < len(nodes) {
			t.Errorf("ledger returned %d µJ of %d nodes while the disk is full, want at least the previous values",
				total, len(booked))
		}
		c.audit(t)
		for _, path := range []string{
			"/api/v1/nodes/power", "/api/v1/ledger/statistics", "/api/v1/decisions", "/api/v1/ledger?groupBy=namespace",
		} {
			if status, body := c.get(t, path, c.token); status != http.StatusOK {
				t.Errorf("unexpected response to %s while the disk is full: %d %s", path, status, body)
			}
		}
	}
	read()
	// Agents retain their batches even if they are killed. Each restarted agent is rejected once immediately and
	// then backs off. The counter is read before the first agent can send a request.
	for _, f := range h.all {
		f.kill()
	}
	refused := wi.count(http.StatusServiceUnavailable)
	for _, f := range h.all {
		if err := f.start(); err != nil {
			t.Fatal(err)
		}
	}
	kit.Eventually(t, 10*time.Second, "agents are rejected again",
		func() bool { return wi.count(http.StatusServiceUnavailable) >= refused+len(h.all) })
	read()
	if now := wi.progress(); now != stopped {
		t.Errorf("%d batches were acknowledged while the disk is full", now-stopped)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	freed := time.Now()
	kit.Eventually(t, 30*time.Second, "the ledger is writable again",
		func() bool { return c.writable(t, metrics) == 1 })
	t.Logf("ledger was writable %v after disk space was released", time.Since(freed).Round(time.Millisecond))
	// The controller requested a retry after 30 seconds. Restarted agents do not wait.
	if !long() {
		for _, f := range h.all {
			f.kill()
			if err := f.start(); err != nil {
				t.Fatal(err)
			}
		}
	}
	kit.Eventually(t, 2*time.Minute, "agents deliver batches again", func() bool { return wi.progress() > stopped })
	steps := h.finish(t, 2*time.Minute)
	t.Logf("%v", wi)
	wi.check(t)
	c.verify(t, h.began, steps, nil)
	if c.Ended() {
		t.Error("controller exited unexpectedly")
	}
	if err := c.Stop(time.Minute); err != nil {
		t.Error(err)
	}
	(&engine{}).whole(t, c, len(steps))
}

// fill writes to a file until the disk is full.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for size := 1 << 20; size > 0; {
		if _, err := f.Write(make([]byte, size)); errors.Is(err, unix.ENOSPC) {
			size /= 2
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// writable returns the value of the metric kubenergy_ledger_writable.
func (c *controllerProcess) writable(t *testing.T, metrics string) float64 {
	t.Helper()
	client := kit.Insecure()
	client.Transport.(*http.Transport).DisableKeepAlives = true
	var status int
	var page string
	kit.Eventually(t, 30*time.Second, "the metrics are available", func() bool { // served after the caches have synced
		status, page = kit.Get(t.Context(), client, "https://"+metrics+"/metrics", shared.Config().BearerToken)
		return status == http.StatusOK
	}, c.Process)
	value, found := kit.Metric(t, page, "kubenergy_ledger_writable")
	if !found {
		return -1
	}
	return value
}
