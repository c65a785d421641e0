package sqlstore

import (
	"cmp"
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
	"github.com/kubenergy/kubenergy/internal/sliceutil"
)

// A Dialect describes the differences between databases.
type Dialect struct {
	Blob, Serial string // column types
	Begin        string // starts a write transaction
	Lock         string // excludes concurrent migrations; empty if Begin does
	Tables       string // counts the tables with the name $1
	// TryFold returns whether the transaction acquired the fold lock, which it holds until it ends. Empty if Begin
	// excludes other writers.
	TryFold string
	// LockAccounts prevents other transactions from creating accounts or updating their last use until the
	// transaction ends. Otherwise they could deadlock, because each transaction updates accounts in a different
	// order. Empty if Begin excludes other writers.
	LockAccounts string
	ForUpdate    string // suffix of a SELECT that locks the rows; empty if Begin excludes other writers
	Writers      int    // maximum number of concurrent write transactions
	Prepare      bool   // whether to use prepared statements
	// Again reports whether a transaction was rolled back because of a conflict. If it is nil, conflicts do not occur.
	Again func(err error) bool
	// Bytes returns the size of the ledger on disk.
	Bytes func(ctx context.Context, db *sql.DB) (int64, error)
	// Committed is called after each committed transaction with its connection. Optional.
	Committed func(ctx context.Context, conn *sql.Conn) error
}

// A DB is a ledger store in a SQL database. It is safe for concurrent use by multiple goroutines, and by multiple
// processes if the database supports it.
type DB struct {
	dialect Dialect
	writes  *sql.DB
	reads   *sql.DB
	now     func() time.Time
	log     *slog.Logger

	idle    chan *session // idle sessions; nil entries are not connected
	booking sync.Mutex    // held by Book
	names   names
	cache   blockCache // query cache, see source.go
	stuck   atomic.Pointer[size]
}

// Options configure [Open].
type Options struct {
	Dialect Dialect
	Writes  *sql.DB
	Reads   *sql.DB // may be the same as Writes
	Now     func() time.Time
	Log     *slog.Logger
}

// Checked verifies the entries of the journal, which Audit would reach only after a long time.
func (d *DB) Checked(ctx context.Context) error {
	rows, err := d.reads.QueryContext(ctx, selectEntries)
	return ForEach(rows, err, func(rows *sql.Rows) error {
		_, _, err := scanEntry(rows)
		return err
	})
}

// Open migrates a database to the current schema and returns its store. Closing the store closes both databases.
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

// Close waits for transactions in progress and closes the databases.
func (d *DB) Close() error {
	var errs []error
	for range cap(d.idle) {
		if s := <-d.idle; s != nil {
			errs = append(errs, s.close())
		}
	}
	return errors.Join(append(errs, d.reads.Close(), d.writes.Close())...)
}

// An operation is the state of a transaction, or of a sequence of transactions. After an error, its queries and
// statements are no-ops that return zero values, so that it suffices to check the error at the end.
type operation struct {
	ctx context.Context // context of the call
	err error           // first error
}

// check records an error. It reports whether there has been no error so far.
func (o *operation) check(err error) bool {
	o.err = cmp.Or(o.err, err)
	return o.err == nil
}

// within calls do and adds a prefix to its error.
func (o *operation) within(prefix string, do func()) {
	if o.err != nil {
		return
	}
	if do(); o.err != nil {
		o.err = fmt.Errorf("%s: %w", prefix, o.err)
	}
}

// A session is a connection for writes with its prepared statements.
type session struct {
	*operation // the last transaction

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

// drop closes the connection, because its state is unknown after an error. It also clears the cached row IDs. The
// next connection may reach a replica that lagged behind or a restored backup in which the same IDs belong to other
// names.
func (d *DB) drop(s *session) {
	d.forgetNames()
	for _, stmt := range s.stmts {
		_ = stmt.Close()
	}
	_ = s.conn.Raw(func(any) error { return driver.ErrBadConn })
	_ = s.conn.Close()
}

// Retries of conflicting transactions and the initial backoff.
const (
	tries     = 6
	firstWait = 5 * time.Millisecond
)

// update runs do in a transaction and retries it after conflicts with other transactions. The connection is closed
// after any error except errors of type [refused], so that the next transaction starts from the state on disk. All
// other errors mean that the database is not writable, and the outcome of the transaction is unknown.
func (d *DB) update(ctx context.Context, do func(*session)) error {
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
		s = nil // if do panics, the next transaction reconnects
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

func (d *DB) run(ctx context.Context, s *session, do func(*session)) (*session, error) {
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
		return nil, d.unwritten(ctx, "starting a transaction", err)
	}
	// A completed transaction is committed even if the caller's context is done.
	whole, cancel := context.WithTimeout(context.WithoutCancel(ctx), longestCommit)
	defer cancel()
	panicked := true
	defer func() {
		if panicked { // the transaction must be closed
			d.drop(s)
		}
	}()
	s.operation = &operation{ctx: ctx}
	do(s)
	panicked = false
	if err := s.err; err != nil {
		d.forgetNames() // some may refer to rows that are rolled back
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
			d.log.Error("Failed to run maintenance after a committed transaction of the ledger", "err", err)
			d.drop(s)
			return nil, nil
		}
	}
	return s, nil
}

