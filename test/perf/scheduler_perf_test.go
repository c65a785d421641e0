package perf

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	upstream "k8s.io/kubernetes/test/integration/scheduler_perf"
	"k8s.io/kubernetes/test/utils/ktesting"
	"sigs.k8s.io/yaml"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/deploy"
	"github.com/kubenergy/kubenergy/internal/scheduler/place"
	"github.com/kubenergy/kubenergy/test/paired"
)

// workload is one row of the results. It runs upstream's SchedulingBasic alternately with the default configuration
// and with the configuration that replaces the default scheduler. Each run has its own API server and nodes.
type workload struct {
	name        string
	nodes, pods int
	cpu         string // CPU request of a pod
	marks       map[string]string
	// list configures an empty list of default constraints for PodTopologySpread, because pods could not have
	// signatures otherwise.
	list      bool
	args      map[string]any // replaces the default arguments of the energy plugin
	least     float64        // minimum ratio of the throughput; 0 only logs it
	minHinted float64        // minimum ratio of the fraction of pods with hints; 0 only logs it
}

// stockAlone is the default configuration of kube-scheduler.
const stockAlone = `
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
`

// BenchmarkSchedulerPerf runs the scheduler_perf benchmark of Kubernetes.
func BenchmarkSchedulerPerf(b *testing.B) {
	nodes, pods := atoi("KUBENERGY_NODES", 5000), atoi("KUBENERGY_PODS", 3000)
	for _, w := range []workload{
		{name: "unmarked", nodes: nodes, pods: pods, cpu: "100m", least: 0.98},
		{name: "scored", nodes: nodes, pods: pods, cpu: "100m", marks: scored, least: 0.95},
		{name: "one-per-node-unmarked", nodes: nodes, pods: pods, cpu: "3", list: true, minHinted: 0.95},
		{name: "one-per-node-scored", nodes: nodes, pods: pods, cpu: "3", list: true, marks: signed, minHinted: 0.95},
		{name: "burst", nodes: nodes, pods: atoi("KUBENERGY_PODS", 5000), cpu: "100m", args: burstArgs(b)},
	} {
		b.Run(w.name, func(b *testing.B) { w.compare(b, atoi("KUBENERGY_PAIRS", 12)) })
	}
}

// burstArgs returns the plugin arguments for the burst workload: the strategy in KUBENERGY_STRATEGY for every pod
// and additional arguments in KUBENERGY_STRATEGY_ARGS, formatted as JSON.
func burstArgs(tb testing.TB) map[string]any {
	args := map[string]any{"strategy": "energy", "scope": place.All}
	if strategy := os.Getenv("KUBENERGY_STRATEGY"); strategy != "" {
		args["strategy"] = strategy
	}
	if more := os.Getenv("KUBENERGY_STRATEGY_ARGS"); more != "" {
		if err := json.Unmarshal([]byte(more), &args); err != nil {
			tb.Fatalf("reading KUBENERGY_STRATEGY_ARGS: %v", err)
		}
	}
	return args
}

// TestSchedulerPerf verifies that the benchmark can be run, using one pair of a small workload.
func TestSchedulerPerf(t *testing.T) {
	if os.Getenv("KUBENERGY_LONG") == "" {
		t.Skip("starts API servers for a minute: set KUBENERGY_LONG=1")
	}
	w := workload{name: "smoke", nodes: 40, pods: 20, cpu: "3", list: true, marks: signed}
	var arms map[string]arm
	testing.Benchmark(func(b *testing.B) { arms = w.run(b, 1) })
	stock, ours := arms[armName("stock", 0)], arms[armName("ours", 0)]
	if len(arms) != 2 || stock.Cycles == 0 || ours.Cycles == 0 {
		t.Fatalf("unexpected arms: %+v", arms)
	}
	if len(stock.Plugin) > 0 || len(ours.Plugin) == 0 {
		t.Errorf("unexpected plugin costs: %+v without plugins, %+v with plugins", stock.Plugin, ours.Plugin)
	}
	if stock.Hints.Used == 0 || ours.Hints.Used < stock.Hints.Used/2 {
		t.Errorf("unexpected hints: %+v without plugins, %+v with plugins", stock.Hints, ours.Hints)
	}
}

// arm contains the measurements of one run of a pair.
type arm struct {
	Throughput float64    `json:"podsPerSecond"` // mean over all seconds
	Hints      hints      `json:"hints"`
	Cycles     uint64     `json:"cycles"`
	CycleNanos float64    `json:"cycleNanoseconds"` // mean of scheduler_scheduling_algorithm_duration_seconds
	Plugin     pluginCost `json:"plugin,omitempty"`
}

