// Package sqlite keeps the ledger in one file: what a cluster needs that has one controller.
//
// What is booked is on disk before Book returns. One process uses a file at a time. What is damaged when it is opened
// is told of, and nothing is made of it: see [Open].
package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"time"

	_ "modernc.org/sqlite" // the driver

	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/ledger/sqlstore"
)

// Options are how a file is opened.
type Options struct {
	Now func() time.Time
	Log *slog.Logger
	// Damaged opens a file that is known to be damaged, to read what is left of it. What is read may be wrong, and
	// what is booked into it lost.
	Damaged bool
}

const (
	// A window of a hundred consumers takes 2.5 kB: three of them fill a page.
	pageSize = 8192
	readers  = 4

	writerCache = "-32768" // KiB
	readerCache = "-16384"

	busyTimeout = "5000" // ms
)

// A Store is a file.
type Store struct {
	*sqlstore.DB

	path  string
	lock  *os.File
	reads *sql.DB
	log   *slog.Logger
	// lost is what was found wrong with the log of writes when the file was opened; "": nothing.
	lost string

	// Of checkpoints; used by the only transaction that writes.
	logBytes int64
	tried    int64 // how long the log was
}

// Open opens a file, or makes one. It fails with an error that wraps [ledger.ErrDamaged] if a file is damaged: put
// back a backup, or set Options.Damaged to read what is left. If only the last transactions cannot be read any more,
// it goes on with what was before them, and Audit tells of it: agents then send numbers beyond those that are booked.
func Open(ctx context.Context, path string, o Options) (*Store, error) {
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	lock, err := lockFile(path + ".lock")
	if err != nil {
		return nil, err
	}
	s := &Store{path: path, lock: lock, log: o.Log, logBytes: logBytes}
	if err := s.open(ctx, o); err != nil {
		return nil, errors.Join(fmt.Errorf("opening the ledger %s: %w", path, err), lock.Close())
	}
	return s, nil
}

func (s *Store) open(ctx context.Context, o Options) error {
	file, err := os.OpenFile(s.path, os.O_RDWR|os.O_CREATE, private)
	if err != nil {
		return err
	}
	if err := errors.Join(file.Chmod(private), file.Close(), syncDir(filepath.Dir(s.path))); err != nil {
		return err
	}
	if s.lost, err = s.inspect(); err != nil && !o.Damaged {
		return err
	}
	if s.lost != "" {
		s.log.Error("Bookings that were acknowledged may be lost: the end of the ledger's log of writes cannot be read",
			"why", s.lost)
	}
	writes, err := sql.Open("sqlite", s.source(writerCache, "wal_autocheckpoint(0)"))
	if err != nil {
		return err
	}
	writes.SetMaxOpenConns(1)
	s.reads, err = sql.Open("sqlite", s.source(readerCache, "wal_autocheckpoint(0)", "query_only(1)"))
	if err != nil {
		return errors.Join(err, writes.Close())
	}
	s.reads.SetMaxOpenConns(readers)
	s.reads.SetMaxIdleConns(readers)
	closing := func(err error) error { return errors.Join(err, s.reads.Close(), writes.Close()) }
	if err := s.check(ctx, writes); err != nil && !o.Damaged {
		return closing(err)
	}
	s.DB, err = sqlstore.Open(ctx, sqlstore.Options{
		Dialect: s.dialect(), Writes: writes, Reads: s.reads, Now: o.Now, Log: o.Log,
	})
	if err != nil {
		return closing(damage(err))
	}
	if err := s.checkContent(ctx); err != nil && !o.Damaged {
		return errors.Join(err, s.DB.Close())
	}
	return nil
}

// syncDir has a new file's name on disk.
func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// source names the file with what is set on each connection.
func (s *Store) source(cache string, more ...string) string {
	q := url.Values{"_pragma": append([]string{
		"busy_timeout(" + busyTimeout + ")",
		fmt.Sprintf("page_size(%d)", pageSize), // of a new file
		"synchronous(FULL)",                    // what is committed is on disk
		"journal_size_limit(0)",                // the log is cut to what it holds when it begins anew
		"foreign_keys(0)",
		"trusted_schema(0)",
		"cell_size_check(1)",
		"temp_store(MEMORY)",
		"cache_size(" + cache + ")",
	}, more...), "_journal_mode": {"WAL"}, "_dqs": {"0"}} // the driver sets the mode last: it makes the file
	return (&url.URL{Scheme: "file", Opaque: (&url.URL{Path: s.path}).EscapedPath(), RawQuery: q.Encode()}).String()
}

func (s *Store) dialect() sqlstore.Dialect {
	return sqlstore.Dialect{
		Blob: "BLOB", Serial: "INTEGER PRIMARY KEY AUTOINCREMENT",
		Begin:     "BEGIN IMMEDIATE",
		Tables:    "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = $1",
		Writers:   1,
		Prepare:   true,
		Bytes:     func(context.Context, *sql.DB) (int64, error) { return s.bytes() },
		Committed: s.committed,
	}
}

// bytes is how much all files take.
func (s *Store) bytes() (int64, error) {
	total := int64(0)
	for _, suffix := range []string{"", walSuffix, "-shm"} {
		info, err := os.Stat(s.path + suffix)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return 0, err
		default:
			total += info.Size()
		}
	}
	return total, nil
}

// Audit implements [ledger.Store]. It reads the whole file.
func (s *Store) Audit(ctx context.Context, from time.Time) (*ledger.Findings, error) {
	findings := &ledger.Findings{}
	if s.lost != "" {
		findings.Problems = append(findings.Problems,
			"when the ledger was opened, the end of its log of writes could not be read: "+s.lost)
	}
	problems, err := integrity(ctx, s.reads, "integrity_check")
	if err != nil {
		return nil, err
	}
	findings.Problems = append(findings.Problems, problems...)
	of, err := s.DB.Audit(ctx, from)
	if isDamage(err) {
		findings.Problems = append(findings.Problems, err.Error())
		return findings, nil
	}
	if err != nil {
		return nil, err
	}
	findings.Checked += of.Checked
	findings.Problems = append(findings.Problems, of.Problems...)
	return findings, nil
}

// Close implements [ledger.Store].
func (s *Store) Close() error { return errors.Join(s.DB.Close(), s.lock.Close()) }
