package exposition

import (
	"cmp"
	"runtime"

	"github.com/kubenergy/kubenergy/internal/agent/delivery"
	"github.com/kubenergy/kubenergy/internal/agent/guests"
)

// writeStatus writes the metrics of the agent's status.
func (e *Exporter) writeStatus(p *page) {
	s := &e.status
	p.family("kubenergy_node_info", "Source of the node's energy, and the host of the node if it is a virtual machine.")
	p.sample(1, pairs("source", cmp.Or(s.Source, noSource), "idle_policy", s.Idle,
		"host", s.Parent.Host, "vm", s.Parent.VM))
	p.one("kubenergy_node_idle_power_watts", "Fitted power of the node without load.", float64(s.IdlePower))
	p.one("kubenergy_node_idle_power_settled", "Whether the fit has sufficient data (1) or not (0).",
		truth(s.IdleSettled))
	p.family("kubenergy_node_temperature_celsius", "Temperature reported by a sensor of the node.")
	for _, t := range e.temperatures {
		p.sample(float64(t.Celsius), pairs("chip", t.Chip, "sensor", t.Sensor))
	}
	p.family("kubenergy_agent_build_info", "Version of the agent.")
	p.sample(1, pairs("version", e.options.Version, "goversion", runtime.Version()))
	p.one("kubenergy_agent_sweep_seconds_total", "Time spent on reading CPU times.", seconds(s.Sweep))
	p.one("kubenergy_agent_lost_ticks_total", "Ticks skipped because an earlier one took too long.", float64(s.Lost))
	e.writeHeld(p)
	p.family("kubenergy_agent_meter_readable", "Whether the last reading of a kind of meter succeeded (1) or not (0).")
	for i := range s.Meters {
		p.sample(truth(s.Meters[i].Readable), pairs("meter", s.Meters[i].Name))
	}
	p.family("kubenergy_agent_meter_errors_total", "Readings of a kind of meter that failed.")
	for i := range s.Meters {
		p.sample(float64(s.Meters[i].Errors), pairs("meter", s.Meters[i].Name))
	}
	p.one("kubenergy_agent_root_changes_total",
		"Changes of the root meter because it could not be read, or a better one could be read again.",
		float64(s.RootChanges))
	if s.Delivery != nil {
		p.delivery(s.Delivery)
	}
	if s.Guests != nil {
		p.guests(s.Guests)
	}
}

// delivery writes the metrics of deliveries.
func (p *page) delivery(d *DeliveryStatus) {
	p.one("kubenergy_agent_delivery_pending_batches", "Unacknowledged batches.", float64(d.Pending))
	p.one("kubenergy_agent_delivery_oldest_age_seconds",
		"Age of the oldest unacknowledged batch; 0 if there is none.", seconds(d.Age))
	p.one("kubenergy_agent_delivery_acked_batches_total", "Acknowledged batches.", float64(d.Acked))
	p.one("kubenergy_agent_delivery_folds_total",
		"Batches folded into others because of a limit, without loss of energy.", float64(d.Folded))
	p.one("kubenergy_agent_state_failing", "Whether writing the state directory fails (1) or not (0).",
		truth(d.DiskFailing))
	p.one("kubenergy_agent_refused_joules_total",
		"Energy in these metrics that could not be queued for delivery.", joules(d.Refused))
	p.family("kubenergy_agent_delivery_failures_total", "Failed attempts to deliver batches.")
	for _, reason := range delivery.Reasons {
		p.sample(float64(d.Failures[reason]), pairs("reason", reason))
	}
}

// guests writes the metrics of counters published to virtual machines.
func (p *page) guests(g *guests.Stats) {
	p.one("kubenergy_guests_published", "Virtual machines with a published counter.", float64(g.Trees))
	p.one("kubenergy_guests_failing", "Virtual machines with a failed last publication.", float64(g.Failing))
	p.one("kubenergy_guests_refused_total",
		"Publications skipped because of an invalid name of the virtual machine.", float64(g.Refused))
	p.one("kubenergy_guests_stuck_total", "Directories of stopped virtual machines that cannot be removed.",
		float64(g.Stuck))
}

func (e *Exporter) writeHeld(p *page) {
	ended := 0
	for _, c := range e.consumers {
		if c.ended {
			ended++
		}
	}
	p.family("kubenergy_agent_consumers", "Consumers with their own series.")
	p.sample(float64(ended), pairs("state", "ended"))
	p.sample(float64(len(e.consumers)-ended), pairs("state", "living"))
	p.one("kubenergy_agent_folded_consumers",
		"Consumers without their own series in the last interval because of the limit.", float64(e.folded))
	h := &e.status.Host
	p.one("kubenergy_agent_groups_unwatched",
		"Whether changes of control groups are detected by walks only (1), or also by watches (0).", truth(h.Blind))
	p.one("kubenergy_agent_groups_folded", "Control groups accounted to their pod or the system because of the limit.",
		float64(h.Folded))
	p.one("kubenergy_agent_truncated_walks_total",
		"Walks through control groups that were truncated because of a limit.", float64(h.Truncated))
	p.family("kubenergy_agent_unattributed_cpu_ratio",
		"Fraction of the CPU time in the last minute that groups of unknown workloads used, accounted to the system.")
	for _, g := range h.Unattributed {
		p.sample(g.Ratio, pairs("group", g.Group))
	}
	p.family("kubenergy_agent_pattern_unmatched", "Patterns of --cgroup that have not matched any control group (1).")
	for _, pattern := range h.Unmatched {
		p.sample(1, pairs("pattern", pattern))
	}
}
