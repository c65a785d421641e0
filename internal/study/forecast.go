package study

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kubenergy/kubenergy/internal/forecast"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/sim"
	"github.com/kubenergy/kubenergy/internal/timeutil"
)

// checkForecast returns an error if the forecast does not exist.
func checkForecast(name string) error {
	if name == perfectForecast || slices.Contains(forecast.Models(), name) {
		return nil
	}
	return fmt.Errorf("unknown forecast %q: want one of %s, %s", name, perfectForecast,
		strings.Join(forecast.Models(), ", "))
}

// issueForecasts prepares the forecasts of all zones. Each one is computed once on first use, and stored in the
// results directory if there is one.
func (c *Study) issueForecasts(ctx context.Context, out string) {
	for _, z := range c.zones {
		for model := range z.forecasts {
			z.forecasts[model] = sync.OnceValues(func() (sim.Foresight, error) { return c.issue(ctx, z, model, out) })
		}
	}
}

// issue computes the forecasts of a zone, hour by hour, from the data known at that time.
func (c *Study) issue(ctx context.Context, z *zone, model, out string) (sim.Foresight, error) {
	if c.Doing != nil {
		defer c.Doing(fmt.Sprintf("computing the forecasts of %s for %s", model, z.Name))()
	}
	spans, err := z.spans()
	if err != nil {
		return nil, err
	}
	// The training times of models depend on the file, and not on the selected starts.
	o := forecast.Issuance{
		History: z.series, Model: model, From: spans[0].From, Until: spans[0].Until, Only: spans, Since: z.first,
		Lag: c.file.lag,
	}
	for _, s := range spans {
		o.Until = timeutil.Later(o.Until, s.Until)
	}
	if model == forecast.WithWeather {
		if o.Weather, err = forecast.ReadWeather(z.Weather); err != nil {
			return nil, err
		}
	}
	if out == "" {
		return forecast.Issue(ctx, o)
	}
	// Another build of the program may compute other forecasts from the same inputs.
	build := sha256.Sum256([]byte(c.program))
	return forecast.IssueCached(ctx, filepath.Join(out, "forecasts", hex.EncodeToString(build[:6])), o)
}

// spans returns the intervals that need forecasts, from each start to the end of its trace.
func (z *zone) spans() ([]forecast.Span, error) {
	var spans []forecast.Span
	for _, index := range slices.Sorted(maps.Keys(z.starts)) {
		scenario, err := z.load(index, 0)
		if err != nil {
			return nil, err
		}
		spans = append(spans, forecast.Span{From: z.starts[index], Until: z.until(scenario)})
	}
	return spans, nil
}

// load returns the scenario at a start.
func (z *zone) load(index int, seed uint64) (*sim.Scenario, error) {
	file := *z.file
	file.Start, file.Seed = z.starts[index].UTC().Format(time.RFC3339), seed
	return file.Load()
}

// until returns the end of the forecasts that a trial of a scenario needs.
func (z *zone) until(scenario *sim.Scenario) time.Time {
	last := scenario.Start.Add(time.Hour)
	for _, j := range scenario.Jobs {
		last = timeutil.Later(last,
			j.Submitted.Add(j.AllowedDelay+2*j.Duration)) // also covers restarts and slow nodes
	}
	return timeutil.Earlier(last, z.series.End())
}

// untilThen hides forecasts issued after the span of a start. They were issued for another start, which may not be
// selected in every run.
type untilThen struct {
	sim.Foresight
	last time.Time
}

// At returns the forecast at a time.
func (f untilThen) At(now time.Time) grid.Signal {
	return f.Foresight.At(timeutil.Earlier(now, f.last))
}
