package sqlstore_test

import (
	"database/sql"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/ledger/ledgertest"
	"github.com/kubenergy/kubenergy/internal/ledger/sqlite"
)

// The audit detects and locates every modification of a row, and modified data is excluded from results.
func TestAuditFinds(t *testing.T) {
	ledgertest.OfContent(t)
	path := t.TempDir() + "/ledger.db"
	o := sqlite.Options{Now: func() time.Time { return start.Add(10 * days) }}
	s, err := sqlite.Open(t.Context(), path, o)
	if err != nil {
		t.Fatal(err)
	}
	r := &ledgertest.Random{Rand: rand.New(rand.NewPCG(11, 7)), Start: start, Span: 2 * days}
	var all []*ledger.Booking
	for range 60 {
		all = append(all, r.Next())
	}
	oracle := &ledgertest.Store{}
	both(t, s, oracle, all)
	foldAll(t, s)
	both(t, s, oracle, []*ledger.Booking{r.Next(), r.Next(), r.Next()}) // some remain in the journal
	if err := s.Record(t.Context(), []ledger.Record{record("a", start)}); err != nil {
		t.Fatal(err)
	}
	audited(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	for name, fault := range map[string]struct{ change, finds string }{
		"energy of an account": {"UPDATE account_hours SET dynamic = dynamic + 1 WHERE rowid = (SELECT MAX(rowid) " +
			"FROM account_hours)", "sum of account"},
		"a day of a node":       {"UPDATE node_days SET measured = measured + 4 WHERE rowid = 1", "measured energy is"},
		"an hour is gone":       {"DELETE FROM account_hours WHERE rowid = 5", "the windows of the hour"},
		"a node's hour is gone": {"DELETE FROM node_hours WHERE rowid = 2", "nodes"},
		"a window is gone":      {"DELETE FROM windows WHERE rowid = 3", "the windows of the hour"},
		"a bit of a window": {"UPDATE windows SET payload = CAST(substr(payload, 1, 20) || x'ff' || " +
			"substr(payload, 22) AS BLOB) WHERE rowid = 3", "damaged"},
		"a name":             {"UPDATE nodes SET name = name || 'x' WHERE id = 1", "node 1"},
		"an account":         {"UPDATE accounts SET namespace = 'mine' WHERE id = 2", "account 2"},
		"a consumer":         {"UPDATE consumers SET pod = 'mine' WHERE id = 2", "consumer 2"},
		"a number":           {"UPDATE streams SET acked = acked + 1 WHERE rowid = 1", "stream"},
		"time of a boot":     {"UPDATE spans SET last = last - 1 WHERE rowid = 1", "boot"},
		"a booking":          {"UPDATE journal SET start = start + 1", "booking"},
		"a consumer is gone": {"DELETE FROM consumers WHERE key = 'idle'", "missing row"},
		"a node is gone":     {"DELETE FROM nodes WHERE id = 1", "missing row"},
		"an account is gone": {"DELETE FROM accounts WHERE kind = 2", "missing row"},
		"a record":           {"UPDATE records SET strategy = 'mine'", "record"},
		"a snapshot":         {"UPDATE records SET snapshot = CAST(x'00' || snapshot AS BLOB)", "snapshot"},
	} {
		t.Run(name, func(t *testing.T) {
			copyPath := t.TempDir() + "/copy.db"
			if _, err := db.ExecContext(t.Context(), "VACUUM INTO '"+copyPath+"'"); err != nil {
				t.Fatal(err)
			}
			wrong, err := sql.Open("sqlite", "file:"+copyPath)
			if err != nil {
				t.Fatal(err)
			}
			if result, err := wrong.ExecContext(t.Context(), fault.change); err != nil {
				t.Fatal(err)
			} else if n, _ := result.RowsAffected(); n == 0 {
				t.Fatal("the statement changed no rows")
			}
			wrong.Close()
			s, err := sqlite.Open(t.Context(), copyPath, sqlite.Options{Now: o.Now, Damaged: true})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			found, err := s.Audit(t.Context(), time.Time{})
			if err != nil {
				t.Fatal(err)
			}
			if all := strings.Join(found.Problems, "\n"); !strings.Contains(all, fault.finds) {
				t.Errorf("unexpected problems %q", all)
			}
			if name == "an account" {
				_, err := s.Query(t.Context(), &ledger.Query{
					From: start, To: start.Add(3 * days), GroupBy: []ledger.Dimension{ledger.ByNamespace},
				})
				if !errors.Is(err, ledger.ErrDamaged) {
					t.Errorf("expected ErrDamaged for the energy of a damaged account, got %v", err)
				}
			}
		})
	}
}
