package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/kubenergy/kubenergy/internal/dashboard"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/lab/kubelet"
	"github.com/kubenergy/kubenergy/internal/report"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
	"github.com/kubenergy/kubenergy/internal/sim"
	"github.com/kubenergy/kubenergy/internal/sliceutil"
	"github.com/kubenergy/kubenergy/scenarios"
)

func (o *commandFlags) replayFlags(cmd *cobra.Command, minutes float64) {
	f := cmd.Flags()
	f.StringSliceVar(&o.over.Strategies, "strategy", nil,
		"strategies to compare, may include stock; the first one is the baseline")
	f.StringVar(&o.over.EmptyNodes, "empty-nodes", "", "behavior of machines without jobs: "+
		"idle, or sleep while the machines of the baseline stay awake (default sleep)")
	f.IntVar(&o.jobs, "jobs", 300, "maximum number of jobs to replay, evenly sampled from the trace")
	f.Float64Var(&o.hours, "hours", 12, "number of hours to replay from the start of the trace")
	f.Float64Var(&o.minutes, "minutes", minutes, "duration of the replay in minutes, if capacity is sufficient")
	f.Float64Var(&o.factor, "factor", 0, "speed-up of the clock relative to the trace (default: "+
		"derived from --minutes)")
	f.StringVarP(&o.output, "output", "o", "table", "table, json or csv")
}

func newRun() *cobra.Command {
	var o commandFlags
	cmd := &cobra.Command{
		Use:     "run -f scenario.yaml",
		Short:   "Replay a scenario as Kubernetes Jobs against the real scheduler and compare strategies",
		Example: "  kubenergy-lab run -f scenarios/demo/scenario.yaml --strategy stock,carbon+window --minutes 5",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.file == "" {
				return usageError{errors.New("no scenario: specify -f FILE")}
			}
			file, err := sim.ReadFile(o.file)
			if err != nil {
				return usageError{err}
			}
			o.dir = cmp.Or(o.dir, filepath.Join("out", "run"))
			return o.replay(cmd, file, "")
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
		Short: "Replay the bundled trace under stock kube-scheduler, energy and carbon+window, on machines that sleep",
		Example: `  kubenergy-lab demo
  kubenergy-lab demo --workload jobs.csv --grid DE_2022.csv.gz --zone DE`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.dir, o.shows = cmp.Or(o.dir, filepath.Join("out", "demo")), true
			file, err := o.bundled(o.dir)
			if err != nil {
				return err
			}
			note := ""
			if o.over.Workload == "" || o.over.Grid == "" {
				note = scenarios.DemoNote
			}
			file.Strategies = []string{Stock, "energy", "carbon+" + HoldRule}
			if o.over.Workload != "" && o.over.MaxDelay == "" {
				o.over.MaxDelay = "6h" // most traces do not specify allowed delays
			}
			return o.replay(cmd, file, note)
		},
	}
	o.inputFlags(cmd)
	o.replayFlags(cmd, 2.5)
	return cmd
}

// check validates the values of flags.
func (o *commandFlags) check() error {
	if !(o.minutes > 0) || !(o.hours > 0) || o.jobs <= 0 || !(o.factor >= 0) {
		return errors.New("want --minutes, --hours and --jobs above 0 and --factor of 0 or more")
	}
	if formats := []string{"table", "json", "csv"}; !slices.Contains(formats, o.output) {
		return fmt.Errorf("-o: unknown output format %q: want one of %s", o.output, strings.Join(formats, ", "))
	}
	return nil
}

