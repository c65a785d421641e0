package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy/batch"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/ledger/ledgertest"
	"github.com/kubenergy/kubenergy/test/kit/bubble"
)

// A slow store delays each transaction, and fails on request.
type slow struct {
	ledger.Store
	takes time.Duration

	mu     sync.Mutex
	fail   error
	only   int // fail only calls with at least this number of bookings
	groups []int
	acked  map[batch.Stream]uint64
	folds  int
	left   []int
	kept   int
	hangs  bool                         // whether Keep blocks
	panics func([]*ledger.Booking) bool // whether Book panics; nil if it never does
	breaks bool                         // whether the next Fold and Keep panic
}

func (s *slow) Book(_ context.Context, all []*ledger.Booking) ([]ledger.Receipt, []error, error) {
	time.Sleep(s.takes)
	if s.panics != nil && s.panics(all) {
		panic("planted")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.groups = append(s.groups, len(all))
	if s.fail != nil && len(all) >= s.only {
		return nil, nil, s.fail
	}
	receipts, errs := make([]ledger.Receipt, len(all)), make([]error, len(all))
	for i, b := range all {
		acked := s.acked[b.Batch.Stream]
		switch {
		case b.Batch.Last <= acked:
			receipts[i] = ledger.Receipt{Acked: acked}
		case b.Batch.First <= acked:
			errs[i] = ledger.ErrPartly
		default:
			s.acked[b.Batch.Stream] = b.Batch.Last
			receipts[i] = ledger.Receipt{Acked: b.Batch.Last, Booked: true, Gap: b.Batch.First > acked+1}
		}
	}
	return receipts, errs, nil
}

func (s *slow) Fold(context.Context) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.folds++
	if s.breaks {
		panic("planted")
	}
	if len(s.left) == 0 {
		return 0, nil
	}
	left := s.left[0]
	s.left = s.left[1:]
	return left, nil
}

func (s *slow) Keep(ctx context.Context, _ ledger.Retention, _ time.Time) error {
	s.mu.Lock()
	s.kept++
	hangs, breaks := s.hangs, s.breaks
	s.breaks = false
	s.mu.Unlock()
	if breaks {
		panic("planted")
	}
	if hangs {
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

func (s *slow) Close() error { return nil }

func (s *slow) counts() (groups, folds, kept int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.groups), s.folds, s.kept
}

func (s *slow) set(fail error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = fail
}

func newSlow() *slow { return &slow{takes: 10 * time.Millisecond, acked: map[batch.Stream]uint64{}} }

var many = ledgertest.World{Nodes: 1000, Pods: 1}

// Bookings that arrive during a transaction are written in the next one. A single booking is written without delay.
func TestGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlow()
		l := ledger.New(s, ledger.Options{})
		began := time.Now()
		if _, err := l.Book(t.Context(), many.Booking(0, 1)); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took != s.takes {
			t.Errorf("a single booking took %v", took)
		}
		var all sync.WaitGroup
		for node := range many.Nodes {
			all.Go(func() {
				if r, err := l.Book(t.Context(), many.Booking(node, 2)); err != nil || !r.Booked {
					t.Errorf("unexpected receipt %+v or error %v", r, err)
				}
			})
		}
		all.Wait()
		if len(s.groups) > 6 {
			t.Errorf("unexpected transaction sizes %v", s.groups)
		}
		for _, n := range s.groups {
			if n > 256 {
				t.Errorf("unexpected transaction sizes %v", s.groups)
			}
		}
		if a := l.Activity(); a.Booked != 1001 || a.Gaps != 999 || a.Commits != uint64(len(s.groups)) {
			t.Errorf("%+v", a)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestHooksHearOfWhatIsNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := ledger.New(newSlow(), ledger.Options{})
		heard := ""
		l.OnBooked(func(b *ledger.Booking, r ledger.Receipt) {
			heard += fmt.Sprintf("%d-%d %d;", b.Batch.First, b.Batch.Last, r.Acked)
		})
		again := many.Booking(0, 1)
		partly := many.Booking(0, 1)
		partly.Batch.Last = 3
		for _, b := range []*ledger.Booking{many.Booking(0, 1), again, partly, many.Booking(0, 2)} {
			_, _ = l.Book(t.Context(), b)
		}
		if heard != "1-1 1;2-2 2;" {
			t.Error("heard", heard)
		}
		if a := l.Activity(); a.Booked != 2 || a.Again != 1 || a.Refused != 1 {
			t.Errorf("%+v", a)
		}
		_ = l.Close()
	})
}

