package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/cli/cmdutil"
	forecastcmd "github.com/kubenergy/kubenergy/internal/cli/forecast"
	"github.com/kubenergy/kubenergy/internal/grid"
)

func TestForecastOfTheCluster(t *testing.T) {
	a := twoSites(t)
	for name, args := range map[string][]string{
		"forecast.golden":       {"--duration", "2h"},
		"forecast_short.golden": {"--hours", "8"},
		"forecast_csv.golden":   {"--hours", "6", "-o", "csv"},
	} {
		code, stdout, stderr := a.run(t, append([]string{"forecast", "--zone", "DE"}, args...)...)
		if code != 0 || stderr != "" {
			t.Fatalf("%s: exit code %d: %s", name, code, stderr)
		}
		golden(t, name, stdout)
	}
	code, stdout, stderr := a.run(t, "forecast", "--zone", "de", "-o", "json", "--duration", "90m")
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	var f struct {
		Zone, Unit string
		Cheapest   struct {
			Start, End             time.Time
			Mean, MeanIfStartedNow float64
		}
		Values []struct{ Value, Low, High float64 }
	}
	if err := json.Unmarshal([]byte(stdout), &f); err != nil {
		t.Fatal(err)
	}
	if f.Zone != "DE" || f.Unit != "gCO2e/kWh" || len(f.Values) != 47 || f.Values[3].Value != 100 ||
		f.Values[3].Low != 90 || f.Values[3].High != 120 {
		t.Errorf("unexpected forecast %+v", f)
	}
	if c := f.Cheapest; !c.Start.Equal(testNow.Add(3*time.Hour)) || c.End.Sub(c.Start) != 90*time.Minute ||
		c.Mean != 100 || c.MeanIfStartedNow != 300 {
		t.Errorf("cheapest: %+v", c)
	}
}

func TestForecastErrors(t *testing.T) {
	a := twoSites(t)
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--zone", "XX"}, 1, `GridZone "XX" not found: want one of DE, FR`},
		{[]string{"--zone", "DE", "--quantity", "price"}, 1, "GridZone DE has no price"},
		{[]string{"--zone", "DE", "--hours", "-1"}, 2, "--hours is -1"},
		{[]string{"--zone", "DE", "--duration", "0s"}, 2, "--duration is 0s"},
		{[]string{"--zone", "DE", "--start", "2026-01-01"}, 2, "require --file"},
		{[]string{"--file", "x.csv", "--score"}, 2, "--score requires a cluster"},
		{[]string{"--zone", "DE", "--quantity", "price", "--score"}, 1, "GridZone DE has no price"},
	} {
		code, stdout, stderr := a.run(t, append([]string{"forecast"}, c.args...)...)
		if code != c.code || stdout != "" || !strings.Contains(stderr, c.want) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%v: exit code %d, %q, %q", c.args, code, stdout, stderr)
		}
	}
	edit(t, a, zonePath+"/DE", func(z *v1alpha1.GridZone) { z.Status.Carbon.Values = z.Status.Carbon.Values[:1] })
	if code, _, stderr := a.run(t, "forecast", "--zone", "DE"); code != 1 ||
		!strings.Contains(stderr, "the forecast ended at 2026-03-02T09:00:00Z") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	a.refused["list gridzones"] = true
	if code, _, stderr := a.run(t, "forecast", "--zone", "DE"); code != 1 ||
		!strings.Contains(stderr, "listing GridZones: forbidden") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}

func TestForecastScore(t *testing.T) {
	a := twoSites(t)
	if code, stdout, stderr := a.run(t, "forecast", "--zone", "DE", "--score"); code != 0 ||
		!strings.Contains(stdout, "No forecast has been compared yet") {
		t.Errorf("exit code %d, %q, %q", code, stdout, stderr)
	}
	edit(t, a, zonePath+"/DE", func(z *v1alpha1.GridZone) {
		z.Status.Carbon.Accuracy = []v1alpha1.ForecastAccuracy{
			{Ahead: metav1.Duration{Duration: time.Hour}, ErrorPercent: 3.25, Forecasts: 600},
			{Ahead: metav1.Duration{Duration: 24 * time.Hour}, ErrorPercent: 12, InsidePercent: new(79.0), Forecasts: 577},
		}
	})
	for format, want := range map[string]string{
		"text": "1 h    3.2 %   -                         600",
		"csv":  "86400,12,79,577\n",
		"json": `"insidePercent": 79,`,
	} {
		if code, stdout, stderr := a.run(t, "forecast", "--zone", "DE", "--score", "-o", format); code != 0 ||
			!strings.Contains(stdout, want) {
			t.Errorf("%s: exit code %d, %s, %q", format, code, stdout, stderr)
		}
	}
}

