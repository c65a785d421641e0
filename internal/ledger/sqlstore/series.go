package sqlstore

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/kubenergy/kubenergy/internal/ledger"
)

// Series returns mean power, step by step as [ledger.Query.SeriesStep] says. Where windows are no longer kept, or would
// be too many, it is told by the hour, and where hours are not, by the day.
func (d *DB) Series(ctx context.Context, q *ledger.Query) ([]ledger.Point, error) {
	steps := []struct {
		long time.Duration
		by   ledger.Dimension
	}{
		{ledger.WindowLength, ledger.ByWindow},
		{time.Hour, ledger.ByHour},
		{time.Duration(aDay) * time.Second, ledger.ByDay},
	}
	var first error
	for _, step := range steps {
		if step.long < q.SeriesStep() {
			continue
		}
		c := *q
		c.GroupBy, c.Limit = []ledger.Dimension{step.by}, 0
		a, err := d.Query(ctx, &c)
		if err == nil {
			return a.Points(step.long)
		}
		first = cmp.Or(first, err)
		if !errors.Is(err, ledger.ErrQuery) {
			break
		}
	}
	return nil, first
}
