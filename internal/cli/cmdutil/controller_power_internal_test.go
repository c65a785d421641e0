package cmdutil

import (
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// TestEstimatesAreMadeOnceAMinute verifies that estimates do not become stale before the next one.
func TestEstimatesAreMadeOnceAMinute(t *testing.T) {
	now := time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		quality energy.Quality
		age     time.Duration
		stale   bool
	}{
		{energy.Measured, 45 * time.Second, false},
		{energy.Measured, 46 * time.Second, true},
		{energy.Derived, 46 * time.Second, true},
		{energy.Estimated, 46 * time.Second, false},
		{energy.Estimated, 90 * time.Second, false},
		{energy.Estimated, 91 * time.Second, true},
	} {
		if d := aged(PowerReading{AsOf: now.Add(-c.age), Quality: c.quality}, now); d.Stale != c.stale {
			t.Errorf("%v after %v: stale is %v, want %v", c.quality, c.age, d.Stale, c.stale)
		}
	}
}
