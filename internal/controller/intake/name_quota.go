package intake

import (
	"cmp"
	"hash/maphash"
	"sync"
	"time"
)

// nameQuota limits the number of names that a node can invent for virtual machines, control groups and pods. Each
// name adds a row to the ledger. It is safe for concurrent use.
type nameQuota struct {
	most  int // maximum per node; defaults to maxNovelOfNode
	mu    sync.Mutex
	began time.Time
	seen  map[uint64]struct{}
	of    map[string]int // number of names by node
}

const (
	nameQuotaPeriod = 24 * time.Hour
	maxNovelOfNode  = 20_000
	maxNovelOfNodes = 1_000_000
)

var nameQuotaSeed = maphash.MakeSeed()

// admit reports whether a node may use a name. It may if it has used the name before or has quota left.
func (n *nameQuota) admit(node, id string, now time.Time) bool {
	var h maphash.Hash
	h.SetSeed(nameQuotaSeed)
	_, _ = h.WriteString(node)
	_ = h.WriteByte(0)
	_, _ = h.WriteString(id)
	sum := h.Sum64()
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.seen == nil || now.Sub(n.began).Abs() > nameQuotaPeriod {
		n.began, n.seen, n.of = now, map[uint64]struct{}{}, map[string]int{}
	}
	if _, known := n.seen[sum]; known {
		return true
	}
	if n.of[node] >= cmp.Or(n.most, maxNovelOfNode) || len(n.seen) >= maxNovelOfNodes {
		return false
	}
	n.seen[sum] = struct{}{}
	n.of[node]++
	return true
}
