package intake

import (
	"context"
	"errors"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
	"github.com/kubenergy/kubenergy/internal/ledger"
)

// book records a batch in the ledger and returns the names of the node's pods for the acknowledgement. Each step takes
// the value of the step before and returns a new one; none changes its input.
func (h *Handler) book(ctx context.Context, n *node, sent *batch.Batch, heat *energy.Celsius, agentless bool,
) (receipt ledger.Receipt, names []byte, err error) {
	now := h.c.Now()
	identified := h.identify(n, *sent, now)
	claim, err := h.check(ctx, n, &identified, h.c.Envelope, agentless, now)
	if err != nil {
		return receipt, nil, err
	}
	defer claim.end()
	owners := h.c.PodIndex.resolve(&identified, &h.news, now)
	capped := capShares(identified, owners, &claim.limits)
	booking := h.price(ledger.Booking{
		Batch: &capped, Received: now, NodeSince: claim.since, NodeSeen: claim.seen,
		Consumers: classify(&capped, owners, now), Agentless: agentless, Temperature: heat,
	})
	if h.c.Forward {
		if booking.Forward, err = booking.Pack(); err != nil {
			return receipt, nil, err
		}
	}
	receipt, err = h.commit(ctx, n, &booking, claim)
	if err != nil {
		return receipt, nil, err
	}
	if receipt.Booked {
		h.metrics.count(&booking, &receipt)
	}
	return receipt, encodeNames(&booking, owners), nil
}

// acked returns the highest number of a batch's stream that is booked, or 0.
func (h *Handler) acked(ctx context.Context, n *node, b *batch.Batch) (uint64, error) {
	if p, known := n.last(&b.Stream); known && !p.stale {
		return p.acked, nil
	}
	acked, known, err := h.c.Ledger.Acked(ctx, b.Stream)
	if err == nil && known {
		n.remember(&b.Stream, acked)
	}
	return acked, err
}

// commit writes a booking to the ledger and then, once it is durable, updates the state of its node. It stores the
// result in the claim on the node's envelope, which the caller must end.
func (h *Handler) commit(ctx context.Context, n *node, booking *ledger.Booking, c *claim) (ledger.Receipt, error) {
	// If the client disconnects, booking still finishes, so that its result is known.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), bookTimeout)
	defer cancel()
	c.unknown = true // if Book panics
	receipt, err := h.c.Ledger.Book(ctx, booking)
	// A booking may be written after a timeout, or although the connection was lost during the commit.
	c.unknown = err != nil && !Permanent(err) && !errors.Is(err, ledger.ErrPaused)
	c.booked = receipt.Booked
	b := booking.Batch
	if c.unknown {
		n.doubt(&b.Stream)
	}
	if err != nil {
		return receipt, err
	}
	n.remember(&b.Stream, receipt.Acked)
	if receipt.Booked {
		n.envelope.keeps(booking.NodeSeen)
		n.booked(b, booking.Received)
		h.surge(n, b.Stream.Node, booking.Received)
	}
	return receipt, nil
}
