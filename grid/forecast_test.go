package grid_test

import (
	"strings"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/grid"
)

func TestForecastValidate(t *testing.T) {
	series := func(start time.Time, step time.Duration, values ...float64) *grid.Series {
		s, err := grid.NewSeries(start, step, values)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	mid, low, high := series(t0, time.Hour, 5, 6), series(t0, time.Hour, 4, 6), series(t0, time.Hour, 5, 8)
	for name, c := range map[string]struct {
		f    grid.Forecast
		want string
	}{
		"whole":               {grid.Forecast{Series: mid, Low: low, High: high, IssuedAt: t0, Model: "m"}, ""},
		"without percentiles": {grid.Forecast{Series: mid, IssuedAt: t0, Model: "m"}, ""},
		"absent":              {grid.Forecast{}, "no series"},
		"nobody's":            {grid.Forecast{Series: mid, IssuedAt: t0}, "names no model"},
		"of no time":          {grid.Forecast{Series: mid, Model: "m"}, "not when it was issued"},
		"half":                {grid.Forecast{Series: mid, Low: low, IssuedAt: t0, Model: "m"}, "one percentile"},
		"another start": {grid.Forecast{
			Series: mid, Low: series(t0.Add(1), time.Hour, 4, 6), High: high, IssuedAt: t0, Model: "m",
		}, "the low series"},
		"another step": {grid.Forecast{
			Series: mid, Low: low, High: series(t0, time.Minute, 5, 8), IssuedAt: t0, Model: "m",
		}, "the high series"},
		"another length": {grid.Forecast{
			Series: mid, Low: low, High: series(t0, time.Hour, 5), IssuedAt: t0, Model: "m",
		}, "the high series"},
		"above the high": {grid.Forecast{
			Series: mid, Low: low, High: series(t0, time.Hour, 5, 5.9), IssuedAt: t0, Model: "m",
		}, "value 1 is 6"},
		"below the low": {grid.Forecast{
			Series: mid, Low: series(t0, time.Hour, 5.1, 6), High: high, IssuedAt: t0, Model: "m",
		}, "value 0 is 5"},
	} {
		err := c.f.Validate()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
