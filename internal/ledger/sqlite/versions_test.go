package sqlite_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/ledger/ledgertest"
	"github.com/kubenergy/kubenergy/internal/ledger/sqlite"
	"github.com/kubenergy/kubenergy/internal/ledger/sqlstore"
)

var rewrite = flag.Bool("rewrite", false, "write the store of the current schema version, which must not have been released")

var (
	released = ledgertest.World{Nodes: 2, Pods: 3, Epoch: "released"}
	booked   = uint64(7) // bookings per node of a released store
)

// Stores written by any released version are migrated to the current version without data loss and remain usable.
func TestReleasedVersions(t *testing.T) {
	current := filepath.Join("testdata", fmt.Sprintf("v%d.sql", sqlstore.Schema()))
	if *rewrite {
		writeVersion(t, current)
	}
	if _, err := os.Stat(current); err != nil {
		t.Fatalf("%v: run the test with -rewrite to create the file", err)
	}
	files, err := filepath.Glob("testdata/v*.sql")
	const first = 5
	if versions := sqlstore.Schema() - first + 1; err != nil || len(files) != versions {
		t.Fatalf("got %d files for %d versions, error %v", len(files), versions, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(t.TempDir(), "ledger.db")
			raw(t, path, string(text))
			s, err := sqlite.Open(t.Context(), path, sqlite.Options{Now: func() time.Time { return ledgertest.Noon }})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			var truth ledgertest.Truth
			for node := range released.Nodes {
				for number := range booked + 1 {
					truth.Book(released.Booking(node, number+1))
				}
				r := ledgertest.MustBook(t, s, released.Booking(node, booked), released.Booking(node, booked+1))
				if r[0].Booked || !r[1].Booked || r[1].Gap {
					t.Errorf("unexpected receipt %+v", r)
				}
			}
			ledgertest.FoldAll(t, s)
			truth.Check(t, s)
		})
	}
}

func raw(t *testing.T, path, text string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), text); err != nil {
		t.Fatal(err)
	}
}

// writeVersion writes a store with both folded and unfolded bookings as SQL statements.
func writeVersion(t *testing.T, file string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ledger.db")
	s, err := sqlite.Open(t.Context(), path, sqlite.Options{Now: func() time.Time { return ledgertest.Noon }})
	if err != nil {
		t.Fatal(err)
	}
	for number := range booked {
		for node := range released.Nodes {
			ledgertest.MustBook(t, s, released.Booking(node, number+1))
		}
		if number == 4 {
			ledgertest.FoldAll(t, s)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	text, err := dump(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, text, 0o644); err != nil {
		t.Fatal(err)
	}
}

func dump(ctx context.Context, db *sql.DB) ([]byte, error) {
	var b bytes.Buffer
	var tables []string
	rows,
		err := db.QueryContext(ctx, "SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT "+
		"LIKE 'sqlite_%' ORDER BY rowid")
	if err != nil {
		return nil, err
	}
	for rows.Next() {
		var kind, name, text string
		if err := rows.Scan(&kind, &name, &text); err != nil {
			return nil, err
		}
		fmt.Fprintf(&b, "%s;\n", text)
		if kind == "table" {
			tables = append(tables, name)
		}
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return nil, err
	}
	for _, table := range tables {
		if err := dumpTable(ctx, db, table, &b); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), nil
}

func dumpTable(ctx context.Context, db *sql.DB, table string, b *bytes.Buffer) error {
	rows, err := db.QueryContext(ctx, "SELECT * FROM "+table)
	if err != nil {
		return err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return err
	}
	values, into := make([]any, len(columns)), make([]any, len(columns))
	for i := range values {
		into[i] = &values[i]
	}
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return err
		}
		texts := make([]string, len(values))
		for i, v := range values {
			switch v := v.(type) {
			case []byte:
				texts[i] = fmt.Sprintf("x'%x'", v)
			case string:
				texts[i] = "'" + strings.ReplaceAll(v, "'", "''") + "'"
			case nil:
				texts[i] = "NULL"
			default:
				texts[i] = fmt.Sprint(v)
			}
		}
		fmt.Fprintf(b, "INSERT INTO %s (%s) VALUES (%s);\n", table, strings.Join(columns, ", "),
			strings.Join(texts, ", "))
	}
	return rows.Err()
}

// After a downgrade to the previous version, the store remains usable if the newer version only made compatible
// additions.
func TestThereAndBackAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger.db")
	var truth ledgertest.Truth
	number := uint64(0)
	run := func(what string) {
		t.Helper()
		s, err := sqlite.Open(t.Context(), path, sqlite.Options{})
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		defer s.Close()
		number++
		for node := range released.Nodes {
			b := released.Booking(node, number)
			truth.Book(b)
			ledgertest.MustBook(t, s, b)
		}
		ledgertest.FoldAll(t, s)
		truth.Check(t, s)
	}
	run("new")
	next := sqlstore.Schema() + 1
	raw(t, path, fmt.Sprintf(`ALTER TABLE streams ADD COLUMN agent TEXT NOT NULL DEFAULT '';
		CREATE TABLE more (a TEXT); UPDATE meta SET value = '%d' WHERE key = 'schema'`, next))
	run("a newer version with compatible additions")
	raw(t, path, fmt.Sprintf("UPDATE meta SET value = '%d' WHERE key = 'oldest'", next))
	if _, err := sqlite.Open(t.Context(), path, sqlite.Options{}); err == nil || errors.Is(err, ledger.ErrDamaged) ||
		!strings.Contains(err.Error(), "newer") {
		t.Error("unexpected result for a newer version with incompatible tables:", err)
	}
	raw(t, path, "UPDATE meta SET value = 'x' WHERE key = 'oldest'")
	if _, err := sqlite.Open(t.Context(), path, sqlite.Options{}); !errors.Is(err, ledger.ErrDamaged) {
		t.Error("unexpected result for an invalid version:", err)
	}
}
