package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/kubenergy/kubenergy/internal/ledger"
)

var plain = Dialect{
	Blob: "BLOB", Serial: "INTEGER PRIMARY KEY AUTOINCREMENT", Begin: "BEGIN IMMEDIATE",
	Tables: "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = $1", Writers: 1, Prepare: true,
	Bytes: func(context.Context, *sql.DB) (int64, error) { return 0, nil },
}

func openPlain(t *testing.T, now func() time.Time) *DB {
	t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "ledger.db"))
	if err != nil {
		t.Fatal(err)
	}
	d, err := Open(t.Context(), Options{
		Dialect: plain, Writes: db, Reads: db, Now: now, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

func (d *DB) metaNow(t *testing.T, key string) string {
	t.Helper()
	var value string
	if err := d.reads.QueryRowContext(t.Context(), "SELECT value FROM meta WHERE key = $1",
		key).Scan(&value); err != nil {
		t.Fatal(err)
	}
	return value
}

// A program of version N is upgraded to N+1 with additive changes, downgraded, and upgraded to N+2 with
// incompatible changes.
func TestMigrations(t *testing.T) {
	d := openPlain(t, nil)
	n := migrations
	added := append(slices.Clip(n), migration{
		text: "ALTER TABLE streams ADD COLUMN agent TEXT NOT NULL DEFAULT '';\n", additive: true,
	})
	changed := append(slices.Clip(added), migration{text: "CREATE TABLE other (a TEXT);\nDROP TABLE records;\n"})
	broken := append(slices.Clip(changed), migration{text: "CREATE TABLE third (a TEXT);\nnonsense;\n"})
	version := func(migrations []migration) string { return strconv.Itoa(versionAfter(migrations)) }
	now, next, last := version(n), version(added), version(changed)
	oldest := "" // oldest program that can use a store of version n
	for i, m := range n {
		if !m.additive {
			oldest = version(n[:i+1])
		}
	}
	for i, step := range []struct {
		migrations     []migration
		schema, oldest string
		err            string
	}{
		{n, now, oldest, ""},
		{added, next, oldest, ""},
		{n, next, oldest, ""},
		{added, next, oldest, ""},
		{changed, last, last, ""},
		{added, last, last, "a newer program is needed"},
		{n, last, last, "a newer program is needed"},
		{broken, last, last, "migrating to version " + version(broken)},
		{changed, last, last, ""},
	} {
		err := d.migrate(t.Context(), step.migrations)
		if (step.err == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), step.err) {
			t.Errorf("step %d: got error %v, want %q", i, err, step.err)
		}
		if schema, oldest := d.metaNow(t, "schema"), d.metaNow(t, "oldest"); schema != step.schema ||
			oldest != step.oldest {
			t.Errorf("step %d: unexpected schema version %s or oldest version %s", i, schema, oldest)
		}
		if step.schema == last {
			continue // the table records no longer exists
		}
		if reported, err := d.Statistics(t.Context()); err != nil || strconv.Itoa(reported.Schema) != step.schema {
			t.Errorf("step %d: Statistics() reports schema version %d, error %v", i, reported.Schema, err)
		}
	}
	var tables int
	if err := d.reads.QueryRowContext(t.Context(), plain.Tables, "third").Scan(&tables); err != nil || tables != 0 {
		t.Error("a failed migration was not rolled back:", tables, err)
	}
}

// Stores of versions before the first release are rejected.
func TestUnreleasedVersion(t *testing.T) {
	d := openPlain(t, nil)
	if _, err := d.writes.ExecContext(t.Context(), "UPDATE meta SET value = '4' WHERE key = 'schema'"); err != nil {
		t.Fatal(err)
	}
	err := d.migrate(t.Context(), migrations)
	if err == nil || !strings.Contains(err.Error(), "version 4, which was not released") {
		t.Error("unexpected error:", err)
	}
}

// The use of rows is recorded periodically, and rows that Keep dropped are created again.
func TestInterning(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	d := openPlain(t, func() time.Time { return now })
	c := ledger.Consumer{Key: "pod/a", Account: ledger.Account{Namespace: "ns"}}
	use := func() (consumer, account int64) {
		t.Helper()
		err := d.update(t.Context(), func(s *session) {
			x := d.interning(s)
			consumer, account = x.consumer(1, &c), x.account(&c.Account)
		})
		if err != nil {
			t.Fatal(err)
		}
		return consumer, account
	}
	count := func(what string) (n int64) {
		t.Helper()
		if err := d.reads.QueryRowContext(t.Context(), "SELECT "+what).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	consumer, account := use()
	c.Pod = "a-0"
	for range 3 {
		if again, same := use(); again != consumer || same != account {
			t.Fatalf("rows %d and %d changed to %d and %d", consumer, account, again, same)
		}
	}
	if n := count("count(*) FROM consumers WHERE pod = 'a-0' AND namespace = 'ns'"); n != 1 {
		t.Error("the name of the pod was not stored")
	}
	now = now.Add(25 * time.Hour)
	use()
	for _, table := range []string{"consumers", "accounts"} {
		if seen := count("seen FROM " + table); seen != now.Unix() {
			t.Errorf("%s: unexpected last use %d", table, seen)
		}
		if _, err := d.reads.ExecContext(t.Context(), "DELETE FROM "+table); err != nil {
			t.Fatal(err)
		}
	}
	now = now.Add(25 * time.Hour)
	if again, other := use(); again == consumer || other == account || count("count(*) FROM consumers") != 1 ||
		count("count(*) FROM accounts") != 1 {
		t.Errorf("deleted rows %d and %d were not created again, got %d and %d", consumer, account, again, other)
	}
	// A transaction that is rolled back leaves no rows behind.
	stop := errors.New("stop")
	err := d.update(t.Context(), func(s *session) {
		d.interning(s).consumer(1, &ledger.Consumer{Key: "pod/b"})
		if !s.check(nil) {
			t.Error("the consumer was not created")
		}
		s.check(refused{stop})
	})
	if !errors.Is(err, stop) || count("count(*) FROM consumers") != 1 {
		t.Error(err)
	}
	if _, ok := d.names.consumers.get(consumerKey{1, "pod/b"}); ok {
		t.Error("a row that does not exist is cached")
	}
}

// The cache is cleared after each failed write, possibly during a concurrent read.
func TestForgottenWhileRead(t *testing.T) {
	d := openPlain(t, time.Now)
	var id int64
	if err := d.update(t.Context(), func(s *session) {
		id = d.interning(s).account(&ledger.Account{Namespace: "ns"})
	}); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var forgetting sync.WaitGroup
	forgetting.Go(func() {
		for ctx.Err() == nil {
			d.forgetNames()
		}
	})
	for range 300 {
		if err := d.read(t.Context(), func(r *reading) {
			_, err := r.account(id)
			r.check(err)
		}); err != nil {
			t.Error(err)
			break
		}
	}
	stop()
	forgetting.Wait()
}

func TestGenerations(t *testing.T) {
	g := generations[int, int]{most: 10}
	for i := range 1000 {
		g.put(i, i)
		if v, ok := g.get(0); !ok || v != 0 {
			t.Fatal("an entry in use was evicted")
		}
		if len(g.young)+len(g.old) > 20 {
			t.Fatal("the cache exceeds its maximum size")
		}
	}
	if _, ok := g.get(500); ok {
		t.Error("an unused entry was not evicted")
	}
}

func TestUnnumbered(t *testing.T) {
	for query, want := range map[string]string{
		"a = $1 AND b = $2": "a = ? AND b = ?",
		"a = $2 AND b = $1": "a = $2 AND b = $1",
		"a = $1 OR b = $1":  "a = $1 OR b = $1",
		insertText("t", []string{"a", "b"}, 2,
			"ON CONFLICT DO NOTHING"): "INSERT INTO t (a, b) VALUES (?, ?), (?, ?) ON CONFLICT DO NOTHING",
	} {
		if have := unnumbered(query); have != want {
			t.Errorf("unnumbered(%s) = %s", query, have)
		}
	}
}
