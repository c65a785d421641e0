package record

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/kubenergy/kubenergy/internal/apiclient"
	"github.com/kubenergy/kubenergy/internal/daemon"
	"github.com/kubenergy/kubenergy/internal/kube/panics"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/sched"
)

// A Recorder delivers decisions to the controller. A nil Recorder discards them. It is safe for concurrent use.
type Recorder struct {
	log    *slog.Logger
	client *apiclient.Client
	free   sync.Pool // of *Draft, to reuse their memory

	mu      sync.Mutex
	sent    []*Draft // oldest first
	nodes   int      // number of nodes in sent
	open    int      // number of drafts that are neither sent nor discarded
	drafted int      // number of nodes in these drafts
	dropped int
	ready   chan struct{}

	// The following fields are only accessed by the goroutine of Run.
	scribe   scribe
	queue    []ledger.Record // oldest first
	bytes    int             // total size of the snapshots in queue
	alone    int             // number of the oldest records that are delivered individually
	failing  bool            // the last request failed, which has been logged
	losses   map[string]int  // number of unlogged lost records by reason
	refusals int             // number of unlogged rejected records

	logLosses, logRefusals rate.Sometimes
}

// Draft is a decision with a copy of all data that its maker may modify. It must be either sent or discarded.
type Draft struct {
	Entry
	snapshot sched.Snapshot
	queue    [1]sched.Job
	nodes    []sched.Node
	refs     []*sched.Node // to nodes
}

// Limits on pending data. Sent drafts are limited by the number of nodes in their copies, to about 10 MiB. Other
// drafts are limited to 40 MiB. Written records are also limited.
const (
	maxSent        = 1024
	maxSentNodes   = 64 << 10
	maxDraftNodes  = 256 << 10 // of pods that are being bound, which takes longer than writing records
	maxQueue       = 4096
	maxQueueBytes  = 32 << 20
	maxBatch       = 128
	maxBatchBytes  = 2 << 20
	gatherFor      = 2 * time.Second // delay for collecting records that are delivered together
	shutdownWithin = 5 * time.Second
	bindsWithin    = 250 * time.Millisecond // max wait for open drafts at shutdown
	logEvery       = time.Minute            // min interval of log messages about lost records and panics
)

// New returns a recorder. It validates the options, but reads the files when they are needed, because a token may
// be created later.
func New(o apiclient.Options, log *slog.Logger) (*Recorder, error) {
	client, err := apiclient.New(o)
	if err != nil {
		return nil, fmt.Errorf("recording decisions: %w", err)
	}
	metrics.Register()
	return &Recorder{
		log: log, client: client, free: sync.Pool{New: func() any { return &Draft{} }},
		ready: make(chan struct{}, 1), losses: map[string]int{}, logLosses: rate.Sometimes{Interval: logEvery},
		logRefusals: rate.Sometimes{Interval: logEvery},
	}, nil
}

// Enabled reports whether recording is on, so that callers can skip preparing an entry.
func (r *Recorder) Enabled() bool { return r != nil }

// Record records a decision. It copies all referenced data and does not block.
func (r *Recorder) Record(e *Entry) { r.Send(r.Draft(e)) }

// Draft copies a decision that may still fail, together with all referenced data. The total size of drafts is
// limited. A draft that exceeds the limit has no snapshot.
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

// Discard discards a draft because the decision was not carried out.
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

// Send records the decision of a draft. The draft must not be used afterwards.
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
	daemon.Poke(r.ready)
}

// oldest removes the oldest draft and returns it. The caller must hold mu.
func (r *Recorder) oldest() *Draft {
	t := r.sent[0]
	r.sent[0] = nil
	r.sent = r.sent[1:]
	r.nodes -= len(t.nodes)
	return t
}

// recycle returns a draft to the pool. It clears all references, so that the objects can be garbage-collected.
func (r *Recorder) recycle(t *Draft) {
	clear(t.nodes)
	*t = Draft{nodes: t.nodes[:0], refs: t.refs[:0]}
	r.free.Put(t)
}

