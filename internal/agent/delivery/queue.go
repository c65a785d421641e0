package delivery

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/kubenergy/kubenergy/internal/daemon"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
)

// QueueOptions configures a Queue. Zero limits select the defaults.
type QueueOptions struct {
	// state directory; if empty, batches are kept in memory only and unacknowledged batches are lost when the
	// process ends
	Dir  string
	Node string
	Boot string // boot ID of the kernel

	MaxBatches   int // maximum number of pending batches before folding; defaults to 256, about one hour at 15 s
	MaxBytes     int // approximate maximum JSON size of pending batches before folding; defaults to 8 MiB
	MaxConsumers int // maximum number of consumers per batch before condensing; at most 5,000, the default
}

const (
	defaultBatches   = 256
	defaultBytes     = 8 << 20
	defaultConsumers = 5000
)

// Meta contains metadata of an attribution.
type Meta struct {
	Wall       time.Time // wall clock time at the end of the attribution; clamped to the valid range
	Source     string    // root domain and its meter, e.g. "psys (rapl)"
	IdlePolicy string
	Parent     batch.Parent // host of this virtual machine; empty if unknown or not virtual
}

// Queue stores attributed energy until it is acknowledged. It is safe for concurrent use.
type Queue struct {
	opts QueueOptions
	log  *slog.Logger

	mu         sync.Mutex
	disk       *disk // nil if batches are kept in memory only
	stream     batch.Stream
	generation uint64
	seq        uint64
	savedSeq   uint64 // sequence number of the newest slot

	open     batch.Batch   // the batch that Add extends; First is its number
	empty    bool          // the open batch is empty
	end      time.Duration // end of the last attribution, since boot
	dirty    bool          // attributions were added after the last Save
	sealNext bool          // seal the open batch at the next Save
	sent     uint64        // highest batch number of the stream that may have been sent

	lastParent, sentParent batch.Parent // last parent as passed to Add, and as sent

	state     []byte // state of the agent, as of the last Save
	recovered []byte

	pending []*sealed // oldest first; batches of a stream have consecutive numbers
	size    int       // total size of pending batches
	trash   []leftover

	slotNumber uint64 // number of the open batch in the newest slot
	fileNumber uint64 // Last of the newest batch file of this stream that contains a state
	brokenSeq  uint64 // sequence number of the mark of a broken stream; 0 if there is none

	saved chan struct{} // closed at the next Save
	ready chan struct{} // receives a value when a batch may be ready to send
	stats QueueStats
}

// sealed is a batch that no longer changes, except for being folded with an adjacent batch.
type sealed struct {
	record
	size   int
	sent   bool // may have been delivered, so it must not change until it is acknowledged
	frozen bool // batch of a previous process, until the first acknowledgement of its stream
	files  []string
	whole  bool // a single file contains the batch; otherwise, the files contain its folded parts
	safe   bool // the batch is completely on disk
}

// leftover is a file to remove, because its batch was acknowledged or folded.
type leftover struct {
	file string
	last uint64 // batch number if the file may be needed to resume the stream, otherwise 0
}

// OpenQueue opens a queue and recovers the state of the previous process from the state directory. It returns an
// error if another process uses the directory.
func OpenQueue(opts QueueOptions, log *slog.Logger) (*Queue, error) {
	opts.MaxBatches = cmp.Or(opts.MaxBatches, defaultBatches)
	opts.MaxBytes = cmp.Or(opts.MaxBytes, defaultBytes)
	opts.MaxConsumers = min(cmp.Or(opts.MaxConsumers, defaultConsumers), defaultConsumers)
	q := &Queue{opts: opts, log: log, empty: true, saved: make(chan struct{}), ready: make(chan struct{}, 1)}
	q.stream = batch.Stream{Node: opts.Node, Boot: opts.Boot, Epoch: rand.Text()}
	q.reset(1)
	if err := q.check(nil); err != nil {
		return nil, fmt.Errorf("validating the stream: %w", err)
	}
	if opts.Dir == "" {
		return q, nil
	}
	var err error
	if q.disk, err = openDisk(opts.Dir); err != nil {
		return nil, err
	}
	if err := q.takeUp(); err != nil {
		q.disk.close()
		return nil, err
	}
	q.bound()
	return q, nil
}

// Close releases the state directory. Its files are kept.
func (q *Queue) Close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.disk != nil {
		q.disk.close()
		q.disk = nil
	}
}

// State returns the state that a previous process of this boot passed to its last call of Save, or nil if there is
// none.
func (q *Queue) State() []byte { return q.recovered }

