package forecast_test

import (
	"math"
	"os"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/forecast"
	"github.com/kubenergy/kubenergy/internal/grid"
)

// ensemble reads the intensity and the weather of a grid from the data of EnsembleCI.
func ensemble(t testing.TB, zone string) (*grid.Series, *forecast.Weather) {
	t.Helper()
	signal, _, err := grid.ReadCSV(data(t, "carbon/mix_weather/"+zone+"_lifecycle_emissions.csv.gz"), grid.CSVOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w, err := forecast.ReadWeather(data(t, "carbon/mix_weather/"+zone+"_weather_forecast.csv.gz"))
	if err != nil {
		t.Fatal(err)
	}
	return signal.Series, w
}

// ensembleFirst returns the first of the 178 origins in the protocol of EnsembleCI.
func ensembleFirst(s *grid.Series) time.Time { return s.End().Add(-(48 + 4344 - 24) * time.Hour) }

func long(t testing.TB) {
	t.Helper()
	if os.Getenv("KUBENERGY_LONG") == "" {
		t.Skip("set KUBENERGY_LONG=1 to run this test")
	}
}

// protocolRow contains the published errors for a grid, with two decimals for the plain models, and for the trained
// models. The published models with weather also use the generation by source.
type protocolRow struct {
	zone             string
	plain            [4]float64 // persistence, 24 hours, seven days, blend
	history, weather float64
}

var (
	protocolRows = []protocolRow{
		{"CISO", [4]float64{25.60, 11.28, 11.67, 10.64}, 9.08, 7.91},
		{"PJM", [4]float64{6.13, 5.18, 5.19, 4.82}, 3.80, 3.01},
		{"ERCO", [4]float64{16.14, 16.14, 14.85, 14.54}, 13.31, 9.05},
		{"DE", [4]float64{28.29, 26.80, 23.29, 23.46}, 19.12, 11.74},
		{"SE", [4]float64{7.78, 7.80, 6.92, 6.85}, 6.21, 4.83},
		{"PL", [4]float64{9.14, 8.97, 7.71, 7.82}, 6.40, 4.39},
		{"NL", [4]float64{12.02, 11.80, 10.33, 10.40}, 10.37, 6.70},
		{"ES", [4]float64{25.07, 26.31, 25.38, 24.17}, 19.19, 13.64},
	}
	protocolModels = []string{
		forecast.Persistence, forecast.Yesterday, forecast.WeekMean, forecast.Blend, forecast.History,
		forecast.WithWeather,
	}
)

// TestEnsembleProtocol compares the trained models with the best published results over the 178 windows of
// EnsembleCI.
func TestEnsembleProtocol(t *testing.T) {
	long(t)
	var got, want, learning [2]float64
	var inside [2][4]float64 // by lead group
	n := float64(len(protocolRows))
	for _, row := range protocolRows {
		scores := protocol(t, row.zone, protocolModels)
		for i, a := range scores {
			t.Logf("%-5s %-20s %6.2f by day %.2f, regret and kept %.2f, trained in %.1f s", row.zone, a.Model, a.MAPE,
				a.ByDay, choices(a), a.Learning.Seconds())
			if i < 4 {
				if math.Abs(a.MAPE-row.plain[i]) > .01 {
					t.Errorf("%s, %s: error = %.2f %%, want %.2f", row.zone, a.Model, a.MAPE, row.plain[i])
				}
				continue
			}
			best := []float64{row.history, row.weather}[i-4]
			got[i-4] += a.MAPE / n
			want[i-4] += best / n
			learning[i-4] += a.Learning.Seconds()
			// Generation by source, which is not available here, improves the results for two of the grids.
			if limit := []float64{1.03, 1.07}[i-4]; a.MAPE > limit*best {
				t.Errorf("%s, %s: error = %.2f %%, want at most %.0f %% above %.2f", row.zone, a.Model, a.MAPE,
					100*(limit-1), best)
			}
			for j, c := range a.Coverage {
				if c.Level == 90 {
					inside[i-4][j/4] += c.Inside / n
				}
			}
		}
	}
	for i, model := range protocolModels[4:] {
		t.Logf("mean of %s: %.3f %%, best known %.3f; 90 %% intervals cover %.1f; trained in %.1f s", model, got[i],
			want[i], inside[i], learning[i])
		if got[i] > 1.03*want[i] {
			t.Errorf("%s: mean error = %.2f %%, want at most 3 %% above %.2f", model, got[i], want[i])
		}
		for group, covered := range inside[i] {
			if covered < 87 || covered > 93 {
				t.Errorf("%s, lead group %d: coverage of 90 %% intervals = %.1f %%, want 90 ± 3", model, group, covered)
			}
		}
	}
}

// choices returns the regret and the kept saving for the cheapest 1, 4 and 8 hours.
func choices(a forecast.Accuracy) (v [][2]float64) {
	for _, c := range a.Choices {
		v = append(v, [2]float64{c.Regret, c.Kept})
	}
	return v
}

func protocol(t testing.TB, zone string, models []string) []forecast.Accuracy {
	t.Helper()
	s, w := ensemble(t, zone)
	scores, err := forecast.Evaluate(t.Context(), forecast.Evaluation{
		History: s, Weather: w, Models: models, First: ensembleFirst(s), Windows: 178, Now: time.Now,
	})
	if err != nil {
		t.Fatal(err)
	}
	return scores
}

// TestHistoryOfOneGrid is the part of TestEnsembleProtocol that only takes seconds.
func TestHistoryOfOneGrid(t *testing.T) {
	a := protocol(t, "SE", []string{forecast.Yesterday, forecast.History})
	if a[1].MAPE > 1.03*6.21 || math.Abs(a[0].MAPE-7.80) > .01 {
		t.Errorf("error = %.2f %% with history and %.2f %% with yesterday, want 6.21 and 7.80", a[1].MAPE, a[0].MAPE)
	}
}

// TestElectricityMaps2023 forecasts a year of ten zones from their history only, trained on the two years before.
func TestElectricityMaps2023(t *testing.T) {
	long(t)
	zones := []string{
		"AU-NSW", "BR-CS", "CA-ON", "DE", "GB", "IN-WE", "US-CAL-CISO", "US-MIDA-PJM", "US-TEX-ERCO", "ZA",
	}
	want := map[string]float64{
		forecast.Persistence: 25.18, forecast.Yesterday: 18.34, forecast.WeekMean: 17.09, forecast.Blend: 16.62,
		forecast.History: 15.67,
	}
	got := map[string]float64{}
	for _, zone := range zones {
		s := years(t, zone, "2021", "2022", "2023")
		first := time.Date(2023, 1, 1, 0, 0, 0, 0, time.UTC)
		e := forecast.Evaluation{
			History: s, Models: []string{
				forecast.Persistence, forecast.Yesterday, forecast.WeekMean, forecast.Blend, forecast.History,
			},
			First: first, Windows: 362, Now: time.Now,
		}
		for _, calibrate := range []bool{false, true} {
			if e.Calibrate = calibrate; calibrate {
				e.Models = []string{forecast.History}
			}
			scores, err := forecast.Evaluate(t.Context(), e)
			if err != nil {
				t.Fatal(err)
			}
			for _, a := range scores {
				name := a.Model
				if calibrate {
					name += ", calibrated"
				}
				got[name] += a.MAPE / float64(len(zones))
				t.Logf("%-12s %-22s %6.2f by day %.2f, regret and kept %.2f, trained in %.1f s", zone, name, a.MAPE,
					a.ByDay, choices(a), a.Learning.Seconds())
			}
		}
	}
	for name, mape := range got {
		t.Logf("mean of %s: %.2f %%", name, mape)
		if best, known := want[name]; known && mape > 1.03*best {
			t.Errorf("%s: error = %.2f %%, want at most 3 %% above %.2f", name, mape, best)
		}
	}
}

// years concatenates the yearly files of a zone.
func years(t testing.TB, zone string, names ...string) *grid.Series {
	t.Helper()
	var all []float64
	var start time.Time
	for _, year := range names {
		s := hourly(t, zone, year)
		if start.IsZero() {
			start = s.Start()
		}
		for i := range s.Len() {
			all = append(all, s.Value(i))
		}
	}
	s, err := grid.NewSeries(start, time.Hour, all)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
