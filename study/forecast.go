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

	"github.com/kubenergy/kubenergy/forecast"
	"github.com/kubenergy/kubenergy/grid"
	"github.com/kubenergy/kubenergy/sim"
)

// checkForecast reports whether a comparison can be made on a forecast of that name.
func checkForecast(name string) error {
	if name == perfectForecast || slices.Contains(forecast.Models(), name) {
		return nil
	}
	return fmt.Errorf("unknown forecast %q: want one of %s, %s", name, perfectForecast,
		strings.Join(forecast.Models(), ", "))
}

// make issues the forecasts of the zone, hour by hour, from what was known in each.
func (f *issued) make(ctx context.Context, cache string) (sim.Foresight, error) {
	spans, err := f.zone.spans()
	if err != nil {
		return nil, err
	}
	// Models are learnt at times that follow from the file, whichever of its starts are run.
	o := forecast.Issuance{
		History: f.zone.series, Model: f.model, From: spans[0].From, Until: spans[0].Until, Only: spans,
		Since: f.zone.first,
	}
	for _, s := range spans {
		if s.Until.After(o.Until) {
			o.Until = s.Until
		}
	}
	if f.model == forecast.WithWeather {
		if o.Weather, err = forecast.ReadWeather(f.zone.Weather); err != nil {
			return nil, err
		}
	}
	if cache == "" {
		return forecast.Issue(ctx, o)
	}
	return forecast.IssueCached(ctx, cache, o)
}

// spans are the times in which forecasts may be asked for: from each start, for as long as its trace may take.
func (z *zone) spans() ([]forecast.Span, error) {
	var spans []forecast.Span
	for _, index := range slices.Sorted(maps.Keys(z.starts)) {
		until, err := z.until(index)
		if err != nil {
			return nil, err
		}
		spans = append(spans, forecast.Span{From: z.starts[index], Until: until})
	}
	return spans, nil
}

// until is the end of the forecasts that a trial from a start may ask for.
func (z *zone) until(index int) (time.Time, error) {
	file := *z.file
	file.Start = z.starts[index].UTC().Format(time.RFC3339)
	scenario, err := file.Load()
	if err != nil {
		return time.Time{}, err
	}
	last := z.starts[index].Add(time.Hour)
	for i := range scenario.Jobs {
		j := &scenario.Jobs[i]
		if t := j.Submitted.Add(j.AllowedDelay + 2*j.Duration); t.After(last) {
			last = t // restarts and slow nodes take time, too
		}
	}
	if end := z.series.End(); last.After(end) {
		last = end
	}
	return last, nil
}

// untilThen are forecasts of which those after the span of a start are not seen: another start, from which they were
// made, need not be among those that are run.
type untilThen struct {
	sim.Foresight
	last time.Time
}

// At returns what is known at now.
func (f untilThen) At(now time.Time) grid.Signal {
	if now.After(f.last) {
		now = f.last
	}
	return f.Foresight.At(now)
}

// forecastFolder is where forecasts are kept that this build of the program makes: another may make others from the
// same inputs.
func (c *Study) forecastFolder(out string) string {
	sum := sha256.Sum256([]byte(c.program))
	return filepath.Join(out, "forecasts", hex.EncodeToString(sum[:6]))
}

// issued are the forecasts of one model for a zone, made once for all trials.
type issued struct {
	zone  *zone
	model string

	once      sync.Once
	foresight sim.Foresight
	err       error
}

func (f *issued) get(ctx context.Context, cache string) (sim.Foresight, error) {
	f.once.Do(func() {
		if f.foresight, f.err = f.make(ctx, cache); f.err != nil {
			f.err = fmt.Errorf("forecast %s for %s: %w", f.model, f.zone.Name, f.err)
		}
	})
	return f.foresight, f.err
}
