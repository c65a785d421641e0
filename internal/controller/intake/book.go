package intake

import (
	"context"
	"time"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
	"github.com/kubenergy/kubenergy/internal/ledger"
)

const (
	maxAhead   = 2 * time.Minute      // that a node's clock may be ahead of ours
	maxBehind  = 400 * 24 * time.Hour // that a batch may have been kept; a clock that says more has not been set
	skewIsTold = 2 * time.Second
)

// acked returns the highest number of a batch's stream that is booked, or 0.
func (h *Handler) acked(ctx context.Context, n *node, b *batch.Batch) (uint64, error) {
	if p, known := n.last(&b.Stream); known {
		return p.acked, nil
	}
	acked, known, err := h.c.Ledger.Acked(ctx, b.Stream)
	if err != nil {
		return 0, err
	}
	if known {
		n.remember(&b.Stream, acked)
	}
	return acked, nil
}

// idleKinds are what energy that no consumer used is charged to, by the state of a machine that does no work.
var idleKinds = map[string]ledger.Kind{
	v1alpha1.PowerAsleep: ledger.Asleep, v1alpha1.PowerBooting: ledger.Booting,
}

// book corrects, checks, names, prices and books a batch, which becomes the handler's.
func (h *Handler) book(ctx context.Context, n *node, b *batch.Batch, heat *energy.Celsius, agentless bool,
) (ledger.Receipt, []named, error) {
	now := h.c.Now()
	h.correct(b, now)
	h.parent(n, b, now)
	claim, err := h.check(ctx, n, b, h.c.Envelope, agentless, now)
	if err != nil {
		return ledger.Receipt{}, nil, err
	}
	r := h.c.PodIndex.resolve(b, &claim.limits, &h.news, now)
	booking := &ledger.Booking{
		Batch: b, Received: now, NodeSince: claim.since, Consumers: r.consumers,
		Rates:     h.c.Rates(b.Stream.Node, b.Start, b.End),
		Agentless: agentless, Temperature: heat,
	}
	if h.c.Power != nil {
		booking.Power = idleKinds[h.c.Power(b.Stream.Node)]
	}
	if !agentless {
		booking.NodeSeen = claim.seen
	}
	if h.c.Forward {
		if booking.Forward, err = booking.Pack(); err != nil {
			claim.done(false, true)
			return ledger.Receipt{}, nil, err
		}
	}
	receipt, err := h.commit(ctx, n, booking, claim.done)
	if err != nil {
		return receipt, nil, err
	}
	if receipt.Booked {
		h.metrics.count(b, &r, &receipt)
	}
	return receipt, r.names, nil
}

// commit books what a node was found able to do, and tells done.
func (h *Handler) commit(ctx context.Context, n *node, booking *ledger.Booking, done func(booked, known bool),
) (ledger.Receipt, error) {
	// If the client disconnects, booking still finishes, so that its result is known.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), bookTimeout)
	defer cancel()
	receipt, err := h.c.Ledger.Book(ctx, booking)
	done(receipt.Booked, ctx.Err() == nil) // what took too long may be booked yet
	if err != nil {
		return receipt, err
	}
	b := booking.Batch
	n.remember(&b.Stream, receipt.Acked)
	if receipt.Booked {
		n.envelope.keeps(booking.NodeSeen)
		n.booked(b, booking.Received)
		h.surge(n, b.Stream.Node, booking.Received)
	}
	return receipt, nil
}

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

// joules of an amount, for counters.
func joules(u energy.Microjoules) float64 { return float64(u.Joules()) }
