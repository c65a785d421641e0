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

// identify returns a batch with the times and the host that it is booked under.
func (h *Handler) identify(n *node, b batch.Batch, now time.Time) batch.Batch {
	b = h.correct(b, now)
	if b.Parent == nil {
		return b
	}
	if why := h.rejectHost(n, b.Parent, now); why != "" {
		h.metrics.orphans.Inc()
		h.logThrottled("a node names a host that it is not booked under", "node", b.Stream.Node, "host", b.Parent.Host,
			"vm", b.Parent.VM, "why", why)
		b.Parent = nil
	}
	return b
}

// correct returns a batch that ends now if it ends in the future, because energy that was used was used by now, or so
// long ago that no agent can have kept it: a clock that was never set shows 1970, and each year that a node invents
// adds rows to the ledger. All other times are accepted, because an agent may have kept its batches for long.
func (h *Handler) correct(b batch.Batch, now time.Time) batch.Batch {
	ahead := b.End.Sub(now)
	if ahead > skewIsTold {
		h.metrics.skewed.Inc()
	}
	if ahead > maxAhead || ahead < -maxBehind {
		h.metrics.moved.Inc()
		b.SetWall(now)
	}
	return b
}

// rejectHost returns the reason why a node is not booked as a guest of a host, or "". The energy of a guest is deducted
// from sums over its host, so a node must not claim a host that does not exist, or one that reports its virtual
// machines without this one. It takes some time until a host denies a guest.
func (h *Handler) rejectHost(n *node, p *batch.Parent, now time.Time) string {
	if host := h.known(p.Host); host != nil {
		confirmed := host.names(p.VM, now)
		if since := n.claims(confirmed, now); !confirmed && host.denies(since, now) {
			return "the host does not speak of it"
		}
	} else if _, outside := h.c.Agents.Host(p.Host); !outside && !h.c.Known(p.Host) {
		return "there is no such host"
	}
	if !n.mayName(p, now) {
		return "it has named too many"
	}
	return ""
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
