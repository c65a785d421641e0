package main

import (
	"log/slog"
	"strings"
	"testing"
)

func TestWhoIsToldOfDecisions(t *testing.T) {
	live := endpoint{url: "https://central:9443", tokenFile: "/live/token"}
	for _, c := range []struct {
		name         string
		record, live endpoint
		on           bool
		wantErr      string
	}{
		{name: "nobody"},
		{name: "as for live watts", live: live, on: true},
		{name: "nobody although there are live watts", record: endpoint{url: "none"}, live: live},
		{name: "somebody else", record: endpoint{url: "https://other"}, on: true},
		{name: "somebody else without TLS", record: endpoint{url: "http://other"}, wantErr: "needs https"},
		{name: "a token without TLS", record: endpoint{url: "http://other", tokenFile: "t"}, wantErr: "needs https"},
		{name: "no URL", record: endpoint{url: "other"}, wantErr: "want http or https"},
	} {
		r, err := c.record.recorder(c.live, slog.New(slog.DiscardHandler))
		if c.wantErr != "" {
			if err == nil || !strings.Contains(err.Error(), c.wantErr) {
				t.Errorf("%s: error %v", c.name, err)
			}
			continue
		}
		if err != nil || r.On() != c.on {
			t.Errorf("%s: told %v, error %v", c.name, r.On(), err)
		}
	}
}