// refused wraps errors that do not indicate a problem with the database.
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

// prepared returns the prepared statement of a query, or nil if the dialect does not use prepared statements.
func (s *session) prepared(query string) (*sql.Stmt, error) {
	if stmt := s.stmts[query]; stmt != nil || !s.dialect.Prepare {
		return stmt, nil
	}
	stmt, err := s.conn.PrepareContext(s.ctx, unnumbered(query))
	if err == nil {
		s.stmts[query] = stmt
	}
	return stmt, err
}

var parameter = regexp.MustCompile(`\$[0-9]+`)

// unnumbered replaces numbered parameters by ? if each occurs once and in order. The driver of SQLite treats
// numbered parameters as names and searches all arguments for them.
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

// exec runs a statement and returns the number of affected rows. Statements are cached by their text, so the number
// of different texts should be small.
func (s *session) exec(query string, args ...any) (changed int64) {
	if s.err != nil {
		return 0
	}
	var result sql.Result
	stmt, err := s.prepared(query)
	switch {
	case err != nil:
	case stmt == nil:
		result, err = s.conn.ExecContext(s.ctx, query, args...)
	default:
		result, err = stmt.ExecContext(s.ctx, args...)
	}
	if err == nil {
		changed, err = result.RowsAffected()
	}
	s.check(err)
	return changed
}

// each calls do for every row of a query. The statement is cached as in exec. do must not run other statements in
// the session.
func (s *session) each(do func(*sql.Rows) error, query string, args ...any) {
	if s.err != nil {
		return
	}
	var rows *sql.Rows
	stmt, err := s.prepared(query)
	switch {
	case err != nil:
	case stmt == nil:
		rows, err = s.conn.QueryContext(s.ctx, query, args...)
	default:
		rows, err = stmt.QueryContext(s.ctx, args...)
	}
	s.check(ForEach(rows, err, do))
}

// errEnough stops ForEach without an error.
var errEnough = errors.New("enough rows")

// ForEach calls do for every row until do returns an error. It returns err if it is not nil.
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

// one reads a single row. It returns false if there is no row.
func (s *session) one(query string, args []any, into ...any) (found bool) {
	s.each(func(rows *sql.Rows) error {
		if err := rows.Scan(into...); err != nil {
			return err
		}
		found = true
		return errEnough
	}, query, args...)
	return found
}

// upsert inserts rows or replaces existing ones. The given number of leading columns are the key.
func (s *session) upsert(table string, columns []string, keys int, rows ...[]any) {
	set := sliceutil.Map(columns[keys:], func(column string) string { return column + " = excluded." + column })
	s.insert(table, columns, rows, "ON CONFLICT ("+strings.Join(columns[:keys], ", ")+") DO UPDATE SET "+
		strings.Join(set, ", "))
}

// rowsAtOnce is the number of rows per statement. More rows are hardly faster and increase compilation time.
const rowsAtOnce = 64

// insert inserts rows. The clause is appended to the statement.
func (s *session) insert(table string, columns []string, rows [][]any, clause string) {
	for len(rows) > 0 {
		n := rowsAtOnce
		if len(rows) < n {
			n = 1 // limits the number of different statements to two
		}
		s.exec(insertText(table, columns, n, clause), slices.Concat(rows[:n]...)...)
		rows = rows[n:]
	}
}

// forget deletes rows by ID.
func (s *session) forget(table string, numbers []int64) {
	for some := range slices.Chunk(numbers, listed) {
		s.run("DELETE FROM " + table + " WHERE id IN (" + ids(some) + ")")
	}
}

// run runs a statement that is not cached.
func (s *session) run(statement string) {
	if s.err == nil {
		_, err := s.conn.ExecContext(s.ctx, statement)
		s.check(err)
	}
}

func (s *session) setMeta(key, value string) {
	s.upsert("meta", []string{"key", "value"}, 1, []any{key, value})
}

// lockSums prevents other processes from modifying sums and retention limits until the transaction ends.
func (s *session) lockSums() {
	if s.dialect.ForUpdate != "" { // there are several writers
		s.one("SELECT value FROM meta WHERE key = 'schema'"+s.dialect.ForUpdate, nil, new(string))
	}
}

// whereAll returns a WHERE clause that compares the columns with the first parameters.
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
