package humanize

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// ParseTime parses a time in one of the formats that the commands accept, relative to now. Errors start with the
// name of the flag.
func ParseTime(flag, text string, now time.Time) (time.Time, error) {
	now = now.UTC()
	if text == "now" {
		return now.Truncate(time.Second), nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04", "2006-01-02 15:04", time.DateOnly} {
		if t, err := time.Parse(layout, text); err == nil {
			return t.UTC(), nil
		}
	}
	if ago, ok := strings.CutPrefix(text, "-"); ok {
		units := map[string]time.Duration{"d": 24 * time.Hour, "w": 7 * 24 * time.Hour}
		for unit, long := range units {
			const most = 10_000
			if n, err := strconv.Atoi(strings.TrimSuffix(ago, unit)); strings.HasSuffix(ago, unit) && err == nil &&
				n > 0 && n <= most {
				return now.Add(-time.Duration(n) * long).Truncate(time.Second), nil
			}
		}
		if d, err := time.ParseDuration(ago); err == nil && d > 0 {
			return now.Add(-d).Truncate(time.Second), nil
		}
	}
	return time.Time{}, fmt.Errorf("%s is %q: want an RFC 3339 time, a date like 2026-06-01 or an age like -7d or -36h",
		flag, text)
}

// Clock formats a time in UTC. The date is omitted if it is the same as the date of now.
func Clock(t, now time.Time) string {
	if t.UTC().Format(time.DateOnly) == now.UTC().Format(time.DateOnly) {
		return t.UTC().Format("15:04")
	}
	return t.UTC().Format("2 Jan 15:04")
}

// Away formats the difference between t and now, as in "in 5 min" or "5 min ago".
func Away(t, now time.Time) string {
	if d := t.Sub(now); d >= 0 {
		return "in " + Rounded(d)
	}
	return Rounded(now.Sub(t)) + " ago"
}

var (
	instants = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)
	spans    = regexp.MustCompile(`\b(\d+h)?\d+m\d+(\.\d+)?s\b`)
)

// Plain replaces the RFC 3339 times and Go durations in a text with the formats of [Clock] and [Rounded].
func Plain(text string, now time.Time) string {
	text = instants.ReplaceAllStringFunc(text, func(s string) string {
		t, err := time.Parse(time.RFC3339, s)
		if err != nil {
			return s
		}
		return Clock(t, now) + " UTC"
	})
	return spans.ReplaceAllStringFunc(text, func(s string) string {
		d, err := time.ParseDuration(s)
		if err != nil {
			return s
		}
		return Rounded(d)
	})
}
