package sqlstore

import (
	"context"

	"github.com/kubenergy/kubenergy/internal/ledger"
)

// A Sum is a row of sums by account, for tests that require many rows.
type Sum struct {
	Start   int64
	Account ledger.Account
	Amount  ledger.Amount
}

// PutSums writes sums directly to a table.
func (d *DB) PutSums(ctx context.Context, table string, sums []Sum) error {
	return d.update(ctx, func(s *session) {
		x := d.interning(s)
		t := sumsOf(false, false) // tables of days have the same columns
		var rows [][]any
		touched := map[int64]bool{}
		for i := range sums {
			k := sumKey{start: sums[i].Start, id: x.account(&sums[i].Account)}
			row := t.row(&k, &sum{Amount: sums[i].Amount, first: k.start, last: k.start + anHour})
			rows = append(rows, append(row, sumCRC(row)))
			touched[floorTo(k.start, aDay)] = true
		}
		for at := range touched {
			s.touch(at)
		}
		s.insert(table, t.columns, rows, "")
	})
}

// Update runs a test function in a transaction.
func (d *DB) Update(ctx context.Context, do func(ctx context.Context) error) error {
	return d.update(ctx, func(s *session) {
		s.exec("INSERT INTO meta (key, value) VALUES ('test', 'x')")
		s.check(do(ctx))
	})
}
