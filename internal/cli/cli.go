// Package cli implements the command line of KubEnergy. Results are written to standard output and everything else
// to standard error. The exit code is 0 on success, 1 on failure, and 2 for invalid usage or input.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kubenergy/kubenergy/internal/cli/cmdutil"
	dashboardcmd "github.com/kubenergy/kubenergy/internal/cli/dashboard"
	"github.com/kubenergy/kubenergy/internal/cli/doctor"
	"github.com/kubenergy/kubenergy/internal/cli/explain"
	forecastcmd "github.com/kubenergy/kubenergy/internal/cli/forecast"
	"github.com/kubenergy/kubenergy/internal/cli/release"
	"github.com/kubenergy/kubenergy/internal/spelling"
	"github.com/kubenergy/kubenergy/internal/workload"
)

// Run executes one command line and returns the exit code of the process.
func Run(ctx context.Context, args, env []string, stdout, stderr io.Writer) int {
	return run(ctx, args, cmdutil.Terminal{
		Name: programName(os.Args[0]), Env: env, Out: stdout, Err: stderr, Now: time.Now, After: time.After,
	})
}

func run(ctx context.Context, args []string, t cmdutil.Terminal) int {
	t.Args = args
	root := newRoot(t)
	root.SetArgs(args)
	root.SetOut(t.Out)
	root.SetErr(t.Err)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	fmt.Fprintf(t.Err, "%s: %v\n", t.Name, err)
	if _, ok := errors.AsType[cmdutil.UsageError](err); ok {
		return 2
	}
	return 1
}

// programName returns the name of the program as typed by the user. As kubectl-energy it is a plugin of kubectl.
func programName(binary string) string {
	name := strings.TrimSuffix(filepath.Base(binary), ".exe")
	if plugin, ok := strings.CutPrefix(name, "kubectl-"); ok {
		return "kubectl " + plugin
	}
	return "kubenergy"
}

func newRoot(t cmdutil.Terminal) *cobra.Command {
	root := &cobra.Command{
		Use:           "kubenergy",
		Short:         "Manage the energy, carbon emissions and cost of Kubernetes workloads",
		Version:       cmdutil.Version(),
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: t.Name},
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return cmdutil.UsageErrorf("%w%s (see %s --help)", inWords(err), meantFlag(cmd, err), cmd.CommandPath())
	})
	root.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	root.AddCommand(
		newSimulate(t),
		newBenchmark(t),
		newCompare(t),
		dashboardcmd.NewCommand(t),
		newData(t),
		newDecisions(t),
		newStrategies(t),
		newExperiment(t),
		explain.NewCommand(t),
		forecastcmd.NewCommand(t),
		newForget(t),
		newGrid(t),
		explain.NewHeldCommand(t),
		doctor.NewCommand(t),
		release.NewCommand(t),
		release.NewRunNowCommand(t),
		newStress(t),
		newProfile(t),
		newReport(t),
		newReplay(t),
		newOptimum(t),
		newTop(t),
		newVersion(t),
		newWake(t),
		newWorkload(t),
	)
	// cobra reports an unknown command as an error of the root command.
	root.Args = func(_ *cobra.Command, args []string) error {
		if len(args) > 0 {
			return cmdutil.UsageErrorf("unknown command %q%s (see %s --help)", args[0],
				cmdutil.MeantCommand(root, args[0]), t.Name)
		}
		return nil
	}
	root.InitDefaultHelpCmd()
	help, _, _ := root.Find([]string{"help"})
	help.Args = func(_ *cobra.Command, args []string) error {
		if found, unknown, _ := root.Find(args); found == root {
			return root.Args(root, unknown)
		}
		return nil
	}
	return root
}

// meantFlag returns a suggestion if err is about an unknown flag that is similar to an existing one.
func meantFlag(cmd *cobra.Command, err error) string {
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok {
		return ""
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, "--"+f.Name) })
	name := "--" + unknown.GetSpecifiedName()
	meant := spelling.DidYouMean(name, names)
	if stem, ok := strings.CutSuffix(name, "y"); ok && meant == "" {
		return spelling.DidYouMean(stem+"ies", names)
	}
	return meant
}

// inWords replaces errors of Go's standard library about invalid flag values by the accepted values.
func inWords(err error) error {
	wrong, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return err
	}
	flag := wrong.GetFlag()
	if _, ok := flag.Value.(*cmdutil.Choice); ok {
		name := "--" + flag.Name
		if flag.Shorthand != "" {
			name = "-" + flag.Shorthand
		}
		return fmt.Errorf("%s: %w", name, wrong.Unwrap())
	}
	if _, why := workload.ParseDuration(wrong.GetValue(), "6h or 90m"); flag.Value.Type() == "duration" && why != nil {
		return fmt.Errorf("--%s: %w", flag.Name, why)
	}
	want, ok := map[string]string{
		"bool": "true or false", "float64": "a number", "int": "an integer",
		"uint64": "an integer from 0 to 2^64-1", "uintSlice": "comma-separated integers, 0 or more",
	}[flag.Value.Type()]
	if !ok {
		return err
	}
	return fmt.Errorf("--%s is %q: want %s", flag.Name, wrong.GetValue(), want)
}

func newVersion(t cmdutil.Terminal) *cobra.Command {
	var format *cmdutil.Choice
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of this program and of the Kubernetes client libraries",
		Long: "Print the version of this program and of the Kubernetes client libraries. " +
			"Use kubenergy doctor to check the version of the cluster.",
		Args: cmdutil.NoArguments,
		RunE: func(*cobra.Command, []string) error { return t.Print(cmdutil.ReadBuilt(), format.Value) },
	}
	format = cmdutil.Output(cmd.Flags(), "table", "json", "yaml")
	return cmd
}
