package exposition

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/kubenergy/kubenergy/internal/agent/delivery"
	"github.com/kubenergy/kubenergy/internal/agent/gpu"
	"github.com/kubenergy/kubenergy/internal/agent/guests"
	"github.com/kubenergy/kubenergy/internal/agent/host"
	"github.com/kubenergy/kubenergy/internal/agent/meter"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
	"github.com/kubenergy/kubenergy/test/kit"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the expected page")

const (
	uidA = "0e0a6a2e-5c7c-4a53-9d5a-27cf1f3d6a11"
	uidB = "1b34c7d8-9f0e-4a52-8a77-1d1b8c0a9c22"
	cidA = "5d9c0f1c5f0f6a8e7f3bb6a6f0f3a9a4c2f1b7e8d9a0b1c2d3e4f5061728394a"
)

// body returns the current page.
func body(e *Exporter, openMetrics bool) string { return string(e.page(openMetrics)) }

// tester is the part of testing.TB that rapid.T also implements.
type tester interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// scraped is a parsed page.
type scraped map[string]*dto.MetricFamily

func parse(t tester, page string) scraped {
	t.Helper()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(page))
	if err != nil {
		t.Fatalf("parsing the page: %v\n%s", err, page)
	}
	return families
}

// each calls f for every series of a metric.
func (s scraped) each(name string, f func(labels map[string]string, value float64)) {
	for _, m := range s[name].GetMetric() {
		labels := map[string]string{}
		for _, l := range m.Label {
			labels[l.GetName()] = l.GetValue()
		}
		f(labels, m.GetCounter().GetValue()+m.GetGauge().GetValue())
	}
}

// sum returns the exact sum of metrics in microjoules or microseconds.
func (s scraped) sum(names ...string) int64 {
	total := int64(0)
	for _, name := range names {
		s.each(name, func(_ map[string]string, v float64) { total += int64(math.Round(v * 1e6)) })
	}
	return total
}

var parts = []string{
	"kubenergy_container_energy_joules_total", "kubenergy_vm_energy_joules_total",
	"kubenergy_cgroup_energy_joules_total",
	"kubenergy_system_energy_joules_total", "kubenergy_other_energy_joules_total",
	"kubenergy_ended_energy_joules_total",
	"kubenergy_node_idle_joules_total", "kubenergy_node_platform_joules_total", "kubenergy_node_unknown_joules_total",
}

// wantConserved verifies that the parts add up to the node's energy, to the microjoule, and that all series are
// unique.
func wantConserved(t tester, s scraped) {
	t.Helper()
	if node, sum := s.sum("kubenergy_node_energy_joules_total"), s.sum(parts...); node != sum {
		t.Errorf("sum of the parts = %d µJ, want the node's %d", sum, node)
	}
	for name, family := range s {
		seen := map[string]bool{}
		for _, m := range family.Metric {
			id := fmt.Sprint(m.Label)
			if seen[id] {
				t.Errorf("duplicate series of %s: %s", name, id)
			}
			seen[id] = true
		}
	}
}

const meterName = "psys (rapl)"

