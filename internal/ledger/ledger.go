package ledger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"time"
)

// errClosed is returned by [Ledger.Book] while the ledger is being closed: the booking is not booked.
var errClosed = errors.New("the ledger is closed")

var errPanicked = errors.New("booking panicked")

// Options are how a [Ledger] works; what is 0 is replaced.
type Options struct {
	FoldEvery time.Duration // 30 s; sums are as old as that
	Retention Retention
	Log       *slog.Logger
	Panicked  func() // is told of each panic that was recovered
}

// What is written in one transaction, at most, and how many bookings may wait.
const (
	groupBookings = 256
	groupShares   = 100_000
	queueBookings = 1024
)

// Between two commits passes some of the time that the last one took, so that bookings come together and a disk is not
// kept busy by few of them.
const (
	restAfterCommit = 4 // times as long
	longestRest     = 250 * time.Millisecond
)

// What takes longer than this is given up: a database that does not answer is one that cannot be written.
const (
	longestCommit = 30 * time.Second
	longestFold   = 5 * time.Minute
	stuckAfter    = 2 * time.Minute
	longestKeep   = time.Hour // it is done in small parts, and goes on the next time
)

// keepEvery is how often what is old is dropped.
const keepEvery = time.Hour

// After an error nothing is written for a while.
const (
	firstPause   = 250 * time.Millisecond
	longestPause = 15 * time.Second
)

// A Ledger books into a [Store]. Bookings that come at the same time are written in one transaction.
type Ledger struct {
	Store

	o       Options
	queue   chan *request
	closing <-chan struct{}
	stop    context.CancelFunc // closes it
	writer  sync.WaitGroup

	mu       sync.Mutex
	onBooked []func(*Booking, Receipt)
	activity Activity
	failure  error // of the last time that something was to be written
	retry    time.Time
	pause    time.Duration
	began    time.Time // the commit that goes on; zero: none does
}

// Activity counts what a ledger did since it began.
type Activity struct {
	Booked   uint64 // bookings
	Again    uint64 // that had been booked before
	Refused  uint64 // that contradict what is booked
	Gaps     uint64 // before which numbers are missing
	Commits  uint64
	Failures uint64 // transactions that could not be written
	Folds    uint64
	Writing  time.Duration // time spent in commits
	Folding  time.Duration
	Waiting  int // bookings, now
	Left     int // in the journal after the last fold
}

type request struct {
	booking *Booking
	done    chan result
}

type result struct {
	receipt Receipt
	err     error
}

// New returns a ledger that books into s until it is closed, which closes s as well.
func New(s Store, o Options) *Ledger {
	if o.FoldEvery <= 0 {
		o.FoldEvery = 30 * time.Second
	}
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	if o.Panicked == nil {
		o.Panicked = func() {}
	}
	closing, stop := context.WithCancel(context.Background())
	l := &Ledger{Store: s, o: o, queue: make(chan *request, queueBookings), closing: closing.Done(), stop: stop}
	l.writer.Go(l.write)
	return l
}

// OnBooked has f called for each booking that is newly booked, after it is on disk and before [Ledger.Book] returns.
// The next bookings wait for it.
func (l *Ledger) OnBooked(f func(*Booking, Receipt)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.onBooked = append(slices.Clone(l.onBooked), f)
}

// Book returns when b is safe on disk. Errors say that it is not acknowledged; it may be booked all the same, which
// is found out by its numbers when it is sent again. An error that is none of [ErrOverlap], [ErrPartly] and
// [ErrInvalid] says that it should be.
func (l *Ledger) Book(ctx context.Context, b *Booking) (Receipt, error) {
	r := &request{booking: b, done: make(chan result, 1)}
	select {
	case l.queue <- r:
	case <-ctx.Done():
		return Receipt{}, fmt.Errorf("waiting to be booked: %w", context.Cause(ctx))
	case <-l.closing:
		return Receipt{}, errClosed
	}
	select {
	case got := <-r.done:
		return got.receipt, got.err
	case <-ctx.Done():
		return Receipt{}, fmt.Errorf("waiting to be booked: %w", context.Cause(ctx))
	case <-l.closing:
		l.writer.Wait()
		select {
		case got := <-r.done: // it was being written
			return got.receipt, got.err
		default: // nothing writes any more
			return Receipt{}, errClosed
		}
	}
}

