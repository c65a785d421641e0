package grid_test

import (
	"strings"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/grid"
)

// A file of quarter hours that lacks two values between full hours is regular in steps of half an hour.
func TestReadCSVInCoarserSteps(t *testing.T) {
	text := "Time,Carbon Intensity\n2020-01-01 00:00:00,1\n2020-01-01 00:15:00,2\n2020-01-01 00:30:00,3\n2020-01-01 " +
		"01:00:00,5\n2020-01-01 01:15:00,6\n2020-01-01 01:30:00,7\n"
	read := func(text string, every time.Duration) (grid.Signal, error) {
		signal, _, err := grid.ParseCSV("grid.csv", []byte(text), grid.CSVOptions{Every: every})
		return signal, err
	}
	if _, err := read(text, 0); err == nil || !strings.Contains(err.Error(), "a gap") {
		t.Errorf("with the original step: expected an error about a gap, got %v", err)
	}
	signal, err := read(text, 30*time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	want := []float64{1, 3, 5, 7}
	if signal.Series.Len() != len(want) || signal.Series.Step() != 30*time.Minute {
		t.Fatalf("got %d values with step %v, want %d with step 30m", signal.Series.Len(), signal.Series.Step(), len(want))
	}
	for i, v := range want {
		if signal.Series.Value(i) != v {
			t.Errorf("Value(%d) = %v, want %v", i, signal.Series.Value(i), v)
		}
	}
	if _, err := read(strings.Replace(text, ",2\n", ",many\n", 1), 30*time.Minute); err == nil ||
		!strings.Contains(err.Error(), "grid.csv:3") {
		t.Errorf("invalid value between two steps: expected an error with its line, got %v", err)
	}
	if _, err := read(strings.Replace(text, "2020-01-01 01:00:00,5\n", "", 1), 30*time.Minute); err == nil ||
		!strings.Contains(err.Error(), "a gap") {
		t.Errorf("missing half-hour: expected an error about a gap, got %v", err)
	}
}
