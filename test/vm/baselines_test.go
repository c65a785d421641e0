//go:build linux && amd64

package vm

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/humanize"
	"github.com/kubenergy/kubenergy/internal/report"
	"github.com/kubenergy/kubenergy/test/kit"
)

const (
	windows = 5
	window  = 6 * time.Second
)

// services lists the services of a guest with separate counters.
var services = []string{
	"/system.slice/containerd.service", "/system.slice/kubelet.service", "/system.slice/kubenergy-agent.service",
}

// baselines measures the resource usage of nodes and pipeline components in each state.
type baselines struct {
	*world
	nodes, components *report.Table
}

// use is the resource usage of a component at a point in time.
type use struct {
	at          time.Time
	joules, cpu float64
}

// look returns the resource usage of all components by name, with one entry for each guest.
func (b *baselines) look(t *testing.T) map[string][]use {
	t.Helper()
	all := map[string][]use{}
	add := func(name, page, joules, cpu string, labels ...string) {
		s, dynamic := 0.0, labels
		if cpu != "" && cpu != "vm" { // dynamic power of pods and services
			dynamic = append(labels, `mode="dynamic"`)
		}
		j, _ := kit.Metric(t, page, joules, dynamic...)
		for _, part := range parts {
			if cpu == "" || cpu == part {
				used, _ := kit.Metric(t, page, "kubenergy_"+part+"_cpu_seconds_total", labels...)
				s += used
			}
		}
		all[name] = append(all[name], use{time.Now(), j, s})
	}
	fn := func(part string) string { return fmt.Sprintf(ofParts, part) }
	ask := func(url string) (text string) {
		kit.Eventually(t, time.Minute, "metrics are available from "+url, func() bool {
			text = page(t.Context(), url)
			return text != ""
		})
		return text
	}
	outside := ask(b.host.url)
	add("host", outside, nodeEnergy, "")
	for _, n := range b.guests {
		add("guest", outside, fn("vm"), "vm", `vm="`+n.name+`"`)
		inside := ask(n.page)
		for _, service := range services {
			add(service, inside, fn("cgroup"), "cgroup", `cgroup="`+service[1:]+`"`)
		}
		add("pods", inside, fn("container"), "container")
		add("kernel and others", inside, fn("system"), "system")
	}
	for _, p := range b.processes {
		all[p.Name] = append(all[p.Name], use{time.Now(), 0, cpuTime(p.Cmd.Process.Pid).Seconds()})
	}
	return all
}

// measure adds the usage in several time windows of a state to the tables.
func (b *baselines) measure(t *testing.T, state string) {
	t.Helper()
	if b.nodes == nil {
		for _, table := range []**report.Table{&b.nodes, &b.components} {
			*table = &report.Table{Columns: []report.Column{
				{Name: "State", Field: "state", Words: true},
				{Name: "Of", Field: "of", Words: true},
				{Name: "Power\n(W)", Field: "watts", Show: humanize.Significant},
				{Name: "from", Field: "wattsLow", Show: humanize.Significant},
				{Name: "to", Field: "wattsHigh", Show: humanize.Significant},
				{Name: "Busy\ncores", Field: "cores", Show: humanize.Significant},
				{Name: "from", Field: "coresLow", Show: humanize.Significant},
				{Name: "to", Field: "coresHigh", Show: humanize.Significant},
			}}
		}
	}
	watts, cores := map[string][]float64{}, map[string][]float64{}
	before := b.look(t)
	for range windows {
		time.Sleep(window)
		now := b.look(t)
		for name, uses := range now {
			for i, u := range uses {
				then := before[name][i]
				seconds := u.at.Sub(then.at).Seconds()
				watts[name] = append(watts[name], (u.joules-then.joules)/seconds)
				cores[name] = append(cores[name], (u.cpu-then.cpu)/seconds)
			}
		}
		before = now
	}
	add := func(table *report.Table, name, shown string, metered bool) {
		if len(cores[name]) == 0 || slices.Max(cores[name]) == 0 {
			return // the component does not exist or the kernel of the guest missed its usage
		}
		row := []any{state, shown, nil, nil, nil}
		if metered {
			w := report.MeanOf(watts[name], 0.05)
			row = []any{state, shown, w.Value, max(0, *w.Low), *w.High}
		}
		c := report.MeanOf(cores[name], 0.05)
		table.Add(append(row, c.Value, max(0, *c.Low), *c.High)...)
	}
	add(b.nodes, "host", "host", true)
	add(b.nodes, "guest", "guest", true)
	for _, name := range []string{"agent", "prometheus"} {
		add(b.components, name, name+" on the host", false)
	}
	add(b.components, "virtiofsd", "virtiofsd of a guest", false)
	add(b.components, "guest", "QEMU of a guest", true)
	for _, service := range services {
		add(b.components, service, "in a guest: "+filepath.Base(service), true)
	}
	add(b.components, "pods", "in a guest: pods", true)
	add(b.components, "kernel and others", "in a guest: kernel and others", true)
}

func (b *baselines) write(t *testing.T) {
	t.Helper()
	write(t, "nodes.csv", b.nodes)
	write(t, "components.csv", b.components)
}
