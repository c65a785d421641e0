package intake

import (
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy/batch"
)

const (
	maxAhead   = 2 * time.Minute      // that a node's clock may be ahead of ours
	maxBehind  = 400 * 24 * time.Hour // that a batch may have been kept; a clock that says more has not been set
	skewIsTold = 2 * time.Second
)

// correct moves an interval that ends in the future, as what has been used has been used by now, or so long ago that no
// agent can have kept it: a clock that was never set says 1970, and each year that a node invents is rows
// in the ledger. Any other time is the node's word; it may have kept the batch for long.
func (h *Handler) correct(b *batch.Batch, now time.Time) {
	ahead := b.End.Sub(now)
	if ahead > skewIsTold {
		h.metrics.skewed.Inc()
	}
	if ahead > maxAhead || ahead < -maxBehind {
		h.metrics.moved.Inc()
		b.SetWall(now)
	}
}

// parent takes away the host that a node names if there is none of that name, or if it speaks of its virtual machines
// and not of this one: what a guest tells is taken from its host's sums, and no node may do that to a machine that is
// not its host. It takes some time to know.
func (h *Handler) parent(n *node, b *batch.Batch, now time.Time) {
	if b.Parent == nil {
		return
	}
	if host := h.known(b.Parent.Host); host != nil {
		confirmed := host.names(b.Parent.VM, now)
		if since := n.claims(confirmed, now); !confirmed && host.denies(since, now) {
			h.orphan(b, "the host does not speak of it")
			return
		}
	} else if _, outside := h.c.Agents.Host(b.Parent.Host); !outside && !h.c.Known(b.Parent.Host) {
		h.orphan(b, "there is no such host")
		return
	}
	if !n.mayName(b.Parent, now) {
		h.orphan(b, "it has named too many")
	}
}

func (h *Handler) orphan(b *batch.Batch, why string) {
	h.metrics.orphans.Inc()
	h.logThrottled("a node names a host that it is not booked under", "node", b.Stream.Node, "host", b.Parent.Host,
		"vm",
		b.Parent.VM, "why", why)
	b.Parent = nil
}

// denies reports whether a host that has not named a virtual machine lately sends, and names all of its own.
func (n *node) denies(since, now time.Time) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return now.Sub(n.folded) > confirmedFor && n.heard.Sub(since) > confirmWithin
}

// claims notes that a node names a host, which confirms it or not, and returns since when it has not.
func (n *node) claims(confirmed bool, now time.Time) time.Time {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case confirmed:
		n.alone = time.Time{}
	case n.alone.IsZero():
		n.alone = now
	}
	return n.alone
}

func (n *node) names(vm string, now time.Time) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	named, ok := n.guests[vm]
	return ok && now.Sub(named) < confirmedFor
}

// mayName reports whether a node may be booked as this virtual machine of this host: what it is booked under is an
// account each.
func (n *node) mayName(p *batch.Parent, now time.Time) bool {
	if _, known := n.parents.Get(*p); known {
		return true
	}
	allowed := n.moved.AllowN(now, 1)
	if allowed {
		n.parents.Add(batch.Parent{Host: strings.Clone(p.Host), VM: strings.Clone(p.VM)}, nil, forgetNode)
	}
	return allowed
}
