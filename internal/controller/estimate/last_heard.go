package estimate

import (
	"time"

	"k8s.io/apimachinery/pkg/util/cache"

	"github.com/kubenergy/kubenergy/internal/ledger"
)

// Agents remember when each node was last metered on the node itself: where it is, nothing is estimated.
type Agents struct {
	now    func() time.Time
	byNode *cache.LRUExpireCache
}

const (
	agentForget = 24 * time.Hour
	maxAgents   = 100_000
)

// NewAgents returns Agents that have heard of none.
func NewAgents(now func() time.Time) *Agents {
	return &Agents{now: now, byNode: cache.NewLRUExpireCache(maxAgents)}
}

// Booked is told of every booking.
func (a *Agents) Booked(b *ledger.Booking, _ ledger.Receipt) {
	if !b.Agentless {
		a.Heard(b.Batch.Stream.Node)
	}
}

// Heard notes that a node has been metered.
func (a *Agents) Heard(node string) { a.byNode.Add(node, a.now(), agentForget) }

// Last returns when a node was metered; zero: never in this process.
func (a *Agents) Last(node string) (at time.Time) {
	if last, ok := a.byNode.Get(node); ok {
		at = last.(time.Time)
	}
	return at
}
