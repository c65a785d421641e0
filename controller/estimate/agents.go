package controller

import (
	"sync"
	"time"

	"github.com/kubenergy/kubenergy/ledger"
)

// agents remembers when each node was last metered on the node itself: where it is, nothing is estimated.
type agents struct {
	now func() time.Time

	mu     sync.Mutex
	byNode map[string]time.Time
	swept  time.Time
}

const agentForget = 24 * time.Hour

func newAgents(now func() time.Time) *agents {
	return &agents{now: now, byNode: map[string]time.Time{}}
}

// booked is told of every booking.
func (a *agents) booked(b *ledger.Booking, _ ledger.Receipt) {
	if !b.Agentless {
		a.hear(b.Batch.Stream.Node)
	}
}

// hear notes that a node has been metered.
func (a *agents) hear(node string) {
	now := a.now()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.byNode[node] = now
	if now.Sub(a.swept) > time.Hour {
		a.swept = now
		for node, at := range a.byNode {
			if now.Sub(at) > agentForget {
				delete(a.byNode, node)
			}
		}
	}
}

// last returns when a node was metered; zero: never in this process.
func (a *agents) last(node string) time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.byNode[node]
}
