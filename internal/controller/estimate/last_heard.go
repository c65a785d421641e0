package estimate

import (
	"time"

	"k8s.io/apimachinery/pkg/util/cache"

	"github.com/kubenergy/kubenergy/internal/ledger"
)

// Agents stores the time of the last batch from each node's agent. Nodes with an agent are not estimated. It is
// safe for concurrent use.
type Agents struct {
	now    func() time.Time
	byNode *cache.LRUExpireCache
}

const (
	agentForget = 24 * time.Hour
	maxAgents   = 100_000
)

// NewAgents returns an empty Agents.
func NewAgents(now func() time.Time) *Agents {
	return &Agents{now: now, byNode: cache.NewLRUExpireCache(maxAgents)}
}

// Booked handles a record of the ledger.
func (a *Agents) Booked(b *ledger.Booking, _ ledger.Receipt) {
	if !b.Agentless {
		a.Heard(b.Batch.Stream.Node)
	}
}

// Heard records that an agent has measured a node now.
func (a *Agents) Heard(node string) { a.byNode.Add(node, a.now(), agentForget) }

// Last returns the time at which an agent last measured a node, or zero if there was none in this process.
func (a *Agents) Last(node string) (at time.Time) {
	if last, ok := a.byNode.Get(node); ok {
		at = last.(time.Time)
	}
	return at
}
