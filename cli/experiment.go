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
	"github.com/spf13/pflag"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/cli/experiment"
	"github.com/kubenergy/kubenergy/report"
)

type experimentFlags struct {
	centralFlags
	file, out      string
	target, output *choice
	rounds         int
	seed           uint64
	faster         float64
	force          bool
}

func newExperiment(t terminal) *cobra.Command {
	var f experimentFlags
	cmd := &cobra.Command{
		Use:   "experiment -f experiment.yaml [flags]",
		Short: "Compare schedulers in a living cluster: energy, CPU, latencies, with intervals",
		Long: `Have contestants take turns, in an order that the seed shuffles, under the same load and the same
disturbances, and report what they needed and how well they served: means and paired differences with intervals, and
plots. The lab is a control plane of its own on this machine whose nodes are simulated; in a cluster all stands in
namespaces of its own, which are removed, also those of a run that was killed. It says first how long it takes.

On a busy machine nothing is run without --force, and differences are not judged.`,
		Example: `  kubenergy experiment -f scenarios/experiments/escheduler.yaml --faster 20
  kubenergy experiment -f experiment.yaml --target cluster --rounds 10 --out results/
  kubenergy experiment clean --target cluster`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd, t) },
	}
	flags := cmd.Flags()
	f.add(flags)
	f.place(flags)
	flags.StringVarP(&f.file, "filename", "f", "", "experiment file")
	flags.IntVar(&f.rounds, "rounds", 0, "rounds, instead of those of the file")
	flags.Uint64Var(&f.seed, "seed", 0, "seed, instead of that of the file")
	flags.Float64Var(&f.faster, "faster", 1, "by which factor all times of the file are shorter; rates stay")
	flags.BoolVar(&f.force, "force", false, "run on a busy machine too; nothing is judged then")
	f.output = output(flags, "table", "wide", "json", "csv")
	cmd.AddCommand(newExperimentClean(t), newExperimentServe(t))
	return cmd
}

// place adds the flags that say where an experiment is, or was.
func (f *experimentFlags) place(flags *pflag.FlagSet) {
	f.target = choose(flags, "target", "", "target", "where to run:", experiment.TargetLab, experiment.TargetCluster)
	flags.StringVar(&f.out, "out", filepath.Join("out", "experiment"),
		"directory for the report, its figures, all samples and a manifest; and, meanwhile, the lab")
}

func (f *experimentFlags) read(cmd *cobra.Command) (*experiment.File, error) {
	switch {
	case f.file == "":
		return nil, errors.New("want an experiment file: -f FILE")
	case f.rounds < 0:
		return nil, fmt.Errorf("--rounds is %d: want 1 or more", f.rounds)
	case !(f.faster > 0 && f.faster <= 1e6):
		return nil, fmt.Errorf("--faster is %v: want a factor above 0, as 60", f.faster)
	}
	file, err := experiment.Read(f.file, f.faster)
	if err != nil {
		return nil, err
	}
	if f.rounds > 0 {
		file.Rounds = f.rounds
	}
	if cmd.Flags().Changed("seed") {
		file.Seed = f.seed
	}
	switch {
	case f.target.value == experiment.TargetCluster && file.Image == "":
		err = fmt.Errorf("%s: image is missing: the cluster needs one of the kubenergy program", f.file)
	case f.target.value == experiment.TargetLab && len(file.Nodes) == 0:
		err = fmt.Errorf("%s: nodes are missing: the lab simulates them", f.file)
	}
	return file, err
}

func (f *experimentFlags) run(cmd *cobra.Command, t terminal) error {
	file, err := f.read(cmd)
	if err != nil {
		return usageError{err}
	}
	work, err := filepath.Abs(experiment.WorkDir(f.out))
	if err != nil {
		return err
	}
	notJudged, err := f.announce(t, file, work)
	if err != nil {
		return err
	}
	if err := errors.Join(os.RemoveAll(work), os.MkdirAll(work, 0o700)); err != nil { // of a run that was killed
		return err
	}
	defer os.RemoveAll(work)
	r := &experiment.Runner{File: file, Target: f.target.value, Work: work}
	r.Manifest.Program, r.Manifest.CommandLine = version(), append([]string{t.name}, t.args...)
	r.Manifest.Faster = f.faster
	if r.Target == experiment.TargetCluster {
		r.Meter = f.meter(cmd.Context(), t)
		r.Kubeconfig = filepath.Join(work, "kubeconfig")
		if err := f.write(t, r.Kubeconfig); err != nil {
			return err
		}
	}
	p := t.progress(cmd.CommandPath(), "arms")
	defer p.close()
	r.Told = p.tell
	trials, err := r.Run(cmd.Context())
	p.close()
	if err != nil {
		return err
	}
	for i := range trials {
		if share := trials[i].Others; share > experiment.MostOthers {
			notJudged = append(notJudged, fmt.Sprintf("in arm %d other programs used %.0f %% of this machine's "+
				"processors", trials[i].Arm, 100*share))
		}
	}
	e := report.NewExperiment(file.Name, file.Baseline, file.Names(), trials, notJudged,
		[]string{energyNote, "Meter: " + r.Manifest.Meter + "."})
	written, err := report.WriteExperimentDir(f.out, e, &r.Manifest)
	if err != nil {
		return err
	}
	fmt.Fprintln(t.err, "wrote", strings.Join(written, ", "))
	return t.print(e, f.output.value)
}

