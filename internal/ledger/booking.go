package ledger

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
)

// A Booking is a batch and what the controller knows about it.
type Booking struct {
	Batch    *batch.Batch
	Received time.Time
	// NodeSince is when the batch's node came to be; zero: it is not known, and counts as Received. That of a node's
	// first booking is kept: see [Reported].
	NodeSince time.Time
	// NodeSeen is what is to be kept of what the node says that it has; nil: nothing new.
	NodeSeen *Seen
	// Consumers say who the batch's shares are, in their order. Shares of one pod may point to one: it must not be
	// changed.
	Consumers []*Consumer
	Rates     Rates
	// Agentless says that the batch was not sent by an agent: the controller estimated it or read a meter itself.
	// Such a window counts as long as no agent's is booked for the node and window.
	Agentless bool
	// Power is Asleep or Booting where the node's machine was not awake: what no consumer used is charged to that.
	Power Kind
	// Temperature is how hot the node was when the batch was received, as its agent says; nil: not known.
	Temperature *energy.Celsius
	// Forward is what the store's outbox keeps of it, by [Booking.Pack]; nil: it is not forwarded.
	Forward []byte
}

// CameToBe is the instant before which the node can have used nothing.
func (b *Booking) CameToBe() time.Time {
	if b.NodeSince.IsZero() {
		return b.Received
	}
	return b.NodeSince
}

// A Consumer is who used a share: what batches call it, and the account that is charged. Host, Site, Signal and
// Currency of its account need not be set: they follow from the booking.
type Consumer struct {
	Key     string  `json:"key"`           // pod/UID of all containers of a pod; vm/NAME, cgroup/PATH, system
	Pod     string  `json:"pod,omitempty"` // the pod's name
	Account Account `json:"account"`
}

// Rates are what a joule of a booking emitted and cost.
type Rates struct {
	Site     string
	PUE      float64 // ≥ 1
	Carbon   float64 // gCO2e per kWh, mean over the interval; NaN: not known
	Signal   string  // average or marginal
	Price    float64 // money per kWh, mean over the interval; NaN: not known
	Currency string
}

// PodName is how a pod is called in keys: namespace/name. As long as its name is not known, and for what is no pod, it
// is what batches call the consumer.
func (c *Consumer) PodName() string {
	if c.Pod == "" {
		return c.Key
	}
	return c.Account.Namespace + "/" + c.Pod
}

// UID is the UID of a pod; "" for what is no pod.
func (c *Consumer) UID() string {
	uid, _, _ := energy.PodOf(c.Key)
	return uid
}

// A Receipt says what became of a booking.
type Receipt struct {
	Acked  uint64 // highest number of the stream that is booked
	Booked bool   // false: it had been booked before
	Gap    bool   // numbers before it are missing: they were lost
	New    bool   // it began a stream, or a time of its boot apart from those that are booked: rows that are kept
}

// Validate finds what would break sums. Batches from outside were checked before.
func (b *Booking) Validate() error {
	bt := b.Batch
	if len(b.Consumers) != len(bt.Shares) {
		return fmt.Errorf("%w: %d consumers for %d shares", ErrInvalid, len(b.Consumers), len(bt.Shares))
	}
	if bt.End.Before(bt.Start) || bt.First == 0 || bt.First > bt.Last || bt.Last == math.MaxUint64 {
		return fmt.Errorf("%w: numbers %d to %d, %v to %v", ErrInvalid, bt.First, bt.Last, bt.Start, bt.End)
	}
	if err := energy.CheckConserved(bt.Measured, bt.Idle, bt.Platform, bt.Unknown, bt.Shares); err != nil ||
		bt.Measured > maxMeasured {
		return fmt.Errorf("%w: %d µJ: %w", ErrInvalid, int64(bt.Measured),
			cmp.Or(err, errors.New("more than any node draws")))
	}
	const most = 100 * 365 * 24 * time.Hour // Unix time in nanoseconds ends in 2262
	if age := bt.End.Sub(time.Unix(0, 0)); age > 2*most+most/2 || age < -most {
		return fmt.Errorf("%w: it ends at %v", ErrInvalid, bt.End)
	}
	return nil
}
