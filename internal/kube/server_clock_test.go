package kube

import (
	"testing"
	"time"
)

func TestSkewAllowsForTheServersWholeSeconds(t *testing.T) {
	epoch := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct{ asked, answered, want time.Duration }{
		{0, 0, 0},
		{900 * time.Millisecond, 990 * time.Millisecond, 0},
		{-time.Hour, -time.Hour, time.Hour},
		{-100 * time.Millisecond, 100 * time.Millisecond, 0},
		{time.Hour, time.Hour + time.Second, -time.Hour + time.Second},
	} {
		if got := Skew(epoch.Add(c.asked), epoch.Add(c.answered), epoch); got != c.want {
			t.Errorf("Skew(%v, %v) = %v, want %v", c.asked, c.answered, got, c.want)
		}
	}
}
