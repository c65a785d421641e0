// Package cli is the command line of KubEnergy. Data goes to standard output, everything else to standard error; the
// exit code is 0 for success, 1 for a failure, 2 for wrong usage or wrong input.
package cli

import (
	"bytes"
	"cmp"
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
	"golang.org/x/term"

	"github.com/kubenergy/kubenergy/internal/report"
	"github.com/kubenergy/kubenergy/internal/spelling"
)

// usageError is a mistake of the user: wrong flags, or files that cannot be read as what they are said to be.
type usageError struct{ error }

// invalidUsage returns err as an error that is the fault of the command line: the exit code is 2.
func invalidUsage(err error) error { return usageError{err} }

func (e usageError) Unwrap() error { return e.error }

// Run executes one command line and returns the exit code of the process.
func Run(ctx context.Context, args, env []string, stdout, stderr io.Writer) int {
	return run(ctx, args, terminal{
		name: programName(os.Args[0]), env: env, out: stdout, err: stderr, now: time.Now, after: time.After,
	})
}

func run(ctx context.Context, args []string, t terminal) int {
	t.args = args
	root := newRoot(t)
	root.SetArgs(args)
	root.SetOut(t.out)
	root.SetErr(t.err)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	fmt.Fprintf(t.err, "%s: %v\n", t.name, err)
	if _, ok := errors.AsType[usageError](err); ok {
		return 2
	}
	return 1
}

// programName is what people type: under the name kubectl-energy, kubectl runs us as its own command.
func programName(binary string) string {
	name := strings.TrimSuffix(filepath.Base(binary), ".exe")
	if plugin, ok := strings.CutPrefix(name, "kubectl-"); ok {
		return "kubectl " + plugin
	}
	return "kubenergy"
}

func newRoot(t terminal) *cobra.Command {
	root := &cobra.Command{
		Use:           "kubenergy",
		Short:         "Energy, carbon and cost of Kubernetes workloads: where and when they run best, and why",
		Version:       version(),
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: t.name},
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return invalidUsage(fmt.Errorf("%w%s (see %s --help)", inWords(err), meantFlag(cmd, err), cmd.CommandPath()))
	})
	root.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	root.AddCommand(
		newSimulate(t),
		newBenchmark(t),
		newCompare(t),
		newDashboard(t),
		newData(t),
		newDecisions(t),
		newStrategies(t),
		newExperiment(t),
		newExplain(t),
		newForecast(t),
		newHeld(t),
		newDoctor(t),
		newRelease(t),
		newRunNow(t),
		newStress(t),
		newProfile(t),
		newReport(t),
		newReplay(t),
		newTop(t),
		newVersion(t),
		newWake(t),
		newWorkload(t),
	)
	// cobra reports an unknown command as an error of the root.
	root.Args = func(_ *cobra.Command, args []string) error {
		if len(args) > 0 {
			return invalidUsage(fmt.Errorf("unknown command %q%s (see %s --help)", args[0], meantCommand(root, args[0]),
				t.name))
		}
		return nil
	}
	return root
}

// meantCommand asks for the command that was meant, where one is near.
func meantCommand(parent *cobra.Command, typed string) string {
	return spelling.DidYouMean(typed, report.Each(parent.Commands(), (*cobra.Command).Name))
}

// meantFlag asks for the flag that was meant, where an error is of one that there is not and one is near.
func meantFlag(cmd *cobra.Command, err error) string {
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok {
		return ""
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, "--"+f.Name) })
	return spelling.DidYouMean("--"+unknown.GetSpecifiedName(), names)
}

// inWords says which values a flag takes, where pflag repeats the error of a function of Go's library.
func inWords(err error) error {
	wrong, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return err
	}
	flag := wrong.GetFlag()
	if _, ok := flag.Value.(*choice); ok {
		name := "--" + flag.Name
		if flag.Shorthand != "" {
			name = "-" + flag.Shorthand
		}
		return fmt.Errorf("%s: %w", name, wrong.Unwrap())
	}
	want, ok := map[string]string{
		"bool": "true or false", "float64": "a number", "int": "a whole number",
		"uint64":    "a whole number, 0 or more and below 2^64",
		"uintSlice": "whole numbers, 0 or more, with commas between them",
	}[flag.Value.Type()]
	if !ok {
		return err
	}
	return fmt.Errorf("--%s is %q: want %s", flag.Name, wrong.GetValue(), want)
}

// version is the commit that the program was built from, or else the version of the module.
func version() string {
	b := readBuilt()
	return cmp.Or(b.Commit, b.Version)
}

// terminal is what a command knows of where it writes.
type terminal struct {
	name     string // of the program, as people type it
	args     []string
	env      []string
	out, err io.Writer
	now      func() time.Time
	after    func(time.Duration) <-chan time.Time
}

// print writes a document to standard output.
func (t terminal) print(d report.Document, format string) error { return t.printTo("", d, format) }

// printTo writes a document into a file; "": to standard output. It writes all of it, or nothing.
func (t terminal) printTo(file string, d report.Document, format string) error {
	var b bytes.Buffer
	if err := report.Write(&b, d, format, file == "" && t.colours(t.out)); err != nil {
		return err
	}
	if file == "" {
		_, err := t.out.Write(b.Bytes())
		return err
	}
	if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil { //nolint:gosec // for all who may read the folder
		return err
	}
	fmt.Fprintln(t.err, "wrote", file)
	return nil
}

// colours reports whether w is a terminal that shows colours, and NO_COLOR is not set.
func (t terminal) colours(w io.Writer) bool {
	return t.getenv("NO_COLOR") == "" && t.getenv("TERM") != "dumb" && isTerminal(w)
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