// fixture returns an exporter with all kinds of metrics.
func fixture() *Exporter {
	e := New(Options{Node: "worker-1", Version: "v0.2.0", MaxConsumers: 5})
	status := Status{
		Source: "psys (rapl)", Idle: "requests", Parent: batch.Parent{Host: "rack7", VM: "guest3"}, IdlePower: 42.5,
		IdleSettled: true,
		Tick:        300 * time.Microsecond, Sweep: 200 * time.Microsecond, Lost: 1,
		Host: host.Stats{
			Blind: true, Folded: 6, Truncated: 7, Unmatched: []string{"/slurm/*"},
			Unattributed: []host.GroupShare{{Group: "/docker/5d9c", Ratio: 0.25}, {Group: "other", Ratio: 0.125}},
		},
		Guests: &guests.Stats{Trees: 8, Failing: 1, Refused: 9, Stuck: 10},
		Meters: []MeterStatus{{"hwmon", false, 17}, {"rapl", true, 0}},
		Delivery: &DeliveryStatus{
			QueueStats: delivery.QueueStats{
				Pending: 3, Age: 48500 * time.Millisecond, Acked: 240, Folded: 2, DiskFailing: true, Refused: 1_500_000,
			},
			PushStats: delivery.PushStats{Failures: map[string]uint64{"refused": 4, "connection": 1}},
		},
	}
	status.Boards = []Board{{
		Board: gpu.Board{
			ID: "GPU-43ae948c-513c-ce09-eaa6-36e14cd3179d", Milliwatts: new(uint32(698_400)),
			Parts: []gpu.Part{{SMs: 1, Busy: 0.75}},
		},
		Memory: map[string]uint64{
			"": 1, energy.System: 2 << 20, energy.ContainerID(uidA, cidA): 5 << 30, energy.VMID("zebra"): 3,
		},
	}}
	e.SetStatus(&status)
	interval := energy.Attribution{
		Start: 100 * time.Second, End: 101 * time.Second, Measured: 60_000_010, Idle: 10_000_001, Platform: 8_000_000,
		Unknown: 9, GPUIdle: 4_000_000, GPUUnknown: 5,
		Quality: energy.Measured,
		Shares: []energy.Share{
			{ID: energy.CgroupID("slurmstepd.scope/job_7"), Dynamic: 2_000_000, CPU: 50 * time.Millisecond},
			{ID: energy.ContainerID(uidA, ""), Dynamic: 1_000_000, Idle: 500_000, CPU: 10 * time.Millisecond},
			{ID: energy.ContainerID(uidA, cidA), Dynamic: 20_500_000, Idle: 1_500_000, GPU: 12_345_678, CPU: 600 * time.Millisecond},
			{ID: energy.ContainerID(uidB, "gone"), Dynamic: 4_000_000, CPU: 70 * time.Millisecond, Ended: true},
			{ID: energy.System, Dynamic: 5_000_000, CPU: 123_456_789},
			{ID: energy.VMID(`web "1"\2`), Dynamic: 3_500_000, CPU: 80 * time.Millisecond},
			{ID: energy.VMID("zebra"), Dynamic: 4_000_000, CPU: 90 * time.Millisecond},
		},
	}
	e.Add(&interval, status.Source)
	e.SetNames(map[string]batch.Names{
		uidA: {Namespace: "shop", Pod: "cart-0", Containers: map[string]string{cidA: "server"}},
		uidB: {Namespace: "shop", Pod: "job-0"},
	})
	status.Source, status.Tick = "model", 2*time.Second
	e.SetStatus(&status)
	e.Add(&energy.Attribution{
		Start: 101 * time.Second, End: 102 * time.Second, Measured: 30_000_000, Idle: 25_000_000,
		Unmeasured: 250 * time.Millisecond,
		Quality:    energy.Estimated,
		Shares: []energy.Share{{
			ID: energy.ContainerID(uidA, cidA), Dynamic: 5_000_000, CPU: 100 * time.Millisecond,
		}},
	}, status.Source)
	return e
}

// variable matches lines that differ between runs.
var variable = regexp.MustCompile(`(?m)^(process_\w+|go_goroutines)( |\{.*\} ).*$|goversion="[^"]*"`)

func TestPage(t *testing.T) {
	got := variable.ReplaceAllString(body(fixture(), false), "$1 …")
	kit.Golden(t, "testdata/page.txt", []byte(got), *rewrite)
}

