package exposition

import (
	"cmp"
	"runtime"
	"slices"
	"strings"

	"github.com/kubenergy/kubenergy/internal/agent/delivery"
	"github.com/kubenergy/kubenergy/internal/agent/guests"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
)

// page returns the current metrics. It blocks Add for about a millisecond with 1,000 consumers.
func (e *Exporter) page(openMetrics bool) []byte {
	t := text{openMetrics: openMetrics, node: e.node}
	e.append(&t)
	t.process(e.process)
	if openMetrics {
		t.b = append(t.b, "# EOF\n"...)
	}
	return t.b
}

func (e *Exporter) append(t *text) {
	e.mu.Lock()
	defer e.mu.Unlock()
	t.b = make([]byte, 0, 16<<10+e.size+e.size/16)
	e.appendNode(t)
	e.appendStatus(t)
	e.appendBoards(t)
	for k := range kindUnknown {
		e.appendConsumers(t, k)
	}
	e.size = len(t.b)
}

// suffixes are the labels of an account's amounts in addition to those of the consumer.
var suffixes = func() (s [modes][qualities]string) {
	for mode, name := range [modes]string{dynamic: "dynamic", shared: "idle"} {
		for q := range qualities {
			s[mode][q] = `,mode="` + name + `"` + ofQuality(q)
		}
	}
	return s
}()

func ofQuality(q int) string { return `,quality="` + energy.Quality(q).String() + `"` }

func (e *Exporter) appendNode(t *text) {
	t.head("kubenergy_node_energy_joules_total", "Energy counted by the node's root meter.")
	for i := range e.sources {
		for q, v := range e.sources[i].energy {
			if v > 0 || q == int(e.quality) && e.sources[i].name == e.current {
				t.sample("kubenergy_node_energy_joules_total", e.sources[i].labels, ofQuality(q)).joules(v)
			}
		}
	}
	derived := min(e.quality, energy.Derived)
	e.appendQualities(t, "kubenergy_node_idle_joules_total",
		"Idle energy of the node that is not attributed to consumers.", &e.idle, derived)
	e.appendQualities(t, "kubenergy_node_platform_joules_total",
		"Energy of the root domain outside of the domains attributed to consumers.", &e.platform, e.quality)
	e.appendQualities(t, "kubenergy_node_unknown_joules_total", "Measured energy that could not be attributed.",
		&e.unknown, e.quality)
	t.one("kubenergy_node_unmeasured_seconds_total", "Time without a reading of a meter.").seconds(e.unmeasured)
	e.appendAccount(t, "kubenergy_other_energy_joules_total", "kubenergy_other_cpu_seconds_total",
		"consumers beyond the maximum number with their own series", &e.other)
	e.appendAccount(t, "kubenergy_ended_energy_joules_total", "kubenergy_ended_cpu_seconds_total",
		"ended consumers that no longer have their own series", &e.ended)
}

// appendQualities appends amounts by quality, omitting zero amounts except for the quality of the last interval.
func (e *Exporter) appendQualities(t *text, name, help string, amounts *[qualities]energy.Microjoules,
	current energy.Quality,
) {
	t.head(name, help)
	for q, v := range amounts {
		if v > 0 || q == int(current) {
			t.sample(name, e.node, ofQuality(q)).joules(v)
		}
	}
}

func (e *Exporter) appendAccount(t *text, joules, seconds, whose string, a *account) {
	t.head(joules, "Energy of "+whose+".")
	t.appendEnergy(joules, e.node, a, min(e.quality, energy.Derived))
	t.head(seconds, "CPU time of "+whose+".")
	t.sample(seconds, e.node, "").seconds(a.cpu)
}

// appendEnergy appends the amounts of an account, omitting zero amounts except for the dynamic energy of the last
// interval's quality.
func (t *text) appendEnergy(name string, labels []byte, a *account, current energy.Quality) {
	for mode := range a.energy {
		for q, v := range a.energy[mode] {
			if v > 0 || mode == dynamic && q == int(current) {
				t.sample(name, labels, suffixes[mode][q]).joules(v)
			}
		}
	}
}