// Writable reports if the last attempt to write succeeded, else why not.
func (l *Ledger) Writable() (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failure == nil, l.failure
}

// Activity returns what was done until now.
func (l *Ledger) Activity() Activity {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.activity
	a.Waiting = len(l.queue)
	return a
}

// Close waits for what is being written, refuses what waits, and closes the store.
func (l *Ledger) Close() error {
	l.stop()
	l.writer.Wait()
	return l.Store.Close()
}

// write is the only one that books.
func (l *Ledger) write() {
	rest := time.NewTimer(0)
	defer rest.Stop()
	for {
		group := l.next(rest)
		if group == nil {
			return // Book finds that by itself
		}
		began := time.Now()
		l.survive(group, "booking", func() { l.commit(group) })
		l.writing(time.Time{})
		rest.Reset(min(restAfterCommit*time.Since(began), longestRest))
	}
}

// survive keeps a panic from ending more than what it meets: those who wait are told that it may not be booked.
func (l *Ledger) survive(group []*request, doing string, do func()) {
	defer func() {
		if panicked := recover(); panicked != nil {
			l.o.Log.Error("The ledger panicked", "doing", doing, "panic", panicked, "stack", string(debug.Stack()))
			l.o.Panicked()
			for _, r := range group {
				select {
				case r.done <- result{err: errPanicked}:
				default: // it was told before
				}
			}
		}
	}()
	do()
}

func (l *Ledger) writing(since time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.began = since
}

// Stuck returns an error if a transaction has gone on for more than two minutes: its context ended after half a minute.
func (l *Ledger) Stuck() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if took := time.Since(l.began); !l.began.IsZero() && took > stuckAfter {
		return fmt.Errorf("a commit has gone on for %v", took.Round(time.Second))
	}
	return nil
}

// next waits until something is to be booked and the rest since the last commit is over, or there is as much as fits
// into one transaction. It returns nil when the ledger is being closed.
func (l *Ledger) next(rest *time.Timer) []*request {
	var group []*request
	shares, rested := 0, false
	for {
		queue, over := l.queue, rest.C
		if len(group) >= groupBookings || shares >= groupShares {
			return group
		}
		if rested {
			if len(group) > 0 && len(queue) == 0 {
				return group
			}
			over = nil
		}
		select {
		case <-l.closing:
			return nil
		case r := <-queue:
			group = append(group, r)
			shares += len(r.booking.Batch.Shares)
		case <-over:
			rested = true
		}
	}
}

func (l *Ledger) commit(group []*request) {
	if err := l.paused(); err != nil {
		for _, r := range group {
			r.done <- result{err: err}
		}
		return
	}
	bookings := make([]*Booking, len(group))
	for i, r := range group {
		bookings[i] = r.booking
	}
	began := time.Now()
	limited, cancel := context.WithTimeout(context.Background(), longestCommit)
	l.writing(began)
	receipts, errs, err := []Receipt(nil), []error(nil), errPanicked
	l.survive(nil, "booking", func() { receipts, errs, err = l.Store.Book(limited, bookings) })
	l.writing(time.Time{})
	cancel()
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%w: %w", ErrReadOnly, err)
	}
	// Of one of them, probably: the others shall not suffer.
	if (errors.Is(err, ErrDamaged) || errors.Is(err, errPanicked)) && len(group) > 1 {
		for _, r := range group {
			l.commit([]*request{r})
		}
		return
	}
	l.outcome(err, time.Since(began))
	for i, r := range group {
		if err != nil {
			r.done <- result{err: err}
			continue
		}
		l.complete(r, receipts[i], errs[i])
	}
}

