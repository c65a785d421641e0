package meter

import prom "github.com/prometheus/client_golang/prometheus"

// The label values are names from the configuration file and a small set of kinds and reasons.
var (
	descUp = prom.NewDesc("kubenergy_meter_up",
		"1 if the meter answered when it was asked last.", []string{"meter", "node", "kind"}, nil)
	descPower = prom.NewDesc("kubenergy_meter_power_watts",
		"Power that a meter shows, calibrated; absent when that is old.", []string{"meter", "node", "kind"}, nil)
	descEnergy = prom.NewDesc("kubenergy_meter_energy_joules_total",
		"Energy that a meter counted since the controller began to ask it.", []string{"meter", "node", "kind"}, nil)
	descAge = prom.NewDesc("kubenergy_meter_age_seconds",
		"Time since a meter answered.", []string{"meter", "node", "kind"}, nil)
	descPolls = prom.NewDesc("kubenergy_meter_polls_total",
		"Times that a meter was asked: ok, or why it gave nothing.", []string{"meter", "outcome"}, nil)
	descRatio = prom.NewDesc("kubenergy_meter_agent_ratio",
		"Power at the wall over the power that the node's agent tells, of the last minutes.", []string{"node"}, nil)
)

// Describe implements prometheus.Collector.
func (p *Poller) Describe(ch chan<- *prom.Desc) {
	for _, d := range []*prom.Desc{descUp, descPower, descEnergy, descAge, descPolls, descRatio} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (p *Poller) Collect(ch chan<- prom.Metric) {
	for _, m := range p.meters {
		p.collect(m, ch)
	}
	for _, n := range p.nodes {
		n.mu.Lock()
		value, ok := n.ratio.value()
		n.mu.Unlock()
		if ok {
			ch <- prom.MustNewConstMetric(descRatio, prom.GaugeValue, value, n.name)
		}
	}
}

func (p *Poller) collect(m *meter, ch chan<- prom.Metric) {
	s := m.state()
	show := func(desc *prom.Desc, kind prom.ValueType, value float64) {
		ch <- prom.MustNewConstMetric(desc, kind, value, m.entry.Name, m.entry.Node, m.entry.Kind)
	}
	up := 0.0
	if s.up {
		up = 1
	}
	show(descUp, prom.GaugeValue, up)
	if s.readings != nil {
		show(descEnergy, prom.CounterValue, float64(s.total.Joules()))
		show(descAge, prom.GaugeValue, (p.deps.Uptime() - s.at).Seconds())
	}
	if p.fresh(m, s) && s.quality > 0 {
		show(descPower, prom.GaugeValue, float64(s.power))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for outcome, n := range m.polls {
		ch <- prom.MustNewConstMetric(descPolls, prom.CounterValue, float64(n), m.entry.Name, string(outcome))
	}
}
