package exposition

import (
	"cmp"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubenergy/kubenergy/internal/agent/delivery"
	"github.com/kubenergy/kubenergy/internal/agent/guests"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
)

// collectStatus sends the metrics of the agent's status.
func (e *Exporter) collectStatus(f *families) {
	s := &e.status
	f.head("kubenergy_node_info", "Source of the node's energy, and the host of the node if it is a virtual machine.",
		"source", "idle_policy", "host", "vm")
	var parent batch.Parent
	if s.Parent != nil {
		parent = *s.Parent
	}
	f.sample(1, label(cmp.Or(s.Source, noSource)), label(s.Idle), label(parent.Host), label(parent.VM))
	f.one("kubenergy_node_idle_power_watts", "Fitted power of the node without load.", float64(s.IdlePower))
	f.one("kubenergy_node_idle_power_settled", "Whether the fit has sufficient data (1) or not (0).",
		truth(s.IdleSettled))
	f.head("kubenergy_node_temperature_celsius", "Temperature reported by a sensor of the node.", "chip", "sensor")
	for _, t := range e.temperatures {
		f.sample(float64(t.Celsius), label(t.Chip), label(t.Sensor))
	}
	f.head("kubenergy_agent_build_info", "Version of the agent.", "version", "goversion")
	f.sample(1, label(e.options.Version), runtime.Version())
	e.collectTicks(f)
	e.collectHeld(f)
	f.head("kubenergy_agent_meter_readable", "Whether the last reading of a kind of meter succeeded (1) or not (0).",
		"meter")
	for i := range s.Meters {
		f.sample(truth(s.Meters[i].Readable), label(s.Meters[i].Name))
	}
	f.head("kubenergy_agent_meter_errors_total", "Readings of a kind of meter that failed.", "meter")
	for i := range s.Meters {
		f.sample(float64(s.Meters[i].Errors), label(s.Meters[i].Name))
	}
	if s.Delivery != nil {
		f.delivery(s.Delivery)
	}
	if s.Guests != nil {
		f.guests(s.Guests)
	}
}

// delivery sends the metrics of deliveries.
func (f *families) delivery(d *DeliveryStatus) {
	f.one("kubenergy_agent_delivery_pending_batches", "Unacknowledged batches.", float64(d.Pending))
	f.one("kubenergy_agent_delivery_oldest_age_seconds",
		"Age of the oldest unacknowledged batch; 0 if there is none.", seconds(d.Age))
	f.one("kubenergy_agent_delivery_acked_batches_total", "Acknowledged batches.", float64(d.Acked))
	f.one("kubenergy_agent_delivery_folds_total",
		"Batches folded into others because of a limit, without loss of energy.", float64(d.Folded))
	f.one("kubenergy_agent_state_failing", "Whether writing the state directory fails (1) or not (0).",
		truth(d.DiskFailing))
	f.one("kubenergy_agent_refused_joules_total",
		"Energy in these metrics that could not be queued for delivery.", joules(d.Refused))
	f.head("kubenergy_agent_delivery_failures_total", "Failed attempts to deliver batches.", "reason")
	for _, reason := range delivery.Reasons {
		f.sample(float64(d.Failures[reason]), reason)
	}
}

// guests sends the metrics of counters published to virtual machines.
func (f *families) guests(g *guests.Stats) {
	f.one("kubenergy_guests_published", "Virtual machines with a published counter.", float64(g.Trees))
	f.one("kubenergy_guests_failing", "Virtual machines with a failed last publication.", float64(g.Failing))
	f.one("kubenergy_guests_refused_total",
		"Publications skipped because of an invalid name of the virtual machine.", float64(g.Refused))
	f.one("kubenergy_guests_stuck_total", "Directories of stopped virtual machines that cannot be removed.",
		float64(g.Stuck))
}

func (e *Exporter) collectTicks(f *families) {
	buckets, count := map[float64]uint64{}, uint64(0)
	for i, bound := range tickBounds {
		count += e.health.buckets[i]
		buckets[bound.Seconds()] = count
	}
	f.to <- prometheus.MustNewConstHistogram(prometheus.NewDesc("kubenergy_agent_tick_duration_seconds",
		"Duration of ticks, which read, attribute and save energy.", nil, f.node),
		count+e.health.buckets[len(tickBounds)], seconds(e.health.tick), buckets)
	f.one("kubenergy_agent_sweep_seconds_total", "Time spent on reading CPU times.", seconds(e.health.sweep))
	f.one("kubenergy_agent_lost_ticks_total", "Ticks skipped because an earlier one took too long.",
		float64(e.status.Lost))
}

func (e *Exporter) collectHeld(f *families) {
	ended := 0
	for _, c := range e.consumers {
		if c.ended {
			ended++
		}
	}
	f.head("kubenergy_agent_consumers", "Consumers with their own series.", "state")
	f.sample(float64(ended), "ended")
	f.sample(float64(len(e.consumers)-ended), "living")
	f.one("kubenergy_agent_folded_consumers",
		"Consumers without their own series in the last interval because of the limit.", float64(e.folded))
	h := &e.status.Host
	f.one("kubenergy_agent_groups_unwatched",
		"Whether changes of control groups are detected by walks only (1), or also by watches (0).", truth(h.Blind))
	f.one("kubenergy_agent_groups_folded", "Control groups accounted to their pod or the system because of the limit.",
		float64(h.Folded))
	f.one("kubenergy_agent_truncated_walks_total",
		"Walks through control groups that were truncated because of a limit.", float64(h.Truncated))
}
