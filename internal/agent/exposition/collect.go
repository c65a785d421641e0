package exposition

import (
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// families sends the metrics of one scrape.
type families struct {
	to   chan<- prometheus.Metric
	node prometheus.Labels
	desc *prometheus.Desc
	kind prometheus.ValueType
}

// head starts a metric family: a counter if the name ends with _total, otherwise a gauge.
func (f *families) head(name, help string, labels ...string) {
	f.kind = prometheus.GaugeValue
	if strings.HasSuffix(name, "_total") {
		f.kind = prometheus.CounterValue
	}
	f.desc = prometheus.NewDesc(name, help, labels, f.node)
}

func (f *families) sample(value float64, labels ...string) {
	f.to <- prometheus.MustNewConstMetric(f.desc, f.kind, value, labels...)
}

// one sends a metric family with the node's label only.
func (f *families) one(name, help string, value float64) {
	f.head(name, help)
	f.sample(value)
}

func truth(v bool) float64 {
	if v {
		return 1
	}
	return 0
}

func joules(v energy.Microjoules) float64 { return float64(v) / 1e6 }

func seconds(v time.Duration) float64 { return float64(v) / 1e9 }

// Describe implements prometheus.Collector. It sends nothing, because the set of metrics varies.
func (e *Exporter) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (e *Exporter) Collect(to chan<- prometheus.Metric) {
	f := &families{to: to, node: prometheus.Labels{"node": label(e.options.Node)}}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.collectNode(f)
	e.collectStatus(f)
	e.collectBoards(f)
	for k := range kindUnknown {
		e.collectConsumers(f, k)
	}
}

func (e *Exporter) collectNode(f *families) {
	f.head("kubenergy_node_energy_joules_total", "Energy counted by the node's root meter.", "source", "quality")
	for i := range e.sources {
		for q, v := range e.sources[i].energy {
			if v > 0 || q == int(e.quality) && e.sources[i].name == e.current {
				f.sample(joules(v), label(e.sources[i].name), energy.Quality(q).String())
			}
		}
	}
	derived := min(e.quality, energy.Derived)
	f.qualities("kubenergy_node_idle_joules_total",
		"Idle energy of the node that is not attributed to consumers.", &e.idle, derived)
	f.qualities("kubenergy_node_platform_joules_total",
		"Energy of the root domain outside of the domains attributed to consumers.", &e.platform, e.quality)
	f.qualities("kubenergy_node_unknown_joules_total", "Measured energy that could not be attributed.", &e.unknown,
		e.quality)
	f.one("kubenergy_node_unmeasured_seconds_total", "Time without a reading of a meter.", seconds(e.unmeasured))
	f.account("kubenergy_other_energy_joules_total", "kubenergy_other_cpu_seconds_total",
		"consumers beyond the maximum number with their own series", &e.other, derived)
	f.account("kubenergy_ended_energy_joules_total", "kubenergy_ended_cpu_seconds_total",
		"ended consumers that no longer have their own series", &e.ended, derived)
}

func (f *families) account(joules, cpu, whose string, a *account, current energy.Quality) {
	f.head(joules, "Energy of "+whose+".", amounts...)
	f.energy(a, current)
	f.one(cpu, "CPU time of "+whose+".", seconds(a.cpu))
}

// qualities sends amounts by quality, omitting zero amounts except for the quality of the last interval.
func (f *families) qualities(name, help string, amounts *[qualities]energy.Microjoules, current energy.Quality) {
	f.head(name, help, "quality")
	for q, v := range amounts {
		if v > 0 || q == int(current) {
			f.sample(joules(v), energy.Quality(q).String())
		}
	}
}

// amounts are the labels of the amounts of an account.
var amounts = []string{"mode", "quality"}

// energy sends the amounts of an account, omitting zero amounts except for the dynamic energy of the last interval's
// quality.
func (f *families) energy(a *account, current energy.Quality, labels ...string) {
	for mode := range a.energy {
		for q, v := range a.energy[mode] {
			if v > 0 || mode == dynamic && q == int(current) {
				f.sample(joules(v), append(labels, [...]string{"dynamic", "idle"}[mode], energy.Quality(q).String())...)
			}
		}
	}
}

// kinds are the metrics of consumers by kind.
var kinds = [kindUnknown + 1]struct {
	joules, cpu, whose string
	labels             []string
}{
	kindContainer: {
		"kubenergy_container_energy_joules_total", "kubenergy_container_cpu_seconds_total",
		"containers; with an empty container_id, of a pod in addition to its running containers",
		[]string{"pod_uid", "container_id", "namespace", "pod", "container"},
	},
	kindVM: {
		"kubenergy_vm_energy_joules_total", "kubenergy_vm_cpu_seconds_total", "virtual machines", []string{"vm"},
	},
	kindCgroup: {
		"kubenergy_cgroup_energy_joules_total", "kubenergy_cgroup_cpu_seconds_total",
		"other configured control groups", []string{"cgroup"},
	},
	kindSystem: {
		"kubenergy_system_energy_joules_total", "kubenergy_system_cpu_seconds_total",
		"everything else on the node, such as the kernel, daemons and the kubelet", nil,
	},
}

func (e *Exporter) collectConsumers(f *families, k kind) {
	m := &kinds[k]
	f.head(m.joules, "Energy of "+m.whose+".", slices.Concat(m.labels, amounts)...)
	for _, c := range e.consumers {
		if c.kind == k {
			f.energy(&c.account, c.quality, c.labels...)
		}
	}
	f.head(m.cpu, "CPU time of "+m.whose+".", m.labels...)
	for _, c := range e.consumers {
		if c.kind == k {
			f.sample(seconds(c.account.cpu), c.labels...)
		}
	}
}
