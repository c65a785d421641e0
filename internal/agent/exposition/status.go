package exposition

import (
	"slices"
	"time"

	"github.com/kubenergy/kubenergy/internal/agent/delivery"
	"github.com/kubenergy/kubenergy/internal/agent/guests"
	"github.com/kubenergy/kubenergy/internal/agent/host"
	"github.com/kubenergy/kubenergy/internal/agent/meter"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
)

// Status is how the agent fares at one tick. What is called a count is one since the agent began.
type Status struct {
	// the root domain and its meter now, as "psys (rapl)"; "": none. What was counted has one of its own: see Add
	Source string
	Idle   string        // how idle energy is shared: apart, requests or equal
	Parent *batch.Parent // the machine that this one runs on, where that is known

	IdlePower   energy.Watts // what the node draws without load, as fitted
	IdleSettled bool         // whether the fit has seen enough

	Tick  time.Duration // how long the tick took, in all
	Sweep time.Duration // how long it took to read CPU times
	Lost  uint64        // count of ticks that did not happen, because one before took too long

	Host     host.Stats
	Meters   []MeterStatus   // each name once
	Delivery *DeliveryStatus // nil: nothing is pushed
	Guests   *guests.Stats   // nil: nothing is published to virtual machines
	Boards   []Board         // GPUs; nil: they are not metered
}

// SetTemperatures replaces what is shown of the node's temperatures. It keeps the list.
func (e *Exporter) SetTemperatures(list []meter.Temperature) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.temperatures = list
}

// MeterStatus is how one kind of meter fares.
type MeterStatus struct {
	Name     string
	Readable bool   // whether its last reading succeeded
	Errors   uint64 // count of readings that failed
}

// DeliveryStatus is how far batches have come.
type DeliveryStatus struct {
	delivery.QueueStats
	delivery.PushStats
	Age time.Duration // of the oldest batch that is not acknowledged; 0 if there is none
}

// health is what of the statuses adds up.
type health struct {
	buckets [len(tickBounds) + 1]uint64
	tick    time.Duration
	sweep   time.Duration
}

// tickBounds are upper bounds of ticks; a tick of a second is one that the agent cannot keep up with.
var tickBounds = [...]time.Duration{
	250 * time.Microsecond, 500 * time.Microsecond, time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond,
	10 * time.Millisecond,
	25 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond, time.Second,
}

// SetStatus is called once a tick. It copies s, and keeps what Delivery, Guests and Boards point to.
func (e *Exporter) SetStatus(s *Status) {
	e.mu.Lock()
	defer e.mu.Unlock()
	meters := append(e.status.Meters[:0], s.Meters...)
	e.status = *s
	e.status.Meters = meters

	e.health.tick += s.Tick
	e.health.sweep += s.Sweep
	i, _ := slices.BinarySearch(tickBounds[:], s.Tick)
	e.health.buckets[i]++
}
