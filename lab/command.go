package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubenergy/kubenergy/kube"
	"github.com/kubenergy/kubenergy/report"
	"github.com/kubenergy/kubenergy/scenarios"
	"github.com/kubenergy/kubenergy/sim"
)

// usageError is a mistake of the user; the exit code for it is 2.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// Main runs one command line of kubenergy-lab and returns the exit code of the process.
func Main(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := &cobra.Command{
		Use:           "kubenergy-lab",
		Short:         "A real Kubernetes control plane with simulated nodes and KubEnergy's scheduler, in one process",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageError{fmt.Errorf("unknown command %q (see kubenergy-lab --help)", args[0])}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageError{fmt.Errorf("%w (see %s --help)", err, cmd.CommandPath())}
	})
	root.AddCommand(newUp(), newRun(), newDemo())
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	fmt.Fprintln(stderr, "kubenergy-lab:", err)
	var usage usageError
	if errors.As(err, &usage) {
		return 2
	}
	return 1
}

// commandFlags are the flags that the commands share.
type commandFlags struct {
	file, workload, format, nodes, grid, column, zone, start string
	strategies                                               []string
	maxDelay                                                 string
	dir                                                      string
	jobs                                                     int
	hours                                                    float64
	minutes, factor                                          float64
	output                                                   string
}

func (o *commandFlags) inputFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.workload, "workload", "", "trace of jobs, gzip or not")
	f.StringVar(&o.format, "format", "", "format of the trace (default: by its content)")
	f.StringVar(&o.nodes, "nodes", "", "file of nodes, or a preset")
	f.StringVar(&o.grid, "grid", "", "carbon intensity over time, CSV, gzip or not")
	f.StringVar(&o.column, "column", "", "column of the grid file")
	f.StringVar(&o.zone, "zone", "", "grid zone, where the grid file has several")
	f.StringVar(&o.start, "start", "", "when the trace starts (default: the start of the grid file)")
	f.StringVar(&o.maxDelay, "max-delay", "", "longest allowed delay; also that of jobs whose trace gives none")
	f.StringVar(&o.dir, "dir", "", "folder for everything that is written")
}

func (o *commandFlags) replayFlags(cmd *cobra.Command, minutes float64) {
	f := cmd.Flags()
	f.StringSliceVar(&o.strategies, "strategy", nil, "strategies to compare, stock among them; the first one is the baseline")
	f.IntVar(&o.jobs, "jobs", 300, "replay at most so many jobs, evenly spaced over the trace")
	f.Float64Var(&o.hours, "hours", 12, "replay jobs of the first hours of the trace")
	f.Float64Var(&o.minutes, "minutes", minutes, "how long the replay may take, if there is room for every job")
	f.Float64Var(&o.factor, "factor", 0, "how much faster than the trace the clock runs (default: from --minutes)")
	f.StringVarP(&o.output, "output", "o", "table", "table, json or csv")
}

// scenario merges a scenario file and the flags.
func (o *commandFlags) scenario(file *sim.File) (*sim.Scenario, error) {
	if o.grid != "" || o.column != "" || o.zone != "" {
		site, err := file.Site()
		if err != nil {
			return nil, err
		}
		if o.grid != "" {
			site.Grid, site.Zone = sim.GridFile{File: sim.FromHere(o.grid)}, ""
			file.Start = "" // of the grid file that was replaced
		}
		if o.column != "" {
			site.Grid.Column = o.column
		}
		if o.zone != "" {
			site.Zone = o.zone
		}
	}
	if o.workload != "" {
		file.Workload = sim.WorkloadFile{File: sim.FromHere(o.workload)}
	}
	if o.format != "" {
		file.Workload.Format = o.format
	}
	if o.nodes != "" {
		file.Nodes = sim.FromHere(o.nodes)
	}
	if o.start != "" {
		file.Start = o.start
	}
	if o.maxDelay != "" {
		file.MaxDelay = o.maxDelay
	}
	if len(o.strategies) > 0 {
		file.Strategies = o.strategies
	}
	return file.Load()
}

func newRun() *cobra.Command {
	var o commandFlags
	cmd := &cobra.Command{
		Use:     "run -f scenario.yaml",
		Short:   "Replay a scenario as Kubernetes Jobs against the real scheduler and compare strategies",
		Example: "  kubenergy-lab run -f scenarios/demo/scenario.yaml --strategy stock,carbon+window --minutes 5",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.file == "" {
				return usageError{errors.New("no scenario: give -f FILE")}
			}
			file, err := sim.ReadFile(o.file)
			if err != nil {
				return usageError{err}
			}
			return o.replay(cmd, file, filepath.Join("out", "run"))
		},
	}
	cmd.Flags().StringVarP(&o.file, "filename", "f", "", "scenario file")
	o.inputFlags(cmd)
	o.replayFlags(cmd, 10)
	return cmd
}