// A panic only affects the bookings of the transaction. Their callers get an error, and subsequent bookings are
// recorded.
func TestPanicsCostOneBooking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, panicked := newSlow(), 0
		l := ledger.New(s, ledger.Options{Panicked: func() { panicked++ }})
		plant := true
		l.OnBooked(func(*ledger.Booking, ledger.Receipt) {
			if plant {
				panic("planted")
			}
		})
		if r, err := l.Book(t.Context(), many.Booking(0, 1)); err != nil || !r.Booked {
			t.Errorf("unexpected result after a hook panicked: %v, %v", r, err)
		}
		plant, s.panics = false, func([]*ledger.Booking) bool { return true }
		if _, err := l.Book(t.Context(), many.Booking(0, 2)); err == nil {
			t.Error("expected an error after the store panicked")
		}
		s.panics = nil
		if r, err := l.Book(t.Context(), many.Booking(0, 2)); err != nil || !r.Booked || panicked != 2 {
			t.Errorf("unexpected result after %d panics: %v, %v", panicked, r, err)
		}
		_ = l.Close()
	})
}

// If one booking of a group panics, only that booking is rejected.
func TestAPanicCostsOneOfAGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlow()
		s.panics = func(all []*ledger.Booking) bool {
			return slices.ContainsFunc(all, func(b *ledger.Booking) bool { return b.Batch.Last == 3 })
		}
		l := ledger.New(s, ledger.Options{})
		s.takes = time.Second
		go func() { _, _ = l.Book(t.Context(), many.Booking(0, 1)) }() // the others queue up meanwhile
		bubble.Advance(time.Second / 2)
		var all sync.WaitGroup
		errs := make([]error, 6)
		for n := range errs {
			all.Go(func() { _, errs[n] = l.Book(t.Context(), many.Booking(n+1, uint64(n+1))) })
		}
		all.Wait()
		for n, err := range errs {
			if (err != nil) != (n == 2) {
				t.Errorf("booking %d: %v", n+1, err)
			}
		}
		_ = l.Close()
	})
}

// Folding and dropping expired rows continue after a panic.
func TestWhatRunsBesideSurvivesPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, panicked := newSlow(), atomic.Int64{}
		s.breaks = true
		l := ledger.New(s, ledger.Options{Panicked: func() { panicked.Add(1) }})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- l.Run(ctx) }()
		bubble.Advance(2 * time.Hour)
		cancel()
		// Folding panics every 30 seconds until Keep panics after half an hour. Neither panics again after that.
		n := panicked.Load()
		if _, folds, kept := s.counts(); <-ended != nil || folds < 200 || kept < 2 || n < 61 || n > 62 {
			t.Errorf("got %d folds, %d calls of Keep and %d panics", folds, kept, n)
		}
		_ = l.Close()
	})
}

// A commit that takes more than two minutes is reported.
func TestACommitThatIsStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlow()
		s.takes = 3 * time.Minute
		l := ledger.New(s, ledger.Options{})
		done := make(chan error)
		go func() { _, err := l.Book(t.Context(), many.Booking(0, 1)); done <- err }()
		bubble.Advance(2 * time.Minute)
		if err := l.Stuck(); err != nil {
			t.Error("Stuck() returned an error too early:", err)
		}
		bubble.Advance(time.Second)
		if l.Stuck() == nil {
			t.Error("Stuck() = nil, want an error for a commit that hangs")
		}
		if err := <-done; err != nil || l.Stuck() != nil {
			t.Error(err, l.Stuck())
		}
		_ = l.Close()
	})
}

