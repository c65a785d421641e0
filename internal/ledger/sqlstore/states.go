package sqlstore

import (
	"context"
	"database/sql"
	_ "embed" // for the statements of the migration
	"errors"
	"fmt"

	"github.com/kubenergy/kubenergy/internal/ledger"
)

var (
	_ ledger.StateStore = (*DB)(nil)

	//go:embed states.sql
	statesTable string

	stateColumns = []string{"name", "saved", "payload", "crc"}
)

// SaveState implements [ledger.StateStore].
func (d *DB) SaveState(ctx context.Context, name string, payload []byte) error {
	if len(payload) > ledger.MaxState {
		return fmt.Errorf("saving the state %q of %d bytes: %w", name, len(payload), ledger.ErrTooLarge)
	}
	row := sealed([]any{name, d.now().Unix(), payload})
	if err := d.update(ctx, func(s *session) { s.upsert("states", stateColumns, 1, row) }); err != nil {
		return fmt.Errorf("saving the state %q: %w", name, err)
	}
	return nil
}

// States implements [ledger.StateStore].
func (d *DB) States(ctx context.Context, prefix string) (map[string][]byte, error) {
	all := map[string][]byte{}
	var damaged []error
	rows, err := d.reads.QueryContext(ctx, "SELECT name, saved, payload, crc FROM states "+
		"WHERE SUBSTR(name, 1, LENGTH($1)) = $2", prefix, prefix)
	if err = ForEach(rows, err, func(rows *sql.Rows) error {
		var name string
		var saved, sum int64
		var payload []byte
		err := rows.Scan(&name, &saved, &payload, &sum)
		if err == nil && sum != rowCRC(name, saved, payload) {
			damaged = append(damaged, fmt.Errorf("%w: state %q", ledger.ErrDamaged, name))
			return nil
		}
		all[name] = payload
		return err
	}); err != nil {
		return nil, fmt.Errorf("reading states: %w", err)
	}
	return all, errors.Join(damaged...)
}
