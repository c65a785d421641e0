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

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
)

// QueueOptions say whose energy is queued, and how much may wait. Zero limits stand for the defaults.
type QueueOptions struct {
	// the state directory; "" keeps everything in memory, and the death of the process loses what was not
	// acknowledged
	Dir  string
	Node string
	Boot string // the kernel's boot ID

	MaxBatches   int // waiting batches, before neighbours are folded into one; 256, an hour of batches of 15 s
	MaxBytes     int // about what they would take in JSON; 8 MiB
	MaxConsumers int // in one batch, before it is condensed; 5,000, which is the most there may be
}

const (
	defaultBatches   = 256
	defaultBytes     = 8 << 20
	defaultConsumers = 5000
)

// Meta describes an attribution besides its numbers.
type Meta struct {
	Wall       time.Time // when the attribution ended, by the wall clock; one that cannot be written down is set right
	Source     string    // the root domain and its meter, as "psys (rapl)"
	IdlePolicy string
	Parent     *batch.Parent // what machine this one runs on, if it is virtual and that is known
}

// A Queue holds what was attributed and not yet acknowledged. Its methods may be called from any goroutine.
type Queue struct {
	opts QueueOptions
	log  *slog.Logger

	mu         sync.Mutex
	disk       *disk // nil in memory only
	stream     batch.Stream
	generation uint64
	seq        uint64
	savedSeq   uint64 // of the newest slot

	open     batch.Batch   // what is being added to; First is its number
	empty    bool          // nothing was
	end      time.Duration // of what was added last
	dirty    bool          // something was added that the agent's saved state does not cover
	sealNext bool          // seal at the next Save
	lastMeta Meta          // source and parent as Add got them last,
	sentMeta Meta          // and as they are sent
	sent     uint64        // the highest number of the stream that may have been sent

	state     []byte // the agent's, as of the last Save
	recovered []byte

	pending []*sealed // oldest first; neighbours of a stream have neighbouring numbers
	size    int       // Σ size of pending
	trash   []leftover

	slotNumber uint64 // the open batch's number in the newest slot
	fileNumber uint64 // the Last of the newest batch file that carries a state, in this stream
	brokenSeq  uint64 // of the mark that says that the stream cannot go on; 0 if there is none

	saved chan struct{} // closed at the next Save
	ready chan struct{} // holds a value when there may be something to send
	stats QueueStats
}

// A sealed batch does not change any more, except by being folded with a neighbour.
type sealed struct {
	record
	size   int
	sent   bool // it may have been delivered: it must be sent as it is until it is acknowledged
	frozen bool // of a former process; what that had sent is unknown until its stream's first acknowledgement
	files  []string
	whole  bool // one file holds it; else the files are of batches that it was folded from
	safe   bool // the files hold all of it
}

// A leftover is a file whose batch was acknowledged or folded, and that is not removed yet.
type leftover struct {
	file string
	last uint64 // while it may be what the stream goes on from, the number of its batch; else 0
}