// families are the metrics of consumers by kind.
var families = [kindUnknown]struct{ joules, seconds, whose string }{
	kindContainer: {
		"kubenergy_container_energy_joules_total", "kubenergy_container_cpu_seconds_total",
		"containers; with an empty container_id, of a pod in addition to its running containers",
	},
	kindVM: {"kubenergy_vm_energy_joules_total", "kubenergy_vm_cpu_seconds_total", "virtual machines"},
	kindCgroup: {
		"kubenergy_cgroup_energy_joules_total", "kubenergy_cgroup_cpu_seconds_total",
		"other configured control groups",
	},
	kindSystem: {
		"kubenergy_system_energy_joules_total", "kubenergy_system_cpu_seconds_total",
		"everything else on the node, such as the kernel, daemons and the kubelet",
	},
}

func (e *Exporter) appendConsumers(t *text, k kind) {
	if !slices.ContainsFunc(e.consumers, func(c *consumer) bool { return c.kind == k }) {
		return
	}
	f := &families[k]
	t.head(f.joules, "Energy of "+f.whose+".")
	for _, c := range e.consumers {
		if c.kind == k {
			t.appendEnergy(f.joules, c.labels, &c.account, c.quality)
		}
	}
	t.head(f.seconds, "CPU time of "+f.whose+".")
	for _, c := range e.consumers {
		if c.kind == k {
			t.sample(f.seconds, c.labels, "").seconds(c.account.cpu)
		}
	}
}

// appendStatus appends the metrics of the agent's status.
func (e *Exporter) appendStatus(t *text) {
	s := &e.status
	t.head("kubenergy_node_info",
		"Source of the node's energy, and the host of the node if it is a virtual machine.")
	var parent batch.Parent
	if s.Parent != nil {
		parent = *s.Parent
	}
	t.sample("kubenergy_node_info", e.labels("source", cmp.Or(s.Source, noSource), "idle_policy", s.Idle, "host",
		parent.Host,
		"vm", parent.VM), "").count(1)
	t.one("kubenergy_node_idle_power_watts", "Fitted power of the node without load.").float(float64(s.IdlePower))
	t.one("kubenergy_node_idle_power_settled", "Whether the fit has sufficient data (1) or not (0).").flag(
		s.IdleSettled)

	if len(e.temperatures) > 0 {
		t.head("kubenergy_node_temperature_celsius", "Temperature reported by a sensor of the node.")
	}
	for _, s := range e.temperatures {
		t.sample("kubenergy_node_temperature_celsius", e.labels("chip", s.Chip, "sensor", s.Sensor),
			"").float(float64(s.Celsius))
	}

	t.head("kubenergy_agent_build_info", "Version of the agent.")
	t.sample("kubenergy_agent_build_info", e.labels("version", e.options.Version, "goversion", runtime.Version()),
		"").count(1)
	e.appendTicks(t)
	e.appendHeld(t)
	t.head("kubenergy_agent_meter_readable",
		"Whether the last reading of a kind of meter succeeded (1) or not (0).")
	for i := range s.Meters {
		t.sample("kubenergy_agent_meter_readable", e.labels("meter", s.Meters[i].Name), "").flag(s.Meters[i].Readable)
	}
	t.head("kubenergy_agent_meter_errors_total", "Readings of a kind of meter that failed.")
	for i := range s.Meters {
		t.sample("kubenergy_agent_meter_errors_total", e.labels("meter", s.Meters[i].Name),
			"").count(s.Meters[i].Errors)
	}
	if s.Delivery != nil {
		e.appendDelivery(t, s.Delivery)
	}
	if s.Guests != nil {
		e.appendGuests(t, s.Guests)
	}
}

