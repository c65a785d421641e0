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

// Status is the status of the agent after a tick. Counts are totals since the agent started.
type Status struct {
	// current root domain and its meter, e.g. "psys (rapl)", or "" if none; the source of counted energy is passed
	// to Add
	Source string
	Idle   string        // distribution of idle energy: apart, requests or equal
	Parent *batch.Parent // host of this virtual machine, if known

	IdlePower   energy.Watts // fitted power of the node without load
	IdleSettled bool         // the fit is based on sufficient data

	Tick  time.Duration // duration of the tick
	Sweep time.Duration // duration of reading CPU times
	Lost  uint64        // count of ticks skipped because an earlier one took too long

	Host     host.Stats
	Meters   []MeterStatus   // with unique names
	Delivery *DeliveryStatus // nil if batches are not pushed
	Guests   *guests.Stats   // nil if the node is not a hypervisor
	Boards   []Board         // GPUs; nil if they are not metered
}

// SetTemperatures sets the temperatures. The list must not be modified afterwards.
func (e *Exporter) SetTemperatures(list []meter.Temperature) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.temperatures = list
}

// MeterStatus is the status of one kind of meter.
type MeterStatus struct {
	Name     string
	Readable bool   // the last reading succeeded
	Errors   uint64 // count of failed readings
}

// DeliveryStatus is the status of deliveries.
type DeliveryStatus struct {
	delivery.QueueStats
	delivery.PushStats
	Age time.Duration // age of the oldest unacknowledged batch; 0 if there is none
}

// health contains totals over all ticks.
type health struct {
	buckets [len(tickBounds) + 1]uint64
	tick    time.Duration
	sweep   time.Duration
}

// tickBounds are the upper bounds of the histogram of tick durations. The agent cannot keep up if ticks take a
// second.
var tickBounds = [...]time.Duration{
	250 * time.Microsecond, 500 * time.Microsecond, time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond,
	10 * time.Millisecond,
	25 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond, time.Second,
}

// SetStatus sets the status after a tick. It copies s, but retains Delivery, Guests and Boards.
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
