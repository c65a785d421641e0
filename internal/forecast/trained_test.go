package forecast_test

import (
	"math"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/forecast"
	"github.com/kubenergy/kubenergy/internal/grid"
)

// TestTrainedEqualsTheBacktest checks that live forecasts, which are based on a short part of the history, equal
// the forecasts of Issue for the same times.
func TestTrainedEqualsTheBacktest(t *testing.T) {
	s, _ := windy(t, 100, t0)
	until := t0.Add(97 * 24 * time.Hour)
	const horizon = 26 * time.Hour
	m, err := forecast.Train(t.Context(), s.Between(s.Start(), until), horizon)
	if err != nil {
		t.Fatal(err)
	}
	// Without the weather, two months are too short for this history.
	if m.Better() || m.BestError <= 0 {
		t.Errorf("error is %.2f %%, that of the plain models %.2f %%: want a higher one", m.Error, m.BestError)
	}
	issued := issue(t, forecast.Issuance{
		History: s, Model: forecast.History, From: until, Until: until.Add(48 * time.Hour), Horizon: horizon, Refit: -1,
		Since: until.Add(-time.Hour),
	})
	for h := range 48 {
		now := until.Add(time.Duration(h)*time.Hour + 10*time.Minute)
		known := now.Truncate(time.Hour).Add(time.Hour)
		got, err := m.Forecast(s.Between(s.Start(), known), now, horizon-time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		want := issued.At(now).Series
		if !got.Series.Start().Equal(want.Start()) || got.Series.Len() != int(horizon/time.Hour) ||
			got.Model != forecast.History || !got.IssuedAt.Equal(now) {
			t.Fatalf("hour %d: got %d values from %s", h, got.Series.Len(), got.Series.Start())
		}
		for i := range got.Series.Len() {
			y, low, high := got.Series.Value(i), got.Low.Value(i), got.High.Value(i)
			if math.Abs(y/want.Value(i)-1) > 1e-6 {
				t.Fatalf("hour %d: value %d is %v, in the backtest %v", h, i, y, want.Value(i))
			}
			if known := i == 0; low > y || high < y || (low == high) != known {
				t.Fatalf("hour %d: value %d is %v with percentiles %v and %v", h, i, y, low, high)
			}
		}
	}
}

func TestTrainedRefuses(t *testing.T) {
	s, _ := windy(t, 95, t0)
	const horizon = 24 * time.Hour
	if _, err := forecast.Train(t.Context(), s.Between(t0, t0.Add(88*24*time.Hour)), horizon); err == nil {
		t.Error("trained with 88 days")
	}
	if _, err := forecast.Train(t.Context(), nil, horizon); err == nil {
		t.Error("trained without a history")
	}
	m, err := forecast.Train(t.Context(), s, horizon)
	if err != nil {
		t.Fatal(err)
	}
	end := s.End()
	for name, change := range map[string]struct {
		from, history time.Time
		horizon       time.Duration
	}{
		"beyond the horizon": {end, t0, horizon + time.Hour},
		"long after the end": {end.Add(2 * time.Hour), t0, horizon - time.Hour},
		"before the history": {t0, t0.Add(time.Hour), horizon},
		"short history":      {end, end.Add(-20 * 24 * time.Hour), horizon},
		"no horizon":         {end, t0, 0},
	} {
		if f, err := m.Forecast(s.Between(change.history, end), change.from, change.horizon); err == nil {
			t.Errorf("%s: got a forecast from %s", name, f.Series.Start())
		}
	}
	if _, err := m.Forecast(nil, end, horizon); err == nil {
		t.Error("got a forecast without a history")
	}
}

// TestTrainedMonths selects a model at the start of months of recorded years, as the controller does, and compares its
// forecasts over the month with each plain model. The best plain model is not known at the start.
func TestTrainedMonths(t *testing.T) {
	long(t)
	const horizon = 50 * time.Hour
	plain := []string{forecast.Persistence, forecast.Yesterday, forecast.WeekMean, forecast.Blend, forecast.Chosen}
	var months, selected, worse int
	var sum, sumBest, sumSelected, sumLeast float64
	for _, zone := range recordedZones(t) {
		s := recorded(t, zone)
		for first := s.Start().AddDate(0, 6, 0); first.AddDate(0, 1, 3).Before(s.End()); first = first.AddDate(0, 2, 0) {
			m, err := forecast.Train(t.Context(), s.Between(s.Start(), first), horizon)
			if err != nil {
				t.Fatal(err)
			}
			const windows, stride = 28, 25 * time.Hour
			scores, err := forecast.Evaluate(t.Context(), forecast.Evaluation{
				History: s, Models: plain, First: first, Windows: windows, Stride: stride, Horizon: horizon,
			})
			if err != nil {
				t.Fatal(err)
			}
			wrong, hours, covered := 0.0, 0.0, 0.0
			for w := range windows {
				at := first.Add(time.Duration(w) * stride)
				f, err := m.Forecast(s.Between(s.Start(), at), at, horizon)
				if err != nil {
					t.Fatal(err)
				}
				for i := range f.Series.Len() {
					y := s.At(at.Add(time.Duration(i) * time.Hour))
					if y <= 0 {
						continue
					}
					wrong += 100 * math.Abs(y-f.Series.Value(i)) / y
					if f.Low.Value(i) <= y && y <= f.High.Value(i) {
						covered++
					}
					hours++
				}
			}
			trained, best, least := wrong/hours, scores[len(plain)-1].MAPE, math.Inf(1)
			for _, a := range scores[:len(plain)-1] {
				least = min(least, a.MAPE)
			}
			used := best
			if m.Better() {
				used = trained
				selected++
			}
			months++
			if used > 1.02*least {
				worse++
			}
			sum, sumBest, sumSelected, sumLeast = sum+trained, sumBest+best, sumSelected+used, sumLeast+least
			t.Logf("%-12s %s before: %.2f and %.2f; month: trained %.2f (%.0f %% inside), best %.2f, least %.2f, ratio %.3f",
				zone, first.Format(time.DateOnly), m.Error, m.BestError, trained, 100*covered/hours, best, least, used/least)
		}
	}
	n := float64(months)
	t.Logf("%d months: trained %.3f, best %.3f, selected %.3f (trained in %d), least %.3f; in %d more than 2 %% above",
		months, sum/n, sumBest/n, sumSelected/n, selected, sumLeast/n, worse)
	if sumSelected > .9*sumBest {
		t.Errorf("the error of the selected models is %.3f times that of the simple ones, want at most 0.9",
			sumSelected/sumBest)
	}
}

func recordedZones(t testing.TB) (zones []string) {
	files, err := filepath.Glob(data(t, "carbon/em_hourly") + "/*_2021.csv.gz")
	if err != nil || len(files) == 0 {
		t.Fatalf("no recorded years: %v", err)
	}
	for _, file := range files {
		zones = append(zones, strings.TrimSuffix(filepath.Base(file), "_2021.csv.gz"))
	}
	return zones
}

// recorded returns the recorded years of a zone.
func recorded(t testing.TB, zone string) *grid.Series {
	files, err := filepath.Glob(data(t, "carbon/em_hourly") + "/" + zone + "_*.csv.gz")
	if err != nil {
		t.Fatal(err)
	}
	var values []float64
	var start time.Time
	for _, file := range files {
		year, _, err := grid.ReadCSV(file, grid.CSVOptions{})
		if err != nil {
			t.Fatal(err)
		}
		s := year.Series
		if start.IsZero() {
			start = s.Start()
		}
		values = append(values, s.Values(0, s.Len())...)
	}
	s, err := grid.NewSeries(start, time.Hour, values)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// BenchmarkTrain measures the training with two years.
func BenchmarkTrain(b *testing.B) {
	s := recorded(b, "DE")
	s = s.Between(s.Start(), s.Start().AddDate(2, 0, 0))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := forecast.Train(b.Context(), s, 53*time.Hour); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkTrainedForecast(b *testing.B) {
	s := recorded(b, "DE")
	s = s.Between(s.Start(), s.Start().AddDate(0, 4, 0))
	m, err := forecast.Train(b.Context(), s, 53*time.Hour)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := m.Forecast(s, s.End(), 50*time.Hour); err != nil {
			b.Fatal(err)
		}
	}
}
