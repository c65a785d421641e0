package intake

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/util/cache"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
)

// node is the state of a node that sends batches.
type node struct {
	envelope envelope
	places   chan struct{} // limits concurrent requests
	strange  atomic.Bool   // the last batch deviated from the hardware model

	mu     sync.Mutex
	heard  time.Time
	acked  *cache.LRUExpireCache // progress of recent streams; missing ones are read from the ledger
	guests map[string]time.Time  // time of the last report of each virtual machine
	folded time.Time             // time of the last batch that did not list all guests
	// time since which the host has not confirmed the node as its guest; zero if confirmed
	alone   time.Time
	begun   *rate.Limiter         // limits new streams and gaps in streams
	moved   *rate.Limiter         // limits changes of the parent
	parents *cache.LRUExpireCache // set of accepted batch.Parent
}

type stream struct{ boot, epoch string }

// progress is the progress of a stream in the ledger.
type progress struct {
	acked uint64
	end   time.Duration // end of the last batch, since boot; -1 if unknown
	stale bool          // the ledger may have recorded another batch
}

const (
	forgetNode = 7 * 24 * time.Hour
	maxNodes   = 50_000 // beyond this, the least recently used nodes are dropped
	maxStreams = 16
	maxGuests  = 4096

	// Hosts and guests do not send their batches at the same time.
	confirmWithin = 10 * time.Minute
	confirmedFor  = time.Hour
)

// node returns the state of a node, and creates it if necessary.
func (h *Handler) node(name string) *node {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := h.known(name)
	if n == nil {
		n = &node{
			places: make(chan struct{}, maxConcurrent), heard: h.c.Now(), begun: aDay(maxBegun),
			moved: aDay(maxParents),
			acked: cache.NewLRUExpireCache(maxStreams), parents: cache.NewLRUExpireCache(maxParents),
		}
	}
	h.nodes.Add(name, n, forgetNode)
	return n
}

// keyOf returns the key of a node's state. Agents and estimates have separate states, because their batches may
// cover the same time.
func keyOf(node string, agentless bool) string {
	if agentless {
		return node + "\n" // not a valid node name
	}
	return node
}

// known returns the state of a node that has sent batches, or nil.
func (h *Handler) known(name string) *node {
	n, _ := h.nodes.Get(name)
	known, _ := n.(*node)
	return known
}

// last returns the progress of a stream if it is cached.
func (n *node) last(s *batch.Stream) (p progress, known bool) {
	last, _ := n.acked.Get(stream{s.Boot, s.Epoch})
	p, known = last.(progress)
	return p, known
}

func (n *node) remember(s *batch.Stream, acked uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	p, known := n.last(s)
	if !known {
		p.end = -1
	}
	p.acked, p.stale = max(p.acked, acked), false
	n.acked.Add(stream{s.Boot, s.Epoch}, p, forgetNode)
}

// doubt makes the next batch of a stream read its progress from the ledger. Otherwise a recorded batch could be
// rejected when it is sent again.
func (n *node) doubt(s *batch.Stream) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if p, known := n.last(s); known {
		p.stale = true
		n.acked.Add(stream{s.Boot, s.Epoch}, p, forgetNode)
	}
}

// booked updates the state of the node after a batch was recorded.
func (n *node) booked(b *batch.Batch, now time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.heard = now
	if p, known := n.last(&b.Stream); known {
		p.end = b.EndSinceBoot
		n.acked.Add(stream{b.Stream.Boot, b.Stream.Epoch}, p, forgetNode)
	}
	for i := range b.Shares {
		if b.Shares[i].ID == batch.Others {
			n.folded = now
		}
		if vm, ok := energy.VMOf(b.Shares[i].ID); ok {
			n.guest(vm, now)
		}
	}
}

func (n *node) guest(vm string, now time.Time) {
	if n.guests == nil {
		n.guests = map[string]time.Time{}
	}
	if _, known := n.guests[vm]; !known {
		if len(n.guests) >= maxGuests {
			n.folded = now // the list of guests is incomplete from now on
			return
		}
		vm = strings.Clone(vm)
	}
	n.guests[vm] = now
}

// Daily limits, and burst sizes, of events that add rows to the ledger. Machines rarely boot, agents continue their
// streams, and virtual machines rarely move.
const (
	maxBegun   = 50
	maxParents = 16
)

// aDay returns a limiter of events per day that permits all of them at the same time.
func aDay(most int) *rate.Limiter {
	return rate.NewLimiter(rate.Every(24*time.Hour/time.Duration(most)), most)
}

// begins reports whether a batch may be recorded if it starts a stream or leaves a gap after the previous batch,
// because the ledger stores a row for each stream and for each interval without gaps. Gaps in estimates are not
// limited. If ok, the caller must call undo if the batch is not recorded. Otherwise wait is the time until the next
// attempt.
func (n *node) begins(b *batch.Batch, agentless bool, now time.Time) (undo func(), wait time.Duration, ok bool) {
	if p, known := n.last(&b.Stream); known && (agentless || p.end == b.StartSinceBoot) {
		return func() {}, 0, true
	}
	r := n.begun.ReserveN(now, 1)
	if wait = r.DelayFrom(now); wait > 0 {
		r.CancelAt(now)
		return nil, wait, false
	}
	return func() { r.CancelAt(now) }, 0, true
}
