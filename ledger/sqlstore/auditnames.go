package sqlstore

import (
	"database/sql"
	"errors"
	"fmt"
)

// names checks dictionaries, streams and the journal.
func (a *auditor) names(r *reading) error {
	for _, table := range []struct {
		query string
		check func(*sql.Rows) error
	}{
		{"SELECT id, name, crc FROM nodes", func(rows *sql.Rows) error {
			var id, crc int64
			var name string
			err := rows.Scan(&id, &name, &crc)
			a.sum(crc, nodeCRC(name), "node %d %q", id, name)
			a.rows[dictionaryRow{"nodes", id}] = true
			return err
		}},
		{"SELECT id, " + accountColumns + ", crc FROM accounts", func(rows *sql.Rows) error {
			id, _, err := scanAccount(rows)
			a.rows[dictionaryRow{"accounts", id}] = true
			return a.checked(err)
		}},
		{"SELECT id, node, key, pod, namespace, crc FROM consumers", func(rows *sql.Rows) error {
			var id, node, crc int64
			var key, pod, namespace string
			err := rows.Scan(&id, &node, &key, &pod, &namespace, &crc)
			a.sum(crc, consumerCRC(node, key, pod, namespace), "consumer %d %q", id, key)
			a.rows[dictionaryRow{"consumers", id}] = true
			return err
		}},
		{"SELECT node, boot, epoch, acked, gaps, seen, crc FROM streams", func(rows *sql.Rows) error {
			var node, boot, epoch string
			var acked, gaps, seen, crc int64
			err := rows.Scan(&node, &boot, &epoch, &acked, &gaps, &seen, &crc)
			a.sum(crc, streamCRC(node, boot, epoch, acked, gaps, seen), "stream %s of node %q", epoch, node)
			return err
		}},
		{"SELECT node, boot, first, last, seen, crc FROM spans", func(rows *sql.Rows) error {
			var node, boot string
			var first, last, seen, crc int64
			err := rows.Scan(&node, &boot, &first, &last, &seen, &crc)
			a.sum(crc, spanCRC(node, boot, first, last, seen), "time of boot %s of node %q", boot, node)
			return err
		}},
	} {
		if err := r.each(table.check, table.query); err != nil {
			return err
		}
	}
	return a.journal(r)
}

// journal checks what is not folded, a part at a time.
func (a *auditor) journal(r *reading) error {
	const atOnce = 1000
	for after := int64(-1 << 62); ; { // before all
		var entries []*entry
		n := 0
		err := r.each(func(rows *sql.Rows) error {
			var id, node, start, finish int64
			var payload []byte
			if err := rows.Scan(&id, &node, &start, &finish, &payload); err != nil {
				return err
			}
			n, after = n+1, id
			e, err := decodeEntry(id, node, start, finish, payload)
			if err == nil {
				entries = append(entries, e)
			}
			return a.checked(err)
		}, fmt.Sprintf("SELECT id, node, start, finish, payload FROM journal WHERE id > $1 ORDER BY id LIMIT %d",
			atOnce), after)
		if err != nil {
			return err
		}
		for _, e := range entries {
			what := fmt.Sprintf("booking %d", e.ID)
			names := []dictionaryRow{{"nodes", e.Node}, {"accounts", e.Base}}
			for _, l := range e.Lines {
				names = append(names, dictionaryRow{"accounts", l.Account}, dictionaryRow{"consumers", l.Consumer})
			}
			if e.Guest.Account != 0 {
				names = append(names, dictionaryRow{"accounts", e.Guest.Account},
					dictionaryRow{"consumers", e.Guest.Consumer})
			}
			for _, name := range names {
				if err := a.there(r, name, what); err != nil {
					return err
				}
			}
		}
		if n < atOnce {
			return nil
		}
	}
}

// A dictionaryRow is a row of nodes, accounts or consumers.
type dictionaryRow struct {
	table string
	id    int64
}

// there looks for a row that something names. Each one that is missing is told of once.
func (a *auditor) there(r *reading, name dictionaryRow, what string) error {
	if _, known := a.rows[name]; known {
		return nil
	}
	var one int
	err := r.tx.QueryRowContext(r.ctx, "SELECT 1 FROM "+name.table+" WHERE id = $1", name.id).Scan(&one)
	a.rows[name] = err == nil
	if errors.Is(err, sql.ErrNoRows) {
		a.problem("%s names row %d of %s, which is not there", what, name.id, name.table)
		return nil
	}
	return err
}
