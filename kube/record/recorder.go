package record

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/kubenergy/kubenergy/ledger"
	"github.com/kubenergy/kubenergy/sched"
)

// Options say where records go.
type Options struct {
	URL       string // of the central unit, without a path
	TokenFile string // of a bearer token; read before each request, because tokens are rotated
	CAFile    string // of certificates to trust instead of the system's; read before each request
	Log       *slog.Logger
}

// A Recorder takes decisions and delivers them. A nil Recorder does nothing.
type Recorder struct {
	log  *slog.Logger
	post poster

	mu      sync.Mutex
	told    []*told // the oldest first
	free    []*told // whose memory is used again
	nodes   int     // in told
	dropped uint64
	ready   chan struct{}

	// What follows belongs to the goroutine of Run.
	scribe scribe
	queue  []ledger.Record // the oldest first
	bytes  int             // of snapshots in queue
}

// told is a decision with a copy of all that its maker will use again.
type told struct {
	Decision
	snapshot sched.Snapshot
	queue    [1]sched.Job
	nodes    []sched.Node
	refs     []*sched.Node // to nodes
}

// What waits is bounded: told decisions by the number of nodes in their copies, about 10 MiB, and written records.
const (
	maxTold        = 1024
	maxToldNodes   = 64 << 10
	maxFree        = 16
	maxQueue       = 4096
	maxQueueBytes  = 32 << 20
	maxBatch       = 128
	maxBatchBytes  = 2 << 20
	gatherFor      = 2 * time.Second // records are sent together
	shutdownWithin = 5 * time.Second
	firstPause     = time.Second
	longestPause   = time.Minute
)

// New checks the options. Files are read when they are needed: a token may come later.
func New(o Options) (*Recorder, error) {
	post, err := newPoster(&o)
	if err != nil {
		return nil, fmt.Errorf("recording decisions: %w", err)
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	registerMetrics()
	return &Recorder{log: o.Log, post: post, ready: make(chan struct{}, 1)}, nil
}

// On reports whether there is anybody to tell, for who would have to prepare something.
func (r *Recorder) On() bool { return r != nil }

// Tell takes a decision. It copies what the decision points to and waits for nobody.
func (r *Recorder) Tell(d *Decision) {
	if r == nil {
		return
	}
	r.mu.Lock()
	t := r.slot()
	t.take(d)
	r.told = append(r.told, t)
	r.nodes += len(t.nodes)
	for len(r.told) > maxTold || r.nodes > maxToldNodes && len(r.told) > 1 {
		r.release(r.first())
		r.dropped++
	}
	r.mu.Unlock()
	select {
	case r.ready <- struct{}{}:
	default:
	}
}

// slot returns memory to copy into. The lock is held, as in the two that follow.
func (r *Recorder) slot() *told {
	if n := len(r.free); n > 0 {
		t := r.free[n-1]
		r.free = r.free[:n-1]
		return t
	}
	return &told{}
}

func (r *Recorder) first() *told {
	t := r.told[0]
	r.told[0] = nil
	r.told = r.told[1:]
	r.nodes -= len(t.nodes)
	return t
}

func (r *Recorder) release(t *told) {
	if len(r.free) < maxFree {
		r.free = append(r.free, t)
	}
}

func (t *told) take(d *Decision) {
	t.Decision = *d
	t.nodes = t.nodes[:0]
	if d.Snapshot == nil {
		return
	}
	if len(d.Snapshot.Queue) != 1 || len(d.Snapshot.Nodes) > maxToldNodes {
		t.Snapshot, t.NoSnapshot = nil, fmt.Sprintf("of %d jobs on %d nodes no snapshot is taken", len(d.Snapshot.Queue), len(d.Snapshot.Nodes))
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
func (t *told) assemble() *Decision {
	t.refs = t.refs[:0]
	for i := range t.nodes {
		t.refs = append(t.refs, &t.nodes[i])
	}
	t.snapshot.Nodes = t.refs
	return &t.Decision
}

// Run writes and delivers until the context ends; then it tries for a moment to deliver what is left.
func (r *Recorder) Run(ctx context.Context) error {
	if r == nil {
		return nil
	}
	defer r.post.close()
	pause := time.Duration(0) // after a failure
	for {
		if !r.wait(ctx, max(pause, gatherFor)) {
			r.finish(context.WithoutCancel(ctx))
			return nil
		}
		r.writeAll()
		pause = r.deliver(ctx, pause)
	}
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
			r.lost(dropped, "they came faster than they could be written")
			return
		}
		t := r.first()
		r.mu.Unlock()
		r.lost(dropped, "they came faster than they could be written")
		r.keep(r.scribe.write(t.assemble()))
		t.Decision = Decision{}
		t.snapshot.Sites = nil // not to be kept alive
		clear(t.nodes)
		r.mu.Lock()
		r.release(t)
		r.mu.Unlock()
	}
}

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
		r.lost(uint64(over), "the central unit has been away for too long")
	}
}

// drop forgets the oldest n records, whose bytes are subtracted already.
func (r *Recorder) drop(n int) {
	clear(r.queue[:n])
	r.queue = r.queue[n:]
}

func (r *Recorder) lost(n uint64, why string) {
	if n == 0 {
		return
	}
	records.WithLabelValues("dropped").Add(float64(n))
	r.log.Warn("records of decisions are lost", "number", n, "why", why)
}

// deliver sends all batches and returns how long to wait after a failure, longer than the last time; 0 after none.
func (r *Recorder) deliver(ctx context.Context, last time.Duration) (pause time.Duration) {
	for len(r.queue) > 0 {
		n := r.batch()
		err := r.post.send(ctx, r.queue[:n])
		refused, _ := errors.AsType[*refusedError](err)
		switch {
		case ctx.Err() != nil:
			return 0
		case err == nil:
			records.WithLabelValues("sent").Add(float64(n))
		case refused != nil && refused.lasting && n > 1:
			r.oneByOne(ctx, n)
			continue
		case refused != nil && refused.lasting:
			records.WithLabelValues("refused").Add(float64(n))
			r.log.Error("a record was refused and is dropped", "error", err)
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
		err := r.post.send(ctx, r.queue[:1])
		if refused, ok := errors.AsType[*refusedError](err); err != nil && (!ok || !refused.lasting) {
			return // the next attempt begins here
		}
		outcome := "sent"
		if err != nil {
			outcome = "refused"
			r.log.Error("a record was refused and is dropped", "record", r.queue[0].ID, "error", err)
		}
		records.WithLabelValues(outcome).Inc()
		r.forget(1)
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
	r.lost(uint64(len(r.queue)), "the process ends")
}
