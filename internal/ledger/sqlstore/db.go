package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kubenergy/kubenergy/internal/ledger"
)

// A Dialect is what differs between databases.
type Dialect struct {
	Blob, Serial string // types of columns
	Begin        string // begins a transaction that writes
	Lock         string // keeps other processes from migrating at the same time; "": Begin does
	Tables       string // counts the tables named $1
	// TryFold tells if this transaction may fold, until it ends; "": Begin does.
	TryFold string
	// LockAccounts keeps other transactions from making accounts, or from writing down that they are used, until this
	// one ends: each does so in its own order; "": Begin does.
	LockAccounts string
	ForUpdate    string // at the end of a SELECT whose rows no other transaction shall change; "": Begin does
	Writers      int    // how many transactions that write may go on at once
	Prepare      bool   // whether statements are worth preparing
	// Again reports whether a transaction failed only because of others, and was undone; nil: none does.
	Again func(err error) bool
	// Bytes returns the size on disk.
	Bytes func(ctx context.Context, db *sql.DB) (int64, error)
	// Committed is called after each transaction on its connection; nil: nothing is to be done.
	Committed func(ctx context.Context, conn *sql.Conn) error
}

// A DB is a store of the ledger in a database. It may be used by several goroutines, and by several processes if the
// database can.
type DB struct {
	dialect Dialect
	writes  *sql.DB
	reads   *sql.DB
	now     func() time.Time
	log     *slog.Logger

	idle    chan *session // not used just now; nil: not connected
	booking sync.Mutex    // held by Book
	names   names
	cache   blockCache // of queries: see source.go
	stuck   atomic.Pointer[size]
}

// Options are what a DB needs.
type Options struct {
	Dialect Dialect
	Writes  *sql.DB
	Reads   *sql.DB // may be Writes
	Now     func() time.Time
	Log     *slog.Logger
}

// Checked reads what Book relies on and Audit would take long to come to: the entries of the journal.
func (d *DB) Checked(ctx context.Context) error {
	rows, err := d.reads.QueryContext(ctx, selectEntries)
	return ForEach(rows, err, func(rows *sql.Rows) error {
		_, _, err := scanEntry(rows)
		return err
	})
}

// Open brings a database to the current version and returns its store. It closes both of its databases when it is
// closed.
func Open(ctx context.Context, o Options) (*DB, error) {
	d := &DB{dialect: o.Dialect, writes: o.Writes, reads: o.Reads, now: o.Now, log: o.Log}
	if d.now == nil {
		d.now = time.Now
	}
	d.idle = make(chan *session, max(d.dialect.Writers, 1))
	for range cap(d.idle) {
		d.idle <- nil
	}
	d.forgetNames()
	if err := d.migrate(ctx, migrations); err != nil {
		return nil, err
	}
	return d, nil
}

// Close waits for what is being written.
func (d *DB) Close() error {
	var errs []error
	for range cap(d.idle) {
		if s := <-d.idle; s != nil {
			errs = append(errs, s.close())
		}
	}
	return errors.Join(append(errs, d.reads.Close(), d.writes.Close())...)
}

// A session is a connection that writes, with the statements that were prepared on it.
type session struct {
	conn    *sql.Conn
	dialect *Dialect
	stmts   map[string]*sql.Stmt
}

func (s *session) close() error {
	for _, stmt := range s.stmts {
		_ = stmt.Close()
	}
	return s.conn.Close()
}

// drop closes the connection: after an error it may not know what the database holds. Nor do we: the next connection
// may be to a server that was behind the one before, or to a backup that was put back, and there numbers of rows are
// other names'.
func (d *DB) drop(s *session) {
	d.forgetNames()
	for _, stmt := range s.stmts {
		_ = stmt.Close()
	}
	_ = s.conn.Raw(func(any) error { return driver.ErrBadConn })
	_ = s.conn.Close()
}

// How often a transaction is tried that others were in the way of, and how long it waits.
const (
	tries     = 6
	firstWait = 5 * time.Millisecond
)

