package intake

import (
	"context"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
	"github.com/kubenergy/kubenergy/internal/ledger"
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

// joules of an amount, for counters.
func joules(u energy.Microjoules) float64 { return float64(u.Joules()) }
