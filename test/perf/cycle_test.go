package perf

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/scheduler/metrics"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/deploy"
	"github.com/kubenergy/kubenergy/test/paired"
)

// twoProfiles contains the default configuration of kube-scheduler and the same configuration with the KubEnergy
// plugins enabled as in the configuration that replaces the default scheduler. All default plugins remain enabled,
// and the same number of nodes is scored.
const twoProfiles = `
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: stock
- schedulerName: ours
  plugins:
    multiPoint:
      enabled:
      - name: KubEnergy
        weight: 300
      - name: KubEnergyHold
    postFilter:
      enabled:
      - name: KubEnergy
`

// queueSort enables the plugin of the shipped profiles that sorts the queue, which all profiles must share.
const queueSort = `  plugins:
    queueSort:
      enabled:
      - name: KubEnergySort
      disabled:
      - name: PrioritySort
`

// scored contains the annotations of a pod that the KubEnergy plugins score.
var scored = map[string]string{v1alpha1.AnnotationStrategy: "energy"}

// signed contains the annotations of a pod with scores that kube-scheduler may reuse for similar pods.
var signed = map[string]string{v1alpha1.AnnotationStrategy: "carbon"}

// comparison is one row of the table. It compares pods of one kind under two profiles in alternating runs.
type comparison struct {
	name    string
	config  string
	off, on string // scheduler names
	nodes   int
	marks   map[string]string
	limit   float64 // the test fails if the complete interval of the ratio is above it; 0 disables it
}

func comparisons(nodes int) []comparison {
	return []comparison{
		{"unmarked", twoProfiles, "stock", "ours", nodes, nil, 1.02},
		{"scored", twoProfiles, "stock", "ours", nodes, scored, 1.05},
		// These score all nodes and do not use the default resource plugins, so they measure more than the cost of
		// the KubEnergy plugins.
		{"shipped-second-scheduler", shipped(), "stock", "kubenergy", nodes, scored, 0},
		{"shipped-second-scheduler-all-nodes", shipped(), "stock-all", "kubenergy", nodes, scored, 0},
	}
}

// shipped returns the configuration of the second scheduler with two additional profiles that use the default
// plugins, one with the default percentage of scored nodes and one that scores all nodes.
func shipped() string {
	return string(deploy.SchedulerConfig) + "- schedulerName: stock\n  percentageOfNodesToScore: 0\n" + queueSort +
		"- schedulerName: stock-all\n  percentageOfNodesToScore: 100\n" + queueSort
}

// turn contains the costs of one pair of runs.
type turn struct {
	Off cost `json:"off"`
	On  cost `json:"on"`
}

// cycleResult is the stored result of a comparison.
type cycleResult struct {
	Name       string       `json:"name"`
	Nodes      int          `json:"nodes"`
	Turns      []turn       `json:"turns"`
	CPU        paired.Ratio `json:"cpu"`   // ratio of the CPU time per pod with and without the plugins
	Cycle      paired.Ratio `json:"cycle"` // ratio of the wall-clock time of the scheduling cycle
	Bytes      paired.Ratio `json:"bytes"` // ratio of allocated bytes
	StockNanos float64      `json:"stockCycleNanoseconds"`
	Plugin     pluginCost   `json:"plugin"` // every call timed, measured with separate pods
	Stopwatch  spent        `json:"stopwatch"`
	Timed      float64      `json:"pluginShareAsTimed"` // including the overhead of timing
	Share      paired.Ratio `json:"pluginShare"`        // without the overhead of timing
}

// TestCycleCost measures the cost of the KubEnergy plugins in the complete scheduling cycle.
func TestCycleCost(t *testing.T) {
	size := sizes{nodes: []int{100}, pairs: 3, pods: 20}
	if full() {
		size = sizes{nodes: []int{1000, 5000}, pairs: atoi("KUBENERGY_PAIRS", 30), pods: 200}
	}
	for _, nodes := range size.nodes {
		for _, c := range comparisons(nodes) {
			t.Run(fmt.Sprintf("%s/%d", c.name, nodes), func(t *testing.T) { compareCycles(t, c, size) })
		}
	}
}

type sizes struct {
	nodes       []int
	pairs, pods int
}