// replay runs the replay. It prints the note, if any, after all input has been read.
func (o *commandFlags) replay(cmd *cobra.Command, file *sim.File, note string) error {
	stderr := cmd.ErrOrStderr()
	if err := o.check(); err != nil {
		return usageError{err}
	}
	if len(file.Strategies) == 0 {
		file.Strategies = []string{Stock, "energy", "carbon+" + HoldRule}
	}
	scenario, err := o.scenario(file)
	if err != nil {
		return usageError{err}
	}
	// The real scheduler uses the true series here, regardless of the file, and pods of simulated nodes have no
	// meters.
	scenario.Foresight, scenario.Power, scenario.Use = nil, nil, nil
	trials, err := Trials(file.Strategies, sleeps(scenario))
	if err != nil {
		return usageError{fmt.Errorf("%s: %w", file.Called("strategies"), err)}
	}
	if note != "" {
		fmt.Fprintln(stderr, note)
	}
	thin(scenario, o.jobs, time.Duration(o.hours*float64(time.Hour)), stderr)
	if len(scenario.Jobs) == 0 {
		return usageError{errors.New("no jobs to replay")}
	}
	simulated, err := rehearse(cmd.Context(), scenario, trials)
	if err != nil {
		return usageError{err}
	}
	factor := o.factor
	if factor <= 0 {
		factor = max(1, span(scenario).Minutes()/o.minutes)
	}
	var results []*sim.Result
	err = withCluster(cmd, o.dir, kubelet.Programs{}, func(ctx context.Context, c *Cluster) error {
		r := &Replay{
			Cluster: c, Scenario: scenario, Factor: factor, Trials: trials,
			Progress: progressTo(stderr), Simulated: simulated,
		}
		results, err = r.play(ctx, o.dir, o.factor <= 0, stderr)
		factor = r.Factor
		return err
	})
	if err != nil {
		return err
	}
	results, invalid, err := compare(results, simulated, span(scenario)/maxLag)
	if err != nil {
		return err
	}
	summary := report.New(file, results)
	summary.Kind = "LabReport"
	summary.Note = fmt.Sprintf("Placed by a real kube-scheduler %s with KubEnergy's plugins (stock: without), %.0f "+
		"times faster than the trace; waits and the time until machines sleep include Kubernetes' latencies times "+
		"this factor. Energy is modelled from the placements, not metered. Simulated rows come from the simulator.",
		KubernetesVersion, factor)
	if invalid != "" {
		summary.Note = invalid + " " + summary.Note
	}
	folder := filepath.Join(o.dir, "report")
	written, err := report.WriteDir(folder, summary, results)
	if err != nil {
		return err
	}
	page, err := dashboard.NewResults(summary, results).Write(folder)
	if err != nil {
		return err
	}
	written = append(written, page)
	if err := report.Write(cmd.OutOrStdout(), summary, o.output, false); err != nil {
		return err
	}
	fmt.Fprintf(stderr, "wrote %s\n", strings.Join(written, "\n      "))
	if plan(trials) {
		if err := plansAgain(o.dir, stderr); err != nil {
			return err
		}
	}
	if invalid != "" {
		return errors.New("the figures are not valid, see the note in the report")
	}
	return o.show(cmd, folder)
}

// show serves the page with the results until it is interrupted, if run in a terminal.
func (o *commandFlags) show(cmd *cobra.Command, folder string) error {
	if !o.shows || os.Getenv("CI") != "" || !isTerminal(os.Stdin) || !isTerminal(cmd.OutOrStdout()) {
		fmt.Fprintf(cmd.ErrOrStderr(), "open it: bin/kubenergy dashboard --dir %s\n", folder)
		return nil
	}
	results, err := dashboard.OpenFolder(folder)
	if err != nil {
		return err
	}
	return dashboard.Serve(cmd.Context(), results, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}, true, cmd.OutOrStdout(),
		cmd.ErrOrStderr())
}

