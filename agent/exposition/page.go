package exposition

import (
	"runtime"
	"slices"
	"strings"

	"github.com/kubenergy/kubenergy/energy"
)

// A page is rendered once, and read by all who ask before the sums change.
type page struct {
	body       []byte
	generation uint64
	readers    int
}

// row is the copy of a consumer that is rendered.
type row struct {
	kind    kind
	quality energy.Quality
	labels  []byte
	account account
}

// openPage returns the page as it is now; who reads it closes it. Only the copy is made under the lock that Add waits
// for.
func (e *Exporter) openPage(openMetrics bool) *page {
	e.rendering.Lock()
	defer e.rendering.Unlock()
	format := 0
	if openMetrics {
		format = 1
	}
	current := e.pages[format]
	t := text{openMetrics: openMetrics}

	e.mu.Lock()
	if current != nil && current.generation == e.generation {
		e.mu.Unlock()
		current.readers++
		return current
	}
	t.b = e.buffer(current)
	generation := e.generation
	e.rows = slices.Grow(e.rows[:0], len(e.consumers))
	for _, c := range e.consumers {
		e.rows = append(e.rows, row{c.kind, c.quality, c.labels, c.account})
	}
	e.appendNode(&t)
	e.appendStatus(&t)
	e.mu.Unlock()

	for k := range kindUnknown {
		e.appendConsumers(&t, k)
	}
	clear(e.rows) // their labels may be the last reference
	e.process.append(&t)
	if openMetrics {
		t.b = append(t.b, "# EOF\n"...)
	}
	if current != nil && current.readers == 0 {
		e.keep(current.body)
	}
	e.pages[format] = &page{body: t.b, generation: generation, readers: 1}
	return e.pages[format]
}

func (e *Exporter) closePage(p *page) {
	e.rendering.Lock()
	defer e.rendering.Unlock()
	p.readers--
	if p.readers == 0 && !slices.Contains(e.pages[:], p) {
		e.keep(p.body)
	}
}

// buffer returns room for a page that is about as large as the last one.
func (e *Exporter) buffer(last *page) []byte {
	if n := len(e.spare); n > 0 {
		b := e.spare[n-1]
		e.spare = e.spare[:n-1]
		return b[:0]
	}
	if last != nil {
		return make([]byte, 0, len(last.body)+len(last.body)/16)
	}
	return make([]byte, 0, 16<<10)
}

func (e *Exporter) keep(body []byte) {
	if len(e.spare) < len(e.pages) {
		e.spare = append(e.spare, body)
	}
}

// suffixes are the labels of an amount that its consumer does not say.
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
	t.head("kubenergy_node_energy_joules_total", "counter", "Energy that the node's root meter counted.")
	for i := range e.sources {
		for q, v := range e.sources[i].energy {
			if v > 0 || q == int(e.quality) && e.sources[i].name == e.current {
				t.sample("kubenergy_node_energy_joules_total", e.sources[i].labels, ofQuality(q)).joules(v)
			}
		}
	}
	derived := min(e.quality, energy.Derived)
	e.appendQualities(t, "kubenergy_node_idle_joules_total",
		"Energy that the node draws anyway and that is nobody's share.", &e.idle, derived)
	e.appendQualities(t, "kubenergy_node_platform_joules_total",
		"Energy of the root domain outside of the domains that consumers are attributed to.", &e.platform, e.quality)
	e.appendQualities(t, "kubenergy_node_unknown_joules_total", "Energy that was measured and could not be attributed.",
		&e.unknown, e.quality)
	t.head("kubenergy_node_unmeasured_seconds_total", "counter", "Time for which no meter gave a value.")
	t.sample("kubenergy_node_unmeasured_seconds_total", e.node, "").seconds(e.unmeasured)
	e.appendAccount(t, "kubenergy_other_energy_joules_total", "kubenergy_other_cpu_seconds_total",
		"consumers beyond the limit of those with series of their own", &e.other)
	e.appendAccount(t, "kubenergy_ended_energy_joules_total", "kubenergy_ended_cpu_seconds_total",
		"consumers that ended and whose series are gone", &e.ended)
}

// appendQualities appends amounts by quality: at least that of the last interval.
func (e *Exporter) appendQualities(t *text, name, help string, amounts *[qualities]energy.Microjoules,
	current energy.Quality,
) {
	t.head(name, "counter", help)
	for q, v := range amounts {
		if v > 0 || q == int(current) {
			t.sample(name, e.node, ofQuality(q)).joules(v)
		}
	}
}

func (e *Exporter) appendAccount(t *text, joules, seconds, whose string, a *account) {
	t.head(joules, "counter", "Energy of "+whose+".")
	t.appendEnergy(joules, e.node, a, min(e.quality, energy.Derived))
	t.head(seconds, "counter", "CPU time of "+whose+".")
	t.sample(seconds, e.node, "").seconds(a.cpu)
}

