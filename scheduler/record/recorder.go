package record

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"github.com/kubenergy/kubenergy/central"
	"github.com/kubenergy/kubenergy/ledger"
	"github.com/kubenergy/kubenergy/sched"
)

// Options say where records go.
type Options struct {
	URL       string // of the central unit, without a path
	TokenFile string // of a bearer token; read before each request, because tokens are rotated
	CAFile    string // of certificates to trust instead of the system's; read before each request
	Log       *slog.Logger

	transport http.RoundTripper // in place of the network, for tests
}

// A Recorder takes decisions and delivers them. A nil Recorder does nothing.
type Recorder struct {
	log    *slog.Logger
	client *central.Client

	mu      sync.Mutex
	told    []*Draft // the oldest first
	free    []*Draft // whose memory is used again
	nodes   int      // in told
	drafted int      // nodes in drafts that are neither sent nor discarded
	dropped uint64
	ready   chan struct{}

	// What follows belongs to the goroutine of Run.
	scribe   scribe
	queue    []ledger.Record // the oldest first
	bytes    int             // of snapshots in queue
	losses   map[string]*loss
	refusals loss
	panicked loss
}

// Draft is a decision with a copy of all that its maker will use again. It is sent or discarded.
type Draft struct {
	Entry
	snapshot sched.Snapshot
	queue    [1]sched.Job
	nodes    []sched.Node
	refs     []*sched.Node // to nodes
}

// What waits is bounded: told decisions by the number of nodes in their copies, about 10 MiB, or 40 of drafts, and
// written records.
const (
	maxTold        = 1024
	maxToldNodes   = 64 << 10
	maxDraftNodes  = 256 << 10 // of pods that are being bound: that takes longer than writing
	maxFree        = 16
	maxQueue       = 4096
	maxQueueBytes  = 32 << 20
	maxBatch       = 128
	maxBatchBytes  = 2 << 20
	gatherFor      = 2 * time.Second // records are sent together
	shutdownWithin = 5 * time.Second
	firstPause     = time.Second
	longestPause   = time.Minute
	saidEvery      = time.Minute // that records are lost, or that writing them panicked
)

// New checks the options. Files are read when they are needed: a token may come later.
func New(o Options) (*Recorder, error) {
	client, err := central.New(central.Options{
		URL: o.URL, TokenFile: o.TokenFile, CAFile: o.CAFile, UserAgent: "kubenergy-scheduler", Transport: o.transport,
	})
	if err != nil {
		return nil, fmt.Errorf("recording decisions: %w", err)
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	registerMetrics()
	return &Recorder{log: o.Log, client: client, ready: make(chan struct{}, 1), losses: map[string]*loss{}}, nil
}

// On reports whether there is anybody to tell, for who would have to prepare something.
func (r *Recorder) On() bool { return r != nil }

// Tell takes a decision. It copies what the decision points to and waits for nobody.
func (r *Recorder) Tell(d *Entry) { r.Send(r.Draft(d)) }

// Draft copies a decision, and what it points to, that may yet come to nothing. What drafts hold together is bounded:
// what would be beyond has no snapshot.
func (r *Recorder) Draft(d *Entry) *Draft {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.slot()
	t.take(d, maxDraftNodes-r.drafted)
	r.drafted += len(t.nodes)
	return t
}

// Discard forgets a draft: what was decided was not done.
func (r *Recorder) Discard(t *Draft) {
	if r == nil || t == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drafted -= len(t.nodes)
	t.clear()
	r.release(t)
}

// Send tells what a draft holds. It must not be used any more.
func (r *Recorder) Send(t *Draft) {
	if r == nil || t == nil {
		return
	}
	r.queueUp(t)
	select {
	case r.ready <- struct{}{}:
	default:
	}
}

func (r *Recorder) queueUp(t *Draft) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drafted -= len(t.nodes)
	r.told = append(r.told, t)
	r.nodes += len(t.nodes)
	for len(r.told) > maxTold || r.nodes > maxToldNodes && len(r.told) > 1 {
		first := r.first()
		first.clear()
		r.release(first)
		r.dropped++
	}
}

// slot returns memory to copy into. The lock is held, as in the two that follow.
func (r *Recorder) slot() *Draft {
	if n := len(r.free); n > 0 {
		t := r.free[n-1]
		r.free = r.free[:n-1]
		return t
	}
	return &Draft{}
}

func (r *Recorder) first() *Draft {
	t := r.told[0]
	r.told[0] = nil
	r.told = r.told[1:]
	r.nodes -= len(t.nodes)
	return t
}

