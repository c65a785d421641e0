package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/kubenergy/kubenergy/agent/host"
	"github.com/kubenergy/kubenergy/agent/meter"
	"github.com/kubenergy/kubenergy/benchmark"
	"github.com/kubenergy/kubenergy/energy"
	"github.com/kubenergy/kubenergy/hardware"
	"github.com/kubenergy/kubenergy/report"
)

type benchmarkFlags struct {
	centralFlags
	local, apply     bool
	node, gpuProgram string
	works, results   []string
	classes          map[string]string
	rules            benchmark.Rules
	out              string
	output           *choice
	meters           meter.Config
	selector, image  string
	runtimeClass     string
	timeout          time.Duration
}

func newBenchmark(t terminal) *cobra.Command {
	f := benchmarkFlags{rules: benchmark.DefaultRules(), meters: meter.DefaultConfig()}
	cmd := &cobra.Command{
		Use:   "benchmark --local | --image IMAGE | --results FILE [flags]",
		Short: "Measure how fast machines are and what they draw: the knowledge base for unlike machines",
		Long: `Measure how fast machines do classes of work, and what they draw meanwhile, idle first: this
machine with --local, else each node of the cluster by a Job of its own, with the watts that the controller knows of
the node. Each work is repeated until the interval of 95 % around the mean of its speed, and of the watts where a meter
is read beside it, is within 3 %, and all works are run five times in turn. What five runs do not agree on within 3 %
is not judged, and is written nowhere but into the report. Speeds are by CPU time.

With --out the knowledge base of the hybrid scheduler, PowerProfiles, the report as CSV and the runs as JSON are written
into a folder; --results reads such runs of several machines instead of measuring. --apply writes knowledge base and
PowerProfiles to the cluster, with your own rights.`,
		Example: `  kubenergy benchmark --local --out results/
  kubenergy benchmark --image registry.example.org/kubenergy:0.1.0 -l pool=batch --out results/ --apply
  kubenergy benchmark --results a/runs.json --results b/runs.json --out all/`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd, t) },
	}
	flags := cmd.Flags()
	f.add(flags)
	flags.BoolVar(&f.local, "local", false, "measure this machine, without Kubernetes")
	flags.StringVar(&f.node, "node", "", "what this machine is called, with --local (default: its host name)")
	flags.StringSliceVar(&f.works, "workloads", []string{benchmark.CPU, benchmark.Sequential, benchmark.Memory},
		"works: cpu, sequential, memory, gpu")
	flags.StringToStringVar(&f.classes, "classes", benchmark.DefaultClasses(),
		"which work stands for which class of pods; cpu stands for what gpu does on GPUs too")
	flags.IntVar(&f.rules.Runs, "runs", f.rules.Runs, "runs of each work; fewer than 5 are not judged")
	flags.DurationVar(&f.rules.AtLeast, "at-least", 0,
		"how long a run takes at least (default: 5s, in a cluster 45s, for the controller's watts)")
	flags.StringVar(&f.gpuProgram, "gpu-program", "kubenergy-gpu", "program that loads a GPU, for the work gpu")
	flags.StringArrayVar(&f.results, "results", nil, "`file` of runs to report on, instead of measuring; may be repeated")
	flags.StringVar(&f.out, "out", "", "folder for knowledge base, PowerProfiles, report and runs")
	flags.BoolVar(&f.apply, "apply", false, "write knowledge base and PowerProfiles to the cluster")
	flags.StringVarP(&f.selector, "selector", "l", "", "label selector of the nodes (default: all)")
	flags.StringVar(&f.image, "image", "", "image of kubenergy that nodes can pull; for gpu, with kubenergy-gpu beside it")
	flags.StringVar(&f.runtimeClass, "runtime-class", "", "runtime class of pods that use a GPU, as nvidia")
	f.addNamespace(flags, "namespace of the Jobs (default: that of the kubeconfig)")
	flags.DurationVar(&f.timeout, "timeout", 2*time.Hour, "how long to wait for the Jobs")
	f.output = output(flags, "table", "csv", "json")
	of := flag.NewFlagSet("", flag.ContinueOnError)
	f.meters.AddFlags(of)
	flags.AddGoFlagSet(of)
	return cmd
}

func (f *benchmarkFlags) check() error {
	ways := 0
	for _, way := range []bool{f.local, f.image != "", len(f.results) > 0} {
		if way {
			ways++
		}
	}
	known := []string{benchmark.CPU, benchmark.Sequential, benchmark.Memory, benchmark.GPU}
	for _, work := range f.works {
		if !slices.Contains(known, work) {
			return fmt.Errorf("--workloads: there is no %q: have %s", work, orOf(known))
		}
	}
	for class, work := range f.classes {
		if !slices.Contains(known[:3], work) {
			return fmt.Errorf("--classes: %s is %q: want %s", class, work, orOf(known[:3]))
		}
	}
	switch {
	case ways != 1:
		return errors.New("give one of --local, --image and --results")
	case f.rules.Runs < 1:
		return fmt.Errorf("--runs is %d: want 1 or more", f.rules.Runs)
	case f.rules.AtLeast < 0:
		return fmt.Errorf("--at-least is %v: want a time", f.rules.AtLeast)
	}
	if f.rules.AtLeast == 0 {
		if f.rules.AtLeast = benchmark.DefaultRules().AtLeast; f.image != "" {
			f.rules.AtLeast = 45 * time.Second
		}
	}
	return f.meters.Validate()
}

