package pgtest_test

import (
	"database/sql"
	"testing"

	"github.com/kubenergy/kubenergy/internal/ledger/postgres/pgtest"
)

// Committed data survives a crash.
func TestKill(t *testing.T) {
	s := pgtest.StartServer(t)
	db, err := sql.Open("pgx", s.DSN)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), "CREATE TABLE t AS SELECT 7 AS n"); err != nil {
		t.Fatal(err)
	}
	s.Kill(t)
	if err := db.PingContext(t.Context()); err == nil {
		t.Fatal("expected the server to be down")
	}
	s.Run(t)
	var n int
	if err := db.QueryRowContext(t.Context(), "SELECT n FROM t").Scan(&n); err != nil || n != 7 {
		t.Fatal(n, err)
	}
	if pgtest.Bytes(t, s.DSN) < 1<<20 {
		t.Error("expected a size greater than 0")
	}
}
