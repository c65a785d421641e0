package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/ledger/ledgertest"
	"github.com/kubenergy/kubenergy/internal/ledger/postgres"
	"github.com/kubenergy/kubenergy/internal/ledger/postgres/pgtest"
	"github.com/kubenergy/kubenergy/test/kit"
)

var start = time.Date(2026, 11, 3, 0, 0, 0, 0, time.UTC)

func open(t testing.TB, source string) *postgres.Store {
	t.Helper()
	s, err := postgres.Open(t.Context(), source, postgres.Options{Now: func() time.Time {
		return start.Add(10 * 24 * time.Hour)
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func same(t testing.TB, s ledger.Store, oracle *ledgertest.Store, q *ledger.Query) {
	t.Helper()
	want, err := oracle.Query(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.Query(t.Context(), q)
	if err != nil {
		t.Fatalf("%+v: %v", q, err)
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(ledger.Row{}, "First", "Last"),
		cmpopts.IgnoreFields(ledger.Answer{}, "AsOf"),
		cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("unexpected answer for %+v (-want +got):\n%s", q, diff)
	}
}

func foldAll(t testing.TB, s ledger.Store) {
	t.Helper()
	for left := 1; left > 0; {
		var err error
		if left, err = s.Fold(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func audited(t testing.TB, s ledger.Store) {
	t.Helper()
	found, err := s.Audit(t.Context(), time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	if len(found.Problems) > 0 || found.Checked == 0 {
		t.Fatalf("audit checked %d rows and found %q", found.Checked, found.Problems)
	}
}

// Two processes record the same bookings concurrently, and the results of queries match the oracle.
func TestTwoProcesses(t *testing.T) {
	source := pgtest.Start(t)
	stores := []*postgres.Store{open(t, source), open(t, source)}
	oracle := &ledgertest.Store{}
	r := &ledgertest.Random{Rand: rand.New(rand.NewPCG(1, 2)), Start: start, Span: 60 * time.Hour}
	for range 6 {
		var all []*ledger.Booking
		for range 30 {
			all = append(all, r.Next())
		}
		if _, _, err := oracle.Book(t.Context(), all); err != nil {
			t.Fatal(err)
		}
		booked := make([][]bool, len(stores))
		var both sync.WaitGroup
		for i, s := range stores {
			booked[i] = make([]bool, len(all))
			both.Go(func() {
				for j := range all { // one at a time, so that the processes conflict
					receipts, errs, err := s.Book(t.Context(), all[j:j+1])
					if err != nil || errs[0] != nil && !errors.Is(errs[0], ledger.ErrOverlap) {
						t.Errorf("process %d, booking %d: unexpected errors %v, %v", i, j, err, errs)
						return
					}
					booked[i][j] = receipts[0].Booked
					if j%7 == i {
						if _, err := s.Fold(t.Context()); err != nil {
							t.Error(err)
						}
					}
				}
			})
		}
		both.Wait()
		for j := range all {
			if booked[0][j] && booked[1][j] {
				t.Fatalf("booking %d was recorded twice", j)
			}
		}
		foldAll(t, stores[0])
		for i := range 20 {
			same(t, stores[i%2], oracle, r.Query())
		}
	}
	for _, s := range stores {
		audited(t, s)
	}
	stats, err := stores[1].Statistics(t.Context())
	if err != nil || stats.Journal != 0 || stats.Windows == 0 || stats.Bytes == 0 {
		t.Errorf("unexpected statistics %+v or error %v", stats, err)
	}
}

// The server is killed under load. Acknowledged bookings are recorded exactly once, and others are sent again.
func TestServerKilled(t *testing.T) {
	server := pgtest.StartServer(t)
	s := open(t, server.DSN)
	oracle := &ledgertest.Store{}
	r := &ledgertest.Random{Rand: rand.New(rand.NewPCG(3, 4)), Start: start, Span: 60 * time.Hour}
	kills, failed := 3, 0
	next := make(chan struct{}, 1)
	var killer sync.WaitGroup
	killer.Go(func() {
		for range next {
			server.Kill(t)
			server.Run(t)
		}
	})
	for i := range 120 {
		if i%30 == 15 && kills > 0 {
			kills--
			next <- struct{}{}
		}
		b := []*ledger.Booking{r.Next(), r.Next()}
		kit.Await(t, time.Minute, "the server accepts a booking", func(ctx context.Context) (bool, error) {
			_, _, err := s.Book(ctx, b)
			if errors.Is(err, ledger.ErrReadOnly) {
				failed++
				return false, err
			}
			if err != nil {
				t.Fatal(err)
			}
			return true, nil
		})
		if _, _, err := oracle.Book(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		if i%10 == 0 {
			_, _ = s.Fold(t.Context()) // may fail as well
		}
	}
	close(next)
	killer.Wait()
	foldAll(t, s)
	for range 40 {
		same(t, s, oracle, r.Query())
	}
	audited(t, s)
	t.Logf("%d bookings failed and were retried", failed)
}

// A read-only database can be queried.
func TestReadOnly(t *testing.T) {
	source := pgtest.Start(t)
	s := open(t, source)
	r := &ledgertest.Random{Rand: rand.New(rand.NewPCG(5, 6)), Start: start, Span: 60 * time.Hour}
	if _, _, err := s.Book(t.Context(), []*ledger.Booking{r.Next(), r.Next()}); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("pgx", source)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	set := func(to string) {
		t.Helper()
		for _, statement := range []string{
			"ALTER DATABASE postgres SET default_transaction_read_only = " + to,
			"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'kubenergy'",
		} {
			if _, err := db.ExecContext(t.Context(), "BEGIN READ WRITE; "+statement+"; COMMIT"); err != nil {
				t.Fatal(err)
			}
		}
	}
	set("on")
	b := []*ledger.Booking{r.Next()}
	for range 3 {
		if _, _, err := s.Book(t.Context(), b); !errors.Is(err, ledger.ErrReadOnly) {
			t.Fatalf("unexpected error: %v", err)
		}
	}
	if _, err := s.Query(t.Context(), &ledger.Query{From: start, To: start.Add(100 * time.Hour)}); err != nil {
		t.Fatal(err)
	}
	set("off")
	for {
		_, _, err := s.Book(t.Context(), b)
		if err == nil {
			break
		}
		if !errors.Is(err, ledger.ErrReadOnly) {
			t.Fatal(err)
		}
	}
}

// If TimescaleDB is installed, a hypertable is created. The test replaces its function by one that records the
// arguments.
func TestTimescale(t *testing.T) {
	source := pgtest.Start(t)
	db, err := sql.Open("pgx", source)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, statement := range []string{
		`CREATE TABLE calls (arguments TEXT)`,
		`CREATE FUNCTION create_hypertable(relation REGCLASS, time_column NAME, chunk_time_interval BIGINT, if_not_exists BOOLEAN, migrate_data BOOLEAN)
			RETURNS INTEGER LANGUAGE SQL AS $$ INSERT INTO calls VALUES (format('%s %s %s %s', relation, time_column, chunk_time_interval, if_not_exists)); SELECT 1 $$`,
		`SET allow_system_table_mods = on; INSERT INTO pg_extension (oid, extname, extowner, extnamespace, extrelocatable, extversion)
			VALUES (99999, 'timescaledb', 10, 2200, FALSE, '0')`,
	} {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	open(t, source)
	var reported string
	if err := db.QueryRowContext(t.Context(), "SELECT arguments FROM calls").Scan(&reported); err != nil ||
		reported != "windows start 86400 t" {
		t.Errorf("unexpected arguments %q or error %v", reported, err)
	}
}

func TestOpen(t *testing.T) {
	_, err := postgres.Open(t.Context(), "postgres://kubenergy:secret@127.0.0.1:1/nothing?connect_timeout=1",
		postgres.Options{})
	if !errors.Is(err, ledger.ErrReadOnly) || strings.Contains(err.Error(), "secret") {
		t.Errorf("unexpected error: %v", err)
	}
	_, err = postgres.Open(t.Context(), "postgres://kubenergy:secret@[::1/x", postgres.Options{})
	if err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("unexpected error: %v", err)
	}
	source := pgtest.Start(t)
	var all sync.WaitGroup
	for range 4 { // only one of them creates the tables
		all.Go(func() {
			s, err := postgres.Open(t.Context(), source, postgres.Options{})
			if err != nil {
				t.Error(err)
				return
			}
			s.Close()
		})
	}
	all.Wait()
}

func TestOutbox(t *testing.T) { ledgertest.Outbox(t, open(t, pgtest.Start(t))) }
