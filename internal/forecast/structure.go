package forecast

import (
	"fmt"
	"math"
	"slices"
)

// structure is the first stage of a model: the expected logarithm of the intensity of an hour, given calendar and
// weather, from a ridge regression over all hours of the training.
type structure struct {
	weathered    bool
	mean         float64 // of the logarithm
	winds        [5]float64
	sun          [2]float64
	temperatures [4]float64
	full         []float64
	withoutFold  [folds][]float64
	start        int64 // start of the training, in hours since the epoch
	trained      int   // in hours
}

const (
	// folds is the number of parts of the training data for cross-validation.
	folds = 5
	// structurePenalty is the ridge penalty per hour of training.
	structurePenalty = 0.03
	// block is the number of consecutive hours in one fold.
	block = 21 * 24

	calendarColumns  = 64
	structureColumns = 123 // with weather
)

// floor is the minimum intensity. Logarithms of smaller values would dominate the regression.
const floor = 1.0

func logOf(v float64) float64 { return math.Log(max(v, floor)) }

// newStructure fits the first stage on the hours before until.
func newStructure(r *record, until int) (*structure, error) {
	s := &structure{weathered: r.weather != nil, start: r.start, trained: until}
	for _, v := range r.values[:until] {
		s.mean += logOf(v)
	}
	s.mean /= float64(until)
	if s.weathered {
		s.hinges(r.weather, until)
	}
	p := s.columns()
	w := p + 1
	rows := make([]float64, until*w)
	for i := range until {
		row := rows[i*w : i*w+w]
		s.row(row[:p], r, i)
		row[p] = logOf(r.values[i]) - s.mean
	}
	std := standardise(rows, w, p)
	all := make([]float64, w*w)
	var parts [folds][]float64
	var sizes [folds]int
	for f := range parts {
		parts[f] = make([]float64, w*w)
	}
	for i := 0; i < until; i += block {
		end := min(i+block, until)
		f := foldOfHour(i)
		gram(parts[f], rows[i*w:end*w], w)
		sizes[f] += end - i
	}
	for f := range parts {
		add(all, parts[f])
	}
	solve := newSolver(p)
	b, err := solve.solve(all, structurePenalty*float64(until))
	if err != nil {
		return nil, fmt.Errorf("fitting the structure: %w", err)
	}
	s.full = std.raw(b)
	for f := range parts {
		if s.withoutFold[f] = s.full; sizes[f] == 0 || sizes[f] == until {
			continue
		}
		for i, v := range all {
			parts[f][i] = v - parts[f][i]
		}
		if b, err = solve.solve(parts[f], structurePenalty*float64(until-sizes[f])); err != nil {
			return nil, fmt.Errorf("fitting the structure: %w", err)
		}
		s.withoutFold[f] = std.raw(b)
	}
	return s, nil
}

func foldOfHour(i int) int { return i / block % folds }

func add(into, from []float64) {
	for i, v := range from {
		into[i] += v
	}
}

func (s *structure) columns() int {
	if s.weathered {
		return structureColumns
	}
	return calendarColumns
}

// hinges sets the knots of the weather dependence to quantiles of the training data.
func (s *structure) hinges(w *sky, until int) {
	sorted := func(v int, above float64) []float64 {
		var values []float64
		for i := range until {
			if x := w.at(v, i); x > above {
				values = append(values, x)
			}
		}
		slices.Sort(values)
		if len(values) == 0 {
			values = []float64{0}
		}
		return values
	}
	winds, sun, temperatures := sorted(wind, -1), sorted(radiation, 1), sorted(temperature, 0)
	for i, q := range []float64{.1, .3, .5, .7, .9} {
		s.winds[i] = quantile(winds, q)
	}
	for i, q := range []float64{.33, .67} {
		s.sun[i] = quantile(sun, q)
	}
	for i, q := range []float64{.1, .35, .65, .9} {
		s.temperatures[i] = quantile(temperatures, q)
	}
}

// row computes the columns of hour i.
func (s *structure) row(row []float64, r *record, i int) {
	c := &r.days[i]
	clear(row)
	row[0] = 1
	n := 1
	n += copy(row[n:], c.year[:])
	if c.hour > 0 {
		row[n+c.hour-1] = 1
	}
	n += 23
	if c.weekday > 0 {
		row[n+c.weekday-1] = 1
	}
	n += 6
	weekend := c.weekend()
	for _, d := range c.day {
		for _, y := range c.year {
			row[n] = d * y
			n++
		}
		row[n] = d * weekend
		n++
	}
	if s.weathered {
		s.weatherRow(row[n:], r.weather, c, i)
	}
}

func (s *structure) weatherRow(row []float64, w *sky, c *calendar, i int) {
	n := 0
	put := func(values ...float64) { n += copy(row[n:], values) }
	weekend := c.weekend()
	w3, r3 := w.mean(wind, i-1, i+2), w.mean(radiation, i-1, i+2)
	t := w.at(temperature, i)
	tc := (t - 283) / 10
	put(w3, w3*w3/10, w3*w3*w3/100, w.at(wind, i-3), w.at(wind, i+3), w.mean(wind, i-24, i))
	for _, q := range s.winds {
		put(max(0, w3-q))
	}
	put(w.at(radiation, i), w.at(radiation, i-2), w.at(radiation, i+2), r3, math.Sqrt(max(0, r3)))
	for _, q := range s.sun {
		put(max(0, r3-q))
	}
	put(t, w.at(dewPoint, i), w.at(precipitation, i))
	put(w.mean(temperature, i-24, i), w.mean(temperature, i-72, i), w.mean(dewPoint, i-24, i),
		w.mean(precipitation, i-24, i), w.mean(precipitation, i-168, i), w.mean(radiation, i-24, i))
	for _, q := range s.temperatures {
		put(max(0, t-q))
	}
	s1, c1 := c.year[0], c.year[1]
	put(r3*tc, r3*s1, r3*c1, w3*s1, w3*c1, tc*s1, tc*c1, w3*tc, w3*r3/100, w3*weekend, r3*weekend, tc*weekend)
	for _, d := range c.day[:4] {
		put(d*w3, d*tc, d*r3, d*max(0, t-s.temperatures[3]))
	}
}

// expect computes the expected logarithm of each hour. Hours of the training are predicted without their fold, so
// that their errors are comparable to the errors of future hours.
func (s *structure) expect(into []float64, r *record) {
	row := make([]float64, s.columns())
	shift := int(r.start - s.start)
	for i := range into {
		s.row(row, r, i)
		b := s.full
		if j := i + shift; j >= 0 && j < s.trained {
			b = s.withoutFold[foldOfHour(j)]
		}
		into[i] = dot(b, row)
	}
}
