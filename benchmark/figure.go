package benchmark

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/energy"
	"github.com/kubenergy/kubenergy/hardware"
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
	Node, Work  string
	Rate, Watts *Figure // nil: there is none
	GPU         *Figure // watts
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
			all = append(all, &Figures{Node: r.Node, Work: run.Work, Got: 1})
		}
	}
	for _, f := range all {
		runs := byWork[f.Work]
		for _, run := range runs {
			f.Got, f.Others = min(f.Got, run.Got), max(f.Others, run.Others)
		}
		f.Rate = figureOf(runs, func(r *Run) *Mean { return r.Rate })
		f.Watts = figureOf(runs, func(r *Run) *Mean { return r.Watts })
		f.GPU = figureOf(runs, func(r *Run) *Mean { return r.GPU })
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

func figureOf(runs []*Run, of func(*Run) *Mean) *Figure {
	var values []float64
	wide := 0
	for _, run := range runs {
		if m := of(run); m != nil {
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

// DefaultClasses are the works that stand for classes of the knowledge base.
func DefaultClasses() map[string]string {
	return map[string]string{"training": CPU, "inference": CPU, Sequential: Sequential, Memory: Memory}
}

// measured is what is known of a work: its rate is judged, and its watts are, or are modelled.
func (r *Result) measured() map[string]*Figures {
	known := map[string]*Figures{}
	for _, f := range r.Figures() {
		if f.Watts != nil && (f.Watts.Judged() || f.Watts.Why == Modelled) &&
			(f.Rate == nil || f.Rate.Judged()) {
			known[f.Work] = f
		}
	}
	return known
}

// Benchmarks returns what a node does by class; work on its GPU stands under [hardware.OnGPU], with the
// GPU's watts beside those of a meter that leaves them out.
func (r *Result) Benchmarks(classes map[string]string) map[string]energy.Benchmark {
	known, all := r.measured(), map[string]energy.Benchmark{}
	idle, ok := known[Idle]
	if !ok {
		return nil
	}
	add := func(class, work string) {
		if f, ok := known[work]; ok && f.Rate != nil {
			b := energy.Benchmark{
				Rate: f.Rate.Value, Power: energy.Watts(f.Watts.Value), Idle: energy.Watts(idle.Watts.Value),
			}
			if work == GPU && f.GPU != nil && idle.GPU != nil && !covered(r.Source) {
				b.Power, b.Idle = b.Power+energy.Watts(f.GPU.Value), b.Idle+energy.Watts(idle.GPU.Value)
			}
			all[class] = b
		}
	}
	for class, work := range classes {
		if add(class, work); work == CPU {
			add(hardware.OnGPU(class), GPU)
		}
	}
	return all
}

// Knowledge returns entries of the hybrid scheduler's knowledge base, by class.
func (r *Result) Knowledge(classes map[string]string) map[string][]hardware.Knowledge {
	benchmarks, all := r.Benchmarks(classes), map[string][]hardware.Knowledge{}
	for _, class := range slices.Sorted(maps.Keys(classes)) {
		for of, suffix := range map[string]string{
			class: hardware.SuffixCPU, hardware.OnGPU(class): hardware.SuffixGPU,
		} {
			if b, ok := benchmarks[of]; ok {
				all[class] = append(all[class], hardware.Knowledge{
					NodeName: r.Node + suffix, PerformanceRate: b.Rate, PowerConsumptionWatts: b.Power,
					IdlePowerWatts: b.Idle,
				})
			}
		}
		slices.SortFunc(all[class], func(a, b hardware.Knowledge) int { return cmp.Compare(a.NodeName, b.NodeName) })
	}
	return all
}

// PowerProfile returns the node's; nil: too little is known. Its watts are those without GPUs.
func (r *Result) PowerProfile(classes map[string]string) *v1alpha1.PowerProfile {
	known := r.measured()
	idle, full := known[Idle], known[CPU]
	if idle == nil || full == nil {
		return nil
	}
	without := func(f *Figures) energy.Watts {
		if idle.GPU == nil || !covered(r.Source) {
			return energy.Watts(f.Watts.Value)
		}
		return energy.Watts(f.Watts.Value - idle.GPU.Value)
	}
	p := &energy.Profile{
		Name: r.Node, Quality: r.Quality,
		Source: "kubenergy benchmark, " + r.Runs[0].Start.UTC().Format("2006-01-02") + ", by " + r.Source,
		Curve:  []energy.Point{{Utilisation: 0, Power: without(idle)}, {Utilisation: 1, Power: without(full)}},
	}
	if half := known[Half]; half != nil && r.CPUs > 1 {
		p.Curve = slices.Insert(p.Curve, 1,
			energy.Point{Utilisation: float64(r.CPUs/2) / float64(r.CPUs), Power: without(half)})
	}
	if gpu := known[GPU]; gpu != nil && gpu.GPU.Judged() && idle.GPU.Judged() {
		p.GPUIdle, p.GPUMax = energy.Watts(idle.GPU.Value), energy.Watts(gpu.GPU.Value)
	}
	p.Sleep = p.Power(0)
	o := hardware.ToPowerProfile(p, 0)
	o.Spec.NodeSelector = map[string]string{v1.LabelHostname: r.Node}
	benchmarks := r.Benchmarks(classes)
	for _, class := range slices.Sorted(maps.Keys(benchmarks)) {
		b := benchmarks[class]
		o.Spec.Benchmarks = append(o.Spec.Benchmarks, v1alpha1.Benchmark{
			Class: class, Rate: b.Rate, Watts: float64(b.Power), IdleWatts: float64(b.Idle),
		})
	}
	return o
}

// covered reports whether the node's watts, by their source, include its GPUs: a meter at the wall's do.
func covered(source string) bool {
	return strings.HasPrefix(source, "wall") || strings.Contains(source, "gpu")
}