// reset starts a new open batch with the given number.
func (q *Queue) reset(number uint64) {
	q.open = batch.Batch{Version: batch.Version, Stream: q.stream, First: number, Last: number}
	q.empty = true
}

// Add adds an attribution to the open batch. It rejects attributions that would make the batch invalid or that
// overlap with earlier ones. The energy of rejected attributions does not reach the controller.
func (q *Queue) Add(a *energy.Attribution, m Meta) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.enqueue(a, q.usable(m)); err != nil {
		q.stats.Refused += min(max(a.Measured, 0), math.MaxInt64-q.stats.Refused)
		return fmt.Errorf("adding attribution: %w", err)
	}
	return nil
}

func (q *Queue) enqueue(a *energy.Attribution, m Meta) error {
	if err := checkAttribution(a); err != nil {
		return err
	}
	if a.Start < q.end {
		return fmt.Errorf("it starts at %v, before the end of the previous one at %v", a.Start, q.end)
	}
	if !q.empty && q.differs(m) {
		q.sealSoon()
	}
	q.add(a, m)
	q.dirty = true
	return nil
}

// checkAttribution returns an error if a batch cannot contain the attribution.
func checkAttribution(a *energy.Attribution) error {
	if a.Start < 0 || a.End == a.Start && a.Measured != 0 {
		return fmt.Errorf("invalid interval from %v to %v", a.Start, a.End)
	}
	for i := range a.Shares {
		if s := &a.Shares[i]; s.CPU < 0 {
			return fmt.Errorf("CPU time of %s is negative: %v", s.ID, s.CPU)
		}
	}
	return a.Check()
}

// differs reports whether the metadata differs from that of the open batch, so that a new batch must be started.
func (q *Queue) differs(m Meta) bool {
	return m.Source != q.open.Source || m.IdlePolicy != q.open.IdlePolicy ||
		m.Parent != *cmp.Or(q.open.Parent, &noParent)
}

var noParent batch.Parent

// usable returns m with a source, and without a parent that the controller would reject, such as a host with the
// node's own name, so that the energy is recorded nevertheless.
func (q *Queue) usable(m Meta) Meta {
	m.Source = cmp.Or(m.Source, "unknown")
	if m.Parent != q.lastParent {
		q.lastParent, q.sentParent = m.Parent, m.Parent
		if err := q.check(&q.sentParent); err != nil && m.Parent != noParent {
			q.sentParent = noParent
			q.log.Warn("Omitted an invalid host name, so totals over nodes count this machine in addition to its host",
				"host", m.Parent.Host, "vm", m.Parent.VM, "err", err)
		}
	}
	m.Parent = q.sentParent
	return m
}

// check returns an error if the stream or the parent would make every batch invalid.
func (q *Queue) check(parent *batch.Parent) error {
	b := batch.Batch{
		Version: batch.Version, Stream: q.stream, First: 1, Last: 1, Parent: parent, Source: "none",
		IdlePolicy: batch.Mixed,
	}
	b.SetWall(time.Unix(0, 0))
	return b.Validate()
}

func (q *Queue) add(a *energy.Attribution, m Meta) {
	b := &q.open
	if q.empty {
		if parent := m.Parent; parent != noParent {
			b.Parent = &parent
		}
		b.Source, b.IdlePolicy, b.Quality = m.Source, m.IdlePolicy, a.Quality
		b.StartSinceBoot = a.Start
		if q.end > 0 {
			b.StartSinceBoot = q.end // consecutive batches of a stream leave no gap in time
		}
		b.EndSinceBoot = b.StartSinceBoot
	}
	next := batch.Batch{
		Last: b.Last, StartSinceBoot: a.Start, EndSinceBoot: a.End, End: m.Wall, Unmeasured: a.Unmeasured,
		Source: m.Source, Quality: a.Quality, IdlePolicy: m.IdlePolicy,
		Measured: a.Measured, Idle: a.Idle, Platform: a.Platform, Unknown: a.Unknown,
		GPUIdle: a.GPUIdle, GPUUnknown: a.GPUUnknown, Shares: a.Shares,
	}
	b.Extend(&next)
	q.empty, q.end = false, a.End
	if len(b.Shares) > q.opts.MaxConsumers {
		b.Shares = batch.Condense(b.Shares, q.opts.MaxConsumers)
	}
}

// Save persists the open batch and the agent's state as of the same time. If it returns an error, which has already
// been logged, both exist only in memory.
func (q *Queue) Save(state []byte) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.seq++
	q.state = append(q.state[:0], state...)
	q.dirty = false
	err := q.persist()
	if q.sealNext {
		q.seal()
	}
	close(q.saved)
	q.saved = make(chan struct{})
	return err
}

