package intake

import (
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy/batch"
)

// confirmHost returns a batch without a parent that is not confirmed.
func (h *Handler) confirmHost(n *node, b batch.Batch, now time.Time) batch.Batch {
	if b.Parent == nil {
		return b
	}
	if why := h.rejectHost(n, b.Parent, now); why != "" {
		h.metrics.orphans.Inc()
		h.logThrottled("Recorded node without the host that it claims", "node", b.Stream.Node, "host", b.Parent.Host,
			"vm", b.Parent.VM, "why", why)
		b.Parent = nil
	}
	return b
}

// rejectHost returns the reason why a node is not recorded as a guest of a host, or "". The energy of a guest is
// subtracted from sums over its host. A node therefore must not claim a host that does not exist, or a host that
// reports its virtual machines without this one. A host needs some time to confirm or deny a guest.
func (h *Handler) rejectHost(n *node, p *batch.Parent, now time.Time) string {
	if host := h.known(p.Host); host != nil {
		confirmed := host.names(p.VM, now)
		if since := n.claims(confirmed, now); !confirmed && host.denies(since, now) {
			return "the host does not report it"
		}
	} else if _, outside := h.c.Agents.Host(p.Host); !outside && !h.c.Known(p.Host) {
		return "the host does not exist"
	}
	if !n.mayName(p, now) {
		return "it has claimed too many"
	}
	return ""
}

// denies reports whether a host has sent batches since the given time and lists all of its virtual machines. The
// caller must have checked that the virtual machine is not among them.
func (n *node) denies(since, now time.Time) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return now.Sub(n.folded) > confirmedFor && n.heard.Sub(since) > confirmWithin
}

// claims records that a node claims a host. It returns the start of the claim without confirmation, or zero if the
// host confirms it.
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

// mayName reports whether a node may be recorded as the given virtual machine. Each virtual machine is an account,
// so their number is limited.
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
