package forecast_test

import (
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/kubenergy/kubenergy/internal/forecast"
	"github.com/kubenergy/kubenergy/internal/grid"
)

var t0 = time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)

// data returns the path of a file in the shared data directory, or skips the test if it does not exist.
func data(t testing.TB, name string) string {
	t.Helper()
	path := filepath.Join(filepath.FromSlash("../../../shared/data"), filepath.FromSlash(name))
	if _, err := os.Stat(path); err != nil {
		t.Skipf("shared data directory is not available: %v", err)
	}
	return path
}

// mix reads the intensity of the last 250 days of a file that contains row numbers in the first column.
func mix(t testing.TB, zone string) *grid.Series {
	t.Helper()
	text, err := grid.ReadFile(data(t, "carbon/mix_weather/"+zone+"_lifecycle_emissions.csv.gz"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	lines = append(lines[:1], lines[len(lines)-250*24:]...)
	for i, line := range lines {
		_, lines[i], _ = strings.Cut(line, ",")
	}
	path := filepath.Join(t.TempDir(), "grid.csv")
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	s, _, err := grid.ReadCSV(path, grid.CSVOptions{Column: "carbon_intensity"})
	if err != nil {
		t.Fatal(err)
	}
	return s.Series
}

// TestBacktestGivesThePublishedErrors checks the published errors of the plain models over 96 hours: persistence,
// 24 hours, seven days, and the blend.
func TestBacktestGivesThePublishedErrors(t *testing.T) {
	for zone, want := range map[string][4]float64{
		"CISO": {25.60, 11.28, 11.67, 10.64}, "PJM": {6.13, 5.18, 5.19, 4.82}, "ERCO": {16.14, 16.14, 14.85, 14.54},
		"DE": {28.29, 26.80, 23.29, 23.46},
		"SE": {7.78, 7.80, 6.92, 6.85}, "PL": {9.14, 8.97, 7.71, 7.82}, "NL": {12.02, 11.80, 10.33, 10.40},
		"ES": {25.07, 26.31, 25.38, 24.17},
	} {
		s := mix(t, zone)
		from := s.End().Add(-(48 + 4344 - 24) * time.Hour)
		// There are 178 windows, although one more would fit.
		scores := backtest(t, cut(t, s, s.End().Add(-24*time.Hour)), from, 24*time.Hour, 96*time.Hour)
		for i, model := range []string{forecast.Persistence, forecast.Yesterday, forecast.WeekMean, forecast.Blend} {
			if got := scores[model]; math.Abs(got.MAPE-want[i]) > 0.1 || got.Windows != 178 || len(got.ByDay) != 4 {
				t.Errorf("%s: error of %s = %.2f %% over %d windows, want %.2f %% over 178", zone, model, got.MAPE,
					got.Windows, want[i])
			}
		}
		// Choosing a model must not increase the error much if it does not help.
		if best, blend := scores[forecast.BestModel].MAPE, scores[forecast.Blend].MAPE; best > 1.025*blend {
			t.Errorf("%s: error of the chosen models = %.2f %%, of the blend only %.2f %%", zone, best, blend)
		}
	}
}

// TestCoverage checks that 80 % intervals contain 70 to 90 % of the values of a real year, both for ratios and,
// with prices, for differences.
func TestCoverage(t *testing.T) {
	for _, zone := range []string{"DE", "US-CAL-CISO", "GB"} {
		s := hourly(t, zone, "2022")
		scores := backtest(t, s, s.Start().Add(15*24*time.Hour), 24*time.Hour, 48*time.Hour)
		if got := scores[forecast.BestModel].Coverage; got < 0.7 || got > 0.9 {
			t.Errorf("%s: interval contains %.1f %% of the values", zone, 100*got)
		}
		if got := scores[forecast.Blend].Coverage; !math.IsNaN(got) {
			t.Errorf("%s: coverage of a plain model = %v, want NaN", zone, got)
		}
	}
	prices, _, err := grid.ReadCSV(data(t, "price/day_ahead_or_spot/DE-LU_2023.csv.gz"),
		grid.CSVOptions{Price: true, Column: "price_usd_per_mwh"})
	if err != nil {
		t.Fatal(err)
	}
	s, inside, all := prices.Series, 0, 0
	for from := s.Start().Add(15 * 24 * time.Hour); !from.Add(48 * time.Hour).After(s.End()); from = from.Add(24 *
		time.Hour) {
		f := best(t, s, from, 48*time.Hour)
		for i := range f.Series.Len() {
			if v := s.At(from.Add(time.Duration(i) * time.Hour)); v >= f.Low.Value(i) && v <= f.High.Value(i) {
				inside++
			}
			all++
		}
	}
	if got := float64(inside) / float64(all); got < 0.7 || got > 0.9 {
		t.Errorf("interval contains %.1f %% of the prices", 100*got)
	}
}

func backtest(t testing.TB, s *grid.Series, from time.Time, every, horizon time.Duration) map[string]forecast.Score {
	t.Helper()
	scores, err := forecast.Backtest(s, from, every, horizon)
	if err != nil {
		t.Fatal(err)
	}
	byModel := map[string]forecast.Score{}
	for _, score := range scores {
		byModel[score.Model] = score
	}
	return byModel
}

func best(t testing.TB, s *grid.Series, from time.Time, horizon time.Duration) grid.Forecast {
	t.Helper()
	f, err := forecast.Best(s, from, horizon)
	if err != nil {
		t.Fatal(err)
	}
	valid(t, f)
	return f
}

// valid fails the test if a forecast is unusable. The three series must have the same steps, and every value must
// be between its percentiles.
func valid(t testing.TB, f grid.Forecast) {
	t.Helper()
	if f.Series == nil || f.Model == "" || f.IssuedAt.IsZero() || (f.Low == nil) != (f.High == nil) {
		t.Fatalf("incomplete forecast: %+v", f)
	}
	if f.Low == nil {
		return
	}
	for _, s := range []*grid.Series{f.Low, f.High} {
		if s.Start() != f.Series.Start() || s.Step() != f.Series.Step() || s.Len() != f.Series.Len() {
			t.Fatalf("percentiles have %d values from %s", s.Len(), s.Start())
		}
	}
	for i := range f.Series.Len() {
		if v := f.Series.Value(i); f.Low.Value(i) > v || v > f.High.Value(i) {
			t.Fatalf("value %d is %v, outside of its percentiles %v and %v", i, v, f.Low.Value(i), f.High.Value(i))
		}
	}
}

// cut returns the part of a series before the given time.
func cut(t testing.TB, s *grid.Series, until time.Time) *grid.Series {
	t.Helper()
	return made(t, s.Step(), int(until.Sub(s.Start())/s.Step()), func(i int) float64 { return s.Value(i) }, s.Start())
}

// made returns a series with the values of a function.
func made(t testing.TB, step time.Duration, n int, f func(i int) float64, start ...time.Time) *grid.Series {
	t.Helper()
	values := make([]float64, n)
	for i := range values {
		values[i] = f(i)
	}
	s, err := grid.NewSeries(append(start, t0)[0], step, values)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// wave returns a deterministic signal with a daily cycle and noise for a seed.
func wave(seed uint64, perDay int) func(int) float64 {
	noise := rand.New(rand.NewPCG(seed, 1))
	level := 0.0
	return func(i int) float64 {
		level = 0.995*level + 2*noise.NormFloat64()
		return 300 + 80*math.Sin(2*math.Pi*float64(i)/float64(perDay)) + level
	}
}

func TestBestChooses(t *testing.T) {
	noise := rand.New(rand.NewPCG(1, 2))
	walk := 300.0
	for name, c := range map[string]struct {
		value func(i int) float64
		want  string
	}{
		"random walk without a cycle": {
			func(int) float64 { walk = max(50, walk+noise.NormFloat64()); return walk },
			forecast.Persistence,
		},
		"noise around a cycle": {func(i int) float64 {
			return 300 + 100*math.Sin(2*math.Pi*float64(i)/24) + 20*noise.NormFloat64()
		}, forecast.WeekMean},
		"cycle with a drift": {func(i int) float64 {
			return 200 + 2*float64(i) + 100*math.Sin(2*math.Pi*float64(i)/24)
		}, forecast.Yesterday},
		"constant": {func(int) float64 { return 300 }, forecast.Blend},
	} {
		s := made(t, time.Hour, 24*35, c.value)
		if f := best(t, s, s.End(), 48*time.Hour); f.Model != c.want {
			t.Errorf("%s: chose %s, want %s", name, f.Model, c.want)
		}
	}
}

func TestBestByHand(t *testing.T) {
	s := made(t, time.Hour, 24*10, func(i int) float64 { return 1000 + 100*float64(i%24) + 10*float64(i/24) })
	f := best(t, s, s.End(), 30*time.Hour)
	if f.Model != forecast.Yesterday || f.Series.Len() != 30 || !f.Series.Start().Equal(s.End()) ||
		!f.IssuedAt.Equal(s.End()) {
		t.Fatalf("got model %s with %d values from %v", f.Model, f.Series.Len(), f.Series.Start())
	}
	if f.Series.Value(5) != 1590 || f.Series.Value(29) != 1590 {
		t.Errorf("values at 05:00 of the next days = %v and %v, want the last 1590", f.Series.Value(5),
			f.Series.Value(29))
	}
	// On the history the forecast was too low: by 10 for one day ahead and by 20 for two days ahead, which is 0.3
	// to 1 % and 0.6 to 2 %.
	for i, want := range map[int][2]float64{5: {1.003, 1.01}, 29: {1.006, 1.02}} {
		if low, high := f.Low.Value(i), f.High.Value(i)/1590; low != 1590 || high < want[0] || high > want[1] {
			t.Errorf("interval of value %d is from %v to %v relative to it, want up to %v", i, low/1590, high, want)
		}
	}
}

// TestBestDoesNotPeek checks that values after the origin do not affect the forecast.
func TestBestDoesNotPeek(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		perDay := rapid.SampledFrom([]int{24, 48, 96}).Draw(rt, "a day")
		step := 24 * time.Hour / time.Duration(perDay)
		n := rapid.IntRange(perDay, 12*perDay).Draw(rt, "known")
		known := wave(rapid.Uint64().Draw(rt, "seed"), perDay)
		values := make([]float64, 14*perDay)
		for i := range values {
			values[i] = known(i)
		}
		alone := made(t, step, n, func(i int) float64 { return values[i] })
		more := made(t, step, len(values), func(i int) float64 {
			if i >= n {
				return 1e6 - values[i]
			}
			return values[i]
		})
		a, b := best(t, alone, alone.End(), 36*time.Hour), best(t, more, alone.End(), 36*time.Hour)
		if diff := cmp.Diff(spread(a), spread(b)); a.Model != b.Model || diff != "" {
			rt.Fatalf("%s and %s differ because of later values: %s", a.Model, b.Model, diff)
		}
	})
}

// spread returns the values of a forecast and its percentiles.
func spread(f grid.Forecast) [][]float64 {
	var all [][]float64
	for _, s := range []*grid.Series{f.Series, f.Low, f.High} {
		if s == nil {
			continue
		}
		values := make([]float64, s.Len())
		for i := range values {
			values[i] = s.Value(i)
		}
		all = append(all, values)
	}
	return all
}

func TestBestFromWithinAStepAndAfterTheEnd(t *testing.T) {
	s := made(t, time.Hour, 24*8, wave(3, 24))
	// Within the last step, its value is known and is the first one of the forecast.
	f := best(t, s, s.End().Add(-20*time.Minute), 2*time.Hour)
	if last := s.Value(s.Len() - 1); f.Series.Value(0) != last || f.Low.Value(0) != last || f.High.Value(0) != last ||
		f.Series.Len() != 3 {
		t.Errorf("value = %v from %v to %v with %d values, want %v",
			f.Series.Value(0), f.Low.Value(0), f.High.Value(0), f.Series.Len(), last)
	}
	// Three hours after the end of the history, the forecast equals the same hours of a forecast from its end.
	early, late := best(t, s, s.End(), 12*time.Hour), best(t, s, s.End().Add(3*time.Hour+time.Minute), 8*time.Hour)
	if late.Series.Start() != s.End().Add(3*time.Hour) || late.Series.Len() != 9 ||
		late.Series.Value(2) != early.Series.Value(5) || late.Low.Value(2) != early.Low.Value(5) {
		t.Errorf("late forecast = %v at %v, but early forecast = %v", late.Series.Value(2), late.Series.Start(),
			early.Series.Value(5))
	}
}

func TestBestOfShortHistories(t *testing.T) {
	for _, step := range []time.Duration{5 * time.Minute, 15 * time.Minute, time.Hour} {
		perDay := int(24 * time.Hour / step)
		for _, c := range []struct {
			days      float64
			intervals bool
		}{{1, false}, {1.1, false}, {1.3, true}, {2, true}, {3.5, true}, {7, true}} {
			s := made(t, step, int(c.days*float64(perDay)), wave(5, perDay))
			f := best(t, s, s.End(), 48*time.Hour)
			if f.Series.Len() != 2*perDay || (f.Low != nil) != c.intervals {
				t.Errorf("with %v days of %v: %d values, percentiles = %v", c.days, step, f.Series.Len(), f.Low != nil)
			}
		}
	}
}

func TestBestRefuses(t *testing.T) {
	good := made(t, time.Hour, 24*8, wave(3, 24))
	for name, c := range map[string]struct {
		history *grid.Series
		from    time.Time
		horizon time.Duration
		want    string
	}{
		"no history": {nil, t0, time.Hour, "no history"},
		"too short": {
			made(t, time.Hour, 23, wave(3, 24)), t0.Add(23 * time.Hour), time.Hour,
			"contains 23h0m0s before",
		},
		"before it": {good, t0.Add(-time.Hour), time.Hour, "contains 0s before"},
		"coarse":    {made(t, 2*time.Hour, 24, wave(3, 12)), t0.Add(48 * time.Hour), time.Hour, "step of 2h0m0s"},
		"odd step": {
			made(t, 7*time.Minute, 900, wave(3, 200)), t0.Add(99 * time.Hour), time.Hour,
			"step of 7m0s",
		},
		"long ended":   {good, good.End().Add(25 * time.Hour), time.Hour, "25h0m0s before"},
		"no horizon":   {good, good.End(), 0, "horizon is 0s"},
		"long horizon": {good, good.End(), 1000 * time.Hour, "horizon is 1000h0m0s"},
	} {
		if f, err := forecast.Best(c.history, c.from, c.horizon); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got model %q, error = %v, want %q", name, f.Model, err, c.want)
		}
	}
}