// fill copies a decision. The snapshot is dropped if it has more nodes than the given maximum.
func (t *Draft) fill(e *Entry, most int) {
	t.Entry = *e
	if e.Question == nil {
		return
	}
	jobs, nodes := len(e.Question.Queue), len(e.Question.Nodes)
	switch {
	case jobs != 1 || nodes > maxSentNodes:
		t.Question, t.NoSnapshot = nil, fmt.Sprintf("no snapshot is recorded for %d jobs on %d nodes", jobs, nodes)
		return
	case nodes > most:
		t.Question, t.NoSnapshot = nil, "no snapshot is recorded because too many decisions are pending"
		return
	}
	t.snapshot, t.queue[0] = *e.Question, e.Question.Queue[0]
	for _, n := range e.Question.Nodes {
		t.nodes = append(t.nodes, *n)
	}
	t.snapshot.Queue, t.snapshot.Nodes = t.queue[:], nil // completed by assemble
	t.Question = &t.snapshot
}

// assemble completes the copy of a snapshot, which is done outside of the scheduling cycle.
func (t *Draft) assemble() *Entry {
	for i := range t.nodes {
		t.refs = append(t.refs, &t.nodes[i])
	}
	t.snapshot.Nodes = t.refs
	return &t.Entry
}

// Run writes and delivers records until the context is done. It then tries briefly to deliver the remaining ones. A
// panic is treated as a failure, so that undelivered records are retried.
func (r *Recorder) Run(ctx context.Context) error {
	if r == nil {
		return nil
	}
	defer r.client.Close()
	apiclient.Keep(ctx, func(ctx context.Context) (ok bool) {
		r.safely(func() {
			r.wait(ctx, gatherFor)
			r.writeAll()
			r.lost(0, tooLong)
			ok = ctx.Err() != nil || r.deliver(ctx)
		})
		return ok
	}, func(ctx context.Context, pause time.Duration) { r.safely(func() { r.wait(ctx, pause) }) })
	r.finish(context.WithoutCancel(ctx))
	return nil
}

// wait waits until there are records and the given time has passed, or until the context is done.
func (r *Recorder) wait(ctx context.Context, while time.Duration) {
	var over <-chan time.Time // nil until there is a record
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
			r.writeAll() // copies need more memory than records
		case <-over:
			return
		}
	}
}

// writeAll converts all sent drafts to records.
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

// write creates the record of a decision. If that panics, the record has no snapshot.
func (r *Recorder) write(e *Entry) (record ledger.Record) {
	if !r.safely(func() { record = r.scribe.write(e) }) {
		r.scribe = scribe{} // discard its state, which may be inconsistent
		record = bare(e)
		record.Message = join(record.Message, "the snapshot is missing: writing it panicked")
	}
	return record
}

// keep adds a record to the queue, and drops the oldest ones if the queue exceeds its limits.
func (r *Recorder) keep(record ledger.Record) {
	r.queue = append(r.queue, record)
	r.bytes += len(record.Snapshot)
	over := 0
	for ; len(r.queue) > maxQueue || r.bytes > maxQueueBytes; over++ {
		r.forget(1)
	}
	r.lost(over, tooLong)
}

// forget removes the oldest n records.
func (r *Recorder) forget(n int) {
	for i := range r.queue[:n] {
		r.bytes -= len(r.queue[i].Snapshot)
	}
	clear(r.queue[:n])
	r.queue, r.alone = r.queue[n:], max(r.alone-n, 0)
}

// Reasons for losing records.
const (
	tooFast = "records were created faster than they could be written"
	tooLong = "the controller was unavailable for too long"
	tooLate = "the process terminated before the records were delivered"
)

// lost counts lost records and logs them at a limited rate. n may be 0 in order to log earlier losses.
func (r *Recorder) lost(n int, why string) {
	records.WithLabelValues("dropped").Add(float64(n))
	if r.losses[why] += n; r.losses[why] > 0 {
		r.logLosses.Do(func() {
			r.log.Warn("Lost records of decisions", "number", r.losses[why], "why", why)
			delete(r.losses, why)
		})
	}
}

// safely calls f, recovers from a panic and reports whether there was none.
func (r *Recorder) safely(f func()) (ok bool) {
	if ok = panics.Survive(r.log, "record", "recording decisions", f); !ok {
		panicked.WithLabelValues().Inc()
	}
	return ok
}
