package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"

	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/ledger/sqlstore"
)

// checkedBytes is the maximum size of a file that is fully checked when it is opened. Larger files are only checked
// by Audit.
const checkedBytes = 1 << 30

// maxProblems is the maximum number of reported problems.
const maxProblems = 20

// isDamage reports whether the error was caused by corrupt data, detected by SQLite or by a checksum of the ledger.
func isDamage(err error) bool {
	if errors.Is(err, ledger.ErrDamaged) {
		return true
	}
	e := new(sqlite.Error)
	if !errors.As(err, &e) {
		return false
	}
	const primary = 0xff
	return e.Code()&primary == lib.SQLITE_CORRUPT || e.Code()&primary == lib.SQLITE_NOTADB
}

// damage wraps errors that were caused by corrupt data in [ledger.ErrDamaged].
func damage(err error) error {
	if err == nil || !isDamage(err) || errors.Is(err, ledger.ErrDamaged) {
		return err
	}
	return fmt.Errorf("%w: %w: restore a backup", ledger.ErrDamaged, err)
}

// check looks for corrupt data before the first write.
func (s *Store) check(ctx context.Context, writes *sql.DB) error {
	info, err := os.Stat(s.path)
	if err != nil {
		return err
	}
	if info.Size() > checkedBytes {
		return nil
	}
	problems, err := integrity(ctx, writes, "quick_check")
	if err != nil {
		return damage(err)
	}
	if len(problems) > 0 {
		return fmt.Errorf("%w: %s: restore a backup", ledger.ErrDamaged, strings.Join(problems, "; "))
	}
	return nil
}

// integrity runs one of SQLite's integrity checks and returns the problems that it found.
func integrity(ctx context.Context, db *sql.DB, pragma string) ([]string, error) {
	lines, err := texts(ctx, db, fmt.Sprintf("PRAGMA %s(%d)", pragma, maxProblems))
	problems := slices.DeleteFunc(lines, func(line string) bool { return line == "ok" })
	if isDamage(err) {
		return append(problems, err.Error()), nil
	}
	if err != nil {
		return nil, fmt.Errorf("checking the ledger: %w", err)
	}
	return problems, nil
}

// texts returns the only column of a query. If it fails, it also returns the rows read before the error.
func texts(ctx context.Context, db *sql.DB, query string) (all []string, err error) {
	rows, err := db.QueryContext(ctx, query)
	err = sqlstore.ForEach(rows, err, func(rows *sql.Rows) error {
		var text string
		if err := rows.Scan(&text); err != nil {
			return err
		}
		all = append(all, text)
		return nil
	})
	return all, err
}

// checkContent checks the rows that have checksums and are used immediately.
func (s *Store) checkContent(ctx context.Context) error {
	if err := s.checkTables(ctx); err != nil {
		return damage(err)
	}
	return damage(s.Checked(ctx))
}

// checkTables compares the table definitions with those of a new ledger, because no checksum covers them. Ledgers
// of a newer schema version are not checked.
func (s *Store) checkTables(ctx context.Context) error {
	have, err := definitions(ctx, s.reads)
	if err != nil {
		return err
	}
	var version string
	if err := s.reads.QueryRowContext(ctx, "SELECT value FROM meta WHERE key = 'schema'").Scan(&version); err != nil {
		return err
	}
	if version != strconv.Itoa(sqlstore.Schema()) {
		return nil
	}
	empty, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		return err
	}
	empty.SetMaxOpenConns(1)
	defer empty.Close()
	for _, statement := range sqlstore.Statements(s.dialect()) {
		if _, err := empty.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	want, err := definitions(ctx, empty)
	if err != nil {
		return err
	}
	if !slices.Equal(have, want) {
		return fmt.Errorf("%w: the table definitions do not match schema version %s: restore a backup",
			ledger.ErrDamaged, version)
	}
	return nil
}

var comment = regexp.MustCompile("--.*")

// definitions returns the statements that created the tables and indexes, without comments.
func definitions(ctx context.Context, db *sql.DB) ([]string, error) {
	all, err := texts(ctx, db, "SELECT type || ' ' || name || ' ' || tbl_name || ' ' || coalesce(sql, '') "+
		"FROM sqlite_master ORDER BY type, name")
	for i := range all {
		all[i] = strings.Join(strings.Fields(comment.ReplaceAllString(all[i], "")), " ")
	}
	return all, err
}