const energyNote = "Latencies, the contestants' CPU and the machine's are metered. Energy is metered where there is " +
	"a meter; else it is modelled from nodes' power profiles and from what their pods use, which follows from the " +
	"requests that each pod answered, from what stress is told to use, from what Jobs request, and from benchmarks " +
	"of classes of work; a contestant's own CPU is charged at the first node's watts per core, and that power goes " +
	"with CPU is then no finding. Requests go through the API server's proxy."

// announce says how long it takes and whether there is room, and why nothing would be judged.
func (f *experimentFlags) announce(t terminal, file *experiment.File, work string) (notJudged []string, err error) {
	fmt.Fprintf(t.err, "%s: %s of %s, %s each: about %s, and up to 0.5 GB in %s until it ends\n", file.Name,
		report.Plural(file.Rounds, "round", "rounds"), strings.Join(file.Names(), ", "),
		report.Span(file.Duration.Seconds()), report.Rounded(file.Takes()), f.out)
	if free := experiment.Free(work); free < 500<<20 {
		return nil, fmt.Errorf("there is room for %d MB in %s: free 500, or give --out", free>>20, f.out)
	}
	if share := experiment.Busy(2 * time.Second); share > experiment.MostOthers {
		why := fmt.Sprintf("%.0f %% of this machine's processors were in use before it began", 100*share)
		if !f.force {
			return nil, fmt.Errorf("%s: wait until other programs have ended, or give --force and nothing is judged",
				why)
		}
		notJudged = append(notJudged, why)
	}
	return notJudged, nil
}

// write writes a kubeconfig of the cluster that is meant, alone, for the programs that an experiment starts.
func (f *clusterFlags) write(t terminal, path string) error {
	if _, _, err := f.config(t); err != nil {
		return err
	}
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: f.kubeconfig, Precedence: t.kubeconfigs()}
	config, err := rules.Load()
	if err != nil {
		return err
	}
	config.CurrentContext = cmp.Or(f.context, config.CurrentContext)
	err = errors.Join(clientcmdapi.MinifyConfig(config), clientcmdapi.FlattenConfig(config))
	return cmp.Or(err, clientcmd.WriteToFile(*config, path))
}

// meter returns what reads all nodes' power at the central unit; nil where there is none.
func (f *experimentFlags) meter(ctx context.Context, t terminal) func(context.Context) (float64, string, error) {
	c, err := f.connect(ctx, t)
	if err != nil {
		return nil
	}
	if nodes, err := c.nodes(ctx); err != nil || len(nodes) == 0 {
		return nil
	}
	return func(ctx context.Context) (watts float64, what string, err error) {
		nodes, err := c.nodes(ctx)
		sources := map[string]bool{}
		for i := range nodes {
			// What a virtual machine draws is in the figure of its host, where that is a node as well.
			if !slices.ContainsFunc(nodes, func(n drawn) bool { return n.Name == nodes[i].Host }) {
				watts += nodes[i].Watts
				sources[fmt.Sprintf("%s (%s)", nodes[i].Source, nodes[i].Quality)] = true
			}
		}
		return watts, strings.Join(slices.Sorted(maps.Keys(sources)), ", "), err
	}
}

func newExperimentClean(t terminal) *cobra.Command {
	var f experimentFlags
	cmd := &cobra.Command{
		Use:   "clean",
		Short: "Remove what a killed experiment has left, as the next one does",
		Long: "Remove what an experiment that was killed has left: the lab's folder below --out, and in a cluster " +
			"what carries the label " + v1alpha1.LabelExperiment + ".",
		Example: "  kubenergy experiment clean --target cluster",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.target.value == experiment.TargetCluster {
				c, err := f.open(t)
				if err != nil {
					return err
				}
				removed, err := experiment.Clean(cmd.Context(), c)
				for _, name := range removed {
					fmt.Fprintln(t.out, "removed namespace", name)
				}
				if err != nil {
					return err
				}
			}
			return os.RemoveAll(experiment.WorkDir(f.out))
		},
	}
	f.clusterFlags.add(cmd.Flags())
	f.place(cmd.Flags())
	return cmd
}

func newExperimentServe(t terminal) *cobra.Command {
	var listen string
	var work time.Duration
	cmd := &cobra.Command{
		Use:    "serve",
		Short:  "Answer requests, as the services of an experiment do",
		Hidden: true,
		Args:   noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return experiment.Serve(cmd.Context(), listen, t.getenv("POD"), work)
		},
	}
	cmd.Flags().StringVar(&listen, "listen", ":8080", "address to listen on")
	cmd.Flags().DurationVar(&work, "work", 0, "CPU time that each request takes, about")
	return cmd
}
