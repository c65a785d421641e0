package sqlite_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/ledger/ledgertest"
	"github.com/kubenergy/kubenergy/internal/ledger/sqlite"
)

func open(path string) (ledger.Store, error) {
	return sqlite.Open(context.Background(), path, sqlite.Options{})
}

func TestMain(m *testing.M) {
	ledgertest.Child(open)
	os.Exit(m.Run())
}

func TestConformance(t *testing.T) {
	ledgertest.Conformance(t, func(t *testing.T) func() (ledger.Store, error) {
		path := filepath.Join(t.TempDir(), "ledger.db")
		return func() (ledger.Store, error) { return open(path) }
	})
}

func TestOutbox(t *testing.T) { ledgertest.Outbox(t, openBench(t)) }

func TestKill(t *testing.T) {
	ledgertest.Kill(t, filepath.Join(t.TempDir(), "ledger.db"), open)
}
