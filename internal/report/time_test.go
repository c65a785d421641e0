package report

import (
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/humanize"
)

func TestParseTime(t *testing.T) {
	now := time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)
	for text, want := range map[string]string{
		"now": "2026-03-02T09:00:00Z", "-7d": "2026-02-23T09:00:00Z", "-36h": "2026-02-28T21:00:00Z",
		"-2w": "2026-02-16T09:00:00Z", "-90m": "2026-03-02T07:30:00Z",
		"2026-03-01": "2026-03-01T00:00:00Z", "2026-03-01T05:00:00+02:00": "2026-03-01T03:00:00Z",
		"2026-03-01 05:30": "2026-03-01T05:30:00Z",
	} {
		got, err := humanize.ParseTime("--from", text, now)
		if err != nil || got.Format(time.RFC3339) != want {
			t.Errorf("parsing %s: got %v, error %v", text, got, err)
		}
	}
	for _, text := range []string{"", "-", "7d", "-0d", "-d", "yesterday", "-99999999d", "2026-13-01"} {
		if got, err := humanize.ParseTime("--from", text, now); err == nil {
			t.Errorf("parsing %q: got %v", text, got)
		}
	}
}

// Messages of programs are converted for people: times without the date if it is today, and durations in words.
func TestPlain(t *testing.T) {
	now := time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)
	for text, want := range map[string]string{
		"held until 2026-03-02T12:00:00Z: saves 5%; starts by 2026-03-03T01:30:00Z": "held until 12:00 UTC: saves 5%; starts " +
			"by 3 Mar 01:30 UTC",
		"8h0m0s": "8 h", "1m30s, 24h0m0s": "2 min, 24 h", "45s": "45s", "2026-99-02T12:00:00Z": "2026-99-02T12:00:00Z",
	} {
		if got := humanize.Plain(text, now); got != want {
			t.Errorf("Plain(%q) = %q, want %q", text, got, want)
		}
	}
}
