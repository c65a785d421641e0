// Package sqlite implements a ledger store in a single file, for clusters with one controller.
//
// Bookings are durable before Book returns. Only one process can use a file at a time. Corrupt data that is
// detected when the file is opened is reported and excluded from all results. See [Open].
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
	"slices"
	"time"

	_ "modernc.org/sqlite" // the driver

	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/ledger/sqlstore"
)

// Options configure [Open].
type Options struct {
	Now func() time.Time
	Log *slog.Logger
	// Damaged opens a file that is known to be damaged in order to read the remaining data. Query results may be
	// incorrect, and new bookings may be lost.
	Damaged bool
}

const (
	// A window of a hundred consumers is 2.5 kB, so three windows fill a page.
	pageSize = 8192
	readers  = 4

	writerCache = "-32768" // KiB
	readerCache = "-16384"

	busyTimeout = "5000" // ms
)

// A Store is a ledger store in a SQLite file.
type Store struct {
	*sqlstore.DB

	path  string
	lock  *os.File
	reads *sql.DB
	log   *slog.Logger
	// lost describes the damage of the write-ahead log found when the file was opened, or is empty.
	lost string

	// Checkpoint state, used by the only writing transaction.
	logBytes int64
	tried    int64 // length of the log at the last checkpoint
}

// Open opens a file or creates it. If the file is damaged, it returns an error that wraps [ledger.ErrDamaged]. The
// user can restore a backup or set Options.Damaged to read the remaining data. If only the last transactions are
// unreadable, the ledger continues with the state before them and Audit reports the loss. Agents then send sequence
// numbers beyond the recorded ones.
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
		s.log.Error("Acknowledged bookings may be lost because the end of the ledger's write-ahead log is not readable",
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

// syncDir makes the name of a new file durable.
func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// source returns the data source name of the file, including the pragmas of each connection.
func (s *Store) source(cache string, more ...string) string {
	q := url.Values{"_pragma": append([]string{
		"busy_timeout(" + busyTimeout + ")",
		fmt.Sprintf("page_size(%d)", pageSize), // for new files
		"synchronous(FULL)",                    // commits are durable
		"journal_size_limit(0)",                // truncate the log when it is restarted
		"foreign_keys(0)",
		"trusted_schema(0)",
		"cell_size_check(1)",
		"temp_store(MEMORY)",
		"cache_size(" + cache + ")",
	}, more...), "_journal_mode": {"WAL"}, "_dqs": {"0"}} // sets the mode last, as it creates the file
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

// bytes returns the total size of all files of the ledger.
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
	problems, err := integrity(ctx, s.reads, "integrity_check")
	if err != nil {
		return nil, err
	}
	if s.lost != "" {
		problems = slices.Insert(problems, 0,
			"the end of the write-ahead log was not readable when the ledger was opened: "+s.lost)
	}
	findings, err := s.DB.Audit(ctx, from)
	if isDamage(err) {
		findings, err = &ledger.Findings{Problems: []string{err.Error()}}, nil
	}
	if err != nil {
		return nil, err
	}
	findings.Problems = append(problems, findings.Problems...)
	return findings, nil
}

// Close implements [ledger.Store].
func (s *Store) Close() error { return errors.Join(s.DB.Close(), s.lock.Close()) }
