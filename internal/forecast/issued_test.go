package forecast_test

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/forecast"
	"github.com/kubenergy/kubenergy/internal/grid"
)

// TestIssuedAtAllHours measures forecasts that are issued every hour, over the days of EnsembleCI's protocol.
func TestIssuedAtAllHours(t *testing.T) {
	long(t)
	for _, zone := range []string{"DE"} {
		s, w := ensemble(t, zone)
		from := ensembleFirst(s)
		until := from.Add(56 * 24 * time.Hour)
		for _, model := range []string{forecast.History} {
			begin := time.Now()
			f, err := forecast.Issue(t.Context(), forecast.Issuance{
				History: s, Weather: w, Model: model, From: from, Until: until,
			})
			if err != nil {
				t.Fatal(err)
			}
			took := time.Since(begin)
			var byDay [4]float64
			var byHour [24]float64
			n := 0.0
			for now := from; now.Add(97*time.Hour).Before(s.End()) && now.Before(until); now = now.Add(time.Hour) {
				known := f.At(now).Series
				if known.Start() != now || known.Len() != 97 || known.Value(0) != s.At(now) {
					t.Fatalf("at %s: got %d values from %s", now, known.Len(), known.Start())
				}
				for h := range 96 {
					y := s.At(now.Add(time.Duration(h+1) * time.Hour))
					e := 100 * math.Abs(y-known.Value(h+1)) / y / 24
					byDay[h/24] += e
					if h < 24 {
						byHour[now.Hour()] += e * 24
					}
				}
				n++
			}
			mean := 0.0
			for d := range byDay {
				byDay[d] /= n
				mean += byDay[d] / 4
			}
			for h := range byHour {
				byHour[h] /= n
			}
			t.Logf("%-5s %-20s %.2f, by day %.2f, first day by hour %.1f (%.0f s)", zone, model, mean, byDay, byHour,
				took.Seconds())
		}
	}
}

func issuance(t testing.TB, model string) forecast.Issuance {
	s, text := windy(t, learntDays, t0)
	o := forecast.Issuance{
		History: s, Model: model, From: t0.Add(65 * 24 * time.Hour), Until: t0.Add(67*24*time.Hour + time.Hour),
		Horizon: ahead * time.Hour, Refit: 36 * time.Hour,
	}
	if model == forecast.WithWeather {
		o.Weather = weather(t, text)
	}
	return o
}