// appendEnergy appends the amounts of an account: at least its dynamic energy of the last interval's quality.
func (t *text) appendEnergy(name string, labels []byte, a *account, current energy.Quality) {
	for mode := range a.energy {
		for q, v := range a.energy[mode] {
			if v > 0 || mode == dynamic && q == int(current) {
				t.sample(name, labels, suffixes[mode][q]).joules(v)
			}
		}
	}
}

// families are the metrics of consumers, by kind.
var families = [kindUnknown]struct{ joules, seconds, whose string }{
	kindContainer: {
		"kubenergy_container_energy_joules_total", "kubenergy_container_cpu_seconds_total",
		"containers; with an empty container_id, of a pod beyond its living containers",
	},
	kindVM: {"kubenergy_vm_energy_joules_total", "kubenergy_vm_cpu_seconds_total", "virtual machines"},
	kindCgroup: {
		"kubenergy_cgroup_energy_joules_total", "kubenergy_cgroup_cpu_seconds_total",
		"other control groups that were asked for",
	},
	kindSystem: {
		"kubenergy_system_energy_joules_total", "kubenergy_system_cpu_seconds_total",
		"everything that runs on the node outside of those: kernel, daemons, the kubelet",
	},
}

func (e *Exporter) appendConsumers(t *text, k kind) {
	first := slices.IndexFunc(e.rows, func(r row) bool { return r.kind == k })
	if first < 0 {
		return
	}
	f := &families[k]
	t.head(f.joules, "counter", "Energy of "+f.whose+".")
	for i := first; i < len(e.rows); i++ {
		if r := &e.rows[i]; r.kind == k {
			t.appendEnergy(f.joules, r.labels, &r.account, r.quality)
		}
	}
	t.head(f.seconds, "counter", "CPU time of "+f.whose+".")
	for i := first; i < len(e.rows); i++ {
		if r := &e.rows[i]; r.kind == k {
			t.sample(f.seconds, r.labels, "").seconds(r.account.cpu)
		}
	}
}

// appendStatus appends how the agent fares.
func (e *Exporter) appendStatus(t *text) {
	s := &e.status
	t.head("kubenergy_node_info", "gauge",
		"What the node's numbers are made of, and the machine that it runs on if it is a virtual one.")
	info := appendLabel(append(slices.Clone(e.node), ','), "source", sourceName(s.Source))
	info = appendLabel(append(info, ','), "idle_policy", s.Idle)
	var host, vm string
	if s.Parent != nil {
		host, vm = s.Parent.Host, s.Parent.VM
	}
	info = appendLabel(append(info, ','), "host", host)
	info = appendLabel(append(info, ','), "vm", vm)
	t.sample("kubenergy_node_info", info, "").count(1)
	t.head("kubenergy_node_idle_power_watts", "gauge", "What the node draws without load, as fitted.")
	t.sample("kubenergy_node_idle_power_watts", e.node, "").float(float64(s.IdlePower))
	t.head("kubenergy_node_idle_power_settled", "gauge",
		"Whether that fit has seen enough of the node (1) or not yet (0).")
	t.sample("kubenergy_node_idle_power_settled", e.node, "").flag(s.IdleSettled)

	if len(e.temperatures) > 0 {
		t.head("kubenergy_node_temperature_celsius", "gauge", "What a temperature sensor of the node shows.")
	}
	for _, s := range e.temperatures {
		labels := appendLabel(append(slices.Clone(e.node), ','), "chip", s.Chip)
		t.sample("kubenergy_node_temperature_celsius", appendLabel(append(labels, ','), "sensor", s.Sensor),
			"").float(s.Celsius)
	}

	t.head("kubenergy_agent_build_info", "gauge", "Version of the agent.")
	build := appendLabel(append(slices.Clone(e.node), ','), "version", e.options.Version)
	build = appendLabel(append(build, ','), "goversion", runtime.Version())
	t.sample("kubenergy_agent_build_info", build, "").count(1)
	e.appendTicks(t)
	e.appendHeld(t)
	t.head("kubenergy_agent_meter_readable", "gauge",
		"Whether the last reading of a kind of meter succeeded (1) or not (0).")
	for i := range s.Meters {
		t.sample("kubenergy_agent_meter_readable", e.meter(s.Meters[i].Name), "").flag(s.Meters[i].Readable)
	}
	t.head("kubenergy_agent_meter_errors_total", "counter", "Readings of a kind of meter that failed.")
	for i := range s.Meters {
		t.sample("kubenergy_agent_meter_errors_total", e.meter(s.Meters[i].Name), "").count(s.Meters[i].Errors)
	}
	if s.Delivery != nil {
		e.appendDelivery(t, s.Delivery)
	}
	if s.Guests != nil {
		e.appendGuests(t, s.Guests)
	}
}

func (e *Exporter) appendGuests(t *text, g *GuestsStatus) {
	t.head("kubenergy_guests_published", "gauge", "Virtual machines that a counter is published for.")
	t.sample("kubenergy_guests_published", e.node, "").count(g.Trees)
	t.head("kubenergy_guests_failing", "gauge", "Of these, whose last publication failed.")
	t.sample("kubenergy_guests_failing", e.node, "").count(g.Failing)
	t.head("kubenergy_guests_refused_total", "counter",
		"Counters that were not published because of the name of the virtual machine.")
	t.sample("kubenergy_guests_refused_total", e.node, "").count(g.Refused)
	t.head("kubenergy_guests_stuck_total", "counter",
		"Folders that virtual machines left behind and that cannot be removed.")
	t.sample("kubenergy_guests_stuck_total", e.node, "").count(g.Stuck)
}