// While the store is not writable, Book fails immediately. The ledger retries without new bookings.
func TestRecoversAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlow()
		l := ledger.New(s, ledger.Options{})
		var run sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		run.Go(func() { _ = l.Run(ctx) })
		s.set(fmt.Errorf("%w: the disk is full", ledger.ErrReadOnly))
		if _, err := l.Book(t.Context(), many.Booking(0, 1)); !errors.Is(err, ledger.ErrReadOnly) ||
			errors.Is(err, ledger.ErrPaused) {
			t.Fatal(err)
		}
		if ok, err := l.Writable(); ok || !errors.Is(err, ledger.ErrReadOnly) {
			t.Fatal(ok, err)
		}
		began := time.Now()
		if _, err := l.Book(t.Context(), many.Booking(0, 1)); !errors.Is(err, ledger.ErrReadOnly) ||
			!errors.Is(err, ledger.ErrPaused) {
			t.Fatal(err)
		}
		if took := time.Since(began); took > 100*time.Millisecond { // pause after the last commit
			t.Errorf("Book() took %v on an unwritable ledger", took)
		}
		bubble.Advance(5 * time.Minute)
		before, _, _ := s.counts()
		bubble.Advance(5 * time.Minute)
		after, _, _ := s.counts()
		if n := after - before; n < 15 || n > 25 {
			t.Errorf("got %d write attempts in 5 minutes", n)
		}
		s.set(nil)
		bubble.Advance(16 * time.Second)
		if ok, err := l.Writable(); !ok {
			t.Error("expected the ledger to be writable again, got:", err)
		}
		if r, err := l.Book(t.Context(), many.Booking(0, 1)); err != nil || !r.Booked {
			t.Error(r, err)
		}
		cancel()
		run.Wait()
		_ = l.Close()
	})
}

// A damaged stream does not prevent other streams from being recorded.
func TestDamageOfOneConcernsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlow()
		s.fail, s.only = ledger.ErrDamaged, 2
		l := ledger.New(s, ledger.Options{})
		_, _ = l.Book(t.Context(), many.Booking(0, 1)) // the next ones are queued and written together
		var all sync.WaitGroup
		for node := range 9 {
			all.Go(func() {
				if r, err := l.Book(t.Context(), many.Booking(node, 2)); err != nil || !r.Booked {
					t.Errorf("unexpected receipt %+v or error %v", r, err)
				}
			})
		}
		all.Wait()
		if ok, err := l.Writable(); !ok {
			t.Error(err)
		}
		_ = l.Close()
	})
}

func TestCloseAnswersAllCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlow()
		s.takes = time.Second
		l := ledger.New(s, ledger.Options{})
		booked, refused := 0, 0
		var mu sync.Mutex
		var all sync.WaitGroup
		for node := range many.Nodes {
			all.Go(func() {
				_, err := l.Book(context.Background(), many.Booking(node, 1))
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					booked++
				case errors.Is(err, ledger.ErrClosed):
					refused++
				default:
					t.Error(err)
				}
			})
		}
		bubble.Advance(1500 * time.Millisecond)
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		all.Wait()
		if booked != len(s.acked) || booked+refused != many.Nodes || refused == 0 || booked == 0 {
			t.Errorf("%d recorded, %d rejected, %d in the store", booked, refused, len(s.acked))
		}
		if _, err := l.Book(t.Context(), many.Booking(0, 2)); !errors.Is(err, ledger.ErrClosed) {
			t.Error(err)
		}
	})
}

func TestBookGivesUpWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlow()
		s.takes = time.Hour
		l := ledger.New(s, ledger.Options{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := l.Book(ctx, many.Booking(0, 1)); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		_ = l.Close()
	})
}

// Folding does not wait for dropping expired rows, which has a timeout.
func TestRunFoldsWhileItKeeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlow()
		s.hangs = true
		l := ledger.New(s, ledger.Options{FoldEvery: time.Minute})
		ctx, cancel := context.WithCancel(t.Context())
		var run sync.WaitGroup
		run.Go(func() { _ = l.Run(ctx) })
		bubble.Advance(4 * time.Hour)
		if _, folds, kept := s.counts(); kept < 2 || folds < 235 {
			t.Errorf("got %d calls of Keep and %d folds", kept, folds)
		}
		cancel()
		run.Wait()
		_ = l.Close()
	})
}

func TestRunFoldsAndKeeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlow()
		s.left = []int{3, 2, 1, 0, 7, 7, 7}
		l := ledger.New(s, ledger.Options{FoldEvery: time.Minute})
		ctx, cancel := context.WithCancel(t.Context())
		var run sync.WaitGroup
		run.Go(func() { _ = l.Run(ctx) })
		bubble.Advance(time.Second)
		if _, folds, _ := s.counts(); folds != 4 {
			t.Errorf("got %d folds until the journal was empty", folds)
		}
		bubble.Advance(time.Minute)
		if _, folds, _ := s.counts(); folds != 6 {
			t.Errorf("got %d folds, expected no retry for a journal that does not shrink", folds)
		}
		bubble.Advance(3 * time.Hour)
		if _, folds, kept := s.counts(); kept != 3 || folds < 180 || folds > 190 {
			t.Errorf("got %d calls of Keep and %d folds", kept, folds)
		}
		cancel()
		run.Wait()
		_ = l.Close()
	})
}
