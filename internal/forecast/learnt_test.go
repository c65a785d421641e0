package forecast_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/forecast"
	"github.com/kubenergy/kubenergy/internal/grid"
)

const (
	learntDays = 70
	ahead      = 8 // in hours; longer horizons use the same arithmetic
)

// windy returns a history that depends on time of day, weekend and wind, and the corresponding weather, which
// continues for five more days.
func windy(t testing.TB, days int, start time.Time) (*grid.Series, string) {
	t.Helper()
	random := rand.New(rand.NewPCG(3, 4))
	var text strings.Builder
	text.WriteString("datetime,wind,temperature,dewpoint,radiation,precipitation\n")
	values := make([]float64, days*24)
	wind := 6.
	for i := range (days + 5) * 24 {
		now := start.Add(time.Duration(i) * time.Hour)
		wind = max(0, 6+.9*(wind-6)+random.NormFloat64())
		sun := max(0, -800*math.Cos(2*math.Pi*float64(now.Hour())/24))
		fmt.Fprintf(&text, "%s,%.3f,%.2f,270,%.1f,0\n", now.UTC().Format(time.DateTime), wind, 280+sun/100, sun)
		if i < len(values) {
			values[i] = 400 - 25*wind - sun/10 + 30*math.Sin(2*math.Pi*float64(now.Hour())/24) + 5*random.NormFloat64()
			if now.Weekday() == time.Sunday {
				values[i] -= 40
			}
		}
	}
	s, err := grid.NewSeries(start, time.Hour, values)
	if err != nil {
		t.Fatal(err)
	}
	return s, text.String()
}

func weather(t testing.TB, text string) *forecast.Weather {
	t.Helper()
	w, err := forecast.ParseWeather("weather.csv", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// learnt returns the forecast of a model that is trained and issued at the same time.
func learnt(t testing.TB, s *grid.Series, w *forecast.Weather, at time.Time) []float64 {
	t.Helper()
	o := forecast.Issuance{
		History: s, Weather: w, Model: forecast.History, From: at.Add(-time.Hour), Until: at,
		Horizon: ahead * time.Hour,
	}
	if w != nil {
		o.Model = forecast.WithWeather
	}
	return values(issue(t, o).At(o.From))[1:]
}

func TestWeatherHelpsWhereThereIsWind(t *testing.T) {
	s, text := windy(t, learntDays+1, t0)
	w := weather(t, text)
	at := t0.Add(learntDays * 24 * time.Hour)
	var errs [2]float64
	for i, w := range []*forecast.Weather{nil, w} {
		f := learnt(t, s, w, at)
		if len(f) != ahead {
			t.Fatalf("got %d values, want 8", len(f))
		}
		for h := range ahead {
			y := s.At(at.Add(time.Duration(h) * time.Hour))
			errs[i] += 100 * math.Abs(f[h]-y) / y / ahead
		}
	}
	if errs[1] > 5 || errs[1] > .7*errs[0] {
		t.Errorf("error = %.1f %% with weather and %.1f %% without, want at most 5 %% and 30 %% less", errs[1], errs[0])
	}
}

// TestLearntDoesNotPeek checks that a forecast does not depend on values at its origin or later, except for the
// weather in its window and the following 12 hours.
func TestLearntDoesNotPeek(t *testing.T) {
	s, text := windy(t, learntDays+3, t0)
	at := t0.Add(learntDays * 24 * time.Hour)
	values := make([]float64, s.Len())
	for i := range values {
		if values[i] = s.Value(i); i >= learntDays*24 {
			values[i] = 1 + 7*values[i]
		}
	}
	future, err := grid.NewSeries(t0, time.Hour, values)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(text), "\n")
	for i := 1 + learntDays*24 + ahead + 12; i < len(lines); i++ {
		date, _, _ := strings.Cut(lines[i], ",")
		lines[i] = date + ",30,300,290,900,5"
	}
	later := strings.Join(lines, "\n")
	if !slices.Equal(learnt(t, s, nil, at), learnt(t, future, nil, at)) {
		t.Error("forecast without weather depends on later values")
	}
	if !slices.Equal(learnt(t, s, weather(t, text), at), learnt(t, future, weather(t, later), at)) {
		t.Error("forecast with weather depends on later values")
	}
}

func TestLearntOfAConstant(t *testing.T) {
	s := made(t, time.Hour, 62*24, func(int) float64 { return 250 })
	for i, v := range learnt(t, s, nil, s.End()) {
		if math.Abs(v-250) > 1e-4 {
			t.Fatalf("value %d = %v, want 250", i, v)
		}
	}
}

func TestLearntIsTheSameOnAnyNumberOfProcessors(t *testing.T) {
	s, text := windy(t, learntDays, t0)
	w := weather(t, text)
	before := runtime.GOMAXPROCS(1)
	defer runtime.GOMAXPROCS(before)
	one := learnt(t, s, w, s.End())
	runtime.GOMAXPROCS(4)
	if !slices.Equal(one, learnt(t, s, w, s.End())) {
		t.Error("forecasts differ between one and four processors")
	}
}

// TestLearntInAnotherTimeZone checks that forecasts do not depend on the time zone in which times are written.
func TestLearntInAnotherTimeZone(t *testing.T) {
	s, text := windy(t, learntDays, t0)
	at := s.End()
	zone := time.FixedZone("elsewhere", -5*3600)
	lines := strings.Split(strings.TrimSpace(text), "\n")
	for i, line := range lines[1:] {
		date, rest, _ := strings.Cut(line, ",")
		utc, err := time.Parse(time.DateTime, date)
		if err != nil {
			t.Fatal(err)
		}
		lines[i+1] = utc.In(zone).Format("2006-1-2 15:04:05-07:00") + "," + rest
	}
	want := learnt(t, s, weather(t, text), at)
	got := learnt(t, s, weather(t, strings.Join(lines, "\n")), at.In(zone))
	if !slices.Equal(want, got) {
		t.Error("forecast depends on the time zone of the inputs")
	}
}

func TestParseWeather(t *testing.T) {
	var b strings.Builder
	b.WriteString("datetime,a,b,c,d,e\n")
	for h := range 24 {
		fmt.Fprintf(&b, "2019-1-1 %d:00:00+00:00,%d,280,270,0,0\n", h, h)
	}
	w := weather(t, b.String()+"2019-01-02 0:00,0,0,0,0,0\n")
	if want := time.Date(2019, 1, 2, 1, 0, 0, 0, time.UTC); !w.End().Equal(want) ||
		!w.Start().Equal(want.Add(-25*time.Hour)) {
		t.Errorf("weather is from %s to %s", w.Start(), w.End())
	}
	for name, text := range map[string]string{
		"line 2: want a time and 5 values":   "t,a,b,c,d,e\n2019-01-01 0:00,1,2\n",
		"is not a time":                      "t,a,b,c,d,e\nyesterday,1,280,1,1,1\n",
		"invalid number":                     "t,a,b,c,d,e\n2019-01-01 0:00,x,280,1,1,1\n",
		"does not follow":                    "t,a,b,c,d,e\n2019-01-01 0:00,1,280,1,1,1\n2019-01-01 2:00,1,280,1,1,1\n",
		"without values of the previous day": "t,a,b,c,d,e\n2019-01-01 0:00,0,0,0,0,0\n",
		"no values":                          "t,a,b,c,d,e\n",
	} {
		_, err := forecast.ParseWeather("w.csv", []byte(text))
		if want := strings.TrimPrefix(name, "line 2: "); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error = %v, want an error that contains %q", err, want)
		}
	}
}
