package estimate

import (
	"sync"
	"time"

	"github.com/kubenergy/kubenergy/ledger"
)

// Agents remember when each node was last metered on the node itself: where it is, nothing is estimated.
type Agents struct {
	now func() time.Time

	mu     sync.Mutex
	byNode map[string]time.Time
	swept  time.Time
}

const agentForget = 24 * time.Hour

// NewAgents returns Agents that have heard of none.
func NewAgents(now func() time.Time) *Agents {
	return &Agents{now: now, byNode: map[string]time.Time{}}
}

// Booked is told of every booking.
func (a *Agents) Booked(b *ledger.Booking, _ ledger.Receipt) {
	if !b.Agentless {
		a.Heard(b.Batch.Stream.Node)
	}
}

// Heard notes that a node has been metered.
func (a *Agents) Heard(node string) {
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

// Last returns when a node was metered; zero: never in this process.
func (a *Agents) Last(node string) time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.byNode[node]
}
