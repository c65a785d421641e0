package sqlite_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/ledger/ledgertest"
	"github.com/kubenergy/kubenergy/internal/ledger/sqlite"
)

var small = ledgertest.World{Nodes: 2, Pods: 3, Epoch: "1"}

// state returns the complete content of a ledger as text.
func state(ctx context.Context, s ledger.Store) (string, error) {
	var b bytes.Buffer
	for _, by := range []ledger.Dimension{
		ledger.ByNode, ledger.ByUID, ledger.ByOwner, ledger.ByHour, ledger.ByDay, ledger.ByWindow, ledger.ByPod,
	} {
		answer, err := s.Query(ctx, &ledger.Query{
			From: ledgertest.Noon.Add(-time.Hour), To: ledgertest.Noon.Add(48 * time.Hour),
			GroupBy: []ledger.Dimension{by},
		})
		if err != nil {
			return "", err
		}
		for _, r := range answer.Rows {
			fmt.Fprintln(&b, by, r.Key, r.Amount, r.Emissions, r.Costs, r.First, r.Last)
		}
	}
	for node := range small.Nodes {
		acked, known, err := s.Acked(ctx, small.Stream(node))
		if err != nil {
			return "", err
		}
		fmt.Fprintln(&b, "acked", node, acked, known)
	}
	return b.String(), nil
}

// A history contains the files of a ledger as of a crash of the process, and all states of the ledger before it.
type history struct {
	files  map[string][]byte
	states []string
}

var parts = []string{"", "-wal", "-mark"}

