package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubenergy/kubenergy/internal/benchmark"
	"github.com/kubenergy/kubenergy/internal/cli/cmdutil"
	"github.com/kubenergy/kubenergy/internal/cli/experiment"
	"github.com/kubenergy/kubenergy/internal/humanize"
	"github.com/kubenergy/kubenergy/internal/report"
)

type experimentFlags struct {
	cmdutil.ControllerFlags
	file, out    string
	target       *cmdutil.Choice
	seed         uint64
	faster       float64
	force, clean bool
	allowed      []string
}

func newExperiment(t cmdutil.Terminal) *cobra.Command {
	var f experimentFlags
	cmd := &cobra.Command{
		Use:   "experiment -f experiment.yaml [flags]",
		Short: "Compare energy, CPU and latencies of schedulers in a live cluster, with intervals",
		Long: `Let contestants take turns, in an order determined by the seed, under the same load and the same
disturbances, and report their consumption and performance: means, paired differences with intervals, and figures. The
lab is a control plane with simulated nodes on this machine. In a cluster, the experiment uses separate namespaces and
removes them at the end, including those of a run that was killed. The command prints the expected duration first.

A file can contain programs and images as contestants. Programs run with your permissions, and images with those of a
cluster administrator, so each must be allowed by --allow-program. Review files from others before you run them.

On a busy machine, experiments require --force. The figures of an experiment on a busy machine are marked as not valid,
and the command fails unless --force is set.`,
		Example: `  kubenergy experiment -f scenarios/experiments/escheduler.yaml --faster 20
  kubenergy experiment -f experiment.yaml --target cluster --out results/
  kubenergy experiment --clean --target cluster`,
		Args: cmdutil.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd, t) },
	}
	flags := cmd.Flags()
	f.Add(flags, "")
	f.target = cmdutil.Choose(flags, "target", "", "target", "where to run:", experiment.TargetLab,
		experiment.TargetCluster)
	flags.StringVarP(&f.file, "filename", "f", "", "experiment file")
	flags.StringVar(&f.out, "out", filepath.Join("out", "experiment"),
		"directory for the report, figures, samples and manifest, and for the lab while it runs")
	flags.Uint64Var(&f.seed, "seed", 0, "seed, instead of the one in the file")
	flags.Float64Var(&f.faster, "faster", 1, "factor by which all times of the file are divided; rates do not change")
	flags.StringArrayVar(&f.allowed, "allow-program", nil,
		"`binary` or image of a contestant in the file that may run; can be repeated")
	flags.BoolVar(&f.force, "force", false, "run on a busy machine, and do not fail if its figures are not valid")
	flags.BoolVar(&f.clean, "clean", false, "only clean up after a killed experiment, as the next experiment does")
	cmd.AddCommand(newExperimentServe(t))
	return cmd
}

func (f *experimentFlags) run(cmd *cobra.Command, t cmdutil.Terminal) error {
	work, err := filepath.Abs(filepath.Join(f.out, "work"))
	if err != nil {
		return err
	}
	if f.clean {
		return f.remove(cmd.Context(), t, work)
	}
	file, err := f.read()
	if err != nil {
		return cmdutil.NewUsageError(err)
	}
	if err := file.Programs(); err != nil {
		return err
	}
	notValid, err := f.announce(t, file)
	if err != nil {
		return err
	}
	if err := errors.Join(os.RemoveAll(work), os.MkdirAll(work, 0o700)); err != nil { // of a killed run
		return err
	}
	defer os.RemoveAll(work)
	r := &experiment.Runner{File: file, Work: work}
	if f.target.Value == experiment.TargetCluster {
		r.Kubeconfig = filepath.Join(work, "kubeconfig")
		if err := f.Write(t, r.Kubeconfig); err != nil {
			return err
		}
		r.Meter = f.meter(cmd.Context(), t)
	}
	p := t.Progress(cmd.CommandPath(), "arms")
	defer p.Close()
	r.Progress = p.Update
	trials, manifest, err := r.Run(cmd.Context())
	p.Close()
	if err != nil {
		return err
	}
	for i := range trials {
		if share := trials[i].Others; share > experiment.MaxOthers {
			notValid = append(notValid, fmt.Sprintf("in arm %d, other programs used %.0f %% of this machine's "+
				"processors", trials[i].Arm, 100*share))
		}
		if late := trials[i].Overrun; late > experiment.MaxOverrun {
			notValid = append(notValid, fmt.Sprintf("in arm %d, the control plane was too slow: simulated Jobs took "+
				"%.1f s longer than specified (limit %d s)", trials[i].Arm, late, experiment.MaxOverrun))
		}
	}
	e := report.NewExperiment(file.Name, file.Names(), trials, notValid, []string{fmt.Sprintf("Meter: %s. Modelled "+
		"energy is computed from power profiles and the usage of pods, so its correlation with CPU is no finding "+
		"(docs/how-to/experiments.md). All other metrics are measured.", manifest["meter"])})
	command := append([]string{t.Name}, t.Args...)
	manifest["program"], manifest["commandLine"], manifest["faster"] = cmdutil.Version(), command, f.faster
	written, err := report.WriteExperimentDir(f.out, e, strings.Join(command, " "), cmdutil.Version(), manifest)
	if err != nil {
		return err
	}
	fmt.Fprintln(t.Err, "wrote", strings.Join(written, ", "))
	if err := t.Print(e, "table"); err != nil || len(notValid) == 0 || f.force {
		return err
	}
	return errors.New("the figures are not valid, see the notes of the report")
}

