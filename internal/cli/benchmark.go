package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/kubenergy/kubenergy/internal/agent/host"
	"github.com/kubenergy/kubenergy/internal/agent/meter"
	"github.com/kubenergy/kubenergy/internal/benchmark"
	"github.com/kubenergy/kubenergy/internal/cli/cmdutil"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/humanize"
	"github.com/kubenergy/kubenergy/internal/report"
)

type benchmarkFlags struct {
	cmdutil.ControllerFlags
	local                               bool
	node, selector, image, runtimeClass string
	works, results                      []string
	rules                               benchmark.Rules
	output                              *cmdutil.Choice
	meters                              meter.Config
	timeout                             time.Duration
}

func newBenchmark(t cmdutil.Terminal) *cobra.Command {
	f := benchmarkFlags{rules: benchmark.DefaultRules(), meters: meter.DefaultConfig()}
	cmd := &cobra.Command{
		Use:   "benchmark --local | --image IMAGE | --results FILE [flags]",
		Short: "Measure the speed and power of machines, for the knowledge base of heterogeneous clusters",
		Long: `Measure the speed of machines for several classes of work and their power during the work and
while idle. With --local it measures this machine, otherwise it measures each node of the cluster with a Job and uses
the power readings of the controller. Each work is repeated until the 95 % confidence interval of its mean speed, and
of its mean power if a meter is available, is within 3 %. All works are run five times in turn. If the five runs differ
by more than 3 %, the result is inconclusive, excluded from the output and shown only in the report. Speeds are based
on CPU time.

-o json prints the runs. --results reads such files of one or more machines instead of measuring. -o yaml prints the
knowledge base of the hybrid scheduler and PowerProfiles for kubectl apply.`,
		Example: `  kubenergy benchmark --local -o json > here.json
  kubenergy benchmark --image registry.example.org/kubenergy/kubenergy:0.1.0 -l pool=batch -o json > nodes.json
  kubenergy benchmark --results here.json --results nodes.json
  kubenergy benchmark --results nodes.json -o yaml | kubectl apply -f -`,
		Args:    cmdutil.NoArguments,
		PreRunE: func(*cobra.Command, []string) error { return cmdutil.NewUsageError(f.check()) },
		RunE:    func(cmd *cobra.Command, _ []string) error { return f.run(cmd.Context(), t) },
	}
	flags := cmd.Flags()
	f.Add(flags, "namespace of the Jobs (default: namespace of the kubeconfig)")
	flags.BoolVar(&f.local, "local", false, "measure this machine, without Kubernetes")
	flags.StringVar(&f.node, "node", "", "name of this machine, with --local (default: its host name)")
	flags.StringSliceVar(&f.works, "workloads", knownWorks[:3], "works to measure: "+cmdutil.OrOf(knownWorks))
	flags.IntVar(&f.rules.Runs, "runs", f.rules.Runs, "number of runs of each workload; fewer than 5 are inconclusive")
	flags.DurationVar(&f.rules.AtLeast, "at-least", 0,
		"minimum duration of a run (default: 5s, or 45s in a cluster because of the interval of power readings)")
	flags.StringArrayVar(&f.results, "results", nil, "`file` with runs to report instead of measuring; may be repeated")
	flags.StringVarP(&f.selector, "selector", "l", "", "label selector of the nodes (default: all)")
	flags.StringVar(&f.image, "image", "",
		"image of kubenergy that nodes can pull; must contain kubenergy-gpu for the work gpu")
	flags.StringVar(&f.runtimeClass, "runtime-class", "", "runtime class of pods that use a GPU, e.g. nvidia")
	flags.DurationVar(&f.timeout, "timeout", 2*time.Hour, "maximum time to wait for the Jobs")
	f.output = cmdutil.Output(flags, "table", "csv", "json", "yaml")
	of := flag.NewFlagSet("", flag.ContinueOnError)
	f.meters.AddFlags(of)
	flags.AddGoFlagSet(of)
	return cmd
}

