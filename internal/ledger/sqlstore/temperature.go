package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/kubenergy/kubenergy/internal/ledger"
)

// warms adds the temperature of a booking to the statistics of its hour.
func (b *booker) warms(node int64, booking *ledger.Booking) {
	t := float64(*booking.Temperature)
	b.s.exec(`INSERT INTO temperatures (start, node, total, samples, most) VALUES ($1, $2, $3, 1, $4)
		ON CONFLICT (start, node) DO UPDATE
			SET total = temperatures.total + excluded.total, samples = temperatures.samples + 1,
				most = CASE WHEN excluded.most > temperatures.most THEN excluded.most ELSE temperatures.most END`,
		floorTo(booking.Received.Unix(), anHour), node, t, t)
}

const maxTemperatures = 100_000 // maximum number of rows in an answer

// Temperatures implements [ledger.Store].
func (d *DB) Temperatures(ctx context.Context, from, to time.Time, node string) (all []ledger.Temperature, err error) {
	rows, err := d.reads.QueryContext(ctx, `SELECT start, name, ROUND(total / samples * 1000) / 1000, most, samples
		FROM temperatures JOIN nodes ON nodes.id = temperatures.node
		WHERE start >= $1 AND start < $2 AND ($3 = '' OR name = $4) ORDER BY start, name LIMIT $5`,
		floorTo(from.Unix(), anHour), to.Unix(), node, node, maxTemperatures+1)
	err = ForEach(rows, err, func(rows *sql.Rows) error {
		var start int64
		var t ledger.Temperature
		err := rows.Scan(&start, &t.Node, &t.Mean, &t.Max, &t.Samples)
		t.Hour = time.Unix(start, 0).UTC()
		all = append(all, t)
		return err
	})
	if err == nil && len(all) > maxTemperatures {
		err = fmt.Errorf("%w: %w: more than %d hours of nodes: select a shorter interval or one node", ledger.ErrQuery,
			ledger.ErrTooLarge, maxTemperatures)
	}
	if err != nil {
		return nil, fmt.Errorf("reading temperatures: %w", err)
	}
	return all, nil
}
