package dashboard

import (
	"strings"
	"testing"
	"time"
)

// TestSavingIsShownOnce verifies that the sentence about a job contains its saving once, with or without a reason that
// contains it.
func TestSavingIsShownOnce(t *testing.T) {
	at, share := time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC), 0.8
	for _, why := range []string{"", "held until 2026-06-01T02:00:00Z: saves an estimated 80 %; starts by tomorrow"} {
		j := &Job{Held: Held{Name: "j", Saving: &share, PlannedStart: &at, Why: why}}
		text := strings.ReplaceAll(j.sentence(&Model{Now: at}), "\u00a0", " ")
		if strings.Count(text, "saves an estimated 80 %") != 1 {
			t.Errorf("%q: %s", why, text)
		}
	}
}
