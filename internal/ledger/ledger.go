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

	"github.com/kubenergy/kubenergy/internal/sliceutil"
)

// errClosed is returned by [Ledger.Book] for bookings that are not recorded because the ledger is being closed.
var errClosed = errors.New("ledger is closed")

var errPanicked = errors.New("recording the booking panicked")

// Options configure a [Ledger]. Zero values are replaced by defaults.
type Options struct {
	FoldEvery time.Duration // interval between folds, and thus the maximum age of sums; defaults to 30 s
	Retention Retention
	Log       *slog.Logger
	Panicked  func() // called after each recovered panic
}

// Limits of one transaction, and the capacity of the queue.
const (
	groupBookings = 256
	groupShares   = 100_000
	queueBookings = 1024
)

// The writer pauses between two commits in proportion to the duration of the last commit, so that bookings are
// written in groups and small transactions do not keep the disk busy.
const (
	restAfterCommit = 4 // multiple of the duration of the last commit
	longestRest     = 250 * time.Millisecond
)

// Timeouts of operations on the store. A database that does not respond in time is treated as unwritable.
const (
	longestCommit = 30 * time.Second
	longestFold   = 5 * time.Minute
	stuckAfter    = 2 * time.Minute
	longestKeep   = time.Hour // the work is done in small steps and resumes on the next run
)

// keepEvery is the interval at which expired rows are dropped.
const keepEvery = time.Hour

// Backoff of writes after an error.
const (
	firstPause   = 250 * time.Millisecond
	longestPause = 15 * time.Second
)

// A Ledger records bookings in a [Store]. Concurrent bookings are written in one transaction.
type Ledger struct {
	Store

	o       Options
	queue   chan *request
	closing <-chan struct{}
	stop    context.CancelFunc // closes the channel closing
	writer  sync.WaitGroup

	mu       sync.Mutex
	onBooked []func(*Booking, Receipt)
	activity Activity
	failure  error // error of the last write attempt, or nil
	retry    time.Time
	pause    time.Duration
	began    time.Time // start of the commit in progress, or zero
}

// Activity contains the counters of a ledger since it was created.
type Activity struct {
	Booked   uint64 // new bookings
	Again    uint64 // bookings that had been recorded before
	Refused  uint64 // bookings that contradict recorded ones
	Gaps     uint64 // bookings with missing sequence numbers before them
	Commits  uint64
	Failures uint64 // failed transactions
	Folds    uint64
	Writing  time.Duration // total duration of commits
	Folding  time.Duration
	Waiting  int // current length of the queue
}

type request struct {
	booking *Booking
	done    chan result
}

type result struct {
	receipt Receipt
	err     error
}

// New returns a ledger that records bookings in s. Close closes s as well.
func New(s Store, o Options) *Ledger {
	o.FoldEvery = cmp.Or(max(o.FoldEvery, 0), 30*time.Second)
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	if o.Panicked == nil {
		o.Panicked = func() {}
	}
	closing, stop := context.WithCancel(context.Background())
	l := &Ledger{Store: s, o: o, queue: make(chan *request, queueBookings), closing: closing.Done(), stop: stop}
	l.writer.Go(l.write)
	return l
}

// OnBooked registers f to be called for each new booking after it is durable and before [Ledger.Book] returns.
// Subsequent bookings are not written until f returns.
func (l *Ledger) OnBooked(f func(*Booking, Receipt)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.onBooked = append(slices.Clone(l.onBooked), f)
}

// Book returns when b is durable. If it returns an error, b must not be acknowledged. The booking may have been
// recorded nevertheless, unless the error is [ErrPaused], [ErrOverlap], [ErrPartly] or [ErrInvalid]. Its sequence
// numbers reveal it when it is sent again. The caller should send it again unless the error is one of the last three.
func (l *Ledger) Book(ctx context.Context, b *Booking) (Receipt, error) {
	r := &request{booking: b, done: make(chan result, 1)}
	select {
	case l.queue <- r:
	case <-ctx.Done():
		return Receipt{}, fmt.Errorf("waiting for the booking to be recorded: %w", context.Cause(ctx))
	case <-l.closing:
		return Receipt{}, errClosed
	}
	select {
	case got := <-r.done:
		return got.receipt, got.err
	case <-ctx.Done():
		return Receipt{}, fmt.Errorf("waiting for the booking to be recorded: %w", context.Cause(ctx))
	case <-l.closing:
		l.writer.Wait()
		select {
		case got := <-r.done: // the booking was being written
			return got.receipt, got.err
		default: // the writer has stopped
			return Receipt{}, errClosed
		}
	}
}

// Writable reports whether the last write attempt succeeded, and returns its error if it failed.
func (l *Ledger) Writable() (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failure == nil, l.failure
}

// Activity returns a snapshot of the counters.
func (l *Ledger) Activity() Activity {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.activity
	a.Waiting = len(l.queue)
	return a
}

// Close waits for the write in progress, rejects queued bookings and closes the store.
func (l *Ledger) Close() error {
	l.stop()
	l.writer.Wait()
	return l.Store.Close()
}

