package intake

import (
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/energy/batch"
)

// How often a node may do in a day, and at once after a quiet one, what is a row in the ledger each time. Machines
// start rarely, agents keep their streams, and virtual machines seldom move.
const (
	mostBegun   = 50
	mostParents = 16
	allowedIn   = 24 * time.Hour
)

// An allowance is how much of something is left to a node: so much at once, and as much again in a day.
type allowance struct {
	used float64
	at   time.Time
}

// take uses one of most, or returns how long to wait for it.
func (a *allowance) take(most float64, now time.Time) (wait time.Duration, ok bool) {
	if passed := now.Sub(a.at); passed > 0 {
		a.used = max(0, a.used-most*passed.Hours()/allowedIn.Hours())
	}
	a.at = now
	if over := a.used + 1 - most; over > 0 {
		return time.Duration(over / most * float64(allowedIn)), false
	}
	a.used++
	return 0, true
}

func (a *allowance) giveBack() { a.used = max(0, a.used-1) }

// begins reports whether a batch may be booked if it begins a stream, or leaves out time after what was booked
// before: the ledger keeps a row of each stream, and of each time without gaps. Where it is not booked after all,
// undo gives that back.
func (n *node) begins(b *batch.Batch, now time.Time) (undo func(), wait time.Duration, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if p, known := n.acked[stream{b.Stream.Boot, b.Stream.Epoch}]; known && p.end == b.StartSinceBoot {
		return func() {}, 0, true
	}
	if wait, ok = n.begun.take(mostBegun, now); !ok {
		return nil, wait, false
	}
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.begun.giveBack()
	}, 0, true
}

// mayName reports whether a node may be booked as this virtual machine of this host: what it is booked under is an
// account each.
func (n *node) mayName(p *batch.Parent, now time.Time) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, known := n.parents[*p]; known {
		return true
	}
	if _, ok := n.moved.take(mostParents, now); !ok {
		return false
	}
	if n.parents == nil || len(n.parents) >= mostParents {
		n.parents = map[batch.Parent]struct{}{}
	}
	n.parents[batch.Parent{Host: strings.Clone(p.Host), VM: strings.Clone(p.VM)}] = struct{}{}
	return true
}
