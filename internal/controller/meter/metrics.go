package meter

import prom "github.com/prometheus/client_golang/prometheus"

// The label values are names from the configuration file and a small set of kinds and reasons.
var (
	descUp = prom.NewDesc("kubenergy_meter_up",
		"1 if the meter responded to the last poll.", []string{"meter", "node", "kind"}, nil)
	descPower = prom.NewDesc("kubenergy_meter_power_watts",
		"Calibrated power of a meter, absent if the last value is stale.", []string{"meter", "node", "kind"}, nil)
	descEnergy = prom.NewDesc("kubenergy_meter_energy_joules_total",
		"Energy counted by a meter since the controller started.", []string{"meter", "node", "kind"}, nil)
	descAge = prom.NewDesc("kubenergy_meter_age_seconds",
		"Time since the last response of a meter.", []string{"meter", "node", "kind"}, nil)
	descPolls = prom.NewDesc("kubenergy_meter_polls_total",
		"Polls of a meter by outcome: ok or the reason for the failure.", []string{"meter", "outcome"}, nil)
	descRatio = prom.NewDesc("kubenergy_meter_agent_ratio",
		"Ratio of the power at the wall to the power reported by the node's agent, averaged.", []string{"node"}, nil)
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
		show(descAge, prom.GaugeValue, (p.uptime() - s.at).Seconds())
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
