package forecast

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/sliceutil"
)

// Evaluation is a backtest: models repeatedly forecast a recorded history, using only the values before each
// origin.
type Evaluation struct {
	History *grid.Series // positive values; hourly, or averaged to hours
	Weather *Weather     // required by WithWeather; nil if unavailable
	Models  []string

	First   time.Time // time of the first forecast, which covers the hours from then on
	Windows int
	Stride  time.Duration // 0 means 24 h
	Horizon time.Duration // 0 means 96 h

	Refit     time.Duration // interval between trainings; 0 means that models are trained once, before First
	Calibrate bool          // calibrate the forecasts of trained models with their recent errors
	Seed      uint64
	// Processors is the maximum number of processors that are used concurrently. 0 means all.
	Processors int

	Now      func() time.Time // measures the training time; nil disables the measurement
	Progress func(done, total int)
}

// Accuracy contains the accuracy of a model.
type Accuracy struct {
	Model   string    `json:"model"`
	Windows int       `json:"-"`
	MAPE    float64   `json:"mapePercent"`      // mean absolute percentage error over all hours ahead
	ByDay   []float64 `json:"mapePercentByDay"` // the same by day ahead
	Choices []Choice  `json:"cheapestHoursOfTheNext24,omitempty"`
	// Coverage of the intervals by lead group and level, for models with intervals.
	Coverage []Coverage    `json:"intervals,omitempty"`
	Learning time.Duration `json:"-"` // total training time; 0 for plain models
}

// Choice is the loss from running in the hours of the first 24 that are forecast to be the cheapest.
type Choice struct {
	Hours int `json:"hours"`
	// Regret is the increase in emissions compared with the cheapest hours, in percent.
	Regret float64 `json:"regretPercent"`
	// Kept is the fraction of the maximum saving relative to the mean of the day, in percent.
	Kept float64 `json:"savingKeptPercent"`
}

// Coverage is the percentage of values within an interval.
type Coverage struct {
	From   int     `json:"fromHour"` // hours ahead
	Until  int     `json:"untilHour"`
	Level  int     `json:"levelPercent"` // nominal
	Inside float64 `json:"coveragePercent"`
	Width  float64 `json:"widthPercent"` // mean, relative to the forecast
}

var (
	choiceHours = [...]int{1, 4, 8}
	levels      = [...]int{50, 80, 90, 95}
)

// Evaluate returns the accuracy of each model, in their order.
func Evaluate(ctx context.Context, e Evaluation) ([]Accuracy, error) {
	r, origins, horizon, err := e.prepare()
	if err != nil {
		return nil, err
	}
	results := make([]Accuracy, 0, len(e.Models))
	var done atomic.Int64
	total := 0
	var runs []*issuing
	for _, name := range e.Models {
		iss := &issuing{
			record: r, model: name, refit: int(e.Refit / time.Hour), calibrate: e.Calibrate, now: e.Now,
			training: training{
				horizon: horizon, daily: e.stride()%day == 0, seed: e.Seed, processors: e.Processors,
			},
		}
		if name != WithWeather && r.weather != nil {
			without := *r
			without.weather = nil
			iss.record = &without
		}
		if name == WithWeather && r.weather == nil {
			return nil, fmt.Errorf("model %q requires weather", name)
		}
		iss.progress = func() {
			if n := int(done.Add(1)); e.Progress != nil {
				e.Progress(n, total)
			}
		}
		runs = append(runs, iss)
		total += len(iss.terms(origins))
	}
	for _, iss := range runs {
		values, terms, err := iss.issue(ctx, origins)
		if err != nil {
			return nil, fmt.Errorf("evaluating %s: %w", iss.model, err)
		}
		results = append(results, iss.judge(origins, values, terms))
	}
	return results, nil
}

func (e *Evaluation) stride() time.Duration { return cmp.Or(e.Stride, day) }

