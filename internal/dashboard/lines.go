package dashboard

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/timeutil"
)

// end returns the end of the validity of a point.
func (l *Line) end(i int) time.Time {
	if i+1 < len(l.Points) {
		return l.Points[i+1].At
	}
	return l.Until
}

// series converts a line to a series, in steps of its shortest point. The series ends at the first unknown point.
func (l *Line) series(from, to time.Time) (*grid.Series, error) {
	var start time.Time
	var values []float64
	step := time.Hour
	for i, p := range l.Points {
		step = max(time.Minute, min(step, l.end(i).Sub(p.At)))
		if !p.At.After(from) {
			start = p.At
		}
	}
	const maxSamples = 50_000
	i := 0
	for t := start; t.Before(to) && len(values) < maxSamples; t = t.Add(step) {
		for i < len(l.Points) && !t.Before(l.end(i)) {
			i++
		}
		if i == len(l.Points) || t.Before(l.Points[i].At) || l.Points[i].Unknown {
			break
		}
		values = append(values, l.Points[i].Value)
	}
	return grid.NewSeries(start, step, values)
}

// At returns the value at a time. ok is false if it is unknown.
func (l *Line) At(t time.Time) (v float64, ok bool) {
	for i, p := range l.Points {
		if !t.Before(p.At) && t.Before(l.end(i)) {
			return p.Value, !p.Unknown
		}
	}
	return 0, false
}

// Mean returns the mean over an interval. ok is false if any part of it is unknown.
func (l *Line) Mean(from, to time.Time) (v float64, ok bool) {
	v, seconds := l.mean(from, to)
	return v, seconds > 0 && math.Abs(seconds-to.Sub(from).Seconds()) < 1
}

// mean returns the mean over the known part of an interval, and the length of this part in seconds.
func (l *Line) mean(from, to time.Time) (v, seconds float64) {
	var sum float64
	for i, p := range l.Points {
		start, end := timeutil.Later(p.At, from), timeutil.Earlier(l.end(i), to)
		if s := end.Sub(start).Seconds(); s > 0 && !p.Unknown {
			sum, seconds = sum+s*p.Value, seconds+s
		}
	}
	return sum / seconds, seconds
}

// thinned reduces the number of points to the visible resolution. Adjacent points are replaced by their mean over
// time.
func (l Line) thinned(from, to time.Time) *Line {
	var seen []int
	for i, p := range l.Points {
		if l.end(i).After(from) && p.At.Before(to) {
			seen = append(seen, i)
		}
	}
	group := (len(seen) + maxPoints - 1) / maxPoints
	if group <= 1 {
		return &l
	}
	thin := &Line{Until: l.Until}
	for chunk := range slices.Chunk(seen, group) {
		p := l.Points[chunk[0]]
		if mean, ok := l.Mean(p.At, l.end(chunk[len(chunk)-1])); ok {
			p.Value = mean
		}
		thin.Points = append(thin.Points, p)
	}
	return thin
}

func bound(p Point, upper bool) float64 {
	if upper {
		return *cmp.Or(p.High, &p.Value)
	}
	return *cmp.Or(p.Low, &p.Value)
}

// within returns the bounds of all points that are valid in an interval.
func (l *Line) within(from, to time.Time) (values []float64) {
	for i, p := range l.Points {
		if !p.Unknown && l.end(i).After(from) && p.At.Before(to) {
			values = append(values, bound(p, true), bound(p, false))
		}
	}
	return values
}

// end returns the end of the validity of a point.
func (p *Power) end(i int) time.Time {
	end := p.Until
	if i+1 < len(p.Points) {
		end = p.Points[i+1].At
	}
	if p.StepSeconds > 0 { // the power after this step is unknown
		end = timeutil.Earlier(end, p.Points[i].At.Add(time.Duration(p.StepSeconds*float64(time.Second))))
	}
	return end
}

// The indices of the lines of [Power.lines] after those of the parts.
const (
	allParts = iota + 4
	estimated
	powerLines
)

// lines returns the power of each part over time, the total power, and its estimated part.
func (p *Power) lines() (lines [powerLines]*Line) {
	for k := range lines {
		lines[k] = &Line{Until: p.Until}
		for i, w := range p.Points {
			value := w.Total()
			if k < len(parts) {
				value = parts[k].of(w)
			} else if k == estimated {
				value *= w.Estimated
			}
			lines[k].Points = append(lines[k].Points, Point{At: w.At, Value: value})
			if end := p.end(i); i+1 == len(p.Points) {
				lines[k].Until = end
			} else if end.Before(p.Points[i+1].At) {
				lines[k].Points = append(lines[k].Points, Point{At: end, Unknown: true})
			}
		}
	}
	return lines
}
