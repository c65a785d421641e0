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

// node is what is remembered of a node that sends batches.
type node struct {
	envelope envelope
	places   chan struct{} // of requests that are not done
	strange  atomic.Bool   // its last batch was far from the model

	mu      sync.Mutex
	heard   time.Time
	acked   *cache.LRUExpireCache // progress of some of its streams, by stream; it can be asked for again
	guests  map[string]time.Time  // virtual machines that it has named, and when it did last
	folded  time.Time             // when it last sent a batch that does not name all
	alone   time.Time             // since when it has claimed a host that does not confirm it; zero: it does not
	begun   *rate.Limiter         // of streams, and of intervals that do not follow the one before
	moved   *rate.Limiter         // of parents
	parents *cache.LRUExpireCache // batch.Parent that it may name
}

type stream struct{ boot, epoch string }

// progress is how far a stream is booked.
type progress struct {
	acked uint64
	end   time.Duration // since boot, of what was booked last; -1: not known
}

const (
	forgetNode = 7 * 24 * time.Hour
	maxNodes   = 50_000 // of which those that sent last are remembered
	maxStreams = 16
	maxGuests  = 4096

	// Hosts and guests do not send at the same moment.
	confirmWithin = 10 * time.Minute
	confirmedFor  = time.Hour
)

// node returns what is remembered of a node.
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

// keyOf returns the name that a node is remembered by: what an agent tells and what is estimated cover the same time.
func keyOf(node string, agentless bool) string {
	if agentless {
		return node + "\n" // no node's name
	}
	return node
}

// known returns what is remembered of a node that has sent something, or nil.
func (h *Handler) known(name string) *node {
	n, _ := h.nodes.Get(name)
	known, _ := n.(*node)
	return known
}

// last returns how far a stream is known to be booked.
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
	p.acked = max(p.acked, acked)
	n.acked.Add(stream{s.Boot, s.Epoch}, p, forgetNode)
}

// booked notes what a batch that is booked says of the node.
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
			n.folded = now // from now on, that it has not named one says nothing
			return
		}
		vm = strings.Clone(vm)
	}
	n.guests[vm] = now
}

// What makes a row in the ledger each time a node may do so often in a day, and at once after a quiet one. Machines
// start rarely, agents keep their streams, and virtual machines seldom move.
const (
	maxBegun   = 50
	maxParents = 16
)

// aDay allows so much at once, and as much again in a day.
func aDay(most int) *rate.Limiter {
	return rate.NewLimiter(rate.Every(24*time.Hour/time.Duration(most)), most)
}

// begins reports whether a batch may be booked if it begins a stream, or leaves out time after what was booked
// before, as estimates may: the ledger keeps a row of each stream, and of each time without gaps. Where it is not
// booked after all, undo gives that back.
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
