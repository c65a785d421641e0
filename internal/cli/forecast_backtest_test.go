package cli

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// waves writes one file per day with half a clean and half a dirty day, and returns a pattern that matches them.
func waves(t *testing.T, days ...int) string {
	t.Helper()
	folder := t.TempDir()
	at := time.Date(2023, 1, 1, 0, 0, 0, 0, time.UTC)
	for i, n := range days {
		var b strings.Builder
		b.WriteString("datetime_utc,zone,ci_lifecycle_g_per_kwh\n")
		for range n * 24 {
			fmt.Fprintf(&b, "%s,XX,%d\n", at.Format(time.RFC3339), 300+100*(at.Hour()/12)+at.YearDay())
			at = at.Add(time.Hour)
		}
		if err := os.WriteFile(filepath.Join(folder, fmt.Sprintf("XX_%d.csv", i)), []byte(b.String()),
			0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(folder, "XX_*.csv")
}

// ranLocally runs a command that does not require a cluster.
func ranLocally(args []string) (code int, stdout, stderr string) {
	var out, err bytes.Buffer
	code = Run(context.Background(), args, nil, &out, &err)
	return code, out.String(), err.String()
}

func TestForecastBacktest(t *testing.T) {
	pattern := waves(t, 20, 15)
	run := func(args ...string) string {
		t.Helper()
		code, stdout, stderr := ranLocally(append([]string{"forecast", "backtest", "--grid", pattern}, args...))
		if code != 0 || stderr != "" {
			t.Fatalf("exit code %d: %s", code, stderr)
		}
		return stdout
	}
	var doc struct {
		Kind, Zone, Horizon, Stride string
		First                       time.Time
		Windows                     int
		Models                      []struct {
			Model                    string
			MAPEPercent              float64
			MAPEPercentByDay         []float64
			CheapestHoursOfTheNext24 []struct {
				Hours                            int
				RegretPercent, SavingKeptPercent float64
			}
		}
	}
	text := run("--test-windows", "5", "--models", "persistence,yesterday", "-o", "json", "--horizon", "48h")
	if err := json.Unmarshal([]byte(text), &doc); err != nil {
		t.Fatal(err)
	}
	// The last of five two-day windows ends a day before the end of the 35 days.
	if want := time.Date(2023, 1, 29, 0, 0, 0, 0, time.UTC); doc.Kind != "ForecastBacktest" || doc.Zone != "XX" ||
		doc.Windows != 5 || !doc.First.Equal(want) || len(doc.Models) != 2 {
		t.Errorf("unexpected document %+v", doc)
	}
	flat, yesterday := doc.Models[0], doc.Models[1]
	if yesterday.MAPEPercent > 1 || flat.MAPEPercent < 10 || len(flat.MAPEPercentByDay) != 2 {
		t.Errorf("unexpected errors of models %+v", doc.Models)
	}
	if c := yesterday.CheapestHoursOfTheNext24; len(c) != 3 || c[1].Hours != 4 || c[1].RegretPercent != 0 ||
		c[1].SavingKeptPercent != 100 {
		t.Errorf("unexpected choices %+v", c)
	}
	rows, err := csv.NewReader(strings.NewReader(run("--test-windows", "2", "--models", "best", "-o", "csv"))).ReadAll()
	if err != nil || len(rows) < 6 || rows[1][0] != "XX" || rows[1][1] != "best" || rows[1][2] != "mape_percent" {
		t.Errorf("%v, %v", err, rows)
	}
	table := run("--start", "2023-01-10", "--models", "yesterday,history", "--horizon", "24h")
	for _, want := range []string{
		"XX: 26 forecasts over 24h0m0s, every 24h0m0s from 2023-01-10 00:00.", "day 1", "yesterday", "history",
	} {
		if !strings.Contains(table, want) {
			t.Errorf("got\n%s\nwant %q", table, want)
		}
	}
}

func TestForecastBacktestRefuses(t *testing.T) {
	pattern := waves(t, 20)
	for want, args := range map[string][]string{
		"missing --grid":          {},
		"requires --weather":      {"--grid", pattern, "--models", "weather"},
		"unknown model \"magic\"": {"--grid", pattern, "--models", "magic"},
		"unknown output format":   {"--grid", pattern, "-o", "xml"},
		"no such file":            {"--grid", "nowhere.csv"},
		"does not follow":         {"--grid", pattern, "--grid", pattern},
		"--stride is 0s":          {"--grid", pattern, "--stride", "0s"},
		"2023-01-01T00:00:00Z to 2023-01-21T00:00:00Z, which is too short for 178 forecasts, one every 24h0m0s: want " +
			"--test-windows 15 or less": {"--grid", pattern},
		"too short for a forecast over 96h0m0s": {"--grid", pattern, "--leave-out", "504h"},
		"--start is 2022-12-01T00:00:00Z: the values start at 2023-01-01T00:00:00Z and forecasts require one day of values: " +
			"want 2023-01-02T00:00:00Z or later": {"--grid", pattern, "--start", "2022-12-01"},
		"horizon is 120h0m0s: want":  {"--grid", pattern, "--horizon", "120h", "--test-windows", "1"},
		"last of 9 windows ends at":  {"--grid", pattern, "--start", "2023-01-10", "--test-windows", "9"},
		"--start is \"soon\"":        {"--grid", pattern, "--start", "soon"},
		"unexpected argument \"DE\"": {"DE"},
	} {
		code, _, stderr := ranLocally(append([]string{"forecast", "backtest"}, args...))
		if code != 2 || !strings.Contains(stderr, want) {
			t.Errorf("exit code %d: %s, want %q", code, stderr, want)
		}
	}
}