// Seal seals the open batch so that it can be sent. If the agent's saved state does not cover the batch yet, it is
// sealed at the next Save; otherwise, a restart would count the difference twice. Seal is a no-op if the batch is
// empty.
func (q *Queue) Seal() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.sealSoon()
}

// sealNow is like Seal, but waits until the batch is sealed.
func (q *Queue) sealNow(ctx context.Context) error {
	q.mu.Lock()
	q.sealSoon()
	saved, waiting := q.saved, q.sealNext
	q.mu.Unlock()
	if !waiting {
		return nil
	}
	select {
	case <-saved:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("sealing: %w", ctx.Err())
	}
}

func (q *Queue) sealSoon() {
	if q.empty {
		return
	}
	if q.dirty && q.disk != nil {
		q.sealNext = true
		return
	}
	q.seal()
}

func (q *Queue) seal() {
	q.sealNext = false
	if q.empty {
		return
	}
	b := q.open
	b.Shares = slices.Clip(b.Shares)
	s := &sealed{record: record{seq: q.seq, generation: q.generation, end: q.end, batch: &b}}
	if q.disk != nil {
		s.state = append([]byte{}, q.state...)
		if q.allSafe() {
			_ = q.write(s)
		}
	}
	q.reset(b.Last + 1)
	q.open.Shares = make([]energy.Share, 0, len(b.Shares)+len(b.Shares)/8)
	q.push(s)
	q.bound()
	daemon.Poke(q.ready)
}

func (q *Queue) push(s *sealed) {
	s.size = sizeOf(s.batch)
	q.size += s.size
	q.pending = append(q.pending, s)
}

// sizeOf estimates the size of a batch in JSON, in bytes.
func sizeOf(b *batch.Batch) int {
	size := 600
	for i := range b.Shares {
		size += len(b.Shares[i].ID) + 75
	}
	return size
}

// next returns the oldest batch, skipping the streams in passOver, and marks it as sent. It returns nil if there is
// none.
func (q *Queue) next(passOver map[batch.Stream]bool) *batch.Batch {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.IndexFunc(q.pending, func(s *sealed) bool { return !passOver[s.batch.Stream] })
	if i < 0 {
		return nil
	}
	s := q.pending[i]
	if q.disk != nil && !s.whole && !s.sent {
		if err := q.write(s); err != nil {
			q.breakOff()
		}
	}
	s.sent = true
	if s.batch.Stream == q.stream {
		q.sent = max(q.sent, s.batch.Last)
	}
	return s.batch
}

var (
	errNotBooked = errors.New("acknowledgement of an earlier batch")
	errNotSent   = errors.New("acknowledgement of an unsent batch: the agent's state is older than its stream")
)

// acked removes all batches of b's stream up to the given number, which the controller returned in response to b.
func (q *Queue) acked(b *batch.Batch, number uint64) error {
	if number < b.Last {
		return errNotBooked
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	// The acknowledged number may exceed b.Last if the file of an acknowledged batch could not be removed. For a
	// stream of a previous process, it may even exceed all known batches if the disk failed or lost recent changes.
	// This is harmless because that stream is not continued.
	if b.Stream == q.stream && number > q.sent {
		return errNotSent
	}
	q.drop(b.Stream, number)
	return nil
}

func (q *Queue) drop(stream batch.Stream, number uint64) {
	q.pending = slices.DeleteFunc(q.pending, func(s *sealed) bool {
		if s.batch.Stream != stream {
			return false
		}
		if s.batch.Last > number {
			s.frozen = false
			return false
		}
		q.size -= s.size
		q.stats.Acked++
		last := uint64(0)
		if s.generation == q.generation {
			last = s.batch.Last
		}
		q.discard(s.files, last)
		return true
	})
	q.cleanUp()
}

// onDisk reports whether all unacknowledged energy is on disk, so that the next process can deliver it.
func (q *Queue) onDisk() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.disk != nil && q.allSafe() && (q.empty || !q.dirty && q.savedSeq == q.seq)
}

// QueueStats contains statistics of a Queue.
type QueueStats struct {
	Pending     int                // sealed batches that are not yet acknowledged
	Age         time.Duration      // of the oldest pending batch by the wall clock; 0 if there is none
	Acked       uint64             // number of acknowledged batches
	Folded      uint64             // number of fold operations
	Refused     energy.Microjoules // energy rejected by Add
	DiskErrors  uint64
	DiskFailing bool // the state is kept in memory only
}

// Stats returns the current statistics.
func (q *Queue) Stats() QueueStats {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.stats
	s.Pending = len(q.pending)
	if len(q.pending) > 0 {
		s.Age = max(0, time.Since(q.pending[0].batch.Start))
	}
	return s
}