// update runs a transaction, and retries it after a conflict with another. Its connection is closed after any error
// but those of do that are marked with [refused], so the next one begins from what is on disk. All other errors say
// that nothing can be written; what became of the transaction is then not known.
func (d *DB) update(ctx context.Context, do func(context.Context, *session) error) error {
	var s *session
	select {
	case s = <-d.idle:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { d.idle <- s }()
	wait := firstWait
	for try := 1; ; try++ {
		var err error
		used := s
		s = nil // if do panics, the next transaction connects anew
		s, err = d.run(ctx, used, do)
		if err == nil || try == tries || d.dialect.Again == nil || !d.dialect.Again(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(wait/2 + rand.N(wait)):
		}
		wait *= 2
	}
}

const longestCommit = 30 * time.Second

func (d *DB) run(ctx context.Context, s *session, do func(context.Context, *session) error) (*session, error) {
	if s == nil {
		conn, err := d.writes.Conn(ctx)
		if err != nil {
			d.forgetNames()
			return nil, d.unwritten(ctx, "connecting", err)
		}
		s = &session{conn: conn, dialect: &d.dialect, stmts: map[string]*sql.Stmt{}}
	}
	if _, err := s.conn.ExecContext(ctx, d.dialect.Begin); err != nil {
		d.drop(s)
		return nil, d.unwritten(ctx, "beginning a transaction", err)
	}
	// What is complete is committed, even if the caller waits no longer.
	whole, cancel := context.WithTimeout(context.WithoutCancel(ctx), longestCommit)
	defer cancel()
	panicked := true
	defer func() {
		if panicked { // the transaction must not stay open
			d.drop(s)
		}
	}()
	err := do(ctx, s)
	panicked = false
	if err != nil {
		d.forgetNames() // some are of rows that it made
		var r refused
		if _, rollback := s.conn.ExecContext(whole, "ROLLBACK"); rollback != nil || !errors.As(err, &r) {
			d.drop(s)
			s = nil
		}
		if errors.As(err, &r) {
			return s, r.error
		}
		return s, d.unwritten(ctx, "writing", err)
	}
	if _, err := s.conn.ExecContext(whole, "COMMIT"); err != nil {
		d.drop(s)
		return nil, d.unwritten(ctx, "committing", err)
	}
	if d.dialect.Committed != nil {
		if err := d.dialect.Committed(whole, s.conn); err != nil {
			d.log.Error("Work after a transaction of the ledger could not be done; the transaction was", "err", err)
			d.drop(s)
			return nil, nil
		}
	}
	return s, nil
}

// refused marks errors that say nothing about the database.
type refused struct{ error }

func (d *DB) unwritten(ctx context.Context, what string, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", what, context.Cause(ctx))
	}
	if errors.Is(err, ledger.ErrDamaged) {
		return fmt.Errorf("%s: %w", what, err)
	}
	return fmt.Errorf("%w: %s: %w", ledger.ErrReadOnly, what, err)
}

// prepared returns a statement; nil: it is not worth preparing.
func (s *session) prepared(ctx context.Context, query string) (*sql.Stmt, error) {
	if stmt := s.stmts[query]; stmt != nil || !s.dialect.Prepare {
		return stmt, nil
	}
	stmt, err := s.conn.PrepareContext(ctx, unnumbered(query))
	if err == nil {
		s.stmts[query] = stmt
	}
	return stmt, err
}

var parameter = regexp.MustCompile(`\$[0-9]+`)

// unnumbered writes ? for parameters that come in the order of their numbers, each once: the driver of SQLite takes a
// numbered one for a name, and looks among all arguments for it.
func unnumbered(query string) string {
	n, inOrder := 0, true
	text := parameter.ReplaceAllStringFunc(query, func(p string) string {
		n++
		inOrder = inOrder && p == "$"+strconv.Itoa(n)
		return "?"
	})
	if inOrder {
		return text
	}
	return query
}

// exec runs a statement. Its text should be one of a few: it is kept.
func (s *session) exec(ctx context.Context, query string, args ...any) (sql.Result, error) {
	stmt, err := s.prepared(ctx, query)
	switch {
	case err != nil:
		return nil, err
	case stmt == nil:
		return s.conn.ExecContext(ctx, query, args...)
	}
	return stmt.ExecContext(ctx, args...)
}

