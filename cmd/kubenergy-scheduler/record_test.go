package main

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/kubenergy/kubenergy/central"
)

func TestWhoIsToldOfDecisions(t *testing.T) {
	live := central.Options{URL: "https://central:9443", TokenFile: "/live/token"}
	for _, c := range []struct {
		name         string
		record, live central.Options
		on           bool
		wantErr      string
	}{
		{name: "nobody"},
		{name: "as for live watts", live: live, on: true},
		{name: "nobody although there are live watts", record: central.Options{URL: "none"}, live: live},
		{name: "somebody else", record: central.Options{URL: "https://other"}, on: true},
		{name: "somebody else without TLS", record: central.Options{URL: "http://other"}, wantErr: "needs https"},
		{
			name: "a token without TLS", record: central.Options{URL: "http://other", TokenFile: "t"},
			wantErr: "needs https",
		},
		{name: "no URL", record: central.Options{URL: "other"}, wantErr: "want http or https"},
	} {
		r, err := (&endpoints{live: c.live, record: c.record}).recorder(slog.New(slog.DiscardHandler))
		if c.wantErr != "" {
			if err == nil || !strings.Contains(err.Error(), c.wantErr) {
				t.Errorf("%s: error %v", c.name, err)
			}
			continue
		}
		if err != nil || r.Enabled() != c.on {
			t.Errorf("%s: told %v, error %v", c.name, r.Enabled(), err)
		}
	}
}
