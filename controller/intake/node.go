package intake

import (
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/kubenergy/kubenergy/energy"
	"github.com/kubenergy/kubenergy/energy/batch"
)

// node is what is remembered of a node that sends batches.
type node struct {
	envelope envelope

	mu      sync.Mutex
	busy    int // requests that are not done
	heard   time.Time
	strange bool                 // far from the model
	acked   map[stream]progress  // of some of its streams
	guests  map[string]time.Time // virtual machines that it has named, and when it did last
	folded  time.Time            // when it last sent a batch that does not name all
	alone   time.Time            // since when it has claimed a host that does not confirm it; zero: it does not
	begun   *rate.Limiter        // of streams, and of intervals that do not follow the one before
	moved   *rate.Limiter        // of parents
	parents map[batch.Parent]struct{}
}

type stream struct{ boot, epoch string }

// progress is how far a stream is booked.
type progress struct {
	acked uint64
	end   time.Duration // since boot, of what was booked last; -1: not known
}

const (
	forgetNode  = 7 * 24 * time.Hour
	mostStreams = 16
	mostGuests  = 4096

	// Hosts and guests do not send at the same moment.
	confirmWithin = 10 * time.Minute
	confirmedFor  = time.Hour
)

// node returns what is remembered of a node.
func (h *Handler) node(name string) *node {
	now := h.c.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	n := h.nodes[name]
	if n == nil {
		n = &node{heard: now, begun: aDay(mostBegun), moved: aDay(mostParents)}
		h.nodes[name] = n
		const few = 1024
		if len(h.nodes) > 2*max(h.swept, few) {
			h.sweep(now)
		}
	}
	return n
}

// sweep forgets nodes that have sent nothing for long.
func (h *Handler) sweep(now time.Time) {
	for name, n := range h.nodes {
		n.mu.Lock()
		if n.busy == 0 && now.Sub(n.heard) > forgetNode {
			delete(h.nodes, name)
		}
		n.mu.Unlock()
	}
	h.swept = len(h.nodes)
}

// known returns what is remembered of a node that has sent something, or nil.
func (h *Handler) known(name string) *node {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.nodes[name]
}

func (n *node) enter() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.busy >= mostAtOnce {
		return false
	}
	n.busy++
	return true
}

func (n *node) leave() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.busy--
}

func (n *node) far() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.strange
}

// last returns the highest number of a stream that is known to be booked.
func (n *node) last(s *batch.Stream) (acked uint64, known bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	p, known := n.acked[stream{s.Boot, s.Epoch}]
	return p.acked, known
}

func (n *node) remember(s *batch.Stream, acked uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.acked == nil {
		n.acked = map[stream]progress{}
	}
	key := stream{s.Boot, s.Epoch}
	before, known := n.acked[key]
	if !known && len(n.acked) >= mostStreams {
		for any := range n.acked { // it can be asked for again
			delete(n.acked, any)
			break
		}
	}
	if !known {
		before.end = -1
	}
	before.acked = max(before.acked, acked)
	n.acked[key] = before
}

// booked notes what a batch that is booked says of the node.
func (n *node) booked(b *batch.Batch, now time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.heard = now
	key := stream{b.Stream.Boot, b.Stream.Epoch}
	if p, known := n.acked[key]; known {
		p.end = b.EndSinceBoot
		n.acked[key] = p
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
		if len(n.guests) >= mostGuests {
			n.folded = now // from now on, that it has not named one says nothing
			return
		}
		vm = strings.Clone(vm)
	}
	n.guests[vm] = now
}

// denies reports whether a host sends, names all of its virtual machines, and has not named this one.
func (n *node) denies(vm string, since, now time.Time) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	named, ok := n.guests[vm]
	return (!ok || now.Sub(named) >= confirmedFor) && now.Sub(n.folded) > confirmedFor &&
		n.heard.Sub(since) > confirmWithin
}

// claims notes that a node names a host, and returns since when it has without the host's word.
func (n *node) claims(now time.Time) time.Time {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.alone.IsZero() {
		n.alone = now
	}
	return n.alone
}

func (n *node) confirmed() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.alone = time.Time{}
}

func (n *node) names(vm string, now time.Time) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	named, ok := n.guests[vm]
	return ok && now.Sub(named) < confirmedFor
}