func (f *benchmarkFlags) run(cmd *cobra.Command, t terminal) error {
	if err := f.check(); err != nil {
		return usageError{err}
	}
	ctx := cmd.Context()
	var all []*benchmark.Result
	var err error
	switch {
	case f.local:
		var one *benchmark.Result
		one, err = f.measure(ctx, t)
		all = append(all, one)
	case f.image != "":
		all, err = f.measureCluster(ctx, t)
	default:
		all, err = readResults(f.results)
	}
	if err != nil {
		return err
	}
	doc := &benchmarks{Results: all}
	if f.out != "" {
		if err := f.write(doc); err != nil {
			return err
		}
	}
	if err := t.print(doc, f.output.value); err != nil || !f.apply {
		return err
	}
	return f.applyTo(ctx, t, doc)
}

// plan returns the works in the order in which they are run.
func (f *benchmarkFlags) plan() []string {
	works := []string{benchmark.Idle}
	if slices.Contains(f.works, benchmark.CPU) {
		works = append(works, benchmark.Half)
	}
	return append(works, f.works...)
}

// estimate is how long one machine takes at least: each run warms up and ends within a repetition.
func (f *benchmarkFlags) estimate() time.Duration {
	return time.Duration(f.rules.Runs*len(f.plan())) * (f.rules.AtLeast + 2*f.rules.Rep)
}

func (f *benchmarkFlags) measure(ctx context.Context, t terminal) (*benchmark.Result, error) {
	talk := t.err
	if f.output.value == "json" { // a Job's, whose streams are one
		talk = io.Discard
	}
	if f.node == "" {
		f.node, _ = os.Hostname()
	}
	m, err := openMeters(f.meters, slog.New(slog.NewTextHandler(talk, nil)))
	if err != nil {
		return nil, usageError{err}
	}
	defer m.watch()()
	machine := &benchmark.Machine{
		CPUs: runtime.GOMAXPROCS(0), Power: m.power, Busy: benchmark.NodeBusy,
	}
	if slices.Contains(f.works, benchmark.GPU) {
		machine.GPUProgram = f.gpuProgram
	}
	fmt.Fprintf(talk, "measuring %s, %d times each: at least %v\n", strings.Join(f.plan(), ", "), f.rules.Runs,
		f.estimate())
	r := &benchmark.Result{Node: f.node, CPUs: machine.CPUs}
	r.Runs, err = machine.Measure(ctx, f.plan(), f.rules, func(run benchmark.Run) {
		fmt.Fprintf(talk, "%s %s took %v\n", run.End.UTC().Format(time.TimeOnly), run.Work,
			run.End.Sub(run.Start).Round(time.Second))
	})
	r.Source, r.Quality = m.told()
	return r, err
}

// localMeter tells what this machine draws, by its best meter.
type localMeter struct {
	meters []meter.Meter
	root   *meter.Root

	mu         sync.Mutex
	read, last []energy.Reading // of all meters, and of the root when power was asked for last
}

func openMeters(config meter.Config, log *slog.Logger) (*localMeter, error) {
	config.Now = host.Now
	meters, err := meter.Open(config, log)
	if err != nil {
		return nil, err
	}
	return &localMeter{meters: meters, root: meter.NewRoot(meters)}, nil
}

// watch reads the meters every second, which those need that show power and no energy. It returns what ends that.
func (m *localMeter) watch() (end func()) {
	ticker, ended := time.NewTicker(time.Second), make(chan struct{})
	go func() {
		for {
			select {
			case <-ended:
				return
			case <-ticker.C:
				m.now()
			}
		}
	}()
	return func() {
		ticker.Stop()
		close(ended)
		m.mu.Lock()
		defer m.mu.Unlock()
		meter.Close(m.meters)
	}
}

// now returns the readings of the root, nil while it cannot be read.
func (m *localMeter) now() []energy.Reading {
	m.mu.Lock()
	defer m.mu.Unlock()
	tick := meter.Tick{Now: host.Now, Busy: benchmark.NodeBusy(), CPUs: float64(runtime.NumCPU())}
	m.read = m.read[:0]
	for _, one := range m.meters {
		m.read, _ = meter.ReadSafely(one, tick, m.read) // what cannot be read is missing in the root
	}
	root, _ := m.root.Split(m.read, nil, nil)
	return root
}

