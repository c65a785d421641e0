package record

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/kubenergy/kubenergy/internal/apiclient"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/kube/panics"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/sched"
)

// A Recorder takes decisions and delivers them. A nil Recorder does nothing.
type Recorder struct {
	log    *slog.Logger
	client *apiclient.Client
	free   sync.Pool // of *Draft, whose memory is used again

	mu      sync.Mutex
	sent    []*Draft // the oldest first
	nodes   int      // in sent
	open    int      // drafts that are neither sent nor discarded
	drafted int      // nodes in them
	dropped int
	ready   chan struct{}

	// What follows belongs to the goroutine of Run.
	scribe    scribe
	queue     []ledger.Record // the oldest first
	bytes     int             // of snapshots in queue
	alone     int             // so many of the oldest are delivered each by itself
	failing   bool            // the last request did, which was logged
	throttles map[string]*logThrottle
}

// Draft is a decision with a copy of all that its maker will use again. It is sent or discarded.
type Draft struct {
	Entry
	snapshot sched.Snapshot
	queue    [1]sched.Job
	nodes    []sched.Node
	refs     []*sched.Node // to nodes
}

// What waits is bounded: sent drafts by the number of nodes in their copies, about 10 MiB, other drafts by 40 MiB, and
// written records.
const (
	maxSent        = 1024
	maxSentNodes   = 64 << 10
	maxDraftNodes  = 256 << 10 // of pods that are being bound: that takes longer than writing
	maxQueue       = 4096
	maxQueueBytes  = 32 << 20
	maxBatch       = 128
	maxBatchBytes  = 2 << 20
	gatherFor      = 2 * time.Second // records are delivered together
	shutdownWithin = 5 * time.Second
	bindsWithin    = 250 * time.Millisecond // that is waited for drafts at the end
	logEvery       = time.Minute            // that records are lost, or that writing them panicked
)

// New checks the options. Files are read when they are needed: a token may come later.
func New(o apiclient.Options, log *slog.Logger) (*Recorder, error) {
	client, err := apiclient.New(o)
	if err != nil {
		return nil, fmt.Errorf("recording decisions: %w", err)
	}
	metrics.Register()
	return &Recorder{
		log: log, client: client, free: sync.Pool{New: func() any { return &Draft{} }},
		ready: make(chan struct{}, 1), throttles: map[string]*logThrottle{},
	}, nil
}

// Enabled reports whether recording is on, so that callers can skip preparing an entry.
func (r *Recorder) Enabled() bool { return r != nil }

// Record takes a decision. It copies what the decision points to, and does not wait.
func (r *Recorder) Record(e *Entry) { r.Send(r.Draft(e)) }

// Draft copies a decision, and what it points to, that may yet come to nothing. What drafts hold together is bounded:
// a draft beyond that has no snapshot.
func (r *Recorder) Draft(e *Entry) *Draft {
	if r == nil {
		return nil
	}
	t := r.free.Get().(*Draft)
	r.mu.Lock()
	defer r.mu.Unlock()
	t.fill(e, maxDraftNodes-r.drafted)
	r.drafted += len(t.nodes)
	r.open++
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
	r.open--
	r.recycle(t)
}

// Send records what a draft holds. It must not be used any more.
func (r *Recorder) Send(t *Draft) {
	if r == nil || t == nil {
		return
	}
	r.mu.Lock()
	r.drafted -= len(t.nodes)
	r.open--
	r.sent = append(r.sent, t)
	r.nodes += len(t.nodes)
	for len(r.sent) > maxSent || r.nodes > maxSentNodes && len(r.sent) > 1 {
		r.recycle(r.oldest())
		r.dropped++
	}
	r.mu.Unlock()
	kube.Poke(r.ready)
}

// oldest takes the oldest draft. The lock is held.
func (r *Recorder) oldest() *Draft {
	t := r.sent[0]
	r.sent[0] = nil
	r.sent = r.sent[1:]
	r.nodes -= len(t.nodes)
	return t
}

// recycle keeps the memory of a draft, and nothing alive that it points to.
func (r *Recorder) recycle(t *Draft) {
	clear(t.nodes)
	*t = Draft{nodes: t.nodes[:0], refs: t.refs[:0]}
	r.free.Put(t)
}

// fill copies a decision, whose snapshot may have so many nodes.
func (t *Draft) fill(e *Entry, most int) {
	t.Entry = *e
	if e.Question == nil {
		return
	}
	jobs, nodes := len(e.Question.Queue), len(e.Question.Nodes)
	switch {
	case jobs != 1 || nodes > maxSentNodes:
		t.Question, t.NoSnapshot = nil, fmt.Sprintf("of %d jobs on %d nodes no snapshot is taken", jobs, nodes)
		return
	case nodes > most:
		t.Question, t.NoSnapshot = nil, "too many decisions wait to be carried out: no snapshot is taken"
		return
	}
	t.snapshot, t.queue[0] = *e.Question, e.Question.Queue[0]
	for _, n := range e.Question.Nodes {
		t.nodes = append(t.nodes, *n)
	}
	t.snapshot.Queue, t.snapshot.Nodes = t.queue[:], nil // see assemble
	t.Question = &t.snapshot
}

