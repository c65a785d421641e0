package forecast_test

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/forecast"
	"github.com/kubenergy/kubenergy/internal/grid"
)

// madeWave returns a synthetic intensity with a daily cycle, lower weekends, a dependence on wind, and
// deterministic noise.
func madeWave(t *testing.T, days int) (*grid.Series, *forecast.Weather) {
	t.Helper()
	var values []float64
	var weather strings.Builder
	weather.WriteString("generated,wind,temperature,dew point,radiation,precipitation\n")
	noise := uint32(1)
	for h := range days * 24 {
		noise = noise*1664525 + 1013904223
		wind := 6 + 4*math.Sin(float64(h)/37)
		v := 300 + 80*math.Sin(2*math.Pi*float64(h%24)/24) - 10*wind + 20*float64(noise>>8)/(1<<24)
		if h/24%7 > 4 {
			v -= 40
		}
		values = append(values, v)
		at := t0.Add(time.Duration(h) * time.Hour).Format("2006-1-2 15:04")
		fmt.Fprintf(&weather, "%s,%.2f,%.1f,275,%.0f,0\n", at, wind, 280+5*math.Sin(float64(h)/100),
			max(0, 500*math.Sin(2*math.Pi*float64(h%24-6)/24)))
	}
	series, err := grid.NewSeries(t0, time.Hour, values)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "weather.csv")
	if err := os.WriteFile(path, []byte(weather.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	w, err := forecast.ReadWeather(path)
	if err != nil {
		t.Fatal(err)
	}
	return series, w
}

// TestEvaluateOnAWave checks that all models are evaluated, that trained models fit a daily wave, and that their
// intervals have a plausible coverage.
func TestEvaluateOnAWave(t *testing.T) {
	history, weather := madeWave(t, 75)
	windows, steps := 8, 0
	scores, err := forecast.Evaluate(t.Context(), forecast.Evaluation{
		History: history, Weather: weather, First: t0.Add(62 * 24 * time.Hour), Windows: windows, Now: time.Now,
		Horizon: 48 * time.Hour, Calibrate: true, Refit: 96 * time.Hour, Progress: func(int, int) { steps++ },
		Models: []string{forecast.Persistence, forecast.Yesterday, forecast.History, forecast.WithWeather},
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(scores) != 4 || steps == 0 {
		t.Fatalf("got %d models and %d calls of Progress", len(scores), steps)
	}
	byName := map[string]forecast.Accuracy{}
	for _, a := range scores {
		byName[a.Model] = a
		t.Logf("%-12s %.2f %% by day %.2f, coverage %+v", a.Model, a.MAPE, a.ByDay, a.Coverage)
		if a.Windows != windows || len(a.ByDay) != 2 || len(a.Choices) != 3 || !(a.MAPE > 0) {
			t.Errorf("unexpected accuracy: %+v", a)
		}
		for _, c := range a.Choices {
			if c.Regret < -1e-9 || c.Kept > 100+1e-9 {
				t.Errorf("%s: regret for %d hours = %.2f %%, kept saving = %.2f %%", a.Model,
					c.Hours, c.Regret, c.Kept)
			}
		}
	}
	if byName[forecast.History].MAPE >= byName[forecast.Persistence].MAPE {
		t.Error("trained model is worse than persistence")
	}
	for _, model := range []string{forecast.Persistence, forecast.Yesterday} {
		if byName[model].Coverage != nil {
			t.Errorf("%s has intervals, want none", model)
		}
	}
	for _, model := range []string{forecast.History, forecast.WithWeather} {
		levels := byName[model].Coverage
		if len(levels) == 0 {
			t.Fatalf("%s has no intervals", model)
		}
		for _, c := range levels {
			if c.Inside < 0 || c.Inside > 100 || c.Width <= 0 || !slices.Contains([]int{50, 80, 90, 95}, c.Level) {
				t.Errorf("%s: unexpected coverage: %+v", model, c)
			}
		}
	}
	// Models without weather must not receive it, and models with weather require it.
	_, err = forecast.Evaluate(t.Context(), forecast.Evaluation{
		History: history, First: t0.Add(62 * 24 * time.Hour), Windows: 1, Models: []string{forecast.WithWeather},
	})
	if err == nil || !strings.Contains(err.Error(), "requires weather") {
		t.Errorf("unexpected error without weather: %v", err)
	}
}
