package postgres_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/ledger/ledgertest"
	"github.com/kubenergy/kubenergy/internal/ledger/postgres"
	"github.com/kubenergy/kubenergy/internal/ledger/postgres/pgtest"
)

func TestMain(m *testing.M) {
	ledgertest.Child(func(source string) (ledger.Store, error) {
		return postgres.Open(context.Background(), source, postgres.Options{})
	})
	os.Exit(m.Run())
}

var databases atomic.Int64

// database creates a separate database on a server.
func database(t *testing.T, source string) string {
	t.Helper()
	name := fmt.Sprintf("ledger%d", databases.Add(1))
	db, err := sql.Open("pgx", source)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), "CREATE DATABASE "+name); err != nil {
		t.Fatal(err)
	}
	return strings.Replace(source, "dbname=postgres", "dbname="+name, 1)
}

func TestConformance(t *testing.T) {
	source := pgtest.Start(t)
	ledgertest.Conformance(t, func(t *testing.T) func() (ledger.Store, error) {
		t.Helper()
		own := database(t, source)
		return func() (ledger.Store, error) {
			return postgres.Open(context.Background(), own, postgres.Options{Connections: 4})
		}
	})
}

// TestKill kills the process repeatedly while it records bookings. The database server keeps running.
func TestKill(t *testing.T) {
	ledgertest.Kill(t, pgtest.Start(t), func(source string) (ledger.Store, error) {
		return postgres.Open(context.Background(), source, postgres.Options{})
	})
}