func issue(t testing.TB, o forecast.Issuance) *forecast.Issued {
	t.Helper()
	f, err := forecast.Issue(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// values returns the values of a signal.
func values(s grid.Signal) []float64 {
	var v []float64
	for i := range s.Series.Len() {
		v = append(v, s.Series.Value(i))
	}
	return v
}

func TestIssuedIsWhatWouldHaveBeenLearnt(t *testing.T) {
	o := issuance(t, forecast.WithWeather)
	f := issue(t, o)
	// The time is two hours into the second term of 36 hours, which uses a model trained at its start.
	now := o.From.Add(38*time.Hour + 20*time.Minute)
	alone := o
	alone.From, alone.Until, alone.Since = now, now.Add(time.Hour), o.From.Add(36*time.Hour)
	alone.Refit = -1
	want := issue(t, alone).At(now).Series
	got := f.At(now).Series
	if !got.Start().Equal(o.From.Add(38*time.Hour)) || got.Len() != ahead+1 || got.Value(0) != o.History.At(now) {
		t.Fatalf("got %d values from %s, the first one is %v", got.Len(), got.Start(), got.Value(0))
	}
	for h := range ahead {
		if math.Abs(got.Value(h+1)/want.Value(h+1)-1) > 1e-6 {
			t.Fatalf("hour %d: got %v, want %v", h, got.Value(h+1), want.Value(h+1))
		}
	}
}

func TestIssuedDoesNotPeek(t *testing.T) {
	for _, model := range []string{forecast.Persistence, forecast.Yesterday, forecast.Chosen, forecast.History} {
		o := issuance(t, model)
		all := issue(t, o)
		now := o.From.Add(30 * time.Hour)
		changed := made(t, time.Hour, o.History.Len(), func(i int) float64 {
			if at := t0.Add(time.Duration(i) * time.Hour); at.After(now) {
				return 5 + float64(i%7)
			}
			return o.History.Value(i)
		})
		o.History = changed
		if !slices.Equal(values(all.At(now)), values(issue(t, o).At(now))) {
			t.Errorf("%s: forecast depends on later values", model)
		}
	}
}

func TestIssuedOnAnyNumberOfProcessors(t *testing.T) {
	o := issuance(t, forecast.History)
	before := runtime.GOMAXPROCS(1)
	defer runtime.GOMAXPROCS(before)
	one, err := issue(t, o).MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	runtime.GOMAXPROCS(4)
	four, err := issue(t, o).MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(one, four) {
		t.Error("forecasts differ between one and four processors")
	}
}

// TestIssuedInParts checks that a forecast does not depend on other requested times, and that models are trained at
// the same hours.
func TestIssuedInParts(t *testing.T) {
	for _, model := range forecast.Models() {
		o := issuance(t, model)
		whole := issue(t, o)
		// The first term has 36 hours. No forecast is requested before hour 9, and between hours 14 and 40.
		begin := o.From
		from := func(hours int) time.Time { return begin.Add(time.Duration(hours) * time.Hour) }
		o.Since = o.From
		o.Only = []forecast.Span{{from(9), from(12)}, {from(10), from(14)}, {from(40), from(43)}}
		parts := issue(t, o)
		o.From, o.Only = from(40), nil
		last := issue(t, o)
		for _, h := range []int{9, 11, 13, 40, 42} {
			if !slices.Equal(values(parts.At(from(h))), values(whole.At(from(h)))) {
				t.Errorf("%s: forecast of hour %d depends on the other requested hours", model, h)
			}
			if h >= 40 && !slices.Equal(values(last.At(from(h))), values(whole.At(from(h)))) {
				t.Errorf("%s: forecast of hour %d depends on whether it is among the first", model, h)
			}
		}
		if parts.At(from(8)).Series != nil {
			t.Errorf("%s: unexpected forecast before the first part", model)
		}
		if stale := parts.At(from(30)).Series; stale == nil || !stale.Start().Equal(from(13)) {
			t.Errorf("%s: last forecast of a part is not returned after it", model)
		}
		data, err := parts.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		again := &forecast.Issued{}
		if err := again.UnmarshalBinary(data); err != nil ||
			!slices.Equal(values(again.At(from(41))), values(parts.At(from(41)))) {
			t.Errorf("%s: decoding returned error %v or a different forecast", model, err)
		}
	}
}

func TestIssueNeedsAllTheWeather(t *testing.T) {
	o := issuance(t, forecast.WithWeather)
	_, text := windy(t, learntDays, t0)
	lines := strings.Split(strings.TrimSpace(text), "\n")
	for name, kept := range map[string][]string{
		"training": append([]string{lines[0]}, lines[2:]...),
		"forecast": lines[:1+int(o.Until.Sub(t0)/time.Hour)],
	} {
		o.Weather = weather(t, strings.Join(kept, "\n")+"\n")
		if _, err := forecast.Issue(t.Context(), o); err == nil ||
			!strings.Contains(err.Error(), "weather is known from") {
			t.Errorf("weather without hours of the %s: unexpected error: %v", name, err)
		}
		e := forecast.Evaluation{
			History: o.History, Weather: o.Weather, Models: []string{forecast.WithWeather}, First: o.Until, Windows: 1,
			Horizon: o.Horizon,
		}
		if _, err := forecast.Evaluate(t.Context(), e); err == nil ||
			!strings.Contains(err.Error(), "weather is known from") {
			t.Errorf("evaluation with weather without hours of the %s: unexpected error: %v", name, err)
		}
	}
}

func TestIssuedLagAndEnds(t *testing.T) {
	o := issuance(t, forecast.Yesterday)
	o.Lag = time.Hour
	f := issue(t, o)
	if f.At(o.From.Add(-1)).Series != nil {
		t.Errorf("there is a forecast before %s", o.From)
	}
	late := f.At(o.From).Series
	if !late.Start().Equal(o.From) || late.Len() != ahead ||
		late.Value(0) != float64(float32(o.History.At(o.From.Add(-24*time.Hour)))) {
		t.Errorf("with a lag: got %d values from %s", late.Len(), late.Start())
	}
	if before := f.At(o.From.Add(-time.Minute)); before.Series != nil {
		t.Error("unexpected forecast before the period")
	}
	if after := f.At(o.Until.Add(90 * 24 * time.Hour)).Series; after == nil ||
		!after.Start().Equal(o.Until.Add(-time.Hour)) {
		t.Error("last forecast is not returned after the period")
	}
}

func TestIssuedOfShortHistories(t *testing.T) {
	o := issuance(t, forecast.History)
	o.From = t0.Add(30 * 24 * time.Hour)
	o.Until = o.From.Add(24 * time.Hour)
	plain := o
	plain.Model = forecast.Chosen
	if !slices.Equal(values(issue(t, o).At(o.From)), values(issue(t, plain).At(o.From))) {
		t.Error("best plain model is not used for a short history")
	}
}

func TestIssueCached(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "cache")
	o := issuance(t, forecast.Blend)
	first, err := forecast.IssueCached(t.Context(), folder, o)
	if err != nil {
		t.Fatal(err)
	}
	files, _ := filepath.Glob(filepath.Join(folder, "*"))
	if len(files) != 1 {
		t.Fatalf("got %d files, want 1", len(files))
	}
	again, err := forecast.IssueCached(t.Context(), folder, o)
	if err != nil || again.Name != forecast.Blend ||
		!slices.Equal(values(first.At(o.From)), values(again.At(o.From))) {
		t.Errorf("cached forecast: error = %v, or the forecast differs", err)
	}
	if err := os.WriteFile(files[0], []byte("truncated file"), 0o600); err != nil {
		t.Fatal(err)
	}
	if again, err = forecast.IssueCached(t.Context(), folder, o); err != nil ||
		!slices.Equal(values(first.At(o.From)), values(again.At(o.From))) {
		t.Errorf("damaged cache: error = %v, or the forecast differs", err)
	}
	o.Seed++
	if _, err = forecast.IssueCached(t.Context(), folder, o); err != nil {
		t.Fatal(err)
	}
	if files, _ = filepath.Glob(filepath.Join(folder, "*")); len(files) != 2 {
		t.Errorf("different seed: got %d files, want 2", len(files))
	}
}

func TestIssueRefuses(t *testing.T) {
	for name, change := range map[string]func(*forecast.Issuance){
		"is empty":                func(o *forecast.Issuance) { o.Until = o.From },
		"does not cover":          func(o *forecast.Issuance) { o.Until = t0.Add(100 * 24 * time.Hour) },
		"requires weather":        func(o *forecast.Issuance) { o.Model = forecast.WithWeather },
		"unknown model":           func(o *forecast.Issuance) { o.Model = "crystal ball" },
		"want full hours":         func(o *forecast.Issuance) { o.Lag = time.Minute },
		"at most 96h":             func(o *forecast.Issuance) { o.Horizon = 97 * time.Hour },
		"no history":              func(o *forecast.Issuance) { o.History = nil },
		"at least 24h of history": func(o *forecast.Issuance) { o.From = t0.Add(2 * time.Hour) },
		"want at least one hour":  func(o *forecast.Issuance) { o.Refit = time.Minute },
		"training starts at":      func(o *forecast.Issuance) { o.Since = o.From.Add(time.Hour) },
		"outside of the period": func(o *forecast.Issuance) {
			o.Only = []forecast.Span{{o.From, o.Until.Add(time.Hour)}}
		},
	} {
		o := issuance(t, forecast.History)
		change(&o)
		if _, err := forecast.Issue(t.Context(), o); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("error = %v, want an error that contains %q", err, name)
		}
	}
}