func (e *Evaluation) prepare() (r *record, origins []int, horizon int, err error) {
	horizon, err = fullHours(e.Horizon)
	switch {
	case e.History == nil:
		return nil, nil, 0, errors.New("no history for evaluating forecasts")
	case err != nil:
		return nil, nil, 0, err
	case e.stride() < time.Hour || e.stride()%time.Hour != 0:
		return nil, nil, 0, fmt.Errorf("stride is %v: want full hours", e.Stride)
	case e.Windows <= 0:
		return nil, nil, 0, fmt.Errorf("%d windows: want at least one", e.Windows)
	case e.Refit < 0 || e.Refit%time.Hour != 0:
		return nil, nil, 0, fmt.Errorf("refit interval is %v: want full hours", e.Refit)
	}
	if r, err = newRecord(e.History, e.Weather, horizon); err != nil {
		return nil, nil, 0, err
	}
	for i := range e.Windows {
		origins = append(origins, r.hourOf(e.First.Add(time.Duration(i)*e.stride())))
	}
	if last := origins[len(origins)-1]; last+horizon > len(r.values) {
		return nil, nil, 0, fmt.Errorf("last of %d windows ends at %s, but the history ends at %s", e.Windows,
			r.timeOf(last+horizon).Format(time.RFC3339), e.History.End().Format(time.RFC3339))
	}
	if e.Weather != nil && slices.Contains(e.Models, WithWeather) {
		err = e.Weather.covers(r.timeOf(0), r.timeOf(origins[len(origins)-1]+horizon))
	}
	return r, origins, horizon, err
}

// judge compares forecasts with the actual values. Hours without a positive intensity have no percentage error and
// are skipped.
func (iss *issuing) judge(origins []int, values []float32, terms []term) Accuracy {
	a := Accuracy{Model: iss.model, Windows: len(origins), ByDay: make([]float64, (iss.horizon+23)/24)}
	sums, counts := make([]float64, len(a.ByDay)), make([]float64, len(a.ByDay))
	for i, t := range origins {
		for h := range iss.horizon {
			if y := iss.values[t+h]; y > 0 {
				sums[h/24] += 100 * math.Abs(y-float64(values[i*iss.horizon+h])) / y
				counts[h/24]++
			}
		}
	}
	all, count := 0.0, 0.0
	for d := range sums {
		a.ByDay[d] = sums[d] / max(counts[d], 1)
		all, count = all+sums[d], count+counts[d]
	}
	a.MAPE = all / max(count, 1)
	if iss.horizon >= 24 {
		for _, k := range choiceHours {
			a.Choices = append(a.Choices, iss.choice(k, origins, values))
		}
	}
	a.Coverage = iss.coverage(origins, values, terms)
	for _, t := range terms {
		a.Learning += t.learning
	}
	return a
}

// choice evaluates choosing the k of the first 24 hours with the lowest forecast. Ties are broken by the earlier hour.
func (iss *issuing) choice(k int, origins []int, values []float32) Choice {
	var chosen, least, mean float64
	for i, t := range origins {
		truth := iss.values[t : t+24]
		chosen += cheapest(k, truth, func(h int) float64 { return float64(values[i*iss.horizon+h]) })
		least += cheapest(k, truth, func(h int) float64 { return truth[h] })
		for _, y := range truth {
			mean += y * float64(k) / 24
		}
	}
	c := Choice{Hours: k}
	if least > 0 {
		c.Regret = 100 * (chosen/least - 1)
	}
	if mean > least {
		c.Kept = 100 * (mean - chosen) / (mean - least)
	}
	return c
}

// cheapest returns the actual cost of the k hours of a day with the lowest estimated cost.
func cheapest(k int, truth []float64, cost func(h int) float64) (sum float64) {
	order := sliceutil.Order(len(truth), func(a, b int) int { return cmp.Compare(cost(a), cost(b)) })
	for _, h := range order[:k] {
		sum += truth[h]
	}
	return sum
}

// coverage evaluates the intervals of trained models.
func (iss *issuing) coverage(origins []int, values []float32, terms []term) []Coverage {
	if len(terms[0].margins.groups[0]) == 0 {
		return nil
	}
	var result []Coverage
	for g, from := range groupStarts {
		until := iss.horizon
		if g+1 < len(groupStarts) {
			until = min(until, groupStarts[g+1])
		}
		if from >= until {
			break
		}
		for _, level := range levels {
			c := Coverage{From: from, Until: until, Level: level}
			tail := (1 - float64(level)/100) / 2
			n := 0.0
			for _, t := range terms {
				var low, high [24]float64
				for hour := range low {
					low[hour] = math.Exp(t.margins.at(from, hour, tail))
					high[hour] = math.Exp(t.margins.at(from, hour, 1-tail))
				}
				for i := t.first; i < t.end; i++ {
					for h := from; h < until; h++ {
						y, p := iss.values[origins[i]+h], float64(values[i*iss.horizon+h])
						hour := iss.days[origins[i]+h].hour
						if y >= p*low[hour] && y <= p*high[hour] {
							c.Inside++
						}
						c.Width += high[hour] - low[hour]
						n++
					}
				}
			}
			c.Inside *= 100 / n
			c.Width *= 100 / n
			result = append(result, c)
		}
	}
	return result
}