// each calls do for every row that a statement returns, which is kept like those of exec. do must not run another
// statement in the session.
func (s *session) each(ctx context.Context, do func(*sql.Rows) error, query string, args ...any) error {
	var rows *sql.Rows
	stmt, err := s.prepared(ctx, query)
	switch {
	case err != nil:
		return err
	case stmt == nil:
		rows, err = s.conn.QueryContext(ctx, query, args...)
	default:
		rows, err = stmt.QueryContext(ctx, args...)
	}
	return ForEach(rows, err, do)
}

// errEnough ends a loop over rows.
var errEnough = errors.New("enough rows")

// ForEach calls do for every row that a statement returned, until it fails.
func ForEach(rows *sql.Rows, err error, do func(*sql.Rows) error) error {
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := do(rows); errors.Is(err, errEnough) {
			break
		} else if err != nil {
			return err
		}
	}
	return errors.Join(rows.Err(), rows.Close())
}

// one reads a single row; false: there is none.
func (s *session) one(ctx context.Context, query string, args []any, into ...any) (found bool, err error) {
	err = s.each(ctx, func(rows *sql.Rows) error {
		if err := rows.Scan(into...); err != nil {
			return err
		}
		found = true
		return errEnough
	}, query, args...)
	return found, err
}

// upsert adds rows, and replaces those that are there: the first columns, so many, are their key.
func (s *session) upsert(ctx context.Context, table string, columns []string, keys int, rows ...[]any) error {
	set := make([]string, 0, len(columns)-keys)
	for _, column := range columns[keys:] {
		set = append(set, column+" = excluded."+column)
	}
	return s.insert(ctx, table, columns, rows, "ON CONFLICT ("+strings.Join(columns[:keys], ", ")+") DO UPDATE SET "+
		strings.Join(set, ", "))
}

// rowsAtOnce is how many rows a statement inserts: one more would hardly be faster, and the statement is compiled.
const rowsAtOnce = 64

// insert adds rows, with a clause after their values.
func (s *session) insert(ctx context.Context, table string, columns []string, rows [][]any, clause string) error {
	for len(rows) > 0 {
		n := rowsAtOnce
		if len(rows) < n {
			n = 1 // so that there are two texts of the statement, not many
		}
		if _, err := s.exec(ctx, insertText(table, columns, n, clause), slices.Concat(rows[:n]...)...); err != nil {
			return err
		}
		rows = rows[n:]
	}
	return nil
}

// forget deletes rows by their numbers.
func (s *session) forget(ctx context.Context, table string, numbers []int64) error {
	for some := range slices.Chunk(numbers, listed) {
		if _, err := s.conn.ExecContext(ctx, "DELETE FROM "+table+" WHERE id IN ("+ids(some)+")"); err != nil {
			return err
		}
	}
	return nil
}

func (s *session) setMeta(ctx context.Context, key, value string) error {
	return s.upsert(ctx, "meta", []string{"key", "value"}, 1, []any{key, value})
}

// lockSums keeps other processes from changing sums, and from when on they are kept, until the transaction ends.
func (s *session) lockSums(ctx context.Context) error {
	if s.dialect.ForUpdate == "" {
		return nil // one transaction writes at a time
	}
	var schema string
	_, err := s.one(ctx, "SELECT value FROM meta WHERE key = 'schema'"+s.dialect.ForUpdate, nil, &schema)
	return err
}

// whereAll is a condition: columns are as the first parameters.
func whereAll(columns []string) string {
	conditions := make([]string, len(columns))
	for i, column := range columns {
		conditions[i] = column + " = $" + strconv.Itoa(i+1)
	}
	return " WHERE " + strings.Join(conditions, " AND ")
}

func insertText(table string, columns []string, n int, clause string) string {
	text := []byte("INSERT INTO " + table + " (" + strings.Join(columns, ", ") + ") VALUES (")
	for i := range n * len(columns) {
		switch {
		case i == 0:
		case i%len(columns) == 0:
			text = append(text, "), ("...)
		default:
			text = append(text, ", "...)
		}
		text = strconv.AppendInt(append(text, '$'), int64(i+1), 10) //nolint:mnd // decimal
	}
	return string(append(text, ") "+clause...))
}
