package ledger

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Emit adds emissions of a signal to the row.
func (r *Row) Emit(signal string, carbon Micrograms) {
	r.Carbon, _ = increase(&r.Emissions, signal, carbon)
}

// Charge adds costs in a currency to the row.
func (r *Row) Charge(currency string, cost Nanos) {
	r.Cost, _ = increase(&r.Costs, currency, cost)
}

// increase adds by to the named sum. It returns the value of the only non-zero sum if there is exactly one, and
// false if the named sum overflows.
func increase[N ~int64](sums *map[string]N, name string, by N) (one N, fits bool) {
	if *sums == nil {
		*sums = map[string]N{}
	}
	sum := (*sums)[name]
	fits = saturate(&sum, by)
	(*sums)[name] = sum
	return only(*sums), fits
}

// only removes sums that are 0 and returns the remaining sum if there is exactly one.
func only[N ~int64](sums map[string]N) (one N) {
	maps.DeleteFunc(sums, func(_ string, sum N) bool { return sum == 0 })
	if len(sums) == 1 {
		for _, one = range sums {
		}
	}
	return one
}

// Include adds another row. Sums that overflow are clamped.
func (r *Row) Include(o *Row) { _ = r.include(o) }

// IncludeAll adds rows to r. It returns [ErrSum] if a sum other than a time overflows.
func (r *Row) IncludeAll(rows []Row) error {
	for i := range rows {
		if err := r.include(&rows[i]); err != nil {
			return err
		}
	}
	return nil
}

func (r *Row) include(o *Row) error {
	amount := o.Amount
	amount.Carbon, amount.Cost = 0, 0
	fits, one := r.Saturate(&amount), false
	for signal, carbon := range o.Emissions {
		r.Carbon, one = increase(&r.Emissions, signal, carbon)
		fits = one && fits
	}
	for currency, cost := range o.Costs {
		r.Cost, one = increase(&r.Costs, currency, cost)
		fits = one && fits
	}
	if r.First.IsZero() || !o.First.IsZero() && o.First.Before(r.First) {
		r.First = o.First
	}
	if o.Last.After(r.Last) {
		r.Last = o.Last
	}
	if !fits {
		return ErrSum
	}
	return nil
}

// Empty reports whether the row contains no amounts. Empty rows are omitted from answers.
func (r *Row) Empty() bool {
	return r.Amount == (Amount{}) && len(r.Emissions)+len(r.Costs) == 0
}

// Trim retains at most limit rows with the most energy and sums the others in an additional last row with a nil
// Key. It returns [ErrSum] if this sum overflows.
func (a *Answer) Trim(limit int) error {
	if limit <= 0 || len(a.Rows) <= limit {
		return nil
	}
	most := slices.Clone(a.Rows)
	slices.SortStableFunc(most, func(x, y Row) int {
		return cmp.Or(cmp.Compare(y.Energy(), x.Energy()), slices.Compare(x.Key, y.Key))
	})
	var rest Row
	if err := rest.IncludeAll(most[limit:]); err != nil {
		return err
	}
	a.Rows = most[:limit]
	slices.SortFunc(a.Rows, func(x, y Row) int { return slices.Compare(x.Key, y.Key) })
	a.Rows = append(a.Rows, rest)
	return nil
}

// Points converts an answer that is grouped by time only to mean power. The last step ends at AsOf if it is not
// over yet.
func (a *Answer) Points(step time.Duration) ([]Point, error) {
	points := make([]Point, 0, len(a.Rows))
	for i := range a.Rows {
		at, err := time.Parse(time.RFC3339, a.Rows[i].Key[0])
		if err != nil {
			return nil, fmt.Errorf("parsing the time of a row: %w", err)
		}
		long := step
		if so := a.AsOf.Sub(at); so > 0 && so < step {
			long = so
		}
		points = append(points, Point{At: at, Watts: float64(a.Rows[i].Energy().Joules()) / long.Seconds()})
	}
	return points, nil
}

// Signals returns the names of a row's emissions, sorted.
func (r *Row) Signals() []string { return slices.Sorted(maps.Keys(r.Emissions)) }

// Currencies returns the currencies of a row's costs, sorted.
func (r *Row) Currencies() []string { return slices.Sorted(maps.Keys(r.Costs)) }