var knownWorks = []string{benchmark.CPU, benchmark.Sequential, benchmark.Memory, benchmark.GPU}

func (f *benchmarkFlags) check() error {
	if f.local == (f.image != "") && len(f.results) == 0 || (f.local || f.image != "") && len(f.results) > 0 {
		return errors.New("specify exactly one of --local, --image and --results")
	}
	for _, work := range f.works {
		if !slices.Contains(knownWorks, work) {
			return fmt.Errorf("--workloads: unknown work %q: want %s", work, cmdutil.OrOf(knownWorks))
		}
	}
	if f.rules.Runs < 1 || f.rules.AtLeast < 0 {
		return fmt.Errorf("--runs is %d and --at-least is %v: want at least 1 run and a positive duration",
			f.rules.Runs, f.rules.AtLeast)
	}
	usual := benchmark.DefaultRules().AtLeast
	if f.image != "" {
		usual = 3 * fromReading
	}
	f.rules.AtLeast = cmp.Or(f.rules.AtLeast, usual)
	return f.meters.Validate()
}

func (f *benchmarkFlags) run(ctx context.Context, t cmdutil.Terminal) (err error) {
	doc, failed := &benchmarks{}, 0
	switch {
	case f.local:
		var one *benchmark.Result
		one, err = f.measure(ctx, t)
		doc.Results = append(doc.Results, one)
	case f.image != "":
		doc.Results, failed, err = f.measureCluster(ctx, t)
	}
	for _, name := range f.results {
		var more benchmarks
		text, errRead := os.ReadFile(name)
		if errRead == nil && (json.Unmarshal(text, &more) != nil || len(more.Results) == 0 ||
			slices.Contains(more.Results, nil)) {
			errRead = errors.New("the file is not output of benchmark -o json")
		}
		if errRead != nil {
			return cmdutil.UsageErrorf("--results %s: %s", name, cmdutil.OneLine(errRead))
		}
		doc.Results = append(doc.Results, more.Results...)
	}
	switch {
	case err != nil:
		return err
	case f.output.Value == "yaml":
		err = doc.objects(t)
	default:
		err = t.Print(doc, f.output.Value)
	}
	if err == nil && failed > 0 {
		err = fmt.Errorf("failed to measure %s", humanize.Count(failed, "node"))
	}
	return err
}

// plan returns the works in the order in which they run, and prints the minimum duration.
func (f *benchmarkFlags) plan(out io.Writer, where string) []string {
	works := append([]string{benchmark.Idle, benchmark.Half}, f.works...)
	fmt.Fprintf(out, "Measuring %s: %d runs each of %s, at least %v\n", where, f.rules.Runs, strings.Join(works, ", "),
		time.Duration(f.rules.Runs*len(works))*(f.rules.AtLeast+f.rules.Rep))
	return works
}

func (f *benchmarkFlags) measure(ctx context.Context, t cmdutil.Terminal) (*benchmark.Result, error) {
	if f.node == "" {
		f.node, _ = os.Hostname()
	}
	f.meters.Now = host.Now
	meters, err := meter.Open(f.meters, slog.New(slog.NewTextHandler(t.Err, nil)))
	if err != nil {
		return nil, cmdutil.NewUsageError(err)
	}
	defer meter.Close(meters)
	m := &localMeter{meters: meters, root: meter.NewRoot(&f.meters, meters)}
	machine := &benchmark.Machine{CPUs: runtime.GOMAXPROCS(0), Power: m.power}
	r := &benchmark.Result{Node: f.node, CPUs: machine.CPUs}
	r.Runs, err = machine.Measure(ctx, f.plan(t.Err, f.node), f.rules, func(run benchmark.Run) {
		fmt.Fprintf(t.Err, "Finished %s in %v\n", run.Work, run.End.Sub(run.Start).Round(time.Second))
	})
	if len(m.last) > 0 {
		r.Source, r.Quality = m.root.Source(), slices.MinFunc(m.last, func(a, b energy.Reading) int {
			return cmp.Compare(a.Quality, b.Quality)
		}).Quality
	}
	return r, err
}

