package exposition

import (
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
	// RootChanges counts selections of another root domain than that at the start
	RootChanges uint64
	Idle        string       // distribution of idle energy: apart, requests or equal
	Parent      batch.Parent // host of this virtual machine, if known

	IdlePower   energy.Watts // fitted power of the node without load
	IdleSettled bool         // the fit is based on sufficient data

	Tick  time.Duration // duration of the tick
	Sweep time.Duration // total duration of reading CPU times
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
}

// Findings returns the findings of the host as of the last tick.
func (e *Exporter) Findings() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.status.Host.Findings()
}

// SetStatus sets the status after a tick. It copies s, but retains Delivery, Guests and Boards.
func (e *Exporter) SetStatus(s *Status) {
	e.mu.Lock()
	defer e.mu.Unlock()
	meters := append(e.status.Meters[:0], s.Meters...)
	e.status = *s
	e.status.Meters = meters
	e.ticks.Observe(s.Tick.Seconds())
}
