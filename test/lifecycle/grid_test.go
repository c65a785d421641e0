package lifecycle

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// In the grid of the test, the first minute of each three-minute cycle is cleaner than the other two, and the
// cleanest hours start one hour after the test. A Job with an allowed delay of several minutes is held until the
// next clean minute. A Job with an allowed delay of hours is held until the cleanest hours, which do not start
// during the test.
const (
	cycle    = 3 * time.Minute
	clean    = time.Minute // at the start of each cycle
	farAhead = time.Hour
)

// writeGrid writes one day of grid data and returns the start of the cleanest hours.
func writeGrid(t *testing.T, dir string, now time.Time) (cleanest time.Time) {
	t.Helper()
	now = now.UTC().Truncate(time.Minute)
	cleanest = now.Add(farAhead)
	var b strings.Builder
	b.WriteString("datetime,ci_lifecycle_g_per_kwh\n")
	for at := now.Add(-10 * time.Minute); at.Before(now.Add(24 * time.Hour)); at = at.Add(time.Minute) {
		value := 500
		switch {
		case !at.Before(cleanest) && at.Before(cleanest.Add(6*time.Hour)):
			value = 50
		case at.Sub(at.Truncate(cycle)) < clean:
			value = 300
		}
		fmt.Fprintf(&b, "%s,%d\n", at.Format(time.RFC3339), value)
	}
	if err := os.WriteFile(filepath.Join(dir, "grid.csv"), []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	const values = "ledger: {persistence: {enabled: false}}\nsignals: {data: {configMap: grid}}\nzones:\n- name: " +
		"default\n  spec:\n    zone: DE\n    default: true\n" +
		"    carbon: {sources: [{file: {path: grid.csv}}, {typical: {}}]}\n"
	if err := os.WriteFile(filepath.Join(dir, "values.yaml"), []byte(values), 0o600); err != nil {
		t.Fatal(err)
	}
	return cleanest
}

// beforeWindow waits until there is enough time to submit a Job before the next clean minute and returns its start.
func beforeWindow() time.Time {
	for {
		now := time.Now().UTC()
		start := now.Truncate(cycle)
		if in := now.Sub(start); in >= clean && in < cycle-20*time.Second {
			return start.Add(cycle)
		}
		time.Sleep(time.Second)
	}
}
