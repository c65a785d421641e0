package controller

import (
	"crypto/sha256"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/ledger/sqlstore"
	"github.com/kubenergy/kubenergy/test/kit"
)

// TestUpgrade upgrades and downgrades the controller twice while agents deliver batches. The new version has an
// additional migration that does not prevent a downgrade.
func TestUpgrade(t *testing.T) {
	if !long() {
		t.Skip("compiles another version: run make controller-long")
	}
	next, err := nextVersion()
	if err != nil {
		t.Fatal(err)
	}
	engines(t, func(t *testing.T, e *engine) {
		w := shared
		h := w.newHerd(t, 3)
		c := w.controller(t, e.env(), "--agentless=false", "--host-tokens-file="+h.tokens)
		wi := newWire(t, c)
		h.connect(wi)
		if err := h.start(0)(); err != nil {
			t.Fatal(err)
		}
		this, schema := c.path, sqlstore.Schema()
		flow := 2 * time.Second
		if long() {
			flow = 20 * time.Second
		}
		for i, step := range []struct {
			path string
			kill bool
		}{{next, false}, {this, false}, {next, true}, {this, true}} {
			before := wi.progress()
			time.Sleep(flow) // agents deliver batches in the meantime
			// This may take longer on a busy machine.
			kit.Eventually(t, time.Minute, fmt.Sprintf("batches are acknowledged before step %d", i),
				func() bool { return wi.progress() != before })
			if step.kill {
				c.Kill()
			} else if err := c.Stop(time.Minute); err != nil {
				t.Fatal(err)
			}
			c.path = step.path
			c.begin(t)
			if version := c.statistics(t).Schema; version != schema+1 {
				t.Errorf("schema version after step %d = %d, want %d", i, version, schema+1)
			}
			// A query does not fold a long journal. The sums are as old as the last fold, which may not have
			// happened before this step.
			kit.Eventually(t, time.Minute, fmt.Sprintf("usage can be queried after step %d", i), func() bool {
				booked, total := c.sums(t, h.began)
				return total > 0 && len(booked) > 0
			})
			c.audit(t)
		}
		time.Sleep(flow) // agents deliver batches in the meantime
		steps := h.finish(t, 2*time.Minute)
		t.Logf("%v", wi)
		wi.check(t)
		c.verify(t, h.began, steps, nil)
		// The new version must be able to read the last records of the old version.
		if err := c.Stop(time.Minute); err != nil {
			t.Error(err)
		}
		c.path = next
		c.begin(t)
		c.verify(t, h.began, steps, nil)
		if err := c.Stop(time.Minute); err != nil {
			t.Error(err)
		}
		e.whole(t, c, len(steps))
		e.refused(t, c, this)
	})
}

// nextVersion builds a controller with one additional migration.
func nextVersion() (string, error) {
	const schema = "internal/ledger/sqlstore/schema.go"
	path := filepath.Join(kit.Root, schema)
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	// Append a migration with which older versions are compatible.
	const end = "},\n\t}\n)\n"
	const more = "}, {additive: true, text: `ALTER TABLE streams ADD COLUMN remark TEXT NOT NULL DEFAULT '';\n" +
		"ALTER TABLE node_hours ADD COLUMN water BIGINT NOT NULL DEFAULT 0;\n" +
		"CREATE TABLE remarks (id {serial}, remark TEXT NOT NULL);\n" +
		"CREATE INDEX remarks_by_text ON remarks (remark);\n`},\n\t}\n)\n"
	if strings.Count(string(text), end) != 1 {
		return "", fmt.Errorf("unexpected content of %s", schema)
	}
	dir, err := os.MkdirTemp(shared.Dir, "next")
	if err != nil {
		return "", err
	}
	changed, overlay := filepath.Join(dir, "schema.go"), filepath.Join(dir, "overlay.json")
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{path: changed}})
	if err != nil {
		return "", err
	}
	if err := errors.Join(os.WriteFile(changed, []byte(strings.Replace(string(text), end, more, 1)), 0o600),
		os.WriteFile(overlay, replace, 0o600)); err != nil {
		return "", err
	}
	next := filepath.Join(dir, "kubenergy-controller")
	return next, kit.BuildTo(next, "./cmd/kubenergy-controller", "-overlay="+overlay)
}

// refused verifies that the controller does not use or modify a store that requires a newer version.
func (e *engine) refused(t *testing.T, c *controllerProcess, this string) {
	t.Helper()
	driver, source := "pgx", e.dsn
	if e.dsn == "" {
		driver, source = "sqlite", filepath.Join(c.state, "ledger.db")
	}
	db, err := sql.Open(driver, source)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _,
		err := db.ExecContext(t.Context(),
		"UPDATE meta SET value = '99' WHERE key IN ('oldest', 'schema')"); err != nil {
		t.Fatal(err)
	}
	before := content(t, db)
	var file [sha256.Size]byte
	if e.dsn == "" {
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		file = digest(t, source)
	}
	mark := len(c.Output())
	c.path = this
	c.begin(t)
	var reported string
	kit.Eventually(t, time.Minute, "the controller reports why it does not use the store", func() bool {
		reported = lineWith(c.Output()[mark:], "a newer program is needed")
		return reported != ""
	})
	t.Logf("message for a store of a newer version: %s", reported)
	if status, body := c.get(t, "/api/v1/ledger?from=-1h", c.token); status == http.StatusOK {
		t.Errorf("unexpected response from a store of a newer version: %s", body)
	}
	if status, err := c.post(t, joules(t, "host-0", "future", 1), tokenOf("host-0")); err != nil ||
		status != http.StatusServiceUnavailable {
		t.Errorf("status for a batch with a store of a newer version = %d, error %v, want service unavailable",
			status, err)
	}
	if err := c.Stop(time.Minute); err != nil {
		t.Error(err)
	}
	if e.dsn == "" {
		if digest(t, source) != file {
			t.Error("database file was modified")
		}
		if db, err = sql.Open(driver, source); err != nil {
			t.Fatal(err)
		}
		defer db.Close()
	}
	if after := content(t, db); !slices.Equal(before, after) {
		t.Errorf("store was modified from %v to %v", before, after)
	}
}

func lineWith(text, part string) string {
	for line := range strings.Lines(text) {
		if strings.Contains(line, part) {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

func digest(t *testing.T, path string) [sha256.Size]byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return sha256.Sum256(data)
}

// content returns row counts, checksums and metadata of a store for comparison.
func content(t *testing.T, db *sql.DB) (all []string) {
	t.Helper()
	for _, query := range []string{
		"SELECT count(*) FROM streams", "SELECT sum(acked) FROM streams", "SELECT count(*) FROM journal",
		"SELECT count(*) FROM windows",
		"SELECT count(*) FROM account_hours", "SELECT sum(crc) FROM account_hours", "SELECT sum(crc) FROM account_days",
		"SELECT sum(crc) FROM node_hours",
		"SELECT sum(crc) FROM node_days", "SELECT sum(crc) FROM consumers", "SELECT count(*) FROM remarks",
		"SELECT count(*) FROM meta",
		"SELECT value FROM meta WHERE key = 'oldest'", "SELECT value FROM meta WHERE key = 'schema'",
	} {
		var value string
		if err := db.QueryRowContext(t.Context(), query).Scan(&value); err != nil {
			t.Fatal(err)
		}
		all = append(all, value)
	}
	return all
}
