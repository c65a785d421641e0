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

// A Figure is what the runs of a work agree on.
type Figure struct {
	Value  float64 `json:"value"`
	Spread float64 `json:"spread"`        // between the highest and the lowest run, as a share of the value
	Why    string  `json:"why,omitempty"` // why it is not judged; "": it is
}

// Judged reports whether a figure is known as well as [Within] asks for.
func (f *Figure) Judged() bool { return f != nil && f.Why == "" }

// Figures are those of one work on one node.
type Figures struct {
	Work        string
	Rate, Watts *Figure // nil: there is none
	Got, Others float64 // the worst of the runs
}

// fewestRuns must agree for a figure to be judged.
const fewestRuns = 5

// Modelled are watts that no meter told.
const Modelled = "modelled"

// disturbed is the share of all CPUs that others may use while watts are measured.
const disturbed = 0.05

// Figures sums up, in the order in which works were first run.
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
			f.Watts.Why = fmt.Sprintf("others used %.0f %% of the CPUs", 100*f.Others)
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
		f.Why = fmt.Sprintf("the interval is wide in %d runs", wide)
	case !(f.Spread <= Within):
		f.Why = fmt.Sprintf("runs are %.1f %% apart", 100*f.Spread)
	}
	return f
}

// classes are what pods call work, by the work that stands for it; what stands on a GPU is done by pods with GPUs.
var classes = map[string][]string{
	CPU: {"training", "inference"}, Sequential: {Sequential}, Memory: {Memory},
	GPU: {hardware.OnGPU("training"), hardware.OnGPU("inference")},
}

// Benchmarks returns what a node does by class, as far as it is judged; watts may be modelled.
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

// NotJudged returns the classes of the works that were run which [Result.Benchmarks] leaves out.
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

// known are the works whose figures may be used.
func (r *Result) known() map[string]*Figures {
	known := map[string]*Figures{}
	for _, f := range r.Figures() {
		if f.Watts != nil && (f.Watts.Judged() || f.Watts.Why == Modelled) && (f.Rate == nil || f.Rate.Judged()) {
			known[f.Work] = f
		}
	}
	return known
}

// KnowledgeBase returns the ConfigMap of the hybrid scheduler.
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

// PowerProfile returns the node's; nil: too little is known.
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