// TestBestAroundZero checks that percentiles of a non-negative signal are not negative, and that percentiles of
// prices may be.
func TestBestAroundZero(t *testing.T) {
	noise := rand.New(rand.NewPCG(9, 9))
	touching := func(int) float64 { return max(0, 20+20*noise.NormFloat64()) }
	s := made(t, time.Hour, 24*14, touching)
	f := best(t, s, s.End(), 24*time.Hour)
	negative := made(t, time.Hour, 24*14, func(i int) float64 { return touching(i) - 20 })
	g := best(t, negative, negative.End(), 24*time.Hour)
	below := 0
	for i := range f.Low.Len() {
		if f.Low.Value(i) < 0 {
			t.Errorf("10th percentile of a non-negative signal = %v", f.Low.Value(i))
		}
		if g.Low.Value(i) < 0 {
			below++
		}
	}
	if below < 12 {
		t.Errorf("only %d of 24 10th percentiles of prices around 0 are negative", below)
	}
}

func TestBacktestRefuses(t *testing.T) {
	good := made(t, time.Hour, 24*8, wave(3, 24))
	negative := made(t, time.Hour, 24*8, func(i int) float64 { return float64(i) - 5 })
	for name, c := range map[string]struct {
		s              *grid.Series
		from           time.Time
		every, horizon time.Duration
		want           string
	}{
		"no interval":  {good, t0.Add(48 * time.Hour), 0, time.Hour, "every 0s"},
		"too early":    {good, t0, time.Hour, time.Hour, "at least 24h"},
		"too late":     {good, good.End(), time.Hour, time.Hour, "no window"},
		"negative":     {negative, t0.Add(48 * time.Hour), time.Hour, time.Hour, "want positive values"},
		"long horizon": {good, t0.Add(48 * time.Hour), time.Hour, 999 * time.Hour, "999h"},
	} {
		if scores, err := forecast.Backtest(c.s, c.from, c.every, c.horizon); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: scores = %v, error = %v, want %q", name, scores, err, c.want)
		}
	}
}

// BenchmarkBest100Zones covers the largest supported installation: 100 zones with two weeks of history and a
// horizon of two days in steps of five minutes.
func BenchmarkBest100Zones(b *testing.B) {
	zones := make([]*grid.Series, 100)
	for z := range zones {
		zones[z] = made(b, 5*time.Minute, 14*288, wave(uint64(z), 288))
	}
	b.ReportAllocs()
	for b.Loop() {
		for _, s := range zones {
			if _, err := forecast.Best(s, s.End(), 48*time.Hour); err != nil {
				b.Fatal(err)
			}
		}
	}
}