// localMeter measures the power of this machine with its best meter. It is read after each repetition, which is
// frequent enough for meters that report power instead of energy.
type localMeter struct {
	meters     []meter.Meter
	root       *meter.Root
	read, last []energy.Reading // readings of all meters, and readings of the root at the last call of power
}

// power returns the mean power since the last call.
func (m *localMeter) power() (all energy.Watts, ok bool) {
	busy := time.Duration(benchmark.Busy() * float64(time.Second))
	tick := meter.Tick{Now: host.Now, Busy: busy, CPUs: float64(runtime.NumCPU())}
	m.read = m.read[:0]
	for _, one := range m.meters {
		m.read, _ = meter.ReadSafely(one, tick, m.read) // failed readings are missing in the root
	}
	before := m.last
	var o energy.Observation
	m.root.Split(host.Now(), m.read, &o)
	m.last = o.Root
	for i, r := range m.last {
		if len(before) != len(m.last) || before[i].Domain != r.Domain || before[i].Run != r.Run ||
			r.At <= before[i].At {
			return 0, false
		}
		all += energy.Watts(float64(r.Total-before[i].Total) / 1e6 / (r.At - before[i].At).Seconds())
	}
	return all, len(m.last) > 0
}

// benchmarks is the output of the command benchmark.
type benchmarks struct {
	Results []*benchmark.Result `json:"results"`
}

// objects prints the knowledge base and the PowerProfiles of conclusive results, and lists omitted nodes on
// standard error. It returns an error if no result is conclusive, because an empty knowledge base would replace the
// existing one.
func (b *benchmarks) objects(t cmdutil.Terminal) error {
	base, err := benchmark.KnowledgeBase(b.Results)
	all, judged := []any{base}, 0
	for _, r := range b.Results {
		if missing := r.NotJudged(); len(missing) > 0 {
			fmt.Fprintf(t.Err, "node %s: omitted inconclusive results: %s\n", r.Node, strings.Join(missing, ", "))
		}
		judged += len(r.Benchmarks())
		if p := r.PowerProfile(); p != nil {
			all = append(all, p)
		}
	}
	if judged == 0 {
		return errors.New("all results are inconclusive, so there is no knowledge base: run without -o yaml for " +
			"details")
	}
	for _, object := range all {
		text, errText := yaml.Marshal(object)
		_, errWrite := fmt.Fprintf(t.Out, "---\n%s", text)
		err = errors.Join(err, errText, errWrite)
	}
	return err
}

// Sheet returns a table with one row per figure.
func (b *benchmarks) Sheet() *report.Table {
	t := &report.Table{}
	for i, name := range []string{
		"node", "work", "rate", "unit", "rate apart", "rate is", "watts", "watts apart", "watts are", "source", "got",
		"others",
	} {
		t.Columns = append(t.Columns, report.Column{
			Name: name, Field: strings.ReplaceAll(name, " ", "_"), Show: humanize.Significant, Words: i < 2,
		})
	}
	for _, r := range b.Results {
		for _, f := range r.Figures() {
			row := append([]any{r.Node, f.Work}, cells(f.Rate, benchmark.Units[f.Work])...)
			t.Add(append(append(row, cells(f.Watts)...), r.Source, f.Got, f.Others)...)
		}
	}
	return t
}

// cells returns the value of a figure, optionally its unit, its spread and its verdict.
func cells(f *benchmark.Figure, unit ...any) []any {
	if f == nil {
		return append([]any{nil}, append(unit, nil, nil)...)
	}
	verdict := cmp.Or(f.Why, "conclusive")
	if !f.Judged() && f.Why != benchmark.Modelled {
		verdict = "inconclusive: " + f.Why
	}
	return append([]any{f.Value}, append(unit, f.Spread, verdict)...)
}

// Text returns the figures as a table.
func (b *benchmarks) Text(bool, bool) string { return b.Sheet().Plain() }
