package dashboard

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/timeutil"
)

// end is how long a point holds.
func (l *Line) end(i int) time.Time {
	if i+1 < len(l.Points) {
		return l.Points[i+1].At
	}
	return l.Until
}

// series is what a line holds in a time, as far as it is known from its begin on, in steps of its shortest point.
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

// At returns the value at an instant.
func (l *Line) At(t time.Time) (v float64, ok bool) {
	for i, p := range l.Points {
		if !t.Before(p.At) && t.Before(l.end(i)) {
			return p.Value, !p.Unknown
		}
	}
	return 0, false
}

// Mean returns the mean over a time, if all of it is known.
func (l *Line) Mean(from, to time.Time) (v float64, ok bool) {
	var sum, seconds float64
	for i, p := range l.Points {
		start, end := timeutil.Later(p.At, from), timeutil.Earlier(l.end(i), to)
		if s := end.Sub(start).Seconds(); s > 0 && !p.Unknown {
			sum, seconds = sum+s*p.Value, seconds+s
		}
	}
	return sum / seconds, seconds > 0 && math.Abs(seconds-to.Sub(from).Seconds()) < 1
}

// thinned are so few points that each is worth its place: neighbours give way to their mean over time.
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

// within returns the bounds of all points that hold in a time.
func (l *Line) within(from, to time.Time) (values []float64) {
	for i, p := range l.Points {
		if !p.Unknown && l.end(i).After(from) && p.At.Before(to) {
			values = append(values, bound(p, true), bound(p, false))
		}
	}
	return values
}

// end is how long a point holds.
func (p *Power) end(i int) time.Time {
	end := p.Until
	if i+1 < len(p.Points) {
		end = p.Points[i+1].At
	}
	if p.StepSeconds > 0 { // of what follows nothing is known
		end = timeutil.Earlier(end, p.Points[i].At.Add(time.Duration(p.StepSeconds*float64(time.Second))))
	}
	return end
}

// mean is what was drawn on average in as much of a time as is known; Estimated is a share.
func (p *Power) mean(from, to time.Time) (mean Watts, known bool) {
	var seconds float64
	var sum Watts
	for i, w := range p.Points {
		s := timeutil.Earlier(p.end(i), to).Sub(timeutil.Later(w.At, from)).Seconds()
		if s <= 0 {
			continue
		}
		w.Estimated *= w.Total()
		seconds += s
		sum.add(&w, s)
	}
	if seconds == 0 {
		return mean, false
	}
	mean.add(&sum, 1/seconds)
	mean.Estimated /= max(mean.Total(), math.SmallestNonzeroFloat64)
	return mean, true
}

// add adds so much of what was drawn at another time.
func (w *Watts) add(o *Watts, share float64) {
	w.Dynamic, w.Idle = w.Dynamic+share*o.Dynamic, w.Idle+share*o.Idle
	w.Asleep, w.Unknown, w.Estimated = w.Asleep+share*o.Asleep, w.Unknown+share*o.Unknown, w.Estimated+share*o.Estimated
}

// thinned returns as many points as can be seen, and the instants at which they hold.
func (p *Power) thinned(from, to time.Time) ([]Watts, *Line) {
	var seen []Watts
	gaps := map[time.Time]bool{} // where nothing is known
	for i, w := range p.Points {
		end := p.end(i)
		if end.After(from) && w.At.Before(to) {
			seen = append(seen, w)
		}
		if i+1 < len(p.Points) && end.Before(p.Points[i+1].At) && end.Before(to) && len(seen) > 0 {
			seen, gaps[end] = append(seen, Watts{At: end}), true
		}
	}
	if group := (len(seen) + maxPoints - 1) / maxPoints; group > 1 {
		var thin []Watts
		for chunk := range slices.Chunk(seen, group) {
			mean := Watts{At: chunk[0].At}
			for i := range chunk {
				mean.add(&chunk[i], 1/float64(len(chunk)))
			}
			thin = append(thin, mean)
		}
		seen = thin
	}
	line := &Line{Until: timeutil.Earlier(p.Until, to)}
	for _, w := range seen {
		line.Points = append(line.Points, Point{At: w.At, Unknown: gaps[w.At]})
	}
	return seen, line
}