func compareCycles(t *testing.T, c comparison, size sizes) {
	l := newLoop(t, c.config, ours(t), c.nodes, c.nodes)
	arm := func(profile string) cost {
		return l.run(t, size.pods, func(name string) *v1.Pod { return newPod(name, profile, "100m", c.marks) })
	}
	for range 2 { // warm up
		arm(c.off)
		arm(c.on)
	}
	result := cycleResult{Name: c.name, Nodes: c.nodes}
	var cycles, cpus, bytes []float64
	var stock cost
	for range size.pairs {
		var pair turn
		pair.Off, pair.On = arm(c.off), arm(c.on)
		result.Turns = append(result.Turns, pair)
		cycle, cpu, allocated := pair.On.over(&pair.Off)
		cycles, cpus, bytes = append(cycles, cycle), append(cpus, cpu), append(bytes, allocated)
		stock.Pods, stock.Cycle = stock.Pods+pair.Off.Pods, stock.Cycle+pair.Off.Cycle
	}
	result.CPU, result.Cycle, result.Bytes = paired.MedianOf(cpus, 1), paired.MedianOf(cycles, 1),
		paired.MedianOf(bytes, 1)
	result.StockNanos = float64(stock.Cycle) / float64(stock.Pods)
	parts := timeCycles(t, c, size)
	result.Plugin, result.Stopwatch = parts[0].plugin, parts[0].nothing
	scored := scoredPerPod(result.Plugin)
	timed, own := result.Plugin.perPod(scored), result.Plugin.without(result.Stopwatch).perPod(scored)
	result.Timed = timed / result.StockNanos
	var shares []float64
	for i, part := range parts[1:] {
		off := &result.Turns[i].Off
		shares = append(shares, part.plugin.without(part.nothing).perPod(scored)/float64(off.Cycle)*float64(off.Pods))
	}
	result.Share = paired.MedianOf(shares, 1)
	keep(t, fmt.Sprintf("cycle-%s-%d", c.name, c.nodes), result)
	t.Logf("%s, %d nodes: CPU of a pod %v, cycle %v, bytes %v (ratios); cycle without plugins %.0f µs; plugin %.2f "+
		"µs, fraction %v; including timing overhead %.2f µs, %.2f %%, overhead %.0f ns per call",
		c.name, c.nodes, result.CPU, result.Cycle, result.Bytes, result.StockNanos/1e3, own/1e3, result.Share,
		timed/1e3, 100*result.Timed, result.Stopwatch.each())
	if full() && c.limit > 0 {
		if result.CPU.Exceeds(c.limit) {
			t.Errorf("ratio of CPU per pod with and without plugins = %v, want at most %.2f", result.CPU, c.limit)
		}
		if result.Share.Exceeds(c.limit - 1) {
			t.Errorf("plugin time relative to the cycle without plugins = %v, want at most %.2f",
				result.Share, c.limit-1)
		}
	}
}

// timedPart is the cost of the energy plugin in a number of cycles with every call timed.
type timedPart struct {
	plugin  pluginCost
	nothing spent // cost of timing an empty call, measured alongside each call of Score
}

// timeCycles runs pods with the KubEnergy plugins and times all calls of the energy plugin. The first returned part
// is the total, followed by one part for each pair.
func timeCycles(t *testing.T, c comparison, size sizes) []timedPart {
	registry, watched := timedOurs(t, c.on)
	l := newLoop(t, c.config, registry, c.nodes, c.nodes)
	run := func(pods int) timedPart {
		before, nothing := watched.cost(), watched.nothing.spent()
		l.run(t, pods, func(name string) *v1.Pod { return newPod(name, c.on, "100m", c.marks) })
		return timedPart{watched.cost().minus(before), watched.nothing.spent().minus(nothing)}
	}
	run(2 * size.pods) // warm up
	parts := make([]timedPart, 1, 1+size.pairs)
	for range size.pairs {
		parts = append(parts, run(size.pods))
	}
	all := watched.cost()
	if want := uint64((size.pairs + 2) * size.pods); all[metrics.PreFilter].Calls != want {
		t.Fatalf("PreFilter was called %d times, want %d", all[metrics.PreFilter].Calls, want)
	}
	if marked, ok := all[metrics.Score].Calls > 0, c.marks != nil; marked != ok {
		t.Fatalf("Score was called %d times for pods with the annotations %v", all[metrics.Score].Calls, c.marks)
	}
	parts[0] = timedPart{all, watched.nothing.spent()}
	return parts
}

// scoredPerPod returns the number of nodes scored per pod.
func scoredPerPod(c pluginCost) int {
	return int(c[metrics.Score].Calls / c[metrics.PreFilter].Calls)
}