func TestForecastIntoAFile(t *testing.T) {
	a := twoSites(t)
	path := filepath.Join(t.TempDir(), "de.svg")
	code, stdout, stderr := a.run(t, "forecast", "--zone", "DE", "--out", path)
	if code != 0 || stdout != "" || stderr != "wrote "+path+"\n" {
		t.Fatalf("exit code %d, %q, %q", code, stdout, stderr)
	}
	svg, err := os.ReadFile(path)
	if err != nil || !strings.HasPrefix(string(svg), "<?xml") || !strings.Contains(string(svg), "80 % interval") {
		t.Errorf("%v: %.80s", err, svg)
	}
}

// A narrow terminal gets blocks, and no line exceeds the width of the terminal.
func TestChartsFit(t *testing.T) {
	status := zone("DE").Status.Carbon
	for _, width := range []string{"32", "40", "50", "60", "80", "120", "160"} {
		for _, band := range []bool{true, false} {
			o, err := forecastcmd.ReadOutlook(status)
			if err != nil {
				t.Fatal(err)
			}
			o.Now, o.Quantity, o.Duration = testNow, forecastcmd.QuantityCarbon, 2*time.Hour
			if !band {
				o.Low, o.High = nil, nil
			}
			o.Window = forecastcmd.Cheapest(o.Series, testNow, 2*time.Hour)
			o.Width = cmdutil.Terminal{Env: []string{"COLUMNS=" + width}}.Width()
			text := o.Text(false, false)
			lines := strings.Split(text, "\n")
			chart := lines[1 : len(lines)-2] // lines between title and verdict
			for _, line := range chart {
				if n := len([]rune(line)); n > atoi(t, width)+len(" UTC")+5 {
					t.Errorf("width %s: line has %d columns: %q", width, n, line)
				}
			}
			if blocks := strings.ContainsAny(chart[0], "▁█"); blocks != (atoi(t, width) < forecastcmd.Narrow) {
				t.Errorf("width %s: unexpected use of blocks: %v", width, blocks)
			}
			if !strings.Contains(strings.Join(chart, "\n"), "▔") {
				t.Errorf("width %s: missing mark of the window:\n%s", width, text)
			}
			if strings.Contains(text, "\x1b") {
				t.Errorf("width %s: unexpected colours without a terminal", width)
			}
		}
	}
}

func atoi(t *testing.T, s string) (n int) {
	t.Helper()
	if err := json.Unmarshal([]byte(s), &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// The cheapest window may start between two steps if its end is aligned with a step.
func TestCheapestWindow(t *testing.T) {
	series := func(step time.Duration, values ...float64) *grid.Series {
		s, err := grid.NewSeries(testNow, step, values)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	for name, c := range map[string]struct {
		series   *grid.Series
		now      time.Duration
		duration time.Duration
		start    time.Duration // -1 if there is no window
	}{
		"at a step":             {series(time.Hour, 3, 2, 1, 1, 5), 0, 2 * time.Hour, 2 * time.Hour},
		"now":                   {series(time.Hour, 1, 2, 1, 1), 0, time.Hour, 0},
		"the earliest of equal": {series(time.Hour, 9, 1, 5, 1), 0, time.Hour, time.Hour},
		"its end at a step":     {series(time.Hour, 9, 2, 1, 9), 0, 90 * time.Minute, 90 * time.Minute},
		"not in the past":       {series(time.Hour, 1, 9, 4, 6), 30 * time.Minute, time.Hour, 2 * time.Hour},
		"too long":              {series(time.Hour, 1, 5), 0, 3 * time.Hour, -1},
		"all of it":             {series(time.Hour, 1, 5), 0, 2 * time.Hour, 0},
		"negative prices":       {series(time.Hour, .1, -.2, -.2, .3), 0, 2 * time.Hour, time.Hour},
	} {
		w := forecastcmd.Cheapest(c.series, testNow.Add(c.now), c.duration)
		switch {
		case c.start < 0 && !w.Start.IsZero():
			t.Errorf("%s: got window %v, want none", name, w)
		case c.start >= 0 && (!w.Start.Equal(testNow.Add(c.start)) || w.End.Sub(w.Start) != c.duration):
			t.Errorf("%s: window starts at %v, want %v", name, w.Start.Sub(testNow), c.start)
		}
	}
}
