package ledger

import (
	"time"

	"github.com/kubenergy/kubenergy/energy/batch"
)

// A Booking is a batch and what the central unit knows about it.
type Booking struct {
	Batch    *batch.Batch
	Received time.Time
	// Consumers say who the batch's shares are, in their order. Shares of one pod may point to one: it must not be
	// changed.
	Consumers []*Consumer
	Rates     Rates
	// Agentless says that the batch was not sent by an agent: the central unit estimated it or read a meter itself.
	// Such a window counts as long as no agent's is booked for the node and window.
	Agentless bool
}

// A Consumer is who used a share: what batches call it, and whom it is charged to. Host, Site, Signal and Currency of
// its account need not be set: they follow from the booking.
type Consumer struct {
	Key     string // pod/UID of all containers of a pod; vm/NAME, cgroup/PATH, system
	Pod     string // the pod's name
	Account Account
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

// A Receipt says what became of a booking.
type Receipt struct {
	Acked  uint64 // highest number of the stream that is booked
	Booked bool   // false: it had been booked before
	Gap    bool   // numbers before it are missing: they were lost
}