func (r *Recorder) release(t *Draft) {
	if len(r.free) < maxFree {
		r.free = append(r.free, t)
	}
}

// clear forgets what is not to be kept alive by memory that waits to be used again.
func (t *Draft) clear() {
	t.Entry = Entry{}
	t.snapshot.Sites = nil
	clear(t.nodes)
	t.nodes = t.nodes[:0]
}

// take copies a decision, whose snapshot may have so many nodes.
func (t *Draft) take(d *Entry, most int) {
	t.Entry, t.nodes = *d, t.nodes[:0]
	if d.Snapshot == nil {
		return
	}
	if len(d.Snapshot.Queue) != 1 || len(d.Snapshot.Nodes) > maxToldNodes {
		t.Snapshot, t.NoSnapshot = nil, fmt.Sprintf("of %d jobs on %d nodes no snapshot is taken",
			len(d.Snapshot.Queue), len(d.Snapshot.Nodes))
		return
	}
	if len(d.Snapshot.Nodes) > most {
		t.Snapshot, t.NoSnapshot = nil, "too many decisions wait to be carried out: no snapshot is taken"
		return
	}
	t.snapshot = *d.Snapshot
	t.queue[0] = d.Snapshot.Queue[0]
	if d.Nodes != nil {
		t.nodes = append(t.nodes, d.Nodes...)
	} else {
		for _, n := range d.Snapshot.Nodes {
			t.nodes = append(t.nodes, *n)
		}
	}
	t.Nodes = nil
	t.snapshot.Queue, t.snapshot.Nodes = t.queue[:], nil // the nodes are put together where there is time
	t.Snapshot = &t.snapshot
}

// assemble completes the copy of a snapshot.
func (t *Draft) assemble() *Entry {
	t.refs = t.refs[:0]
	for i := range t.nodes {
		t.refs = append(t.refs, &t.nodes[i])
	}
	t.snapshot.Nodes = t.refs
	return &t.Entry
}

// Run writes and delivers until the context ends; then it tries for a moment to deliver what is left.
func (r *Recorder) Run(ctx context.Context) error {
	if r == nil {
		return nil
	}
	defer r.client.Close()
	pause, going := time.Duration(0), true // after a failure
	for going {
		pause, going = r.round(ctx, pause)
	}
	return nil
}

// round waits, writes and delivers once; going is false once the context has ended. A mistake of ours is survived, and
// counts as a failure: what was not delivered is tried again.
func (r *Recorder) round(ctx context.Context, last time.Duration) (pause time.Duration, going bool) {
	defer func() {
		if what := recover(); what != nil {
			r.sayPanic(what)
			pause, going = min(max(2*last, firstPause), longestPause), ctx.Err() == nil
		}
	}()
	if !r.wait(ctx, max(last, gatherFor)) {
		r.finish(context.WithoutCancel(ctx))
		return 0, false
	}
	r.writeAll()
	r.lost(0, tooLong)
	return r.deliver(ctx, last), true
}

// wait returns after there is something to do and a while for more to come; false if the context has ended.
func (r *Recorder) wait(ctx context.Context, while time.Duration) bool {
	if len(r.queue) == 0 {
		select {
		case <-ctx.Done():
			return false
		case <-r.ready:
		}
	}
	timer := time.NewTimer(while)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-r.ready:
			r.writeAll() // copies are larger than records
		case <-timer.C:
			return true
		}
	}
}

// writeAll turns all that was told into records.
func (r *Recorder) writeAll() {
	for {
		r.mu.Lock()
		dropped := r.dropped
		r.dropped = 0
		if len(r.told) == 0 {
			r.mu.Unlock()
			r.lost(dropped, tooFast)
			return
		}
		t := r.first()
		r.mu.Unlock()
		r.lost(dropped, tooFast)
		r.keep(r.write(t.assemble()))
		t.clear()
		r.mu.Lock()
		r.release(t)
		r.mu.Unlock()
	}
}

// write makes the record of a decision, without its snapshot where that panics.
func (r *Recorder) write(d *Entry) (record ledger.Record) {
	defer func() {
		if what := recover(); what != nil {
			r.sayPanic(what)
			r.scribe = scribe{} // whatever state it is in
			record = bare(d)
			record.Message = join(record.Message, "without its snapshot: writing it failed")
		}
	}()
	return r.scribe.write(d)
}

// Why records are lost.
const (
	tooFast = "they came faster than they could be written"
	tooLong = "the central unit has been away for too long"
	tooLate = "the process ends"
)

