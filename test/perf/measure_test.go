package perf

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"k8s.io/kubernetes/pkg/scheduler/metrics"

	"github.com/kubenergy/kubenergy/internal/scheduler/place"
)

// full reports whether the complete measurements are run, instead of a short run that only verifies them.
func full() bool { return os.Getenv("KUBENERGY_BENCH") != "" }

// keep writes a result as JSON to out/performance.
func keep(t testing.TB, name string, what any) {
	t.Helper()
	dir := filepath.Join("..", "..", "out", "performance")
	if !full() {
		dir = t.TempDir()
	}
	text, err := json.MarshalIndent(what, "", "  ")
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	path := filepath.Join(dir, name+".json")
	if err == nil {
		err = os.WriteFile(path, append(text, '\n'), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	if full() {
		t.Logf("wrote %s", path)
	}
}

// spent is the time spent at one extension point.
type spent struct {
	Seconds float64 `json:"seconds"`
	Calls   uint64  `json:"calls"`
}

// pluginCost is the time spent in the KubEnergy plugins by extension point.
type pluginCost map[string]spent

// each returns the mean duration of a call in nanoseconds.
func (s spent) each() float64 { return s.Seconds * 1e9 / float64(max(s.Calls, 1)) }

func (s spent) minus(before spent) spent {
	return spent{s.Seconds - before.Seconds, s.Calls - before.Calls}
}

// minus returns the cost since an earlier measurement.
func (c pluginCost) minus(before pluginCost) pluginCost {
	since := pluginCost{}
	for point, s := range c {
		since[point] = s.minus(before[point])
	}
	return since
}

// without returns the cost after subtracting the overhead of the stopwatch for each call.
func (c pluginCost) without(stopwatch spent) pluginCost {
	less := pluginCost{}
	for point, s := range c {
		less[point] = spent{s.Seconds - float64(s.Calls)*stopwatch.each()/1e9, s.Calls}
	}
	return less
}

// perPod returns the cost in nanoseconds of a pod if nodesScored nodes are scored. All extension points
// except Score are called once per pod.
func (c pluginCost) perPod(nodesScored int) (nanos float64) {
	for point, s := range c {
		if s.Calls == 0 {
			continue
		}
		each := s.each()
		if point == metrics.Score {
			each *= float64(nodesScored)
		}
		nanos += each
	}
	return nanos
}

// nodesScored returns the number of nodes that kube-scheduler scores by default if all nodes are feasible.
func nodesScored(nodes int) int { return max(100, nodes*max(5, 50-nodes/125)/100) }

// pluginCostIn reads the kube-scheduler metric scheduler_plugin_execution_duration_seconds. It is sampled in about
// one tenth of the cycles. Most samples are lost if many nodes are scored, because the buffer for 1,000
// observations is flushed once per second and the Filter calls of a single cycle fill it. Therefore, only the means
// are meaningful.
func pluginCostIn(families families) pluginCost {
	c := pluginCost{}
	for _, m := range metricsNamed(families, "scheduler_plugin_execution_duration_seconds") {
		if name := label(m, "plugin"); name != place.EnergyName && name != place.HoldName {
			continue
		}
		point, h := label(m, "extension_point"), m.GetHistogram()
		c[point] = spent{c[point].Seconds + h.GetSampleSum(), c[point].Calls + h.GetSampleCount()}
	}
	return c
}

// families are the metrics gathered at one point in time.
type families = []*dto.MetricFamily

func metricsNamed(families families, name string) []*dto.Metric {
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()
		}
	}
	return nil
}

func label(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

// atoi returns a positive number from the environment, or otherwise.
func atoi(name string, otherwise int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil && n > 0 {
		return n
	}
	return otherwise
}
