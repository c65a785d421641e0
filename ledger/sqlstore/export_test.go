package sqlstore

import (
	"context"

	"github.com/kubenergy/kubenergy/ledger"
)

// A Sum is a row of sums by account, for tests that need many.
type Sum struct {
	Start   int64
	Account ledger.Account
	Amount  ledger.Amount
}

// PutSums writes sums as if they had been booked.
func (d *DB) PutSums(ctx context.Context, table string, sums []Sum) error {
	var x *interning
	err := d.update(ctx, func(ctx context.Context, s *session) error {
		x = d.interning(s)
		var rows [][]any
		touched := map[int64]bool{}
		for i := range sums {
			id, err := x.account(ctx, &sums[i].Account)
			if err != nil {
				return err
			}
			a := &sums[i].Amount
			sum := accountSum{
				start: sums[i].Start, account: id, Amount: *a, first: sums[i].Start, last: sums[i].Start + anHour,
			}
			rows = append(rows, []any{
				sum.start, id, int64(a.Dynamic), int64(a.Idle), int64(a.CPU), int64(a.Facility), int64(a.Carbon),
				int64(a.Cost),
				int64(a.Estimated), int64(a.Uncharted), int64(a.Unpriced), sum.first, sum.last, sum.crc(),
			})
			touched[floorTo(sum.start, aDay)] = true
		}
		for at := range touched {
			if err := d.touch(ctx, s, at); err != nil {
				return err
			}
		}
		return s.insert(ctx, table, accountSumColumns, rows, "")
	})
	if err == nil {
		x.remember()
	}
	return err
}