func newDemo() *cobra.Command {
	var o commandFlags
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Replay the bundled trace under stock kube-scheduler, energy and carbon+window",
		Example: `  kubenergy-lab demo
  kubenergy-lab demo --workload jobs.csv --grid DE_2022.csv.gz --zone DE`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir := o.dir
			if dir == "" {
				dir = filepath.Join("out", "demo")
			}
			input, err := scenarios.WriteDemo(filepath.Join(dir, "input"))
			if err != nil {
				return err
			}
			file, err := sim.ReadFile(input)
			if err != nil {
				return err
			}
			if o.workload == "" || o.grid == "" {
				fmt.Fprintln(cmd.ErrOrStderr(), scenarios.DemoNote)
			}
			file.Strategies = []string{Stock, "energy", "carbon+" + HoldRule}
			if o.workload != "" && o.maxDelay == "" {
				o.maxDelay = "6h" // traces of others seldom say how long their jobs may wait
			}
			return o.replay(cmd, file, filepath.Join("out", "demo"))
		},
	}
	o.inputFlags(cmd)
	o.replayFlags(cmd, 2.5)
	return cmd
}

func newUp() *cobra.Command {
	var o commandFlags
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start a cluster with KubEnergy's scheduler and keep it until interrupted",
		Long: `Start a control plane, simulated nodes and KubEnergy's scheduler, print a kubeconfig for kubectl, and stay until
interrupted. Pods that name the scheduler "kubenergy" are served by the shipped profile. Signals and power profiles
are files in the folder; edit them and the scheduler follows. Signals run in real time from the start of the trace.`,
		Example: "  kubenergy-lab up --nodes demo24\n  kubectl --kubeconfig out/lab/cluster/kubeconfig get nodes",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.up(cmd) },
	}
	o.inputFlags(cmd)
	return cmd
}

func (o *commandFlags) up(cmd *cobra.Command) error {
	dir := o.dir
	if dir == "" {
		dir = filepath.Join("out", "lab")
	}
	input, err := scenarios.WriteDemo(filepath.Join(dir, "input"))
	if err != nil {
		return err
	}
	file, err := sim.ReadFile(input)
	if err != nil {
		return err
	}
	scenario, err := o.scenario(file)
	if err != nil {
		return usageError{err}
	}
	return withCluster(cmd, dir, func(ctx context.Context, c *Cluster) error {
		r := &Replay{Cluster: c, Scenario: scenario, Factor: 1}
		if err := r.addNodes(ctx); err != nil {
			return err
		}
		clock := Clock{Trace: scenario.Start, Wall: time.Now(), Factor: 1}
		stop, err := startScheduling(ctx, c, dir, scenario, clock, nil)
		if err != nil {
			return err
		}
		defer stop()
		out := cmd.OutOrStdout()
		fmt.Fprintf(out, "%d nodes are ready. Pods with schedulerName: kubenergy are scheduled by KubEnergy.\n", len(scenario.Nodes))
		fmt.Fprintf(out, "  kubectl --kubeconfig %s get nodes\n", c.Kubeconfig())
		fmt.Fprintf(out, "Signals and power profiles: %s, %s\nInterrupt to stop.\n",
			filepath.Join(dir, "signals.yaml"), filepath.Join(dir, "profiles.yaml"))
		select {
		case <-ctx.Done():
			return nil
		case <-c.Done():
			return errors.New("a part of the control plane ended: see " + filepath.Join(dir, "cluster", "lab.log"))
		}
	})
}

