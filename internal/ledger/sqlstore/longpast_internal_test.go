package sqlstore

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/ledger"
)

// countingTx counts the queries of a transaction.
type countingTx struct {
	querier

	statements int
}

func (c *countingTx) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	c.statements++
	return c.querier.QueryContext(ctx, query, args...)
}

// A budget with an unlimited period queries all days since 1970. Days before the first booking must not cost
// queries.
func TestALongPastIsNotReadThrough(t *testing.T) {
	day := time.Date(2026, 11, 3, 0, 0, 0, 0, time.UTC)
	d := openPlain(t, func() time.Time { return day.Add(48 * time.Hour) })
	q := &ledger.Query{
		From: time.Unix(0, 0).UTC(), To: day.Add(48 * time.Hour), GroupBy: []ledger.Dimension{ledger.ByNamespace},
	}
	for _, booked := range []bool{false, true} {
		if booked {
			if err := d.PutSums(t.Context(), "account_days", []Sum{{
				Start: day.Unix(), Account: ledger.Account{Namespace: "team"}, Amount: ledger.Amount{Dynamic: 7},
			}}); err != nil {
				t.Fatal(err)
			}
		}
		plan, err := q.Plan()
		if err != nil {
			t.Fatal(err)
		}
		var c *countingTx
		var answer *ledger.Answer
		if err := d.read(t.Context(), func(r *reading) {
			c = &countingTx{querier: r.tx}
			r.tx = c
			answer = r.answer(q, plan)
		}); err != nil {
			t.Fatal(err)
		}
		if c.statements > 30 {
			t.Errorf("booked %v: got %d statements for 56 years with two days of data", booked, c.statements)
		}
		if !answer.From.Equal(q.From) || booked != (answer.Total.Dynamic == 7) {
			t.Errorf("booked %v: unexpected start %v or total %+v", booked, answer.From, answer.Total)
		}
	}
}