// OpenQueue takes up what a former process left in the state directory. It fails if another one uses it.
func OpenQueue(opts QueueOptions, log *slog.Logger) (*Queue, error) {
	opts.MaxBatches = cmp.Or(opts.MaxBatches, defaultBatches)
	opts.MaxBytes = cmp.Or(opts.MaxBytes, defaultBytes)
	opts.MaxConsumers = min(cmp.Or(opts.MaxConsumers, defaultConsumers), defaultConsumers)
	q := &Queue{opts: opts, log: log, empty: true, saved: make(chan struct{}), ready: make(chan struct{}, 1)}
	q.stream = batch.Stream{Node: opts.Node, Boot: opts.Boot, Epoch: rand.Text()}
	q.reset(1)
	if err := q.checkMeta(Meta{Wall: time.Unix(0, 0), Source: "none", IdlePolicy: batch.Mixed}); err != nil {
		return nil, fmt.Errorf("naming a stream: %w", err)
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

// Close lets another process use the state directory. What is in it stays.
func (q *Queue) Close() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.disk != nil {
		q.disk.close()
		q.disk = nil
	}
	return nil
}

// State returns what the agent had handed to Save last, on this boot, before the process began; nil if nothing is
// known.
func (q *Queue) State() []byte { return q.recovered }

// reset makes room for the batch of a number.
func (q *Queue) reset(number uint64) {
	q.open = batch.Batch{Version: batch.Version, Stream: q.stream, First: number, Last: number}
	q.empty = true
}

// Add counts an attribution to the open batch. It refuses what would make the batch invalid, and time that was added
// before; such energy does not reach the controller.
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
	if q.empty || q.differs(m) {
		if err := q.checkMeta(m); err != nil {
			return err
		}
	}
	if a.Start < q.end {
		return fmt.Errorf("it begins at %v, what was added before ended at %v", a.Start, q.end)
	}
	if !q.empty && a.Measured > math.MaxInt64-q.open.Measured {
		return errors.New("more energy than can be counted")
	}
	if !q.empty && q.differs(m) {
		q.sealSoon()
	}
	q.add(a, m)
	q.dirty = true
	return nil
}

// checkAttribution refuses what a batch may not hold.
func checkAttribution(a *energy.Attribution) error {
	if a.Start < 0 || a.End == a.Start && a.Measured != 0 {
		return fmt.Errorf("interval of %v to %v", a.Start, a.End)
	}
	for i := range a.Shares {
		if s := &a.Shares[i]; s.CPU < 0 {
			return fmt.Errorf("CPU time of %s is %v", s.ID, s.CPU)
		}
	}
	return a.Check()
}

// differs reports whether an attribution should not share a batch with what was added before.
func (q *Queue) differs(m Meta) bool {
	return m.Source != q.open.Source || m.IdlePolicy != q.open.IdlePolicy || !sameParent(m.Parent, q.open.Parent)
}

// usable leaves out what a node says of itself where no controller would take it, as a host of the node's own name:
// the energy counts without it.
func (q *Queue) usable(m Meta) Meta {
	if m.Source != q.lastMeta.Source || q.sentMeta.Source == "" || !sameParent(m.Parent, q.lastMeta.Parent) {
		q.lastMeta, q.sentMeta = m, m
		if err := q.checkMeta(Meta{Source: m.Source, IdlePolicy: batch.Mixed}); err != nil {
			q.sentMeta.Source = "unknown"
			if m.Source != "" {
				q.log.Warn("the source of the energy cannot be sent", "source", m.Source, "err", err)
			}
		}
		err := q.checkMeta(Meta{Source: "none", IdlePolicy: batch.Mixed, Parent: m.Parent})
		if err != nil && m.Parent != nil {
			q.sentMeta.Parent = nil
			q.log.Warn("the host of this machine cannot be named: sums over nodes count this one beside it",
				"host", m.Parent.Host, "vm", m.Parent.VM, "err", err)
		}
	}
	m.Source, m.Parent = q.sentMeta.Source, q.sentMeta.Parent
	return m
}

// checkMeta reports what would make every batch invalid, and keep it from being taken for ever.
func (q *Queue) checkMeta(m Meta) error {
	b := batch.Batch{
		Version: batch.Version, Stream: q.stream, First: 1, Last: 1,
		Parent: m.Parent, Source: m.Source, IdlePolicy: m.IdlePolicy,
	}
	b.SetWall(m.Wall)
	return b.Validate()
}

func sameParent(a, b *batch.Parent) bool {
	return a == b || a != nil && b != nil && *a == *b
}