// remove removes the objects and files of an experiment that was killed.
func (f *experimentFlags) remove(ctx context.Context, t cmdutil.Terminal, work string) error {
	if f.target.Value == experiment.TargetCluster {
		c, err := f.Open(t)
		if err == nil {
			err = experiment.Clean(ctx, c)
		}
		if err != nil {
			return err
		}
	}
	return os.RemoveAll(work)
}

func (f *experimentFlags) read() (*experiment.File, error) {
	switch {
	case f.file == "":
		return nil, errors.New("want an experiment file: -f FILE")
	case !(f.faster > 0 && f.faster <= 1e6):
		return nil, fmt.Errorf("--faster is %v: want a factor greater than 0, for example 60", f.faster)
	}
	file, err := experiment.Read(f.file, f.target.Value, f.faster)
	if err != nil {
		return nil, err
	}
	file.Seed = cmp.Or(f.seed, file.Seed)
	return file, file.Allow(f.allowed)
}

// announce prints the duration and the required disk space. It returns the reasons why figures are not valid.
func (f *experimentFlags) announce(t cmdutil.Terminal, file *experiment.File) (notValid []string, err error) {
	fmt.Fprintf(t.Err, "%s: %s of %s, %s each, for about %s, using up to 0.5 GB in %s meanwhile\n", file.Name,
		humanize.Count(file.Rounds, "round"), strings.Join(file.Names(), ", "),
		humanize.Span(file.Duration.Seconds()), humanize.Rounded(file.Takes()), f.out)
	before := benchmark.ReadUsage()
	time.Sleep(2 * time.Second)
	share := before.Others()
	if share <= experiment.MaxOthers {
		return nil, nil
	}
	why := fmt.Sprintf("%.0f %% of this machine's processors were in use before the start", 100*share)
	if !f.force {
		return nil, fmt.Errorf("%s: wait for other programs, or set --force to run without valid figures", why)
	}
	return []string{why}, nil
}

// meter returns a function that reads the power of all nodes from the controller, or nil if it is not available.
func (f *experimentFlags) meter(ctx context.Context, t cmdutil.Terminal) experiment.Meter {
	c, err := f.Connect(ctx, t)
	var nodes []cmdutil.PowerReading
	if err == nil {
		nodes, err = c.Nodes(ctx)
	}
	if err != nil || len(nodes) == 0 {
		fmt.Fprintln(t.Err, "Energy is modelled, because no node reports its power:", err)
		return nil
	}
	return func(ctx context.Context) (watts float64, what string, err error) {
		nodes, err := c.Nodes(ctx)
		sources := map[string]bool{}
		for _, n := range nodes {
			// The power of a host includes its virtual machines, if the host is a node.
			if !slices.ContainsFunc(nodes, func(o cmdutil.PowerReading) bool { return o.Name == n.Host }) {
				watts += n.Watts
				sources[fmt.Sprintf("%s (%s)", n.Source, n.Quality)] = true
			}
		}
		return watts, strings.Join(slices.Sorted(maps.Keys(sources)), ", "), err
	}
}

func newExperimentServe(t cmdutil.Terminal) *cobra.Command {
	var listen string
	var work time.Duration
	cmd := &cobra.Command{
		Use:    "serve",
		Short:  "Respond to requests as a service of an experiment",
		Hidden: true,
		Args:   cmdutil.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return experiment.Serve(cmd.Context(), listen, t.Getenv("POD"), work)
		},
	}
	cmd.Flags().StringVar(&listen, "listen", ":8080", "address to listen on")
	cmd.Flags().DurationVar(&work, "work", 0, "approximate CPU time of each request")
	return cmd
}
