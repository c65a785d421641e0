package app

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/kubenergy/kubenergy/internal/apiclient"
)

func TestWhoIsToldOfDecisions(t *testing.T) {
	live := apiclient.Options{URL: "https://central:9443", TokenFile: "/live/token"}
	for _, c := range []struct {
		name         string
		record, live apiclient.Options
		on           bool
		wantErr      string
	}{
		{name: "nobody"},
		{name: "as for live watts", live: live, on: true},
		{name: "disabled despite live watts", record: apiclient.Options{URL: "none"}, live: live},
		{name: "somebody else", record: apiclient.Options{URL: "https://other"}, on: true},
		{name: "another URL without TLS", record: apiclient.Options{URL: "http://other"}, wantErr: "use https"},
		{
			name: "a token without TLS", record: apiclient.Options{URL: "http://other", TokenFile: "t"},
			wantErr: "use https",
		},
		{name: "no URL", record: apiclient.Options{URL: "other"}, wantErr: "want http or https"},
	} {
		r, err := (&endpoints{live: c.live, record: c.record}).recorder(slog.New(slog.DiscardHandler))
		if c.wantErr != "" {
			if err == nil || !strings.Contains(err.Error(), c.wantErr) {
				t.Errorf("%s: error %v", c.name, err)
			}
			continue
		}
		if err != nil || r.Enabled() != c.on {
			t.Errorf("%s: enabled = %v, error %v", c.name, r.Enabled(), err)
		}
	}
}

// TestPlansAreRecordedInAFile verifies that recorded plans are appended to the file after a restart, and that only
// its owner can read it.
func TestPlansAreRecordedInAFile(t *testing.T) {
	start := func(file string) error {
		s := &shared{options: defaultOptions(), log: slog.New(slog.DiscardHandler)}
		s.options.recordPlans = file
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // stops as soon as it has started
		defer s.wait()
		_, err := s.start(ctx, &rest.Config{Host: "http://127.0.0.1:1"}) // no server listens on this port
		return err
	}
	file := filepath.Join(t.TempDir(), "plans.jsonl")
	if err := start(file); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file is %v: %v", info, err)
	}
	if err := os.WriteFile(file, []byte("{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := start(file); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(file); string(text) != "{}\n" {
		t.Errorf("the file contains %q after a restart: %v", text, err)
	}
	if err := start(filepath.Join(file, "x")); err == nil || !strings.Contains(err.Error(), "--kubenergy-record-plans") {
		t.Errorf("error %v does not contain the flag", err)
	}
}
