package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kubenergy/kubenergy/internal/cli/cmdutil"
	"github.com/kubenergy/kubenergy/internal/report"
)

type topFlags struct {
	cmdutil.ControllerFlags
	all          bool
	sort, output *cmdutil.Choice
}

var topOrders = map[string]func(a, b *cmdutil.PowerReading) int{
	"watts": func(a, b *cmdutil.PowerReading) int { return cmp.Compare(b.Watts, a.Watts) },
	"name":  func(*cmdutil.PowerReading, *cmdutil.PowerReading) int { return 0 },
	"age":   func(a, b *cmdutil.PowerReading) int { return cmp.Compare(b.AgeSeconds, a.AgeSeconds) },
}

func newTop(t cmdutil.Terminal) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "top nodes|pods",
		Short: "Show the current power of nodes or pods",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmdutil.UsageErrorf("missing kind: want nodes or pods, e.g. %s top nodes", t.Name)
			}
			return cmdutil.UsageErrorf("unknown kind %q: want nodes or pods", args[0])
		},
		RunE: func(*cobra.Command, []string) error { return nil },
	}
	cmd.AddCommand(newTopOf(t, "nodes"), newTopOf(t, "pods"))
	return cmd
}

func newTopOf(t cmdutil.Terminal, kind string) *cobra.Command {
	var f topFlags
	cmd := &cobra.Command{
		Use:     kind,
		Aliases: []string{strings.TrimSuffix(kind, "s")},
		Short:   "Show the current power of " + kind + " with source, quality and age",
		Long: "Show the current power of " + kind + ` at the node, without PUE, with the source, quality and age of the
reading. Readings older than 45 seconds are not used for decisions and are marked as stale, except estimates, which are
marked after 90 seconds. A node is marked "implausible" if a model of the hardware contradicts the reading, "guest of"
if it is a virtual machine that is included in the reading of its host, "asleep", "booting" or "stopping" if the machine
is not awake, and "too hot" if it exceeds the maximum temperature of its PowerProfile and does not accept pods. In a
federation, CLUSTER/NODE is a node of another cluster, and only pods of the queried cluster are shown.`,
		Args: cmdutil.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd.Context(), t, kind) },
	}
	flags := cmd.Flags()
	if kind == "pods" {
		cmd.Example = "  kubenergy top pods -n shop\n  kubenergy top pods -A --sort age"
		f.Add(flags, "namespace of the pods (default: namespace of the kubeconfig)")
		flags.BoolVarP(&f.all, "all-namespaces", "A", false, "list the pods of all namespaces")
	} else {
		f.Add(flags, "")
		cmd.Example = "  kubenergy top nodes\n  kubenergy top nodes -o json"
	}
	f.sort = cmdutil.Choose(flags, "sort", "", "order", "", "watts", "name", "age")
	f.output = cmdutil.Output(flags, "table", "csv", "json")
	return cmd
}

func (f *topFlags) run(ctx context.Context, t cmdutil.Terminal, kind string) error {
	if f.all && f.Namespace != "" {
		return cmdutil.UsageErrorf("-A and -n %s are mutually exclusive", f.Namespace)
	}
	c, err := f.Connect(ctx, t)
	if err != nil {
		return err
	}
	var all []cmdutil.PowerReading
	if kind == "nodes" {
		all, err = c.Nodes(ctx)
	} else {
		all, err = c.Pods(ctx, f.all)
	}
	if err != nil {
		return err
	}
	order := topOrders[f.sort.Value]
	slices.SortFunc(all, func(a, b cmdutil.PowerReading) int {
		return cmp.Or(order(&a, &b), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	if f.output.Value == "table" && len(all) == 0 {
		_, err := fmt.Fprintf(t.Err, "No power readings of %s exist yet. Estimates appear about a minute after the "+
			"installation. If they do not, run %s doctor.\n", kind, t.Name)
		return err
	}
	return t.Print(&powerList{"kubenergy.io/v1alpha1", all, "PowerList", kind == "pods", f.all}, f.output.Value)
}

// powerList is the output of the command top.
type powerList struct {
	APIVersion string                 `json:"apiVersion"`
	Items      []cmdutil.PowerReading `json:"items"`
	Kind       string                 `json:"kind"`

	pods, namespaces bool // whether the list contains pods, and pods of several namespaces
}

// Text returns the list in the format of kubectl top.
func (l *powerList) Text(bool, bool) string {
	t := report.Heads(9, "NAMESPACE", "POD", "NODE", "WATTS", "IDLE", "°C", "SOURCE", "QUALITY", "AGE")
	if !l.pods { // columns that only apply to pods are empty and therefore omitted
		t.Columns[1].Name = "NODE"
	}
	if !l.namespaces {
		t.Columns[0].Name = ""
	}
	for _, c := range []*report.Column{&t.Columns[3], &t.Columns[4], &t.Columns[5]} {
		c.Show = func(v float64) string { return strconv.FormatFloat(v, 'f', 1, 64) }
	}
	for _, d := range l.Items {
		t.Add(cmdutil.Printable(d.Namespace), cmdutil.Printable(d.Name), cmdutil.Printable(d.Node), d.Watts,
			d.IdleWatts, d.Celsius, cmdutil.Printable(d.Source), d.Quality, d.Age())
	}
	return t.Plain()
}

// Sheet returns a table with all fields.
func (l *powerList) Sheet() *report.Table {
	t := report.Sheet("namespace", "name", "node", "owner", "watts", "idle_watts", "source", "quality", "as_of",
		"age_s", "stale", "implausible", "power_state", "host", "celsius", "too_hot")
	for _, d := range l.Items {
		t.Add(d.Namespace, d.Name, d.Node, d.Owner, d.Watts, d.IdleWatts, d.Source, d.Quality, d.AsOf, d.AgeSeconds,
			d.Stale, d.Implausible, d.PowerState, d.Host, d.Celsius, d.TooHot)
	}
	return t
}
