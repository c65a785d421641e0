package grid

import (
	"fmt"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// follow checks that t is one step after the previous row. It fills the gap in between if the options allow it.
func (r *csvReader) follow(t time.Time, value float64) error {
	defer func() { r.last = t }()
	switch {
	case r.rows == 0:
		return nil
	case r.measuring:
		return r.measure(t)
	case r.step == 0:
		return r.begin(t)
	}
	want := r.last.Add(r.step)
	gap := t.Sub(want)
	switch {
	case gap == 0:
		return nil
	case r.options.fills(gap, r.step):
		for i, v := range r.options.between(r.previous, value, int(gap/r.step)) {
			r.keep(want.Add(time.Duration(i)*r.step), v)
		}
		r.quality = energy.Estimated
		return nil
	case gap > 0:
		err := r.fail("time", "a gap: %s follows %s, want %s", t.Format(time.RFC3339), r.last.Format(time.RFC3339),
			want.Format(time.RFC3339))
		err.Option = OptionFill
		return err
	}
	err := r.fail("time", "%s is out of order or duplicate: want %s", t.Format(time.RFC3339),
		want.Format(time.RFC3339))
	if r.rows == 2 && t.After(r.last) && r.options.Fill == 0 { // a gap before the second row has this effect
		err.Option = OptionFill
	}
	return err
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

// FilledNote returns a note about the number of values that were filled in.
func FilledNote(name string, values int, fill time.Duration) string {
	if values == 1 {
		return fmt.Sprintf("%s: filled in 1 missing value in gaps of up to %v by linear interpolation",
			name, fill)
	}
	return fmt.Sprintf("%s: filled in %d missing values in gaps of up to %v by linear "+
		"interpolation", name, values, fill)
}
