package postgres_test

import (
	"database/sql"
	"testing"

	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/ledger/ledgertest"
	"github.com/kubenergy/kubenergy/internal/ledger/postgres/pgtest"
)

func other(t *testing.T, source string) *sql.DB {
	t.Helper()
	db, err := sql.Open("pgx", source)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func run(t *testing.T, db *sql.DB, statements ...string) {
	t.Helper()
	for _, statement := range statements {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(statement, err)
		}
	}
}

// The fold lock is scoped to the transaction. A session lock of an idle connection could outlive its process by
// hours.
func TestFoldLockEndsWithItsTransaction(t *testing.T) {
	source := pgtest.Start(t)
	s, db := open(t, source), other(t, source)
	w := ledgertest.World{Nodes: 1, Pods: 2, Epoch: "1"}
	ledgertest.MustBook(t, s, w.Booking(0, 1))
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	var value string
	if err := tx.QueryRowContext(t.Context(), "SELECT value FROM meta WHERE key = 'schema' FOR UPDATE").Scan(
		&value); err != nil {
		t.Fatal(err)
	}
	folded := make(chan error, 1)
	go func() {
		_, err := s.Fold(t.Context())
		folded <- err
	}()
	const holders = `SELECT a.state FROM pg_locks l JOIN pg_stat_activity a USING (pid)
		WHERE l.locktype = 'advisory' AND l.granted`
	for state := ""; ; {
		err := db.QueryRowContext(t.Context(), holders).Scan(&state)
		if err == nil {
			if state == "idle" {
				t.Error("the holder of the lock is not in a transaction")
			}
			break
		}
		if t.Context().Err() != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := <-folded; err != nil {
		t.Fatal(err)
	}
	var held int
	if err := db.QueryRowContext(t.Context(), "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'").Scan(
		&held); err != nil || held != 0 {
		t.Errorf("got %d held locks, error %v", held, err)
	}
	foldAll(t, s)
	audited(t, s)
}

// The database is replaced by another one in which rows have different IDs, e.g. after a failover to a server that
// lagged behind. Cached IDs must not be used, regardless of whether the connections were lost.
func TestRowsOfAnotherServer(t *testing.T) {
	for name, lost := range map[string]bool{"connections are lost": true, "connections are kept": false} {
		t.Run(name, func(t *testing.T) {
			source := pgtest.Start(t)
			s, db := open(t, source), other(t, source)
			w := ledgertest.World{Nodes: 2, Pods: 2, Epoch: "1"}
			booked := []*ledger.Booking{w.Booking(0, 1), w.Booking(1, 1)}
			ledgertest.MustBook(t, s, booked...)
			// Empty the database and create rows in a different order, so that cached IDs refer to other rows.
			run(t, db, "TRUNCATE nodes, accounts, consumers, journal, streams, spans, windows RESTART IDENTITY")
			if lost {
				run(t, db,
					"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'kubenergy'")
			}
			var truth ledgertest.Truth
			for _, b := range []*ledger.Booking{w.Booking(1, 2), w.Booking(0, 2), w.Booking(1, 3)} {
				b.Consumers[0].Account.Namespace = "other" // so that accounts are created in a different order
				truth.Book(b)
				for {
					_, errs, err := s.Book(t.Context(), []*ledger.Booking{b})
					if err == nil && errs[0] == nil {
						break
					}
					if !lost || t.Context().Err() != nil {
						t.Fatal(errs, err)
					}
				}
			}
			for range 10 { // each of several connections detects the change separately
				if _, err := s.Fold(t.Context()); err == nil {
					break
				} else if !lost {
					t.Fatal(err)
				}
			}
			ledgertest.FoldAll(t, s)
			truth.Check(t, s)
		})
	}
}

// The reported size only includes the tables of the ledger.
func TestBytes(t *testing.T) {
	source := pgtest.Start(t)
	s, db := open(t, source), other(t, source)
	size := func() int64 {
		t.Helper()
		stats, err := s.Statistics(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return stats.Bytes
	}
	before := size()
	run(t, db, "CREATE TABLE another (a TEXT)",
		"INSERT INTO another SELECT repeat('a', 100) FROM generate_series(1, 10000)")
	if after := size(); after != before || before == 0 {
		t.Errorf("got %d bytes with a foreign table, %d without", after, before)
	}
	run(t, db, "CREATE TABLE chunk () INHERITS (windows)",
		"INSERT INTO chunk SELECT n, 1, 0, repeat('a', 100)::BYTEA FROM generate_series(1, 10000) AS n")
	if after := size(); after < before+1_000_000 {
		t.Errorf("got %d bytes with a partition of windows, %d without", after, before)
	}
	run(t, db, "DROP TABLE chunk")
}
