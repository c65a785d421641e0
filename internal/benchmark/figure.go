package benchmark

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/hardware"
)

// A Figure is the combined result of the runs of a benchmark.
type Figure struct {
	Value  float64 `json:"value"`
	Spread float64 `json:"spread"`        // difference between the highest and the lowest run, relative to the value
	Why    string  `json:"why,omitempty"` // reason for rejecting the figure; empty if it is accepted
}

// Judged reports whether the figure has the accuracy required by [Within].
func (f *Figure) Judged() bool { return f != nil && f.Why == "" }

// Figures contains the figures of one benchmark on one node.
type Figures struct {
	Work        string
	Rate, Watts *Figure // nil if not measured
	Got, Others float64 // the worst values of all runs
}

// fewestRuns is the minimum number of runs of an accepted figure.
const fewestRuns = 5

// Modelled is the reason for power values that were not measured by a meter.
const Modelled = "modelled"

// disturbed is the maximum fraction of all CPUs that other processes may use during a power measurement.
const disturbed = 0.05

// Figures combines the runs of each benchmark, in the order of their first runs.
func (r *Result) Figures() (all []*Figures) {
	byWork := map[string][]*Run{}
	for i := range r.Runs {
		run := &r.Runs[i]
		byWork[run.Work] = append(byWork[run.Work], run)
		if len(byWork[run.Work]) == 1 {
			all = append(all, &Figures{Work: run.Work, Got: 1})
		}
	}
	for _, f := range all {
		runs := byWork[f.Work]
		for _, run := range runs {
			f.Got, f.Others = min(f.Got, run.Got), max(f.Others, run.Others)
		}
		f.Rate = figureOf(runs, func(r *Run) *Mean { return r.Rate })
		f.Watts = figureOf(runs, func(r *Run) *Mean { return r.Watts })
		if f.Watts == nil {
			continue
		}
		switch {
		case f.Others > disturbed:
			f.Watts.Why = fmt.Sprintf("other processes used %.0f %% of the CPUs", 100*f.Others)
		case r.Quality == energy.Estimated:
			f.Watts.Why = Modelled
		}
	}
	return all
}

func figureOf(runs []*Run, fn func(*Run) *Mean) *Figure {
	var values []float64
	wide := 0
	for _, run := range runs {
		if m := fn(run); m != nil {
			values = append(values, m.Value)
			if !m.narrow() {
				wide++
			}
		}
	}
	if len(values) == 0 {
		return nil
	}
	f := &Figure{Value: meanOf(values).Value}
	f.Spread = (slices.Max(values) - slices.Min(values)) / math.Abs(f.Value)
	switch {
	case len(values) < fewestRuns:
		f.Why = fmt.Sprintf("%d of %d runs", len(values), fewestRuns)
	case wide > 0:
		f.Why = fmt.Sprintf("confidence interval is too wide in %d runs", wide)
	case !(f.Spread <= Within):
		f.Why = fmt.Sprintf("runs differ by %.1f %%", 100*f.Spread)
	}
	return f
}

// classes maps each benchmark to the classes of work of pods. The GPU benchmark represents pods with GPUs.
var classes = map[string][]string{
	CPU: {"training", "inference"}, Sequential: {Sequential}, Memory: {Memory},
	GPU: {hardware.OnGPU("training"), hardware.OnGPU("inference")},
}

// Benchmarks returns the benchmark of the node for each class with an accepted rate. Power values may be modelled.
func (r *Result) Benchmarks() (all []v1alpha1.Benchmark) {
	known := r.known()
	idle := known[Idle]
	for work, f := range known {
		if idle == nil || f.Rate == nil {
			continue
		}
		for _, class := range classes[work] {
			all = append(all, v1alpha1.Benchmark{
				Class: class, Rate: f.Rate.Value, Watts: f.Watts.Value, IdleWatts: idle.Watts.Value,
			})
		}
	}
	slices.SortFunc(all, func(a, b v1alpha1.Benchmark) int { return cmp.Compare(a.Class, b.Class) })
	return all
}

// NotJudged returns the classes of the executed benchmarks that [Result.Benchmarks] does not include.
func (r *Result) NotJudged() (missing []string) {
	judged := r.Benchmarks()
	for _, f := range r.Figures() {
		for _, class := range classes[f.Work] {
			if !slices.ContainsFunc(judged, func(b v1alpha1.Benchmark) bool { return b.Class == class }) {
				missing = append(missing, class)
			}
		}
	}
	return missing
}

// known returns the usable figures by benchmark.
func (r *Result) known() map[string]*Figures {
	known := map[string]*Figures{}
	for _, f := range r.Figures() {
		if f.Watts != nil && (f.Watts.Judged() || f.Watts.Why == Modelled) && (f.Rate == nil || f.Rate.Judged()) {
			known[f.Work] = f
		}
	}
	return known
}

// KnowledgeBase returns the ConfigMap with the knowledge base of the hybrid scheduler.
func KnowledgeBase(results []*Result) (*v1.ConfigMap, error) {
	entries := map[string][]hardware.Knowledge{}
	for _, r := range results {
		for _, b := range r.Benchmarks() {
			class, gpu := strings.CutSuffix(b.Class, hardware.OnGPU("x")[1:])
			name := r.Node + hardware.SuffixCPU
			if gpu {
				name = r.Node + hardware.SuffixGPU
			}
			entries[class] = append(entries[class], hardware.Knowledge{
				NodeName: name, PerformanceRate: b.Rate, PowerConsumptionWatts: energy.Watts(b.Watts),
				IdlePowerWatts: energy.Watts(b.IdleWatts),
			})
		}
	}
	text, err := yaml.Marshal(entries)
	return &v1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Name: "scheduler-knowledge-base", Namespace: metav1.NamespaceSystem},
		Data:       map[string]string{"profiles.yaml": string(text)},
	}, err
}

// PowerProfile returns the PowerProfile of the node, or nil if the idle or the full-load power is unknown.
func (r *Result) PowerProfile() *v1alpha1.PowerProfile {
	known, curve := r.known(), []energy.Point(nil)
	for _, at := range []struct {
		work  string
		share float64
	}{{Idle, 0}, {Half, float64(r.CPUs/2) / float64(r.CPUs)}, {CPU, 1}} {
		if f := known[at.work]; f != nil && (at.work != Half || at.share > 0) {
			curve = append(curve, energy.Point{Utilisation: at.share, Power: energy.Watts(f.Watts.Value)})
		}
	}
	if known[Idle] == nil || known[CPU] == nil {
		return nil
	}
	p := hardware.ToPowerProfile(&energy.Profile{
		Name: r.Node, Quality: r.Quality, Curve: curve, Sleep: curve[0].Power,
		Source: "kubenergy benchmark, " + r.Runs[0].Start.UTC().Format(time.DateOnly) + ", by " + r.Source,
	}, 0)
	p.Spec.NodeSelector = map[string]string{v1.LabelHostname: r.Node}
	p.Spec.Benchmarks = r.Benchmarks()
	return p
}