// assemble completes the copy of a snapshot, where there is time for it.
func (t *Draft) assemble() *Entry {
	for i := range t.nodes {
		t.refs = append(t.refs, &t.nodes[i])
	}
	t.snapshot.Nodes = t.refs
	return &t.Entry
}

// Run writes and delivers until the context ends; then it tries for a moment to deliver what is left. A panic counts as
// a failure: what was not delivered is tried again.
func (r *Recorder) Run(ctx context.Context) error {
	if r == nil {
		return nil
	}
	defer r.client.Close()
	apiclient.Keep(ctx, func(ctx context.Context) bool {
		r.wait(ctx, gatherFor)
		r.writeAll()
		r.lost(0, tooLong)
		return ctx.Err() != nil || r.deliver(ctx)
	}, r.wait, r.logPanic)
	r.finish(context.WithoutCancel(ctx))
	return nil
}

// wait returns after there is something to do and a while for more to come, or when the context has ended.
func (r *Recorder) wait(ctx context.Context, while time.Duration) {
	var over <-chan time.Time // nil until there is something to do
	if while == 0 {
		return
	}
	for {
		if over == nil && len(r.queue) > 0 {
			over = time.After(while)
		}
		select {
		case <-ctx.Done():
			return
		case <-r.ready:
			r.writeAll() // copies are larger than records
		case <-over:
			return
		}
	}
}

// writeAll turns all that was sent into records.
func (r *Recorder) writeAll() {
	for {
		r.mu.Lock()
		dropped := r.dropped
		r.dropped = 0
		var t *Draft
		if len(r.sent) > 0 {
			t = r.oldest()
		}
		r.mu.Unlock()
		r.lost(dropped, tooFast)
		if t == nil {
			return
		}
		r.keep(r.write(t.assemble()))
		r.recycle(t)
	}
}

// write makes the record of a decision, without its snapshot where that panics.
func (r *Recorder) write(e *Entry) (record ledger.Record) {
	defer func() {
		if panicked := recover(); panicked != nil {
			r.logPanic(panicked)
			r.scribe = scribe{} // whatever state it is in
			record = bare(e)
			record.Message = join(record.Message, "without its snapshot: writing it failed")
		}
	}()
	return r.scribe.write(e)
}

// keep queues a record, and drops the oldest where too much waits.
func (r *Recorder) keep(record ledger.Record) {
	r.queue = append(r.queue, record)
	r.bytes += len(record.Snapshot)
	over := 0
	for ; len(r.queue) > maxQueue || r.bytes > maxQueueBytes; over++ {
		r.forget(1)
	}
	r.lost(over, tooLong)
}

// forget drops the oldest n records.
func (r *Recorder) forget(n int) {
	for i := range r.queue[:n] {
		r.bytes -= len(r.queue[i].Snapshot)
	}
	clear(r.queue[:n])
	r.queue, r.alone = r.queue[n:], max(r.alone-n, 0)
}

// Why records are lost.
const (
	tooFast = "they came faster than they could be written"
	tooLong = "the controller has been away for too long"
	tooLate = "the process ends"
)

// logThrottle limits how often something that goes wrong is logged.
type logThrottle struct {
	logged  time.Time
	pending int // times that were not logged
}

// throttle adds to what is to be logged, and returns how much that is if it is time for it.
func (r *Recorder) throttle(what string, times int) (number int) {
	n := r.throttles[what]
	if n == nil {
		n = &logThrottle{}
		r.throttles[what] = n
	}
	n.pending += times
	if now := time.Now(); n.pending > 0 && now.Sub(n.logged) >= logEvery {
		number, n.pending, n.logged = n.pending, 0, now
	}
	return number
}

// lost counts records that are lost, and logs them once in a while. n may be 0: then what was not logged before is, if
// it is time.
func (r *Recorder) lost(n int, why string) {
	records.WithLabelValues("dropped").Add(float64(n))
	if n = r.throttle(why, n); n > 0 {
		r.log.Warn("records of decisions are lost", "number", n, "why", why)
	}
}

func (r *Recorder) logPanic(what any) {
	panicked.WithLabelValues().Inc()
	panics.Note("record")
	if n := r.throttle("panic", 1); n > 0 {
		r.log.Error("recording decisions panicked: going on", "times", n, "panic", what,
			"stack", string(debug.Stack()))
	}
}