// result is the stored result of a workload.
type result struct {
	Name         string         `json:"name"`
	Nodes        int            `json:"nodes"`
	Pods         int            `json:"pods"`
	Args         map[string]any `json:"args,omitempty"`
	Arms         map[string]arm `json:"arms"`
	Throughput   paired.Ratio   `json:"throughput"` // ratio with and without the plugins
	Hinted       float64        `json:"hinted"`     // ratio of the fractions of pods with hints
	PluginNanos  float64        `json:"pluginNanoseconds"`
	PluginShare  float64        `json:"pluginShare"` // relative to the cycle without the plugins
	StockHinted  float64        `json:"stockHinted"`
	StockCycleNs float64        `json:"stockCycleNanoseconds"`
}

func (w *workload) compare(b *testing.B, pairs int) {
	r := result{Name: w.name, Nodes: w.nodes, Pods: w.pods, Args: w.args, Arms: w.run(b, pairs)}
	var ratios []float64
	var stock, with hints
	var cycles, cost float64
	for i := range pairs {
		off, on := r.Arms[armName("stock", i)], r.Arms[armName("ours", i)]
		if off.Throughput == 0 || on.Throughput == 0 {
			b.Fatalf("pair %d has no throughput: %+v, %+v", i, off, on)
		}
		ratios = append(ratios, on.Throughput/off.Throughput)
		stock, with = stock.plus(off.Hints), with.plus(on.Hints)
		cycles += off.CycleNanos / float64(pairs)
		cost += on.Plugin.perPod(nodesScored(w.nodes)) / float64(pairs)
	}
	r.Throughput = paired.MedianOf(ratios, 1)
	r.PluginNanos, r.StockCycleNs, r.PluginShare = cost, cycles, cost/cycles
	if stock.Used > 0 {
		r.StockHinted, r.Hinted = stock.share(), with.share()/stock.share()
	}
	keep(b, fmt.Sprintf("schedulerperf-%s-%d", w.name, w.nodes), r)
	// The output of a benchmark log is truncated, and upstream writes too much to it.
	fmt.Printf("== %s, %d nodes, %d pods: throughput ratio %v; plugins %.1f µs, cycle without plugins %.0f µs; hints used "+
		"%.3f times the fraction of %.3f without plugins\n",
		w.name, w.nodes, w.pods, r.Throughput, cost/1e3, cycles/1e3, r.Hinted, r.StockHinted)
	if full() && r.Throughput.FallsBelow(w.least) {
		b.Errorf("workload %s: throughput ratio = %v, want an interval that reaches %.2f",
			w.name, r.Throughput, w.least)
	}
	if full() && r.Hinted < w.minHinted {
		b.Errorf("workload %s: ratio of used hints = %.3f, want at least %.2f", w.name, r.Hinted, w.minHinted)
	}
}

func armName(arm string, pair int) string { return fmt.Sprintf("%s-%02d", arm, pair) }

// run measures all runs and returns them by name.
func (w *workload) run(b *testing.B, pairs int) map[string]arm {
	etcdInPath(b)
	dir := b.TempDir()
	if err := flag.Set("data-items-dir", dir); err != nil {
		b.Fatal(err)
	}
	w.writeFiles(b, dir, pairs)
	arms := map[string]arm{}
	upstream.RunBenchmarkPerfScheduling(b, filepath.Join(dir, "cases.yaml"), w.name, ours(b),
		upstream.WithPreRunFn(func(_ ktesting.TContext, one *upstream.Workload) (func(), error) {
			before, err := gathered.Gather() // upstream does not reset all metrics between runs
			return func() { arms[one.Name] = readArm(before, gathered.last) }, err
		}))
	throughputs(b, dir, arms)
	return arms
}

// readArm computes the measurements of a run from the metrics before and after it.
func readArm(before, after families) arm {
	wasCycles, wasSeconds := cyclesIn(before)
	cycles, seconds := cyclesIn(after)
	a := arm{Hints: hintsIn(after, "default-scheduler"), Plugin: pluginCostIn(after), Cycles: cycles - wasCycles}
	if a.Cycles > 0 {
		a.CycleNanos = (seconds - wasSeconds) * 1e9 / float64(a.Cycles)
	}
	return a
}