// notify records and folds bookings with checkpoints in between.
func notify(t *testing.T, batches uint64) *history {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ledger.db")
	s, err := sqlite.OpenSmall(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	h := &history{files: map[string][]byte{}}
	remember := func() {
		text, err := state(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		h.states = append(h.states, text)
	}
	remember()
	for number := range batches {
		for node := range small.Nodes {
			ledgertest.MustBook(t, s, small.Booking(node, number+1))
			remember()
		}
		if number%5 == 4 {
			if _, err := s.Fold(t.Context()); err != nil {
				t.Fatal(err)
			}
			remember()
		}
	}
	for _, part := range parts {
		if h.files[part], err = os.ReadFile(path + part); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

// outcome opens a damaged ledger. It returns "" if the damage was detected or the ledger is in a previous state.
func (h *history) outcome(path string) string {
	ctx := context.Background()
	s, err := sqlite.Open(ctx, path, sqlite.Options{})
	if err != nil {
		if errors.Is(err, ledger.ErrDamaged) {
			return ""
		}
		return fmt.Sprintf("expected ErrDamaged, got %v", err)
	}
	defer s.Close()
	if findings, err := s.Audit(ctx, time.Unix(math.MinInt32, 0)); err != nil || len(findings.Problems) > 0 {
		return ""
	}
	have, err := state(ctx, s)
	if err != nil {
		return ""
	}
	if !slices.Contains(h.states, have) {
		return "not a previous state:\n" + have
	}
	return ""
}

func (h *history) write(t *testing.T, path, part string, content []byte) {
	t.Helper()
	for _, p := range append([]string{"-shm"}, parts...) {
		_ = os.Remove(path + p)
	}
	for _, p := range parts {
		b := h.files[p]
		if p == part {
			b = content
		}
		if err := os.WriteFile(path+p, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// Batch counts that end shortly after a checkpoint and some time after one.
const (
	justMoved = 24
	moved     = 30
)

const lastBytes = 64 << 10

// stride returns a prime, so that the changed bytes cover all parts of a page over time.
func stride() int {
	if os.Getenv("KUBENERGY_LONG") != "" {
		return 1
	}
	return 1511
}

func TestChangedBytes(t *testing.T) {
	ledgertest.OfContent(t)
	h := notify(t, moved)
	path := filepath.Join(t.TempDir(), "ledger.db")
	h.write(t, path, "none", nil)
	if out := h.outcome(path); out != "" {
		t.Fatal("undamaged:", out)
	}
	for _, part := range parts {
		whole := h.files[part]
		t.Logf("%d bytes of %q", len(whole), part)
		for at := max(0, len(whole)-lastBytes); at < len(whole); at += stride() {
			changed := bytes.Clone(whole)
			changed[at] ^= 1 << (at % 8)
			h.write(t, path, part, changed)
			if out := h.outcome(path); out != "" {
				t.Errorf("byte %d of %q: %s", at, part, out)
			}
		}
	}
}

func TestTruncated(t *testing.T) {
	ledgertest.OfContent(t)
	h := notify(t, justMoved)
	path := filepath.Join(t.TempDir(), "ledger.db")
	for _, part := range parts {
		whole := h.files[part]
		for at := max(0, len(whole)-lastBytes); at < len(whole); at += stride() {
			h.write(t, path, part, whole[:at])
			if out := h.outcome(path); out != "" {
				t.Errorf("truncated to %d of %d bytes of %q: %s", at, len(whole), part, out)
			}
		}
	}
}

// Acknowledged transactions behind a changed byte, which SQLite silently ignores, are reported.
func TestLostTransactionsAreToldOf(t *testing.T) {
	ledgertest.OfContent(t)
	h := notify(t, moved)
	path := filepath.Join(t.TempDir(), "ledger.db")
	wal := h.files["-wal"]
	const frame = 24 + 8192
	frames := (len(wal) - 32) / frame
	reported := 0
	for i := range frames {
		changed := bytes.Clone(wal)
		changed[32+i*frame+5000] ^= 4
		h.write(t, path, "-wal", changed)
		s, err := sqlite.Open(t.Context(), path, sqlite.Options{})
		if errors.Is(err, ledger.ErrDamaged) {
			reported++
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if findings, err := s.Audit(t.Context(), time.Unix(0, 0)); err != nil || len(findings.Problems) > 0 {
			reported++
		}
		_ = s.Close()
	}
	if reported < frames-20 { // the last transaction may look like the result of a power failure
		t.Errorf("%d of %d damaged frames were reported", reported, frames)
	}
	h.write(t, path, "-wal", append(wal[:100:100], make([]byte, 3*frame)...))
	if out := h.outcome(path); out != "" {
		t.Error(out)
	}
}

func TestForeignFiles(t *testing.T) {
	for name, content := range map[string][]byte{
		"text":  bytes.Repeat([]byte("this is not a ledger\n"), 1000),
		"zeros": make([]byte, 20_000),
		"empty": {},
	} {
		path := filepath.Join(t.TempDir(), "ledger.db")
		if err := os.WriteFile(path, content, 0o644); err != nil {
			t.Fatal(err)
		}
		s, err := sqlite.Open(t.Context(), path, sqlite.Options{})
		if err == nil {
			_ = s.Close()
		}
		if name == "empty" != (err == nil) {
			t.Errorf("%s: expected ErrDamaged, got %v", name, err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: unexpected mode %v or error %v", name, info.Mode(), err)
		}
	}
}

// The audit detects a changed column of a row, and still detects it after more was added to the row.
func TestAuditFindsChangedRows(t *testing.T) {
	ledgertest.OfContent(t)
	for _, change := range []string{
		"UPDATE account_hours SET cpu = cpu + 1 WHERE rowid = 3",
		"UPDATE account_hours SET dynamic = dynamic + 1, idle = idle - 1 WHERE rowid = 3",
		"UPDATE account_days SET last = last + 1 WHERE rowid = 2",
		"UPDATE account_days SET account = account + 1000 WHERE rowid = 2",
		"UPDATE node_hours SET shared = shared + 1 WHERE rowid = 1",
		"UPDATE node_days SET unmeasured = 0 WHERE unmeasured > 0",
		"UPDATE node_days SET site = 'other'",
		"UPDATE accounts SET owner = 'mine' WHERE owner = 'owner1'",
		"UPDATE consumers SET pod = 'mine' WHERE pod = 'pod-0-1'",
		"UPDATE nodes SET name = 'node0007' WHERE name = 'node0001'",
		"UPDATE windows SET node = node + 100 WHERE rowid = 1",
		"UPDATE windows SET payload = zeroblob(50) WHERE rowid = 2",
		"UPDATE journal SET finish = finish + 1",
		"UPDATE streams SET acked = acked + 1 WHERE node = 'node0001'",
		"UPDATE spans SET last = last + 1 WHERE node = 'node0001'",
		"DELETE FROM windows WHERE rowid = 2",
		"DELETE FROM account_hours WHERE rowid = 3",
		"DELETE FROM node_days WHERE rowid = 1",
		"DELETE FROM consumers WHERE key = 'system'",
	} {
		path := filepath.Join(t.TempDir(), "ledger.db")
		s, err := sqlite.OpenSmall(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		for number := range uint64(30) {
			ledgertest.MustBook(t, s, small.Booking(0, number+1), small.Booking(1, number+1))
		}
		ledgertest.FoldAll(t, s)
		for number := uint64(31); number < 33; number++ {
			ledgertest.MustBook(t, s, small.Booking(0, number), small.Booking(1, number))
		}
		if err := s.Exec(t.Context(), change); err != nil {
			t.Fatal(change, err)
		}
		for _, when := range []string{"", " after folding again"} {
			findings, err := s.Audit(t.Context(), time.Unix(0, 0))
			if err == nil && len(findings.Problems) == 0 {
				t.Errorf("%s: the audit found no problem%s", change, when)
			}
			if _, err := s.Fold(t.Context()); err != nil && !errors.Is(err, ledger.ErrDamaged) {
				t.Errorf("%s: unexpected error of Fold(): %v", change, err)
			}
		}
		_ = s.Close()
	}
}
