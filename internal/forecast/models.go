package forecast

import (
	"fmt"
	"time"

	"github.com/kubenergy/kubenergy/internal/grid"
)

// The models, as forecasts name them.
const (
	Persistence = "persistence"        // as it is now
	Yesterday   = "yesterday"          // as at the same time of the last known day
	WeekMean    = "week-mean"          // mean of the same time of the last seven days, or of as many as are known
	Blend       = "yesterday-and-week" // half Yesterday, half WeekMean
)

type model uint8

// In the order in which they are preferred where they do equally well, or where too little is known to tell: on
// year-long series of real grids the blend is the best of them on average.
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

// past is a history prepared for asking the models many times.
type past struct {
	start  time.Time
	step   time.Duration
	perDay int
	values []float64
	means  []float64 // means[i]: over values[i] and the same time of up to six days before
}

// newPast prepares the values of the history that begin before from, the last memory of them.
func newPast(history *grid.Series, from time.Time, memory time.Duration) (*past, error) {
	step := history.Step()
	if step > maxStep || day%step != 0 {
		return nil, fmt.Errorf("history has a step of %v: want an hour or less, of which a day is a multiple", step)
	}
	known := min(int((from.Sub(history.Start())+step-1)/step), history.Len())
	perDay := int(day / step)
	if known < perDay {
		return nil, fmt.Errorf("history knows %v before %s: want at least 24h", max(0, time.Duration(known))*step,
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

// average fills in means with running sums, one for each time of day.
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

// at returns what model m expects lead steps after the first known of the values; nothing beyond those is looked at.
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
