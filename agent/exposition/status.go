package exposition

import (
	"time"

	"github.com/kubenergy/kubenergy/energy"
	"github.com/kubenergy/kubenergy/energy/batch"
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

	Host     HostStatus
	Meters   []MeterStatus   // each name once
	Delivery *DeliveryStatus // nil: nothing is pushed
	Guests   *GuestsStatus   // nil: nothing is published to virtual machines
}

// HostStatus is how well the agent sees what runs.
type HostStatus struct {
	Blind     bool   // not every group can be watched: changes are found by walking only
	Folded    uint64 // members that are part of their pod or of the system now, because there are too many
	Truncated uint64 // count of walks that ended early because there was too much to see
}

// GuestsStatus is how publishing to virtual machines fares.
type GuestsStatus struct {
	Trees   uint64 // machines that have a counter now
	Failing uint64 // of these, whose last publication failed
	Refused uint64 // count of counters that were not published because of the machine's name
	Stuck   uint64 // count of folders that guests left behind and that cannot be removed
}

// A Temperature is what one sensor shows. Chip and sensor together name it.
type Temperature struct {
	Chip, Sensor string
	Celsius      float64
}

// SetTemperatures replaces what is shown of the node's temperatures. It keeps the list.
func (e *Exporter) SetTemperatures(list []Temperature) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.generation++
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
	Pending  int           // sealed batches that are not acknowledged
	Oldest   time.Duration // age of the oldest of them; 0 if there is none
	Acked    uint64        // count of acknowledged batches
	Folds    uint64        // count of batches folded into others for want of room
	Failures []Failure     // each reason once

	// the state folder cannot be written: what is not acknowledged is lost with the process
	DiskFailing bool
	Refused     energy.Microjoules // count of what is on the page and could not be queued for delivery
}

// Failure is a reason why batches were not acknowledged, and how often.
type Failure struct {
	Reason string
	Count  uint64
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

// SetStatus is called once a tick. It copies s.
func (e *Exporter) SetStatus(s *Status) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.generation++
	meters := append(e.status.Meters[:0], s.Meters...)
	delivery := e.status.Delivery
	if s.Delivery != nil {
		if delivery == nil {
			delivery = &DeliveryStatus{}
		}
		failures := append(delivery.Failures[:0], s.Delivery.Failures...)
		*delivery = *s.Delivery
		delivery.Failures = failures
	} else {
		delivery = nil
	}
	guests := e.status.Guests
	if s.Guests != nil {
		if guests == nil {
			guests = &GuestsStatus{}
		}
		*guests = *s.Guests
	} else {
		guests = nil
	}
	e.status = *s
	e.status.Meters, e.status.Delivery, e.status.Guests = meters, delivery, guests

	e.health.tick += s.Tick
	e.health.sweep += s.Sweep
	i := 0
	for i < len(tickBounds) && s.Tick > tickBounds[i] {
		i++
	}
	e.health.buckets[i]++
}