func TestPageIsWellFormed(t *testing.T) {
	page := body(fixture(), false)
	wantConserved(t, parse(t, page))
	problems, err := promlint.New(strings.NewReader(page)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	// An empty exporter is valid too.
	if problems, err = promlint.New(strings.NewReader(body(New(Options{Node: "n", MaxConsumers: 100}), false))).Lint(); err != nil ||
		len(problems) > 0 {
		t.Errorf("empty: %v, %v", problems, err)
	}
}

// TestOpenMetrics verifies the differences of OpenMetrics: counters are declared without _total, bounds are floats,
// and the end is marked. The samples are the same.
func TestOpenMetrics(t *testing.T) {
	e := fixture()
	plain, open := strings.Split(body(e, false), "\n"), strings.Split(body(e, true), "\n")
	if open[len(open)-1] != "" || open[len(open)-2] != "# EOF" {
		t.Errorf("the page ends with %q", open[len(open)-2:])
	}
	open = slices.Delete(open, len(open)-2, len(open)-1)
	if len(plain) != len(open) {
		t.Fatalf("%d lines, want %d", len(open), len(plain))
	}
	counters := map[string]bool{}
	for i, line := range open {
		if fields := strings.Fields(line); len(fields) == 4 && fields[1] == "TYPE" {
			if strings.HasSuffix(fields[2], "_total") {
				t.Errorf("declared with its suffix: %s", line)
			}
			counters[fields[2]] = fields[3] == "counter"
		}
		want := plain[i]
		switch {
		case strings.HasPrefix(want, "process_") || strings.HasPrefix(want, "go_"):
			continue
		case strings.HasPrefix(want, "# "):
			want = strings.Replace(want, "_total ", " ", 1)
		case strings.Contains(want, `le="1"`):
			want = strings.Replace(want, `le="1"`, `le="1.0"`, 1)
		}
		if line != want {
			t.Errorf("line %d is %q, want %q", i+1, line, want)
		}
	}
	if !counters["kubenergy_node_energy_joules"] || len(counters) < 20 {
		t.Errorf("counters = %v", counters)
	}
}

// TestPagesStay verifies that the page of a slow client is not modified.
func TestPagesStay(t *testing.T) {
	e := fixture()
	slow := e.page(false)
	previous := string(slow)
	for i := range 5 {
		e.Add(&energy.Attribution{End: time.Duration(200+i) * time.Second, Measured: 1, Unknown: 1}, meterName)
		if bytes.Equal(e.page(false), slow) {
			t.Error("the page was not updated")
		}
	}
	if string(slow) != previous {
		t.Error("the page of a slow client was modified")
	}
}

// TestMetricsAreDocumented verifies that docs/reference/metrics.md lists all metrics.
func TestMetricsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../../docs/reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	e := fixture()
	e.SetTemperatures([]meter.Temperature{{Chip: "coretemp", Sensor: "Package id 0", Celsius: 45}})
	families := parse(t, body(e, false))
	for name := range families {
		if strings.HasPrefix(name, "kubenergy_") && !bytes.Contains(text, []byte("`"+name+"`")) {
			t.Errorf("docs/reference/metrics.md does not mention %s", name)
		}
	}
	_, agents, _ := bytes.Cut(text, []byte("\n## kubenergy-agent\n"))
	agents, _, _ = bytes.Cut(agents, []byte("\n## "))
	for _, name := range regexp.MustCompile("(?m)^\\* `(kubenergy_[a-z_]+)`").FindAllSubmatch(agents, -1) {
		if families[string(name[1])] == nil {
			t.Errorf("docs/reference/metrics.md mentions %s, which is not exported", name[1])
		}
	}
}

// TestProfileInDocuments verifies that the power profile in docs/reference/agent.md is valid.
func TestProfileInDocuments(t *testing.T) {
	text, err := os.ReadFile("../../../docs/reference/agent.md")
	if err != nil {
		t.Fatal(err)
	}
	_, example, _ := strings.Cut(string(text), "\n```json\n")
	example, _, _ = strings.Cut(example, "```")
	var p energy.Profile
	if err := json.Unmarshal([]byte(example), &p); err != nil {
		t.Fatal(err)
	}
	if len(p.Curve) < 3 || p.Power(0) != p.Curve[0].Power || p.Power(1) != p.Curve[len(p.Curve)-1].Power {
		t.Errorf("profile = %+v", p)
	}
}