// complete counts and answers.
func (l *Ledger) complete(r *request, receipt Receipt, err error) {
	l.mu.Lock()
	hooks := l.onBooked
	switch {
	case err != nil:
		l.activity.Refused++
		hooks = nil
	case !receipt.Booked:
		l.activity.Again++
		hooks = nil
	default:
		l.activity.Booked++
		if receipt.Gap {
			l.activity.Gaps++
		}
	}
	l.mu.Unlock()
	for _, f := range hooks {
		l.survive(nil, "telling of a booking", func() { f(r.booking, receipt) })
	}
	r.done <- result{receipt, err}
}

// paused returns the last error while it is too early to try again.
func (l *Ledger) paused() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failure != nil && time.Now().Before(l.retry) {
		return l.failure
	}
	return nil
}

// outcome remembers if something could be written.
func (l *Ledger) outcome(err error, took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil && !errors.Is(err, ErrReadOnly) {
		return // it says nothing about writing
	}
	if err == nil {
		if l.failure != nil {
			l.o.Log.Info("The ledger can be written again")
		}
		l.failure, l.pause = nil, 0
		l.activity.Commits++
		l.activity.Writing += took
		return
	}
	if l.failure == nil {
		l.o.Log.Error("The ledger cannot be written: nothing is acknowledged until it can", "err", err)
	}
	l.failure = err
	l.activity.Failures++
	l.pause = min(max(2*l.pause, firstPause), longestPause)
	l.retry = time.Now().Add(l.pause)
}

// Run folds and drops what is old until ctx is done, and tries if an unwritable ledger can be written again. It
// returns nil.
func (l *Ledger) Run(ctx context.Context) error {
	fold, probe := time.NewTimer(0), time.NewTicker(firstPause)
	defer fold.Stop()
	defer probe.Stop()
	ctx, cancel := context.WithCancel(ctx)
	var keeper sync.WaitGroup
	defer keeper.Wait()
	defer cancel()
	keeper.Go(func() { l.keep(ctx) })
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-l.closing:
			return nil
		case <-fold.C:
			again := l.o.FoldEvery
			l.survive(nil, "folding", func() { again = l.foldAll(ctx) })
			fold.Reset(again)
		case <-probe.C:
			l.survive(nil, "trying to write", func() { l.probe(ctx) })
		}
	}
}

// keep drops what is old from time to time, until ctx is done. Folding does not wait for it.
func (l *Ledger) keep(ctx context.Context) {
	next := time.NewTimer(keepEvery / 2) //nolint:mnd // soon, and not at once
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.closing:
			return
		case <-next.C:
		}
		limited, cancel := context.WithTimeout(ctx, longestKeep)
		var err error
		l.survive(nil, "dropping what is old", func() { err = l.Keep(limited, l.o.Retention, time.Now()) })
		cancel()
		if err != nil && ctx.Err() == nil {
			l.o.Log.Error("What is older than it is kept for could not be dropped from the ledger", "err", err)
		}
		next.Reset(keepEvery)
	}
}

// foldAll folds until nothing is left, and returns when to do it again.
func (l *Ledger) foldAll(ctx context.Context) time.Duration {
	before := -1
	for {
		began := time.Now()
		limited, cancel := context.WithTimeout(ctx, longestFold)
		left, err := l.Fold(limited)
		cancel()
		if err != nil {
			if ctx.Err() == nil {
				l.o.Log.Error("The ledger's journal could not be folded", "err", err)
			}
			return l.o.FoldEvery
		}
		l.mu.Lock()
		l.activity.Folds++
		l.activity.Folding += time.Since(began)
		l.activity.Left = left
		l.mu.Unlock()
		if left == 0 || left == before { // what is damaged stays
			return l.o.FoldEvery
		}
		before = left
	}
}

// probe tries to write if the last attempt failed and no booking makes another.
func (l *Ledger) probe(ctx context.Context) {
	if writable, _ := l.Writable(); writable || l.paused() != nil {
		return
	}
	began := time.Now()
	limited, cancel := context.WithTimeout(ctx, longestCommit)
	defer cancel()
	_, _, err := l.Store.Book(limited, nil)
	if ctx.Err() == nil {
		l.outcome(err, time.Since(began))
	}
}
