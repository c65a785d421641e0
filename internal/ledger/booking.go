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

// A Booking is a batch with the metadata that the controller adds to it.
type Booking struct {
	Batch    *batch.Batch
	Received time.Time
	// NodeSince is the creation time of the batch's node. If it is zero, it is unknown and Received is used. The
	// value of a node's first booking is stored, see [Reported].
	NodeSince time.Time
	// NodeSeen is the capacity of the node to store, or nil if it has not changed.
	NodeSeen *Seen
	// Consumers contains the consumer of each share of the batch, in the same order. Shares of one pod may point to
	// the same consumer, so consumers must not be modified.
	Consumers []*Consumer
	Rates     Rates
	// Agentless is true if the batch was not sent by an agent, because the controller estimated it or read a meter
	// itself. It only counts for windows of the node without bookings of an agent.
	Agentless bool
	// Power is Asleep or Booting if the node's machine was not awake. Energy that belongs to no consumer is charged
	// to it.
	Power Kind
	// Temperature is the node's temperature reported by its agent when the batch was received, or nil if it is
	// unknown.
	Temperature *energy.Celsius
	// Forward is the encoding of the booking for the store's outbox, as returned by [Booking.Pack]. If it is nil,
	// the booking is not forwarded.
	Forward []byte
}

// CameToBe returns the creation time of the node. Usage before this time is impossible.
func (b *Booking) CameToBe() time.Time {
	if b.NodeSince.IsZero() {
		return b.Received
	}
	return b.NodeSince
}

// A Consumer is the user of a share. It consists of the key used in batches and the account that is charged. Host,
// Site, Signal and Currency of the account are ignored, because they are derived from the booking.
type Consumer struct {
	Key     string  `json:"key"`           // pod/UID for all containers of a pod; vm/NAME, cgroup/PATH or system
	Pod     string  `json:"pod,omitempty"` // name of the pod
	Account Account `json:"account"`
}

// Rates are the emission and cost factors of a booking.
type Rates struct {
	Site     string
	PUE      float64 // ≥ 1
	Carbon   float64 // in gCO2e per kWh, mean over the interval; NaN if unknown
	Signal   string  // average or marginal
	Price    float64 // per kWh, mean over the interval; NaN if unknown
	Currency string
}

// PodName returns namespace/name, as used in keys. It returns the key of the consumer if the consumer is not a pod
// or the pod's name is unknown.
func (c *Consumer) PodName() string {
	if c.Pod == "" {
		return c.Key
	}
	return c.Account.Namespace + "/" + c.Pod
}

// UID returns the UID of the pod, or "" if the consumer is not a pod.
func (c *Consumer) UID() string {
	uid, _, _ := energy.PodOf(c.Key)
	return uid
}

// A Receipt is the result of recording a booking.
type Receipt struct {
	Acked  uint64 // highest recorded sequence number of the stream
	Booked bool   // false if it had been recorded before
	Gap    bool   // sequence numbers before it are missing, so data was lost
	New    bool   // it starts a stream or a separate interval of its boot, which requires additional rows
}

// Validate returns an error if the booking would corrupt sums. External batches have already been validated on
// ingestion.
func (b *Booking) Validate() error {
	bt := b.Batch
	if len(b.Consumers) != len(bt.Shares) {
		return fmt.Errorf("%w: %d consumers for %d shares", ErrInvalid, len(b.Consumers), len(bt.Shares))
	}
	if bt.End.Before(bt.Start) || bt.First == 0 || bt.First > bt.Last || bt.Last == math.MaxUint64 {
		return fmt.Errorf("%w: sequence numbers %d to %d, interval %v to %v", ErrInvalid, bt.First, bt.Last, bt.Start,
			bt.End)
	}
	if err := energy.CheckConserved(bt.Measured, bt.Idle, bt.Platform, bt.Unknown, bt.Shares); err != nil ||
		bt.Measured > maxMeasured {
		return fmt.Errorf("%w: measured energy %d µJ: %w", ErrInvalid, int64(bt.Measured),
			cmp.Or(err, errors.New("exceeds the possible energy of a node")))
	}
	const most = 100 * 365 * 24 * time.Hour // Unix time in nanoseconds ends in 2262
	if age := bt.End.Sub(time.Unix(0, 0)); age > 2*most+most/2 || age < -most {
		return fmt.Errorf("%w: end %v is out of range", ErrInvalid, bt.End)
	}
	return nil
}