func (e *Exporter) appendGuests(t *text, g *guests.Stats) {
	t.one("kubenergy_guests_published", "Virtual machines with a published counter.").count(uint64(g.Trees))
	t.one("kubenergy_guests_failing", "Virtual machines with a failed last publication.").count(uint64(g.Failing))
	t.one("kubenergy_guests_refused_total",
		"Publications skipped because of an invalid name of the virtual machine.").count(g.Refused)
	t.one("kubenergy_guests_stuck_total",
		"Directories of stopped virtual machines that cannot be removed.").count(g.Stuck)
}

// labels returns the label of the node and additional labels, given as alternating names and values.
func (e *Exporter) labels(pairs ...string) []byte {
	b := slices.Clone(e.node)
	for i := 0; i < len(pairs); i += 2 {
		b = appendLabel(append(b, ','), pairs[i], pairs[i+1])
	}
	return b
}

func (e *Exporter) appendTicks(t *text) {
	const name = "kubenergy_agent_tick_duration_seconds"
	t.announce(name, "histogram", "Duration of ticks, which read, attribute and save energy.")
	below := uint64(0)
	for i, n := range e.health.buckets {
		below += n
		bound := "+Inf"
		if i < len(tickBounds) {
			bound = string(energy.AppendDecimal(nil, int64(tickBounds[i]), 9))
			if t.openMetrics && !strings.Contains(bound, ".") {
				bound += ".0"
			}
		}
		t.sample(name+"_bucket", e.node, `,le="`+bound+`"`).count(below)
	}
	t.sample(name+"_sum", e.node, "").seconds(e.health.tick)
	t.sample(name+"_count", e.node, "").count(below)
	t.one("kubenergy_agent_sweep_seconds_total", "Time spent on reading CPU times.").seconds(e.health.sweep)
	t.one("kubenergy_agent_lost_ticks_total", "Ticks skipped because an earlier one took too long.").count(
		e.status.Lost)
}

func (e *Exporter) appendHeld(t *text) {
	ended := 0
	for _, c := range e.consumers {
		if c.ended {
			ended++
		}
	}
	t.head("kubenergy_agent_consumers", "Consumers with their own series.")
	t.sample("kubenergy_agent_consumers", e.node, `,state="ended"`).count(uint64(ended))
	t.sample("kubenergy_agent_consumers", e.node, `,state="living"`).count(uint64(len(e.consumers) - ended))
	t.one("kubenergy_agent_folded_consumers",
		"Consumers without their own series in the last interval because of the limit.").count(uint64(e.folded))
	h := &e.status.Host
	t.one("kubenergy_agent_groups_unwatched",
		"Whether changes of control groups are detected by walks only (1), or also by watches (0).").flag(
		h.Blind)
	t.one("kubenergy_agent_groups_folded",
		"Control groups accounted to their pod or the system because of the limit.").count(
		uint64(h.Folded))
	t.one("kubenergy_agent_truncated_walks_total",
		"Walks through control groups that were truncated because of a limit.").count(uint64(h.Truncated))
}

func (e *Exporter) appendDelivery(t *text, d *DeliveryStatus) {
	t.one("kubenergy_agent_delivery_pending_batches",
		"Unacknowledged batches.").count(uint64(d.Pending))
	t.one("kubenergy_agent_delivery_oldest_age_seconds",
		"Age of the oldest unacknowledged batch; 0 if there is none.").seconds(d.Age)
	t.one("kubenergy_agent_delivery_acked_batches_total", "Acknowledged batches.").count(d.Acked)
	t.one("kubenergy_agent_delivery_folds_total",
		"Batches folded into others because of a limit, without loss of energy.").count(d.Folded)
	t.one("kubenergy_agent_state_failing", "Whether writing the state directory fails (1) or not (0).").flag(
		d.DiskFailing)
	t.one("kubenergy_agent_refused_joules_total",
		"Energy in these metrics that could not be queued for delivery.").joules(d.Refused)
	t.head("kubenergy_agent_delivery_failures_total", "Failed attempts to deliver batches.")
	for _, reason := range delivery.Reasons {
		t.sample("kubenergy_agent_delivery_failures_total", e.labels("reason", reason), "").count(d.Failures[reason])
	}
}
