package forecast

import (
	"fmt"
	"math"
	"time"

	"github.com/kubenergy/kubenergy/internal/grid"
)

// record is an hourly history with the corresponding calendar and weather data. Hours are counted from its start.
// Calendar and weather continue beyond the last value.
type record struct {
	start   int64 // in hours since the epoch
	values  []float64
	days    []calendar
	weather *sky // nil if no weather is used
}

// calendar contains the position of an hour in the day, the week and the year.
type calendar struct {
	hour, weekday int
	year          [4]float64 // sine and cosine of the year, with one and two periods
	day           [6]float64 // sine and cosine of the day, with one to three periods
}

// Hours of weather that are used before the first hour and after the last one.
const (
	weatherBefore = 168
	weatherReach  = 12
)

// newRecord prepares the hours of a history, and of the weather if available, up to ahead hours beyond its end.
func newRecord(history *grid.Series, weather *Weather, ahead int) (*record, error) {
	if history.Step() > time.Hour || time.Hour%history.Step() != 0 {
		return nil, fmt.Errorf("history has a step of %v: want at most one hour, and a divisor of an hour",
			history.Step())
	}
	first := history.Start().Truncate(time.Hour)
	if first.Before(history.Start()) {
		first = first.Add(time.Hour)
	}
	n := int(history.End().Sub(first) / time.Hour)
	if n <= 0 {
		return nil, fmt.Errorf("history contains no full hour: it ends at %s", history.End().Format(time.RFC3339))
	}
	r := &record{start: first.Unix() / 3600, values: make([]float64, n)}
	perHour := int(time.Hour / history.Step())
	skip := int(first.Sub(history.Start()) / history.Step())
	for i := range r.values {
		if perHour == 1 {
			r.values[i] = history.Value(skip + i)
			continue
		}
		t := first.Add(time.Duration(i) * time.Hour)
		r.values[i] = history.Mean(t, t.Add(time.Hour))
	}
	r.days = make([]calendar, n+ahead)
	for i := range r.days {
		r.days[i] = calendarAt(r.start + int64(i))
	}
	if weather != nil {
		r.weather = newSky(weather, r.start, n+ahead)
	}
	return r, nil
}

// hourOf returns the number of the first hour that does not start before t.
func (r *record) hourOf(t time.Time) int { return int(t.Add(time.Hour-1).Unix()/3600 - r.start) }

// timeOf returns the start of hour number i.
func (r *record) timeOf(i int) time.Time {
	return time.Unix((r.start+int64(i))*3600, 0).UTC()
}

func calendarAt(hour int64) calendar {
	at := time.Unix(hour*3600, 0).UTC()
	c := calendar{hour: at.Hour(), weekday: int(at.Weekday())}
	year := 2 * math.Pi * math.Mod(float64(hour)/24, 365.2425) / 365.2425
	c.year = [4]float64{math.Sin(year), math.Cos(year), math.Sin(2 * year), math.Cos(2 * year)}
	day := 2 * math.Pi * float64(c.hour) / 24
	for k := range 3 {
		c.day[2*k], c.day[2*k+1] = math.Sin(float64(k+1)*day), math.Cos(float64(k+1)*day)
	}
	return c
}

func (c *calendar) weekend() float64 { return indicator(c.weekday == 0 || c.weekday == 6) }

func indicator(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

// sky is the weather during the hours of a record, with running sums for computing means in constant time.
type sky struct {
	values, sums [variables][]float64
}

func newSky(w *Weather, start int64, hours int) *sky {
	s := &sky{}
	n := weatherBefore + hours + weatherReach
	for v := range variables {
		s.values[v] = make([]float64, n)
		for i := range n {
			s.values[v][i] = w.at(v, start+int64(i-weatherBefore))
		}
		s.sums[v] = sums(s.values[v])
	}
	return s
}

// at returns a variable in hour i, which may be up to weatherReach beyond the hours of the record.
func (s *sky) at(v, i int) float64 { return s.values[v][i+weatherBefore] }

// mean returns the mean of a variable over the hours [a, b).
func (s *sky) mean(v, a, b int) float64 {
	return (s.sums[v][b+weatherBefore] - s.sums[v][a+weatherBefore]) / float64(b-a)
}