// power returns the mean power since it was asked for last.
func (m *localMeter) power() (energy.Watts, bool) {
	before, now := m.last, m.now()
	m.last = now
	if len(before) != len(now) || len(now) == 0 {
		return 0, false
	}
	var all energy.Watts
	for i, r := range now {
		b := before[i]
		if b.Run != r.Run || r.At <= b.At {
			return 0, false
		}
		all += energy.Watts(float64(r.Total-b.Total) / 1e6 / (r.At - b.At).Seconds())
	}
	return all, true
}

// told returns what told the watts last, and how good they are.
func (m *localMeter) told() (source string, worst energy.Quality) {
	if len(m.last) == 0 {
		return "", energy.Estimated
	}
	worst = energy.Measured
	for _, r := range m.last {
		worst = min(worst, r.Quality)
	}
	return m.root.Source(), worst
}

func readResults(files []string) (all []*benchmark.Result, err error) {
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, usageError{err}
		}
		var doc benchmarks
		if err := json.Unmarshal(text, &doc); err != nil {
			return nil, usageError{fmt.Errorf("%s: %s", name, oneLine(err))}
		}
		all = append(all, doc.Results...)
	}
	return all, nil
}

// knowledgeBase returns the ConfigMap with what was measured beside what it holds.
func (f *benchmarkFlags) knowledgeBase(doc *benchmarks, held string) (*v1.ConfigMap, error) {
	text := []byte(held)
	for _, r := range doc.Results {
		var err error
		if text, err = hardware.MergeKnowledgeBase(text, r.Knowledge(f.classes)); err != nil {
			return nil, err
		}
	}
	return &v1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Name: "scheduler-knowledge-base", Namespace: metav1.NamespaceSystem},
		Data:       map[string]string{"profiles.yaml": string(text)},
	}, nil
}

func (f *benchmarkFlags) write(doc *benchmarks) error {
	if err := os.MkdirAll(f.out, 0o755); err != nil { //nolint:gosec // for all who may read the folder's parent
		return err
	}
	base, err := f.knowledgeBase(doc, "")
	if err != nil {
		return err
	}
	objects := []any{base}
	for _, r := range doc.Results {
		if p := r.PowerProfile(f.classes); p != nil {
			objects = append(objects, p)
		}
	}
	files := map[string]*bytes.Buffer{}
	for i, object := range objects {
		name := "powerprofiles.yaml"
		if i == 0 {
			name = "scheduler-knowledge-base.yaml"
		}
		text, err := yaml.Marshal(object)
		if err != nil {
			return err
		}
		if files[name] == nil {
			files[name] = &bytes.Buffer{}
		} else {
			files[name].WriteString("---\n")
		}
		files[name].Write(text)
	}
	files["benchmark.csv"], files["runs.json"] = &bytes.Buffer{}, &bytes.Buffer{}
	if err := errors.Join(doc.CSV(files["benchmark.csv"]), report.WriteJSON(files["runs.json"], doc)); err != nil {
		return err
	}
	for name, text := range files {
		//nolint:gosec // for all who may read the folder
		if err := os.WriteFile(filepath.Join(f.out, name), text.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// benchmarks are what benchmark prints.
type benchmarks struct {
	Results []*benchmark.Result `json:"results"`
}

func (b *benchmarks) table() *report.Table {
	t := &report.Table{}
	for i, name := range []string{
		"node", "work", "rate", "unit", "rate apart", "rate is", "watts", "watts apart", "watts are", "gpu watts",
		"source", "got", "others",
	} {
		t.Columns = append(t.Columns, report.Column{
			Name: name, Field: strings.ReplaceAll(name, " ", "_"), Show: report.Significant, Words: i < 2,
		})
	}
	for _, r := range b.Results {
		for _, f := range r.Figures() {
			rate, apart, rateIs := cells(f.Rate)
			watts, wattsApart, wattsAre := cells(f.Watts)
			gpu, _, _ := cells(f.GPU)
			t.Add(f.Node, f.Work, rate, benchmark.Units[f.Work], apart, rateIs, watts, wattsApart, wattsAre, gpu,
				r.Source, f.Got, f.Others)
		}
	}
	return t
}

func cells(f *benchmark.Figure) (value, spread, is any) {
	switch {
	case f == nil:
		return nil, nil, nil
	case f.Judged():
		return f.Value, f.Spread, "judged"
	case f.Why == benchmark.Modelled:
		return f.Value, f.Spread, f.Why
	}
	return f.Value, f.Spread, "not judged: " + f.Why
}

// Text shows the figures.
func (b *benchmarks) Text(bool, bool) string { return b.table().Plain() }

// CSV writes the figures.
func (b *benchmarks) CSV(w io.Writer) error { return b.table().CSV(w) }
