package forecast

import (
	"fmt"
	"time"

	"github.com/kubenergy/kubenergy/internal/grid"
)

// Names of the plain models.
const (
	Persistence = "persistence"        // the current value
	Yesterday   = "yesterday"          // same time of the last known day
	WeekMean    = "week-mean"          // mean of the same time of up to seven known days
	Blend       = "yesterday-and-week" // mean of Yesterday and WeekMean
)

type model uint8

// Models in order of preference for equal errors or insufficient data. The blend is the best on average for
// year-long series of real grids.
const (
	blend model = iota
	weekMean
	yesterday
	persistence
	models int = iota
)

var names = [models]string{Blend, WeekMean, Yesterday, Persistence}

const (
	day     = 24 * time.Hour
	week    = 7
	maxStep = time.Hour
)

// past is a history that is prepared for repeated evaluation of the models.
type past struct {
	start  time.Time
	step   time.Duration
	perDay int
	values []float64
	means  []float64 // means[i] is the mean of values[i] and the same time of up to six days before
}

// newPast prepares the values of the history that start before from, limited to the last memory of them.
func newPast(history *grid.Series, from time.Time, memory time.Duration) (*past, error) {
	step := history.Step()
	if step > maxStep || day%step != 0 {
		return nil, fmt.Errorf("history has a step of %v: want at most one hour, and a divisor of a day", step)
	}
	known := min(int((from.Sub(history.Start())+step-1)/step), history.Len())
	perDay := int(day / step)
	if known < perDay {
		return nil, fmt.Errorf("history contains %v before %s: want at least 24h", max(0, time.Duration(known))*step,
			from.Format(time.RFC3339))
	}
	skip := max(0, known-int(memory/step))
	p := &past{
		start: history.Start().Add(time.Duration(skip) * step), step: step, perDay: perDay,
		values: history.Values(skip, known),
	}
	p.average()
	return p, nil
}

// average computes the means with one running sum per time of day.
func (p *past) average() {
	p.means = make([]float64, len(p.values))
	sums := make([]float64, p.perDay)
	for i, v := range p.values {
		phase, days := i%p.perDay, i/p.perDay+1
		sums[phase] += v
		if days > week {
			sums[phase] -= p.values[i-week*p.perDay]
			days = week
		}
		p.means[i] = sums[phase] / float64(days)
	}
}

// at returns the forecast of model m for a lead of the given number of steps after the known values. Later values
// are ignored.
func (p *past) at(m model, known, lead int) float64 {
	i := known - p.perDay + lead%p.perDay
	switch m {
	case persistence:
		return p.values[known-1]
	case yesterday:
		return p.values[i]
	case weekMean:
		return p.means[i]
	default:
		return (p.values[i] + p.means[i]) / 2
	}
}
