package sqlstore

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/kubenergy/kubenergy/internal/ledger"
)

// Series implements [ledger.Store]. The step is [ledger.Query.SeriesStep]. If windows are no longer retained or too
// many, it falls back to hours, and from hours to days.
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
