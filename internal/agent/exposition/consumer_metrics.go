package exposition

import "github.com/kubenergy/kubenergy/internal/energy"

func (e *Exporter) writeNode(p *page) {
	p.family("kubenergy_node_energy_joules_total", "Energy counted by the node's root meter.")
	for i := range e.sources {
		s := &e.sources[i]
		for q, v := range s.energy {
			if v > 0 || q == int(e.quality) && s.name == e.current {
				p.sample(joules(v), s.labels, ofQuality(q))
			}
		}
	}
	derived := min(e.quality, energy.Derived)
	p.qualities("kubenergy_node_idle_joules_total",
		"Idle energy of the node that is not attributed to consumers.", &e.idle, derived)
	p.qualities("kubenergy_node_platform_joules_total",
		"Energy of the root domain outside of the domains attributed to consumers.", &e.platform, e.quality)
	p.qualities("kubenergy_node_unknown_joules_total", "Measured energy that could not be attributed.", &e.unknown,
		e.quality)
	p.one("kubenergy_node_unmeasured_seconds_total", "Time without a reading of a meter.", seconds(e.unmeasured))
}

// qualities writes amounts by quality, omitting zero amounts except for the quality of the last interval.
func (p *page) qualities(name, help string, list *[qualities]energy.Microjoules, current energy.Quality) {
	p.family(name, help)
	for q, v := range list {
		if v > 0 || q == int(current) {
			p.sample(joules(v), ofQuality(q))
		}
	}
}

// amounts are the labels of the amounts of an account.
var amounts = func() (labels [modes][qualities]string) {
	for mode, name := range [modes]string{dynamic: "dynamic", shared: "idle"} {
		for q := range qualities {
			labels[mode][q] = pairs("mode", name) + ofQuality(q)
		}
	}
	return labels
}()

func ofQuality(q int) string { return pairs("quality", energy.Quality(q).String()) }

// kinds describes the consumers of each kind in help texts.
var kinds = [kindUnknown]string{
	kindContainer: "containers; with an empty container_id, of a pod in addition to its running containers",
	kindVM:        "virtual machines",
	kindCgroup:    "other configured control groups",
	kindSystem:    "everything else on the node, such as the kernel, daemons and the kubelet",
	kindOther:     "consumers beyond the maximum number with their own series",
	kindEnded:     "ended consumers that no longer have their own series",
}

// consumers writes the metrics of the consumers of a kind, such as kubenergy_container_energy_joules_total and
// kubenergy_container_cpu_seconds_total.
func (p *page) consumers(k kind, all []*consumer) {
	p.family("kubenergy_"+k.String()+"_energy_joules_total", "Energy of "+kinds[k]+".")
	for _, c := range all {
		if c.kind == k {
			p.energy(c)
		}
	}
	p.family("kubenergy_"+k.String()+"_cpu_seconds_total", "CPU time of "+kinds[k]+".")
	for _, c := range all {
		if c.kind == k {
			p.sample(seconds(c.account.cpu), c.labels)
		}
	}
}

// energy writes the energy of a consumer. It omits zero amounts, except for the dynamic energy of the quality of the
// last interval.
func (p *page) energy(c *consumer) {
	for mode := range c.account.energy {
		for q, v := range c.account.energy[mode] {
			if v > 0 || mode == dynamic && q == int(c.quality) {
				p.sample(joules(v), c.labels, amounts[mode][q])
			}
		}
	}
}
