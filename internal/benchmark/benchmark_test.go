package benchmark

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"sigs.k8s.io/yaml"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/hardware"
	"github.com/kubenergy/kubenergy/test/kit"
)

// The t quantile for two degrees of freedom is 4.303, hence 10 ± 2.484.
func TestMeans(t *testing.T) {
	want := &Mean{Value: 10, Half: 0.2484, Count: 3}
	if diff := cmp.Diff(want, meanOf([]float64{9, 10, 11}), cmpopts.EquateApprox(0, 1e-4)); diff != "" {
		t.Error(diff)
	}
	if meanOf(nil) != nil || !meanOf(nil).narrow() || !meanOf([]float64{0, 0}).narrow() {
		t.Error("narrow() = false without samples or for zeros, want true")
	}
	if meanOf([]float64{9, 11}).narrow() || !meanOf([]float64{100, 101, 100, 101, 100}).narrow() {
		t.Error("narrow() does not apply the limit of 3 %")
	}
}

// short are rules for the shortest possible measurement.
var short = Rules{Runs: 2, AtLeast: 4 * time.Millisecond, Rep: time.Millisecond, Least: 2, Most: 4}

func TestMeasure(t *testing.T) {
	path := t.TempDir()
	script := "#!/bin/sh\nwhile read n; do echo 0.01 $n; done\n" // each round is one unit of work and takes 10 ms
	if err := os.WriteFile(filepath.Join(path, "kubenergy-gpu"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", path+":"+os.Getenv("PATH"))
	m := &Machine{CPUs: 2, Power: func() (energy.Watts, bool) { return 42, true }}
	works := []string{Idle, Half, CPU, Sequential, Memory, GPU}
	heard := 0
	runs, err := m.Measure(t.Context(), works, short, func(Run) { heard++ })
	if err != nil || len(runs) != 2*len(works) || heard != len(runs) {
		t.Fatal(len(runs), heard, err)
	}
	for i, r := range runs {
		if r.Work != works[i%len(works)] {
			t.Errorf("run %d is %s, want the benchmarks to run in turn", i, r.Work)
		}
		if (r.Rate == nil) != (r.Work == Idle) || r.Rate != nil && !(r.Rate.Value > 0) {
			t.Errorf("unexpected rate of %s: %+v", r.Work, r.Rate)
		}
		if r.Watts == nil || r.Watts.Value != 42 || r.Watts.Count < short.Least || r.Watts.Count > short.Most {
			t.Errorf("unexpected power of %s: %+v", r.Work, r.Watts)
		}
		// The upper limit is unknown, because these runs are not much longer than the ticks of CPU time.
		if !r.End.After(r.Start) || r.Work != GPU && !(r.Got > 0) {
			t.Errorf("unexpected run of %s: got %v, from %v to %v", r.Work, r.Got, r.Start, r.End)
		}
	}
	if g := runs[len(runs)-1]; math.Abs(g.Rate.Value-100) > 1e-6 {
		t.Errorf("rate of the GPU = %v, want 100 per second of GPU time", g.Rate.Value)
	}
	none := func(r Run) { t.Errorf("unexpected run of %s", r.Work) } // the GPU is checked first
	script = "#!/bin/sh\nread n; echo 'kubenergy-gpu: no driver' >&2; exit 1\n"
	if err := os.WriteFile(filepath.Join(path, "kubenergy-gpu"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Measure(t.Context(), works, short, none); err == nil || err.Error() != "running gpu: kubenergy-gpu: no driver" {
		t.Errorf("unexpected error without a driver: %v", err)
	}
	t.Setenv("PATH", "")
	if _, err := m.Measure(t.Context(), works, short, none); !errors.Is(err, exec.ErrNotFound) {
		t.Errorf("unexpected error without the program: %v", err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := m.Measure(ended, []string{Sequential}, short, func(Run) {}); !errors.Is(err, context.Canceled) {
		t.Errorf("unexpected error after cancellation: %v", err)
	}
}

// A hanging driver must not prevent the command from terminating.
func TestHangingGPU(t *testing.T) {
	path := t.TempDir()
	script := []byte("#!/bin/sh\nexec sleep 1000\n")
	if err := os.WriteFile(filepath.Join(path, "kubenergy-gpu"), script, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", path+":"+os.Getenv("PATH"))
	ctx, end := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer end()
	m := &Machine{CPUs: 1, Power: func() (energy.Watts, bool) { return 0, false }}
	if _, err := m.Measure(ctx, []string{GPU}, short, func(Run) {}); err == nil {
		t.Error("Measure() = nil, want an error")
	}
}

// The CPU time of descendants of this process does not count as time of other processes.
func TestUsageOfDescendants(t *testing.T) {
	before := ReadUsage()
	child := exec.Command("sh", "-c", "while :; do :; done")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = child.Wait() }()
	defer func() { _ = child.Process.Kill() }()
	kit.Await(t, time.Minute, "the CPU time of the child counts as ours", func(context.Context) (bool, error) {
		now, own := ReadUsage(), CPUTime().Seconds()
		return now.ours-before.ours > own+0.2 && now.busy > before.busy, fmt.Errorf("%+v became %+v", before, now)
	})
}

// resultOf returns a result in which the runs of each benchmark differ only by the given factors.
func resultOf(quality energy.Quality, factors ...float64) *Result {
	r := &Result{Node: "pc", CPUs: 4, Source: "wall (shelly2)", Quality: quality}
	for _, f := range factors {
		for _, w := range []struct {
			work        string
			rate, watts float64
		}{{Idle, 0, 50}, {Half, 5, 80}, {CPU, 10, 120}, {Sequential, 1000, 70}, {GPU, 5000, 300}} {
			run := Run{Work: w.work, Got: 1, Watts: &Mean{Value: f * w.watts}}
			if w.rate > 0 {
				run.Rate = &Mean{Value: f * w.rate}
			}
			r.Runs = append(r.Runs, run)
		}
	}
	return r
}

var alike = []float64{1, 1.01, 0.99, 1, 1}

func TestWhatIsJudged(t *testing.T) {
	figure := func(r *Result) *Figures { return r.Figures()[2] } // cpu
	for name, c := range map[string]struct {
		result      *Result
		rate, watts string
	}{
		"five agree":      {resultOf(energy.Measured, alike...), "", ""},
		"four":            {resultOf(energy.Measured, alike[1:]...), "4 of 5 runs", "4 of 5 runs"},
		"one is apart":    {resultOf(energy.Measured, 1, 1, 1, 1, 1.04), "runs differ by 4.0 %", "runs differ by 4.0 %"},
		"a model's watts": {resultOf(energy.Estimated, alike...), "", Modelled},
	} {
		f := figure(c.result)
		if f.Rate.Why != c.rate || f.Watts.Why != c.watts {
			t.Errorf("%s: %q, %q", name, f.Rate.Why, f.Watts.Why)
		}
	}
	busy := resultOf(energy.Estimated, alike...)
	busy.Runs[2].Others, busy.Runs[2].Rate.Half = 0.2, 0.05
	if f := figure(busy); f.Watts.Why != "other processes used 20 % of the CPUs" || f.Rate.Why != "confidence interval is too wide in 1 runs" {
		t.Errorf("%+v, %+v", f.Rate, f.Watts)
	}
	for _, b := range busy.Benchmarks() {
		if b.Class == "training" {
			t.Errorf("benchmark without an accepted figure is included: %+v", b)
		}
	}
	if len(busy.Benchmarks()) != 3 || busy.PowerProfile() != nil {
		t.Errorf("%+v", busy.Benchmarks())
	}
}

// The generated knowledge base can be read by its consumers.
func TestKnowledgeIsReadBack(t *testing.T) {
	r := resultOf(energy.Measured, alike...)
	config, err := KnowledgeBase([]*Result{r})
	if err != nil {
		t.Fatal(err)
	}
	byClass, warnings, err := hardware.ReadKnowledgeBase([]byte(config.Data["profiles.yaml"]))
	if err != nil || len(warnings) > 0 {
		t.Fatal(warnings, err)
	}
	object := r.PowerProfile()
	text, err := yaml.Marshal(object)
	if err == nil {
		err = yaml.UnmarshalStrict(text, object)
	}
	if err != nil {
		t.Fatal(err)
	}
	ofProfile := hardware.Benchmarks(object)
	approx := cmpopts.EquateApprox(0, 1e-9)
	cpu := energy.Benchmark{Rate: 10, Power: 120, Idle: 50}
	gpu := energy.Benchmark{Rate: 5000, Power: 300, Idle: 50}
	for class, want := range map[string]energy.Benchmark{
		"training": cpu, "inference": cpu, "sequential": {Rate: 1000, Power: 70, Idle: 50},
		hardware.OnGPU("training"): gpu, hardware.OnGPU("inference"): gpu, hardware.OnGPU("sequential"): {},
	} {
		if diff := cmp.Diff(want, byClass[class]["pc"], approx) + cmp.Diff(want, ofProfile[class], approx); diff != "" {
			t.Errorf("%s: %s", class, diff)
		}
	}
	p, _, err := hardware.FromPowerProfile(object)
	if err != nil {
		t.Fatal(err)
	}
	want := []energy.Point{{Utilisation: 0, Power: 50}, {Utilisation: 0.5, Power: 80}, {Utilisation: 1, Power: 120}}
	if diff := cmp.Diff(want, p.Curve, approx); diff != "" || p.Quality != energy.Measured || p.Sleep != p.Power(0) ||
		object.Spec.NodeSelector["kubernetes.io/hostname"] != "pc" {
		t.Error(p, diff, object.Spec.NodeSelector)
	}
}