// write writes queued bookings until the ledger is closed. No other goroutine writes bookings of the queue.
func (l *Ledger) write() {
	rest := time.NewTimer(0)
	defer rest.Stop()
	for {
		group := l.next(rest)
		if group == nil {
			return // Book observes closing itself
		}
		began := time.Now()
		l.survive(group, "booking", func() { l.commit(group) })
		l.writing(time.Time{})
		rest.Reset(min(restAfterCommit*time.Since(began), longestRest))
	}
}

// survive calls do and recovers a panic. Requests of the group without a result fail with errPanicked, because
// their bookings may not have been recorded.
func (l *Ledger) survive(group []*request, doing string, do func()) {
	defer func() {
		if panicked := recover(); panicked != nil {
			l.o.Log.Error("Recovered from a panic in the ledger", "doing", doing, "panic", panicked,
				"stack", string(debug.Stack()))
			l.o.Panicked()
			for _, r := range group {
				select {
				case r.done <- result{err: errPanicked}:
				default: // it has a result already
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

// Stuck returns an error if a commit has been running for more than two minutes, although its context expired after
// 30 seconds.
func (l *Ledger) Stuck() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if took := time.Since(l.began); !l.began.IsZero() && took > stuckAfter {
		return fmt.Errorf("a commit has been running for %v", took.Round(time.Second))
	}
	return nil
}

// next waits until there is a booking and the pause after the last commit is over, or until the bookings fill a
// transaction. It returns nil when the ledger is being closed.
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
	bookings := sliceutil.Map(group, func(r *request) *Booking { return r.booking })
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
	// Probably only one booking is affected, so each one is retried separately.
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

// complete updates the counters, calls the hooks and returns the result to the caller of Book.
func (l *Ledger) complete(r *request, receipt Receipt, err error) {
	l.mu.Lock()
	var hooks []func(*Booking, Receipt)
	switch {
	case err != nil:
		l.activity.Refused++
	case !receipt.Booked:
		l.activity.Again++
	default:
		hooks = l.onBooked
		l.activity.Booked++
		if receipt.Gap {
			l.activity.Gaps++
		}
	}
	l.mu.Unlock()
	for _, f := range hooks {
		l.survive(nil, "calling a hook for a booking", func() { f(r.booking, receipt) })
	}
	r.done <- result{receipt, err}
}

// paused returns [ErrPaused] with the last error until the backoff has elapsed.
func (l *Ledger) paused() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failure != nil && time.Now().Before(l.retry) {
		return fmt.Errorf("%w: %w", ErrPaused, l.failure)
	}
	return nil
}

// outcome records the result of a write attempt.
func (l *Ledger) outcome(err error, took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil && !errors.Is(err, ErrReadOnly) {
		return // the error does not concern writability
	}
	if err == nil {
		if l.failure != nil {
			l.o.Log.Info("The ledger is writable again")
		}
		l.failure, l.pause = nil, 0
		l.activity.Commits++
		l.activity.Writing += took
		return
	}
	if l.failure == nil {
		l.o.Log.Error("The ledger is not writable, no batches are acknowledged until it recovers", "err", err)
	}
	l.failure = err
	l.activity.Failures++
	l.pause = min(max(2*l.pause, firstPause), longestPause)
	l.retry = time.Now().Add(l.pause)
}

// Run folds the journal, drops expired rows and probes whether an unwritable ledger has recovered, until ctx is
// done or the ledger is closed. It always returns nil.
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
			l.survive(nil, "probing whether the ledger is writable", func() { l.probe(ctx) })
		}
	}
}

// keep periodically drops expired rows until ctx is done. It runs concurrently with folding.
func (l *Ledger) keep(ctx context.Context) {
	next := time.NewTimer(keepEvery / 2) //nolint:mnd // soon, but not immediately
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
		l.survive(nil, "dropping expired rows", func() { err = l.Keep(limited, l.o.Retention, time.Now()) })
		cancel()
		if err != nil && ctx.Err() == nil {
			l.o.Log.Error("Failed to drop expired rows from the ledger, will retry", "err", err)
		}
		next.Reset(keepEvery)
	}
}

// foldAll folds until the journal is empty and returns the delay until the next run.
func (l *Ledger) foldAll(ctx context.Context) time.Duration {
	before := -1
	for {
		began := time.Now()
		limited, cancel := context.WithTimeout(ctx, longestFold)
		left, err := l.Fold(limited)
		cancel()
		if err != nil {
			if ctx.Err() == nil {
				l.o.Log.Error("Failed to fold the journal of the ledger, will retry", "err", err)
			}
			return l.o.FoldEvery
		}
		l.mu.Lock()
		l.activity.Folds++
		l.activity.Folding += time.Since(began)
		l.mu.Unlock()
		if left == 0 || left == before { // damaged bookings remain in the journal
			return l.o.FoldEvery
		}
		before = left
	}
}

// probe attempts a write if the last one failed and the backoff has elapsed, so that the ledger recovers without
// new bookings.
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