func (r *Recorder) keep(record ledger.Record) {
	r.queue = append(r.queue, record)
	r.bytes += len(record.Snapshot)
	over := 0
	for len(r.queue)-over > maxQueue || r.bytes > maxQueueBytes {
		r.bytes -= len(r.queue[over].Snapshot)
		over++
	}
	if over > 0 {
		r.drop(over)
		r.lost(uint64(over), tooLong)
	}
}

// drop forgets the oldest n records, whose bytes are subtracted already.
func (r *Recorder) drop(n int) {
	clear(r.queue[:n])
	r.queue = r.queue[n:]
}

// loss is something that goes wrong often or never: it is said once in a while.
type loss struct {
	said   time.Time
	unsaid uint64
}

// due adds to what is to be said, and returns how much that is if it is time for it.
func (l *loss) due(n uint64, now time.Time) uint64 {
	if l.unsaid += n; l.unsaid == 0 || now.Sub(l.said) < saidEvery {
		return 0
	}
	n, l.unsaid, l.said = l.unsaid, 0, now
	return n
}

// hurry lets be said what was not.
func (l *loss) hurry() {
	if l != nil {
		l.said = time.Time{}
	}
}

// lost counts records that are lost, and says so once in a while. n may be 0: then what was not said before is, if it
// is time.
func (r *Recorder) lost(n uint64, why string) {
	if n > 0 {
		records.WithLabelValues("dropped").Add(float64(n))
	}
	l := r.losses[why]
	if l == nil {
		l = &loss{}
		r.losses[why] = l
	}
	if n = l.due(n, time.Now()); n > 0 {
		r.log.Warn("records of decisions are lost", "number", n, "why", why)
	}
}

func (r *Recorder) sayPanic(what any) {
	panics.Inc()
	if n := r.panicked.due(1, time.Now()); n > 0 {
		r.log.Error("recording decisions panicked: going on", "times", n, "panic", what, "stack", string(debug.Stack()))
	}
}

// deliver sends all batches and returns how long to wait after a failure, longer than the last time; 0 after none.
func (r *Recorder) deliver(ctx context.Context, last time.Duration) (pause time.Duration) {
	for len(r.queue) > 0 {
		n := r.batch()
		err := send(ctx, r.client, r.queue[:n])
		switch {
		case ctx.Err() != nil:
			return 0
		case err == nil:
			records.WithLabelValues("sent").Add(float64(n))
		case isLasting(err) && n > 1:
			r.oneByOne(ctx, n)
			continue
		case isLasting(err):
			r.refused(err)
		default:
			if last == 0 {
				r.log.Warn("records of decisions are not delivered: trying again", "error", err)
			}
			pause = min(max(2*last, firstPause), longestPause)
			return pause/2 + rand.N(pause/2+1)
		}
		r.forget(n)
	}
	return 0
}

// oneByOne sends the oldest n records each by itself, so that one that is refused takes no others along.
func (r *Recorder) oneByOne(ctx context.Context, n int) {
	for range n {
		err := send(ctx, r.client, r.queue[:1])
		if err != nil && !isLasting(err) {
			return // the next attempt begins here
		}
		if err != nil {
			r.refused(err)
		} else {
			records.WithLabelValues("sent").Inc()
		}
		r.forget(1)
	}
}

// refused counts the oldest record, which is dropped.
func (r *Recorder) refused(err error) {
	records.WithLabelValues("refused").Inc()
	if n := r.refusals.due(1, time.Now()); n > 0 {
		r.log.Error("records were refused and are dropped", "number", n, "record", r.queue[0].ID, "error", err)
	}
}

func (r *Recorder) forget(n int) {
	for i := range r.queue[:n] {
		r.bytes -= len(r.queue[i].Snapshot)
	}
	r.drop(n)
}

// batch is how many of the oldest records go together.
func (r *Recorder) batch() int {
	n, size := 0, 0
	for n < len(r.queue) && n < maxBatch {
		size += len(r.queue[n].Snapshot)
		if n > 0 && size > maxBatchBytes {
			break
		}
		n++
	}
	return n
}

func (r *Recorder) finish(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, shutdownWithin)
	defer cancel()
	r.writeAll()
	r.deliver(ctx, 0)
	r.lost(uint64(len(r.queue)), tooLate)
	for _, why := range []string{tooFast, tooLong} { // what was not said yet
		r.losses[why].hurry()
		r.lost(0, why)
	}
}
