package intake

import (
	"context"
	"errors"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
	"github.com/kubenergy/kubenergy/internal/ledger"
)

// A throttled error rejects a batch that would start too many streams or gaps. Its value is the time until the next
// attempt.
type throttled time.Duration

func (throttled) Error() string { return "too many streams or gaps from this node" }

func (throttled) Unwrap() error { return ErrRefused }

// admit calls record unless a batch is already in the ledger or exceeds the limit of new streams.
func (h *Handler) admit(ctx context.Context, n *node, b *batch.Batch, agentless bool,
	record func() (ledger.Receipt, error),
) (receipt ledger.Receipt, err error) {
	acked, err := h.acked(ctx, n, b)
	if err != nil || b.Last <= acked {
		return ledger.Receipt{Acked: acked}, err
	}
	undo, wait, ok := n.begins(b, agentless, h.c.Now())
	if !ok {
		return receipt, throttled(wait)
	}
	defer func() { // rejected batches are sent again, and another controller may have recorded the previous batch
		if !receipt.New {
			undo()
		}
	}()
	return record()
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

// book records a batch of this cluster and returns the names of the node's pods for the acknowledgement.
func (h *Handler) book(ctx context.Context, n *node, sent *batch.Batch, heat *energy.Celsius, agentless bool,
) (receipt ledger.Receipt, names []byte, err error) {
	var owners []*owner
	booking, receipt, err := h.record(ctx, n, ledger.Booking{Batch: sent, Agentless: agentless, Temperature: heat},
		h.c.Envelope, func(b ledger.Booking, l *Limits) ledger.Booking {
			confirmed := h.confirmHost(n, *b.Batch, b.Received)
			h.compare(n, &confirmed, l)
			owners = h.c.PodIndex.resolve(&confirmed, &h.news, b.Received)
			capped := capShares(confirmed, owners, l)
			b.Batch, b.Consumers = &capped, classify(&capped, owners, b.Received)
			return b
		})
	if err != nil {
		return receipt, nil, err
	}
	return receipt, encodeNames(&booking, owners), nil
}

// record checks a booking, adds its consumers and its price, writes it and counts it. It returns the booking as
// written. limitsOf returns the limits of a node. resolve returns a booking with its consumers. It is called after the
// check, because impossible batches must not use up quotas. No step modifies the batch that was sent; the package
// comment lists the steps that modify the state of the node.
func (h *Handler) record(ctx context.Context, n *node, b ledger.Booking, limitsOf func(string, ledger.Seen) Limits,
	resolve func(ledger.Booking, *Limits) ledger.Booking,
) (_ ledger.Booking, receipt ledger.Receipt, err error) {
	b.Received = h.c.Now()
	corrected := h.correct(*b.Batch, b.Received)
	b.Batch = &corrected
	claim, err := h.check(ctx, n, b.Batch, limitsOf, b.Agentless, b.Received)
	if err != nil {
		return b, receipt, err
	}
	defer claim.end()
	b.NodeSince, b.NodeSeen = claim.since, claim.seen
	b = h.price(resolve(b, &claim.limits))
	if h.c.Forward && ledger.ClusterOf(b.Batch.Stream.Node) == "" {
		if b.Forward, err = b.Pack(); err != nil {
			return b, receipt, err
		}
	}
	receipt, err = h.commit(ctx, n, &b, claim)
	if err == nil && receipt.Booked {
		h.metrics.count(&b, &receipt)
	}
	return b, receipt, err
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
