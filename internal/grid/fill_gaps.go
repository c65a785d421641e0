package grid

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// maxRefinement limits the ratio of the largest and the smallest step, and with it the size of the series.
const maxRefinement = 12

// measure determines the steps of the rows, and converts the times of ends to those of starts. The difference of the
// times of two rows is a step if it occurs twice in succession, or if it is the smallest one. Otherwise there is a gap,
// and the step is that of an adjacent row. The step is an hour if there is only one row.
func (f *csvFile) measure() error {
	const never = time.Duration(math.MaxInt64)
	diffs := make([]time.Duration, len(f.rows)-1)
	for i := range diffs {
		diffs[i] = f.rows[i+1].time.Sub(f.rows[i].time)
	}
	repeated := func(i int) bool {
		return i > 0 && diffs[i-1] == diffs[i] || i+1 < len(diffs) && diffs[i+1] == diffs[i]
	}
	f.step = never
	for i, d := range diffs {
		last := i > 1 && i+1 == len(diffs) && f.step%d == 0 // its successor is not in the file
		if d <= time.Hour && (repeated(i) || last) {
			f.step = min(f.step, d)
		}
	}
	switch {
	case len(diffs) == 0:
		f.step = time.Hour
	case f.step == never: // without a succession
		f.step = slices.Min(diffs)
	}
	if f.step > time.Hour {
		option := OptionFill
		if f.options.Fill > 0 {
			option = ""
		}
		return f.rows[1].fail(option, "%s is %v after the previous row: want an hour or less",
			f.rows[1].time.Format(time.RFC3339), diffs[0])
	}
	step := f.step
	update := func(row, difference int) {
		if difference >= 0 && difference < len(diffs) && diffs[difference] <= time.Hour &&
			(repeated(difference) || diffs[difference] == f.step) {
			step = diffs[difference]
		}
		f.rows[row].step = step
	}
	if !f.column.ends {
		for i := range f.rows {
			update(i, i)
		}
		return nil
	}
	for i := range slices.Backward(f.rows) {
		update(i, i-1)
		f.rows[i].time = f.rows[i].time.Add(-step)
	}
	return nil
}

// join concatenates the rows of files, which must be sorted, to a series with the smallest of their steps. A value with
// a larger step is repeated. Gaps are filled if the options allow it.
func join(o *CSVOptions, files []*csvFile) (Signal, Zone, error) {
	var rows []sample
	quality, step := energy.Derived, time.Hour
	for _, f := range files {
		rows = append(rows, f.rows...)
		quality, step = min(quality, f.quality), min(step, f.step)
	}
	var start time.Time
	var values []float64
	keep := func(t time.Time, value float64) {
		if t.Before(o.From) || !o.Until.IsZero() && !t.Before(o.Until) {
			return
		}
		if len(values) == 0 {
			start = t
		}
		values = append(values, value)
	}
	for i, row := range rows {
		if row.step%step != 0 || row.step/step > maxRefinement {
			return Signal{}, "", row.fail("", "%s has a step of %v: want a multiple of %v, up to %d times",
				row.time.Format(time.RFC3339), row.step, step, maxRefinement)
		}
		for t := row.time; t.Before(row.end()); t = t.Add(step) {
			keep(t, row.value)
		}
		if i+1 == len(rows) {
			break
		}
		next := rows[i+1]
		missing, err := o.missing(row, next, step)
		if err != nil {
			return Signal{}, "", err
		}
		for k := range missing { // by linear interpolation
			keep(row.end().Add(time.Duration(k)*step),
				row.value+(next.value-row.value)*float64(k+1)/float64(missing+1))
			quality = energy.Estimated
		}
		if o.Filled != nil {
			*o.Filled += missing
		}
	}
	if len(values) == 0 {
		return Signal{}, "", &RowError{File: files[0].name, Err: ErrOutside}
	}
	series, err := NewSeries(start, step, values)
	if err == nil && o.Price && o.Every > step {
		series, err = series.average(o.Every)
	}
	if err != nil {
		return Signal{}, "", &RowError{File: files[0].name, Err: err}
	}
	return Signal{Series: series, Quality: quality}, files[0].zone, nil
}

// missing returns the number of values to fill in between two rows, or an error if next must not follow row.
func (o *CSVOptions) missing(row, next sample, step time.Duration) (int, error) {
	const most = 100_000 // limits the number of values in files with very short steps
	from, until, end := row.time.Format(time.RFC3339), next.time.Format(time.RFC3339), row.end().Format(time.RFC3339)
	gap := next.time.Sub(row.end())
	switch {
	case gap == 0:
		return 0, nil
	case next.file.clock.floating && gap == time.Hour && changedIn(row.end()) != "":
		return 0, next.fail("", "%s is missing, and clocks are put forward at this time in %s: %s",
			row.end().Format("2006-01-02 15:04"), changedIn(row.end()), timeZoneHint)
	case gap > 0 && gap <= o.Fill && gap%step == 0 && gap/step <= most:
		return int(gap / step), nil
	case row.file != next.file:
		err := &RowError{File: next.file.name, Err: fmt.Errorf("starting at %s with step %v, it does not follow %s, "+
			"ending at %s with step %v", until, next.step, row.file.name, end, row.step)}
		if gap > 0 {
			err.Option = OptionFill
		}
		return 0, err
	case gap < 0:
		return 0, next.fail("", "%s is out of order or duplicate: want %s", until, end)
	}
	if o.TimeZone != nil && gap == time.Hour {
		_, offset := row.end().In(o.TimeZone).Zone()
		if zone := changedIn(row.end().Add(time.Duration(offset) * time.Second)); zone != "" {
			return 0, next.fail("", "a gap: %s follows %s, want %s; clocks are put forward at this time in %s: is the "+
				"time zone of the file %v?", until, from, end, zone, o.TimeZone)
		}
	}
	return 0, next.fail(OptionFill, "a gap: %s follows %s, want %s", until, from, end)
}

func (s *sample) end() time.Time { return s.time.Add(s.step) }

func (s *sample) fail(option, format string, args ...any) error {
	s.file.line = s.line
	return s.file.fail("time", option, format, args...)
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

// Notes returns notes about assumptions and missing values in a file that was read with Filled, AssumedUTC and,
// optionally, ZoneUnused.
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
	if o.ZoneUnused != nil && *o.ZoneUnused {
		notes = append(notes, fmt.Sprintf("%s: the file has no zones, so the zone %s is only a name", name, o.Zone))
	}
	return notes
}