// withCluster runs f on a fresh cluster below dir and stops it afterwards.
func withCluster(cmd *cobra.Command, dir string, f func(context.Context, *Cluster) error) (err error) {
	home := filepath.Join(dir, "cluster")
	if err := os.RemoveAll(home); err != nil {
		return err
	}
	ctx := cmd.Context()
	began := time.Now()
	fmt.Fprintln(cmd.ErrOrStderr(), "starting the control plane …")
	// The Job controller's own limits are those of a cluster where a day takes a day.
	c, err := Start(ctx, Options{Dir: home, ControllerManagerArgs: []string{"--kube-api-qps=1000", "--kube-api-burst=2000"}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	fmt.Fprintf(cmd.ErrOrStderr(), "control plane ready after %.1f s\n", time.Since(began).Seconds())
	return f(ctx, c)
}

// startScheduling starts our scheduler with the scenario's signals on the clock.
func startScheduling(ctx context.Context, c *Cluster, dir string, s *sim.Scenario, clock Clock, trials []Trial) (func(), error) {
	scheduling := &Scheduling{
		Dir: dir, Policy: clock.Policy(s.Policy), Strategies: map[string]string{},
		Defaults: kube.Defaults{MaxDelay: 7 * 24 * time.Hour},
		Log:      slog.New(slog.NewTextHandler(c.logs, nil)),
	}
	until := s.Start.Add(2*span(s) + 48*time.Hour)
	for _, site := range s.Sites {
		compressed := *site
		var err error
		if compressed.Carbon, err = clock.Signal(site.Carbon, s.Start, until); err != nil {
			return nil, fmt.Errorf("site %s: %w", site.Name, err)
		}
		if compressed.Price, err = clock.Signal(site.Price, s.Start, until); err != nil {
			return nil, fmt.Errorf("site %s: %w", site.Name, err)
		}
		scheduling.Sites = append(scheduling.Sites, &compressed)
	}
	known := map[string]bool{}
	for i := range s.Nodes {
		if p := s.Nodes[i].Profile; !known[p.Name] {
			known[p.Name] = true
			scheduling.Profiles = append(scheduling.Profiles, clock.Profile(p))
		}
	}
	for i := range trials {
		if trials[i].Strategy != Stock {
			scheduling.Strategies[trials[i].profile()] = trials[i].Strategy
		}
	}
	return scheduling.Start(ctx, c)
}

func (o *commandFlags) replay(cmd *cobra.Command, file *sim.File, defaultDir string) error {
	stderr := cmd.ErrOrStderr()
	if err := report.CheckFormat(o.output); err != nil {
		return usageError{err}
	}
	scenario, err := o.scenario(file)
	if err != nil {
		return usageError{err}
	}
	trials, err := Trials(file.Strategies)
	if err != nil {
		return usageError{err}
	}
	thin(scenario, o.jobs, time.Duration(o.hours*float64(time.Hour)), stderr)
	if len(scenario.Jobs) == 0 {
		return usageError{errors.New("no job is left to replay")}
	}
	factor := o.factor
	if factor <= 0 {
		factor = max(1, span(scenario).Minutes()/o.minutes)
	}
	dir := o.dir
	if dir == "" {
		dir = defaultDir
	}
	// A release counts as late beyond one second of the wall, which is what the scheduler promises.
	scenario.Slack = time.Duration(factor * float64(time.Second))
	var results []*sim.Result
	err = withCluster(cmd, dir, func(ctx context.Context, c *Cluster) error {
		r := &Replay{Cluster: c, Scenario: scenario, Factor: factor, Trials: trials, Progress: progressTo(stderr, len(scenario.Jobs))}
		if err := r.Prepare(ctx); err != nil {
			return err
		}
		const settle = 3 * time.Second // for the scheduler to start before the first job is due
		clock := Clock{Trace: scenario.Start, Wall: time.Now().Add(settle), Factor: factor}
		stop, err := startScheduling(ctx, c, dir, scenario, clock, trials)
		if err != nil {
			return err
		}
		defer stop()
		fmt.Fprintf(stderr, "replaying %d jobs on %d nodes under each of %s, %.0f times faster than the trace, about %.0f s\n",
			len(scenario.Jobs), len(scenario.Nodes), strings.Join(file.Strategies, ", "), factor, clock.Shrink(span(scenario)).Seconds())
		results, err = r.Run(ctx, clock)
		return err
	})
	if err != nil {
		return err
	}
	summary := report.New(file, results)
	summary.Note = fmt.Sprintf("Placed by a real kube-scheduler %s; energy is modelled from the placements, not metered.", KubernetesVersion)
	written, err := report.WriteDir(filepath.Join(dir, "report"), summary, results)
	if err != nil {
		return err
	}
	if err := report.Write(cmd.OutOrStdout(), summary, o.output, false); err != nil {
		return err
	}
	fmt.Fprintf(stderr, "wrote %s\n", strings.Join(written, "\n      "))
	return nil
}

// progressTo prints a line that overwrites itself on a terminal, and one now and then elsewhere.
func progressTo(w io.Writer, jobs int) func(Progress) {
	terminal := isTerminal(w)
	var last time.Time
	return func(p Progress) {
		done := true
		for _, t := range p.Trials {
			done = done && t.Finished == jobs
		}
		switch {
		case terminal:
			fmt.Fprintf(w, "\r\033[K%s", p)
			if done {
				fmt.Fprintln(w)
			}
		case done || time.Since(last) >= 15*time.Second:
			last = time.Now()
			fmt.Fprintln(w, p)
		}
	}
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
