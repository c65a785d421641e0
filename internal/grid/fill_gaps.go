package grid

import (
	"cmp"
	"fmt"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// maxRefinement limits the ratio of the largest and the smallest step, and with it the size of the series.
const maxRefinement = 12

// steps returns the smallest step, and for each row whether the next one follows after a step instead of a gap. A
// difference is a step if it occurs twice in succession, or if it is the smallest one. The step is an hour if there is
// only one row, and 0 if no row follows within an hour.
func (r *csvReader) steps() (smallest time.Duration, follows []bool) {
	if len(r.rows) == 1 {
		return time.Hour, make([]bool, 1)
	}
	diffs, follows := make([]time.Duration, len(r.rows)-1), make([]bool, len(r.rows))
	for i := range diffs {
		diffs[i] = r.rows[i+1].time.Sub(r.rows[i].time)
	}
	var shortest time.Duration // the smallest difference, for a file without a succession
	for i, d := range diffs {
		if d > time.Hour {
			continue
		}
		follows[i] = i > 0 && diffs[i-1] == d || i+1 < len(diffs) && diffs[i+1] == d
		if shortest == 0 || d < shortest {
			shortest = d
		}
		atEnd := i > 1 && i+1 == len(diffs) && smallest > 0 && smallest%d == 0 // its successor is not in the file
		if (follows[i] || atEnd) && (smallest == 0 || d < smallest) {
			smallest = d
		}
	}
	smallest = cmp.Or(smallest, shortest)
	for i, d := range diffs {
		follows[i] = follows[i] || d == smallest
	}
	return smallest, follows
}

// toStarts converts the times of the rows from the ends to the starts of intervals.
func (r *csvReader) toStarts() {
	length, follows := r.steps()
	for i := len(r.rows) - 1; i >= 0; i-- {
		if i > 0 && follows[i-1] {
			length = r.rows[i].time.Sub(r.rows[i-1].time)
		}
		r.rows[i].time = r.rows[i].time.Add(-length)
	}
}

// join converts the rows to values with the smallest step. A value with a larger step is repeated. It fills gaps if
// the options allow it.
func (r *csvReader) join() error {
	smallest, follows := r.steps()
	r.step = smallest
	length := smallest
	for i, row := range r.rows {
		last := i+1 == len(r.rows)
		if !last && follows[i] {
			length = r.rows[i+1].time.Sub(row.time)
		}
		if smallest > 0 && (length%smallest != 0 || length/smallest > maxRefinement) {
			return r.failAt(r.rows[i+1], "", "%s follows after %v: want steps that are multiples of %v, up to %d times",
				r.rows[i+1].time.Format(time.RFC3339), length, smallest, maxRefinement)
		}
		for t := row.time; t.Before(row.time.Add(length)); t = t.Add(smallest) {
			r.keep(t, row.value)
		}
		if last {
			break
		}
		if err := r.follow(row, r.rows[i+1], length); err != nil {
			return err
		}
	}
	return nil
}

// follow checks that next follows row after length, and fills the gap between them if the options allow it.
func (r *csvReader) follow(row, next sample, length time.Duration) error {
	end := row.time.Add(length)
	gap := next.time.Sub(end)
	switch {
	case gap == 0:
		return nil
	case length == 0:
		option := OptionFill
		if r.options.Fill > 0 {
			option = ""
		}
		return r.failAt(next, option, "%s is %v after the previous row: want an hour or less",
			next.time.Format(time.RFC3339), gap)
	case gap < 0:
		return r.failAt(next, "", "%s is out of order or duplicate: want %s", next.time.Format(time.RFC3339),
			end.Format(time.RFC3339))
	case r.clock.floating && gap == time.Hour && changedIn(end) != "":
		return r.failAt(next, "", "%s is missing, and clocks are put forward at this time in %s: %s",
			end.Format("2006-01-02 15:04"), changedIn(end), timeZoneHint)
	case r.options.fills(gap, r.step):
		for i, v := range r.options.between(row.value, next.value, int(gap/r.step)) {
			r.keep(end.Add(time.Duration(i)*r.step), v)
		}
		r.quality = energy.Estimated
		return nil
	}
	return r.failAt(next, OptionFill, "a gap: %s follows %s, want %s", next.time.Format(time.RFC3339),
		row.time.Format(time.RFC3339), end.Format(time.RFC3339))
}

func (r *csvReader) failAt(row sample, option, format string, args ...any) *RowError {
	err := r.failOption(option, format, args...)
	err.Line, err.Field = row.line, "time"
	return err
}

// average returns the means of s over whole steps.
func (s *Series) average(step time.Duration) (*Series, error) {
	if step%s.Step() != 0 {
		return nil, fmt.Errorf("a step of %v is not a multiple of the step of the file, %v", step, s.Step())
	}
	var means []float64
	start := s.Start().Add(step - 1).Truncate(step)
	for t := start; !t.Add(step).After(s.End()); t = t.Add(step) {
		means = append(means, s.Mean(t, t.Add(step)))
	}
	return NewSeries(start, step, means)
}

// fills reports whether a gap can be filled.
func (o *CSVOptions) fills(gap, step time.Duration) bool {
	const most = 100_000 // limits the number of values in files with very short steps
	return gap > 0 && gap <= o.Fill && gap%step == 0 && gap/step <= most
}

// between returns count values, linearly interpolated between from and to, and adds count to Filled.
func (o *CSVOptions) between(from, to float64, count int) []float64 {
	values := make([]float64, count)
	for i := range values {
		values[i] = from + (to-from)*float64(i+1)/float64(count+1)
	}
	if o.Filled != nil {
		*o.Filled += count
	}
	return values
}

// Notes returns notes about assumptions and missing values in a file that was read with Filled and AssumedUTC.
func (o *CSVOptions) Notes(name string) (notes []string) {
	switch {
	case *o.Filled == 1:
		notes = append(notes, fmt.Sprintf("%s: filled in 1 missing value in gaps of up to %v by linear interpolation",
			name, o.Fill))
	case *o.Filled > 1:
		notes = append(notes, fmt.Sprintf("%s: filled in %d missing values in gaps of up to %v by linear "+
			"interpolation", name, *o.Filled, o.Fill))
	}
	if *o.AssumedUTC {
		notes = append(notes, name+": the times have no time zone and were read as UTC; if they are local, "+
			timeZoneHint)
	}
	return notes
}