func cyclesIn(f families) (cycles uint64, seconds float64) {
	for _, m := range metricsNamed(f, "scheduler_scheduling_algorithm_duration_seconds") {
		cycles, seconds = cycles+m.GetHistogram().GetSampleCount(), seconds+m.GetHistogram().GetSampleSum()
	}
	return cycles, seconds
}

// throughputs reads the throughputs from the files that the upstream harness writes. They are its only results that
// are not metrics.
func throughputs(tb testing.TB, dir string, arms map[string]arm) {
	tb.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*_benchmark_*.json"))
	if err != nil || len(paths) != 1 {
		tb.Fatalf("expected one results file, got %q, error %v", paths, err)
	}
	text, err := os.ReadFile(paths[0])
	if err != nil {
		tb.Fatal(err)
	}
	var items upstream.DataItems
	if err := json.Unmarshal(text, &items); err != nil {
		tb.Fatal(err)
	}
	for _, item := range items.DataItems {
		if item.Labels["Metric"] != "SchedulingThroughput" {
			continue
		}
		for name, a := range arms {
			if strings.Contains(item.Labels["Name"], name) {
				a.Throughput = item.Data["Average"]
				arms[name] = a
			}
		}
	}
}

// writeFiles writes the configurations, templates and test cases for the upstream harness, which only reads files.
func (w *workload) writeFiles(tb testing.TB, dir string, pairs int) {
	tb.Helper()
	path := func(name string) string { return filepath.Join(dir, name+".yaml") }
	write := func(name string, what any) {
		text, err := yaml.Marshal(what)
		if err == nil {
			err = os.WriteFile(path(name), text, 0o644)
		}
		if err != nil {
			tb.Fatal(err)
		}
	}
	write("stock", w.configuration(tb, []byte(stockAlone), nil))
	write("ours", w.configuration(tb, deploy.DefaultSchedulerConfig, w.args))
	pod := newPod("", "", w.cpu, w.marks)
	pod.ObjectMeta = metav1.ObjectMeta{GenerateName: "pod-", Annotations: w.marks}
	write("pod", typed("Pod", pod))
	var creating []any
	for i, profile := range profileNames {
		node := newNode(0)
		node.ObjectMeta = metav1.ObjectMeta{GenerateName: "node-", Labels: map[string]string{
			v1alpha1.LabelPowerProfile: profile, v1alpha1.LabelSite: siteNames[i],
		}}
		node.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}
		write(profile, typed("Node", node))
		creating = append(creating, map[string]any{
			"opcode": "createNodes", "count": w.nodes / len(profileNames), "nodeTemplatePath": path(profile),
		})
	}
	creating = append(creating, map[string]any{"opcode": "createPods", "count": w.pods, "collectMetrics": true})
	var cases []any
	for i := range pairs {
		for _, name := range []string{"stock", "ours"} {
			cases = append(cases, map[string]any{
				"name": armName(name, i), "schedulerConfigPath": path(name), "defaultPodTemplatePath": path("pod"),
				"workloadTemplate": creating, "labels": []string{"performance"},
				// Enabled by default in kube-scheduler, but not in the harness.
				"featureGates": map[string]bool{"OpportunisticBatching": true},
				"workloads":    []any{map[string]any{"name": armName(name, i)}},
			})
		}
	}
	write("cases", cases)
}

// typed converts an object to its representation in a manifest.
func typed(kind string, object any) map[string]any {
	text, err := json.Marshal(object)
	fields := map[string]any{}
	if err == nil {
		err = json.Unmarshal(text, &fields)
	}
	if err != nil {
		panic(err) // all objects are defined in this file
	}
	fields["apiVersion"], fields["kind"] = "v1", kind
	return fields
}

// configuration returns a scheduler configuration with the changes of the workload.
func (w *workload) configuration(tb testing.TB, text []byte, args map[string]any) map[string]any {
	tb.Helper()
	var c map[string]any
	if err := yaml.Unmarshal(text, &c); err != nil {
		tb.Fatal(err)
	}
	profile := c["profiles"].([]any)[0].(map[string]any)
	configs, _ := profile["pluginConfig"].([]any)
	for _, one := range configs {
		if one := one.(map[string]any); one["name"] == place.EnergyName {
			maps.Copy(one["args"].(map[string]any), args)
		}
	}
	if w.list {
		configs = append(configs, map[string]any{"name": "PodTopologySpread", "args": map[string]any{
			"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "PodTopologySpreadArgs", "defaultingType": "List",
		}})
	}
	profile["pluginConfig"] = configs
	return c
}