func (q *Queue) add(a *energy.Attribution, m Meta) {
	b := &q.open
	if q.empty {
		b.Parent, b.Source, b.IdlePolicy, b.Quality = m.Parent, m.Source, m.IdlePolicy, a.Quality
		b.StartSinceBoot = a.Start
		if q.end > 0 {
			b.StartSinceBoot = q.end // the batches of a stream leave no time out
		}
		b.EndSinceBoot = b.StartSinceBoot
	}
	next := batch.Batch{
		Last: b.Last, StartSinceBoot: a.Start, EndSinceBoot: a.End, End: m.Wall, Unmeasured: a.Unmeasured,
		Source: m.Source, Quality: a.Quality, IdlePolicy: m.IdlePolicy,
		Measured: a.Measured, Idle: a.Idle, Platform: a.Platform, Unknown: a.Unknown,
		GPUIdle: a.GPUIdle, GPUUnknown: a.GPUUnknown, Shares: a.Shares,
	}
	if batch.Missing(b.Shares, a.Shares) > 0 {
		next.Shares = named(a.Shares)
	}
	b.Extend(&next)
	q.empty, q.end = false, a.End
	if len(b.Shares) > q.opts.MaxConsumers {
		b.Shares = batch.Condense(b.Shares, q.opts.MaxConsumers)
	}
}

// named counts consumers whose names cannot be sent, as those of control groups with control characters in them, to the
// others: one of them would make the controller refuse the batch.
func named(shares []energy.Share) []energy.Share {
	bad := func(s *energy.Share) bool { return batch.CheckConsumer(s.ID) != nil }
	if !slices.ContainsFunc(shares, func(s energy.Share) bool { return bad(&s) }) {
		return shares
	}
	return batch.Rename(shares, func(s *energy.Share) string {
		if bad(s) {
			return batch.Others
		}
		return s.ID
	})
}

// Save keeps the open batch and the agent's state, of the same moment. An error says that both are in memory only for
// now; it has been logged.
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

// Seal ends the open batch, so that it can be sent, at once or at the next Save: it may hold only what the agent's
// saved state covers, or a restart would count the rest twice. An empty batch stays open.
func (q *Queue) Seal() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.sealSoon()
}

// sealNow is Seal that waits for its end.
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
	poke(q.ready)
}

func (q *Queue) push(s *sealed) {
	s.size = sizeOf(s.batch)
	q.size += s.size
	q.pending = append(q.pending, s)
}

// sizeOf is about what a batch takes in JSON.
func sizeOf(b *batch.Batch) int {
	size := 600
	for i := range b.Shares {
		size += len(b.Shares[i].ID) + 75
	}
	return size
}

// poke tells the reader of a channel with room for one that there is something, unless it is to be told already.
func poke(reader chan<- struct{}) {
	select {
	case reader <- struct{}{}:
	default:
	}
}

// next returns the oldest batch, to be sent, of a stream that is not to be passed over; nil if there is none.
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
	errNotBooked = errors.New("the acknowledgement is of an earlier batch")
	errNotSent   = errors.New("more was acknowledged than this agent has sent: its state is older than its stream")
)

// acked drops what was booked of a stream, up to a number, in answer to b.
func (q *Queue) acked(b *batch.Batch, number uint64) error {
	if number < b.Last {
		return errNotBooked
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	// More than this batch may have been booked, if its file could not be removed when it was acknowledged first. Of
	// a former stream it may even be more than is known here, if the disk failed or lost its latest changes: it does
	// not go on, so that does no harm.
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

// onDisk reports whether the next process finds everything that was not acknowledged.
func (q *Queue) onDisk() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.disk != nil && q.allSafe() && (q.empty || !q.dirty && q.savedSeq == q.seq)
}

// QueueStats say what is waiting.
type QueueStats struct {
	Pending     int                // sealed batches that are not acknowledged
	Oldest      time.Time          // when the oldest of them began, by the wall clock; zero if there is none
	Acked       uint64             // batches that were acknowledged
	Folded      uint64             // times that two batches became one
	Refused     energy.Microjoules // that Add did not take
	DiskErrors  uint64
	DiskFailing bool // what happens is kept in memory only
}

// Stats returns the present numbers.
func (q *Queue) Stats() QueueStats {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.stats
	s.Pending = len(q.pending)
	if len(q.pending) > 0 {
		s.Oldest = q.pending[0].batch.Start
	}
	return s
}