// play starts our scheduler next to the stock one and replays the trace under both, with a slower clock if permitted
// and the machine is busy.
func (r *Replay) play(ctx context.Context, dir string, slower bool, stderr io.Writer) ([]*sim.Result, error) {
	quiet := sayThatItLives(stderr, "nodes are being added")
	err := r.Prepare(ctx)
	wanted := r.Factor
	if err == nil && slower {
		err = r.slowDown(ctx, dir)
	}
	quiet()
	if err != nil {
		return nil, err
	}
	if r.Factor < wanted {
		fmt.Fprintf(stderr, "this machine is busy, so the clock is %.1f times slower than requested\n", wanted/r.Factor)
	}
	// A release is late if it is delayed by more than one second of wall-clock time, which is the limit promised by
	// the scheduler.
	r.Scenario.Slack = time.Duration(r.Factor * float64(time.Second))
	// The scheduler starts, and machines go to sleep, eight per second or two, before the first job. Otherwise, the
	// first jobs would be spread over machines that are awake only because these seconds count as hours of the trace.
	settle := 6 * time.Second
	if sleeps(r.Scenario) {
		settle += min(time.Duration(len(r.Scenario.Nodes))*time.Second/4, time.Minute)
	}
	clock := Clock{Trace: r.Scenario.Start, Wall: time.Now().Add(settle), Factor: r.Factor}
	quiet = sayThatItLives(stderr, "the schedulers are starting")
	stop, err := r.startScheduling(ctx, dir, clock)
	quiet()
	if err != nil {
		return nil, err
	}
	defer stop()
	names := sliceutil.Map(r.Trials, func(t Trial) string { return t.String() })
	length := clock.Shrink(span(r.Scenario))
	fmt.Fprintf(stderr,
		"replaying %d jobs on %d nodes under each of %s, %.0f times faster than the trace, about %.0f s\n",
		len(r.Scenario.Jobs), len(r.Scenario.Nodes), strings.Join(names, ", "), r.Factor, length.Seconds())
	// The replay is limited even if capacity is insufficient or the machine is slow.
	limit := 3*length + 2*time.Minute
	ctx, cancel := context.WithTimeoutCause(ctx, limit,
		fmt.Errorf("not all jobs have finished after %v", limit.Round(time.Second)))
	defer cancel()
	return r.Run(ctx, clock)
}

// startScheduling starts our scheduler and records its plans until it is stopped.
func (r *Replay) startScheduling(ctx context.Context, dir string, clock Clock) (stop func(), err error) {
	if r.scheduling, err = newScheduling(r.Cluster, dir, r.Scenario, clock, r.Trials); err != nil {
		return nil, err
	}
	plans, err := r.scheduling.recordPlans(r.Trials)
	if err != nil {
		return nil, err
	}
	end, err := r.scheduling.Start(ctx, r.Cluster)
	if err != nil {
		_ = plans.close()
		return nil, err
	}
	return func() { end(); _ = plans.close() }, nil
}

// rehearse simulates the trials. It detects errors immediately that would otherwise only occur at the end of a replay,
// e.g. a grid that ends before the last job. Stock kube-scheduler is modeled as "least-allocated" with random ties.
func rehearse(ctx context.Context, s *sim.Scenario, trials []Trial) (results []*sim.Result, err error) {
	profiles := map[string]*energy.Profile{}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if n.Speed != 0 && n.Speed != 1 {
			return nil, fmt.Errorf(
				"node %s has speed %v: Kubernetes nodes have no speed, so the lab requires speed 1", n.Name, n.Speed)
		}
		if known := profiles[n.Profile.Name]; known != nil && !reflect.DeepEqual(known, n.Profile) {
			return nil, fmt.Errorf("two power profiles have the name %q: Kubernetes nodes refer to them by name",
				n.Profile.Name)
		}
		profiles[n.Profile.Name] = n.Profile
	}
	for i := range trials {
		t, scenario := &trials[i], *s
		name := t.Strategy
		if name == Stock {
			name, scenario.Policy.Seed = "least-allocated", 1
		}
		if !t.Sleeps {
			scenario = *scenario.StayingAwake()
		}
		planner, err := strategy.ByName(name)
		if err != nil {
			return nil, err
		}
		result, err := sim.Run(ctx, &scenario, t.Strategy+" (simulated)", planner)
		if err != nil {
			return nil, err
		}
		results = append(results, result)
	}
	return results, nil
}

// isTerminal reports whether the argument is a terminal.
func isTerminal(at any) bool {
	file, ok := at.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// progressTo returns a function that updates a single line on a terminal, or prints a line occasionally otherwise.
func progressTo(w io.Writer) func(Progress) {
	terminal := isTerminal(w)
	var last time.Time
	return func(p Progress) {
		switch {
		case terminal:
			fmt.Fprintf(w, "\r\033[K%s", p)
			if p.Done {
				fmt.Fprintln(w)
			}
		case p.Done || time.Since(last) >= silence:
			last = time.Now()
			fmt.Fprintln(w, p)
		}
	}
}
