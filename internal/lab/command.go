package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/lab/kubelet"
	"github.com/kubenergy/kubenergy/internal/sim"
	"github.com/kubenergy/kubenergy/internal/spelling"
	"github.com/kubenergy/kubenergy/internal/workload"
	"github.com/kubenergy/kubenergy/scenarios"
)

// usageError is an invalid use of the command line. The exit code is 2.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// Main runs a command line of kubenergy-lab, including the additional commands in more, and returns the exit code
// of the process.
func Main(ctx context.Context, args []string, stdout, stderr io.Writer, more ...*cobra.Command) int {
	root := &cobra.Command{
		Use: "kubenergy-lab",
		Short: "Run a real Kubernetes control plane with simulated nodes and KubEnergy's " +
			"scheduler in one process",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				meant := spelling.Suggest("", strings.Join(cmd.SuggestionsFor(args[0]), " or "), "")
				return usageError{fmt.Errorf("unknown command %q%s (see kubenergy-lab --help)", args[0], meant)}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SuggestionsMinimumDistance = 2 // maximum edit distance
	if info, ok := debug.ReadBuildInfo(); ok {
		root.Version = info.Main.Version + ", Kubernetes " + KubernetesVersion
	}
	root.Flags().Bool("version", false, "print the version")
	_ = pflag.CommandLine.MarkHidden("version") // flag of a library of Kubernetes, which cobra adds to all commands
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		meant := ""
		if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
			var names []string
			cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, "--"+f.Name) })
			meant = spelling.DidYouMean("--"+unknown.GetSpecifiedName(), names)
		}
		if wrong, ok := errors.AsType[*pflag.InvalidValueError](err); ok && wrong.GetFlag().Value.Type() == "duration" {
			_, why := workload.ParseDuration(wrong.GetValue(), "6h or 90m")
			err = fmt.Errorf("--%s: %w", wrong.GetFlag().Name, cmp.Or(why, err))
		}
		return usageError{fmt.Errorf("%w%s (see %s --help)", err, meant, cmd.CommandPath())}
	})
	root.AddCommand(newUp(), newEnv(), newRun(), newDemo())
	root.AddCommand(more...)
	for _, c := range root.Commands() {
		if !c.DisableFlagParsing {
			c.Args = root.Args
		}
	}
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	fmt.Fprintln(stderr, "kubenergy-lab:", err)
	if _, ok := errors.AsType[usageError](err); ok {
		return 2
	}
	return 1
}

// commandFlags contains the flags shared by the commands.
type commandFlags struct {
	file            string
	over            sim.Overrides
	dir             string
	jobs            int
	hours           float64
	minutes, factor float64
	output          string
	shows           bool // open the page with the results if run in a terminal
}

func (o *commandFlags) inputFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.over.Workload, "workload", "", "trace of jobs, optionally compressed with gzip")
	f.StringVar(&o.over.Format, "format", "", "format of the trace (default: detected from its content)")
	f.StringVar(&o.over.Nodes, "nodes", "", "file of nodes, or name of a preset")
	f.StringVar(&o.over.Grid, "grid", "", "CSV file of carbon intensity over time, optionally compressed with gzip")
	f.StringVar(&o.over.Column, "column", "", "column of the grid file")
	f.StringVar(&o.over.Zone, "zone", "", "grid zone, if the grid file has several")
	f.StringVar(&o.over.Start, "start", "", "start time of the trace (default: the start of the grid file)")
	f.StringVar(&o.over.MaxDelay, "max-delay", "", "maximum allowed delay, also used for jobs without one in the trace")
	f.StringVar(&o.dir, "dir", "", "directory for all output files")
}

// scenario merges a scenario file with the flags.
func (o *commandFlags) scenario(file *sim.File) (*sim.Scenario, error) {
	if err := file.Override(o.over); err != nil {
		return nil, err
	}
	return file.Load()
}

// bundled reads the bundled scenario below dir. If the grid is overridden, zone and start are reset because they
// only apply to the bundled grid.
func (o *commandFlags) bundled(dir string) (*sim.File, error) {
	input, err := scenarios.WriteDemo(filepath.Join(dir, "input"))
	if err != nil {
		return nil, err
	}
	file, err := sim.ReadFile(input)
	if err != nil {
		return nil, err
	}
	if o.over.Grid != "" {
		file.Start = ""
		for i := range file.Sites {
			file.Sites[i].Zone = ""
		}
	}
	return file, nil
}

// makeRoom removes the files of a previous cluster. It returns an error if the directory has other content or if a
// cluster is running in it.
func makeRoom(home string) error {
	if _, err := os.Stat(home); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if _, err := os.Stat(filepath.Join(home, "etcd")); err != nil {
		return fmt.Errorf("%s exists and is not a previous cluster: remove it or choose another directory", home)
	}
	if IsRunning(home) {
		return fmt.Errorf("a cluster is running in %s: stop it or choose another directory", home)
	}
	return os.RemoveAll(home)
}

// IsRunning reports whether a cluster is running in the given directory.
func IsRunning(home string) bool {
	c, err := net.Dial("unix", filepath.Join(home, "etcd.sock"))
	if err != nil {
		return false
	}
	_ = c.Close() // no data was sent
	return true
}

// withCluster runs f with a new cluster below dir and stops the cluster afterwards.
func withCluster(cmd *cobra.Command, dir string, processes kubelet.Programs,
	f func(context.Context, *Cluster) error,
) (err error) {
	home := filepath.Join(dir, clusterName)
	if err := makeRoom(home); err != nil {
		return err
	}
	ctx := cmd.Context()
	began := time.Now()
	fmt.Fprintln(cmd.ErrOrStderr(), "starting the control plane …")
	// The default limits and periods of the controllers are too slow for compressed time.
	quiet := sayThatItLives(cmd.ErrOrStderr(), "the control plane is starting")
	c, err := Start(ctx, Options{
		Dir: home, Processes: processes,
		ControllerManagerArgs: []string{
			"--kube-api-qps=1000", "--kube-api-burst=2000", "--node-monitor-period=500ms",
		},
	})
	quiet()
	if err != nil {
		return err
	}
	defer func() {
		defer sayThatItLives(cmd.ErrOrStderr(), "the control plane is stopping")()
		err = errors.Join(err, c.Stop())
	}()
	fmt.Fprintf(cmd.ErrOrStderr(), "control plane ready after %.1f s\n", time.Since(began).Seconds())
	return f(ctx, c)
}

// silence is the maximum time without output while waiting.
const silence = 5 * time.Second

// sayThatItLives prints a line at every interval of silence until quiet is called. The caller must not write to w
// meanwhile.
func sayThatItLives(w io.Writer, what string) (quiet func()) {
	began := time.Now()
	ctx, stop := context.WithCancel(context.Background())
	var saying sync.WaitGroup
	saying.Go(func() {
		for kube.Pause(ctx, silence) {
			fmt.Fprintf(w, "%s (%.0f s so far)\n", what, time.Since(began).Seconds())
		}
	})
	return func() {
		stop()
		saying.Wait()
	}
}