func (e *Exporter) meter(name string) []byte {
	return appendLabel(append(slices.Clone(e.node), ','), "meter", name)
}

func (e *Exporter) appendTicks(t *text) {
	const name = "kubenergy_agent_tick_duration_seconds"
	t.head("kubenergy_agent_tick_duration_seconds", "histogram",
		"How long ticks took: reading, attributing, writing down.")
	below := uint64(0)
	for i, n := range e.health.buckets {
		below += n
		bound := "+Inf"
		if i < len(tickBounds) {
			bound = string(appendDecimal(nil, int64(tickBounds[i]), 9))
			if t.openMetrics && !strings.Contains(bound, ".") {
				bound += ".0"
			}
		}
		t.sample(name+"_bucket", e.node, `,le="`+bound+`"`).count(below)
	}
	t.sample(name+"_sum", e.node, "").seconds(e.health.tick)
	t.sample(name+"_count", e.node, "").count(below)
	t.head("kubenergy_agent_sweep_seconds_total", "counter", "Time spent on reading CPU times.")
	t.sample("kubenergy_agent_sweep_seconds_total", e.node, "").seconds(e.health.sweep)
	t.head("kubenergy_agent_lost_ticks_total", "counter", "Ticks that did not happen because one before took too long.")
	t.sample("kubenergy_agent_lost_ticks_total", e.node, "").count(e.status.Lost)
}

func (e *Exporter) appendHeld(t *text) {
	ended := 0
	for _, c := range e.consumers {
		if c.ended {
			ended++
		}
	}
	t.head("kubenergy_agent_consumers", "gauge", "Consumers with series of their own.")
	t.sample("kubenergy_agent_consumers", e.node, `,state="ended"`).count(uint64(ended))
	t.sample("kubenergy_agent_consumers", e.node, `,state="living"`).count(uint64(len(e.consumers) - ended))
	t.head("kubenergy_agent_folded_consumers", "gauge",
		"Consumers without series of their own in the last interval, for want of room.")
	t.sample("kubenergy_agent_folded_consumers", e.node, "").count(uint64(e.folded))
	h := &e.status.Host
	t.head("kubenergy_agent_groups_unwatched", "gauge",
		"Whether changes of control groups are found by walking only (1), as not all can be watched, or not (0).")
	t.sample("kubenergy_agent_groups_unwatched", e.node, "").flag(h.Blind)
	t.head("kubenergy_agent_groups_folded", "gauge",
		"Control groups that are not told from their pod or the system, because there are too many.")
	t.sample("kubenergy_agent_groups_folded", e.node, "").count(h.Folded)
	t.head("kubenergy_agent_truncated_walks_total", "counter",
		"Walks through control groups that ended early because there were too many.")
	t.sample("kubenergy_agent_truncated_walks_total", e.node, "").count(h.Truncated)
}

func (e *Exporter) appendDelivery(t *text, d *DeliveryStatus) {
	t.head("kubenergy_agent_delivery_pending_batches", "gauge", "Batches that are not acknowledged.")
	t.sample("kubenergy_agent_delivery_pending_batches", e.node, "").count(uint64(max(d.Pending, 0)))
	t.head("kubenergy_agent_delivery_oldest_age_seconds", "gauge",
		"Age of the oldest batch that is not acknowledged; 0 if there is none.")
	t.sample("kubenergy_agent_delivery_oldest_age_seconds", e.node, "").seconds(d.Oldest)
	t.head("kubenergy_agent_delivery_acked_batches_total", "counter", "Batches that were acknowledged.")
	t.sample("kubenergy_agent_delivery_acked_batches_total", e.node, "").count(d.Acked)
	t.head("kubenergy_agent_delivery_folds_total", "counter",
		"Batches folded into others for want of room; no energy is lost by it.")
	t.sample("kubenergy_agent_delivery_folds_total", e.node, "").count(d.Folds)
	t.head("kubenergy_agent_state_failing", "gauge", "Whether the state folder cannot be written (1) or not (0).")
	t.sample("kubenergy_agent_state_failing", e.node, "").flag(d.DiskFailing)
	t.head("kubenergy_agent_refused_joules_total", "counter",
		"Energy that is on this page and could not be queued for delivery.")
	t.sample("kubenergy_agent_refused_joules_total", e.node, "").joules(d.Refused)
	t.head("kubenergy_agent_delivery_failures_total", "counter", "Attempts to deliver that failed.")
	for i := range d.Failures {
		reason := appendLabel(append(slices.Clone(e.node), ','), "reason", d.Failures[i].Reason)
		t.sample("kubenergy_agent_delivery_failures_total", reason, "").count(d.Failures[i].Count)
	}
}
