package cli

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kubenergy/kubenergy/forecast"
	"github.com/kubenergy/kubenergy/sim"
)

// checkForecast reports whether a comparison can be made on a forecast of that name.
func checkForecast(name string) error {
	if name == perfectForecast || slices.Contains(forecast.Models(), name) {
		return nil
	}
	return fmt.Errorf("unknown forecast %q: want one of %s, %s", name, perfectForecast, strings.Join(forecast.Models(), ", "))
}

// make issues the forecasts of the zone, hour by hour, from what was known in each.
func (f *issued) make(ctx context.Context, cache string) (sim.Foresight, error) {
	from, until, err := f.span()
	if err != nil {
		return nil, err
	}
	o := forecast.Issuance{History: f.zone.series, Model: f.model, From: from, Until: until}
	if f.model == forecast.WithWeather {
		if o.Weather, err = forecast.ReadWeather(f.zone.Weather); err != nil {
			return nil, err
		}
	}
	if cache == "" {
		return forecast.Issue(ctx, o)
	}
	return forecast.IssueCached(ctx, filepath.Join(cache, "forecasts"), o)
}
