package cli

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubenergy/kubenergy/internal/central/api"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/report"
)

type topFlags struct {
	centralFlags
	all          bool
	sort, output *choice
}

// liveFor is the age beyond which a power is not what is drawn now.
const liveFor = 45 * time.Second

// drawn is one line: what a node or a pod draws.
type drawn struct {
	Namespace   string         `json:"namespace,omitempty"`
	Name        string         `json:"name"`
	Node        string         `json:"node,omitempty"`
	Host        string         `json:"host,omitempty"` // of a node: whose virtual machine it is
	Owner       string         `json:"owner,omitempty"`
	Watts       float64        `json:"watts"`
	IdleWatts   *float64       `json:"idleWatts,omitempty"`
	Source      string         `json:"source"`
	Quality     energy.Quality `json:"quality"`
	AsOf        time.Time      `json:"asOf"`
	AgeSeconds  float64        `json:"ageSeconds"`
	Stale       bool           `json:"stale"`
	Implausible bool           `json:"implausible,omitempty"`
	PowerState  string         `json:"powerState,omitempty"` // of a node whose machine is not awake
	Celsius     *float64       `json:"celsius,omitempty"`
	TooHot      bool           `json:"tooHot,omitempty"`
}

var topOrders = map[string]func(a, b *drawn) int{
	"watts": func(a, b *drawn) int { return cmp.Compare(b.Watts, a.Watts) },
	"name":  func(*drawn, *drawn) int { return 0 },
	"age":   func(a, b *drawn) int { return cmp.Compare(b.AgeSeconds, a.AgeSeconds) },
}

func newTop(t terminal) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "top nodes|pods",
		Short: "Show what nodes or pods draw now",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return invalidUsage(fmt.Errorf("want nodes or pods, as in %s top nodes", t.name))
			}
			return invalidUsage(fmt.Errorf("unknown kind %q: want nodes or pods", args[0]))
		},
		RunE: func(*cobra.Command, []string) error { return nil },
	}
	cmd.AddCommand(newTopOf(t, "nodes"), newTopOf(t, "pods"))
	return cmd
}

func newTopOf(t terminal, kind string) *cobra.Command {
	var f topFlags
	cmd := &cobra.Command{
		Use:     kind,
		Aliases: []string{strings.TrimSuffix(kind, "s")},
		Short:   "Show what " + kind + " draw now, with source, quality and age",
		Long: "Show what " + kind + ` draw now at the node, without PUE, with the source of the figure, its quality and
its age. What is older than 45 seconds is marked as stale: nothing is decided by it. Of nodes, "implausible" marks what
a model of the hardware contradicts, "guest of" a virtual machine whose host's figure includes its own, "asleep",
"booting" or "stopping" a machine that is not awake, and "too hot" one above the temperature of its PowerProfile, which
takes no pods. In a federation, CLUSTER/NODE is a node of another cluster; pods
are those of the cluster that is asked.`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd.Context(), t, kind) },
	}
	flags := cmd.Flags()
	f.add(flags)
	if kind == "pods" {
		cmd.Example = "  kubenergy top pods -n shop\n  kubenergy top pods -A --sort age"
		f.addNamespace(flags, "namespace of the pods (default: that of the kubeconfig)")
		flags.BoolVarP(&f.all, "all-namespaces", "A", false, "pods of all namespaces")
	} else {
		cmd.Example = "  kubenergy top nodes\n  kubenergy top nodes -o json"
	}
	f.sort = choose(flags, "sort", "", "order", "", "watts", "name", "age")
	f.output = output(flags, "table", "csv", "json")
	return cmd
}

func (f *topFlags) run(ctx context.Context, t terminal, kind string) error {
	if f.all && f.namespace != "" {
		return invalidUsage(fmt.Errorf("-A and -n %s: give one of them", f.namespace))
	}
	c, err := f.connect(ctx, t)
	if err != nil {
		return err
	}
	var all []drawn
	if kind == "nodes" {
		all, err = c.nodes(ctx)
	} else {
		all, err = c.pods(ctx, f.all)
	}
	if err != nil {
		return err
	}
	order := topOrders[f.sort.value]
	slices.SortFunc(all, func(a, b drawn) int {
		return cmp.Or(order(&a, &b), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	if f.output.value == "table" && len(all) == 0 {
		text := "No node reports what it draws: is there an agent, or a meter?"
		if kind == "pods" { // meters and estimates tell of nodes; pods get their share when it is booked
			text = "No agent reports what these pods draw; meters and estimates know nodes only. What was booked for " +
				"pods, estimates too, is in kubenergy report --group-by=pod."
		}
		_, err := fmt.Fprintln(t.err, text)
		return err
	}
	list := &powerList{"kubenergy.io/v1alpha1", all, "PowerList", kind == "pods", f.all}
	return t.print(list, f.output.value)
}

func (c *centralUnit) nodes(ctx context.Context) ([]drawn, error) {
	var answer api.NodesPower
	now, err := c.get(ctx, "/api/v1/nodes/power", nil, &answer)
	if err != nil {
		return nil, err
	}
	all := []drawn{}
	for _, n := range slices.Concat(answer.Nodes, answer.Members) {
		d := drawn{
			Name: n.Node, Host: n.Host, Watts: n.Watts, Source: n.Source, Quality: n.Quality, AsOf: n.AsOf,
			Implausible: n.Implausible, PowerState: n.PowerState,
		}
		if !n.Temperature.AsOf.IsZero() {
			d.Celsius = new(float64(n.Temperature.Celsius))
			_, d.TooHot = n.Temperature.Refuses(now)
		}
		all = append(all, aged(d, now))
	}
	return all, nil
}

func (c *centralUnit) pods(ctx context.Context, everywhere bool) ([]drawn, error) {
	path := "/api/v1/pods"
	if !everywhere {
		path = "/api/v1/namespaces/" + url.PathEscape(cmp.Or(c.home, "default")) + "/pods"
	}
	var answer api.PodsPower
	now, err := c.get(ctx, path, nil, &answer)
	if err != nil {
		return nil, err
	}
	all := make([]drawn, 0, len(answer.Pods))
	for _, p := range answer.Pods {
		owner := p.Owner
		if p.OwnerKind != "" {
			owner = p.OwnerKind + "/" + p.Owner
		}
		all = append(all, aged(drawn{
			Namespace: p.Namespace, Name: cmp.Or(p.Pod, p.UID), Node: p.Node, Owner: owner, Watts: p.Watts,
			IdleWatts: new(p.IdleWatts),
			Source:    p.Source, Quality: p.Quality, AsOf: p.AsOf,
		}, now))
	}
	return all, nil
}

func aged(d drawn, now time.Time) drawn {
	age := max(0, now.Sub(d.AsOf))
	d.AgeSeconds, d.Stale = age.Round(time.Second).Seconds(), age > liveFor
	return d
}

func (d *drawn) age() string {
	text := (time.Duration(d.AgeSeconds) * time.Second).String()
	var marks []string
	if d.Stale {
		marks = append(marks, "stale")
	}
	if d.Implausible {
		marks = append(marks, "implausible")
	}
	if d.Host != "" {
		marks = append(marks, "guest of "+printable(d.Host))
	}
	if d.PowerState != "" {
		marks = append(marks, d.PowerState)
	}
	if d.TooHot {
		marks = append(marks, "too hot")
	}
	return strings.TrimSpace(text + " " + strings.Join(marks, ", "))
}

// powerList is what nodes or pods draw.
type powerList struct {
	APIVersion string  `json:"apiVersion"`
	Items      []drawn `json:"items"`
	Kind       string  `json:"kind"`

	pods, namespaces bool // are shown
}

// Text shows the list as kubectl top does.
func (l *powerList) Text(bool, bool) string {
	t := report.Heads(9, "NAMESPACE", "POD", "NODE", "WATTS", "IDLE", "°C", "SOURCE", "QUALITY", "AGE")
	if !l.pods { // the columns of pods alone are empty, and so left out
		t.Columns[1].Name = "NODE"
	}
	if !l.namespaces {
		t.Columns[0].Name = ""
	}
	for _, c := range []*report.Column{&t.Columns[3], &t.Columns[4], &t.Columns[5]} {
		c.Show = func(v float64) string { return strconv.FormatFloat(v, 'f', 1, 64) }
	}
	for _, d := range l.Items {
		t.Add(printable(d.Namespace), printable(d.Name), printable(d.Node), d.Watts, d.IdleWatts, d.Celsius,
			printable(d.Source), d.Quality, d.age())
	}
	return t.Plain()
}

// Sheet has everything that is known.
func (l *powerList) Sheet() *report.Table {
	t := report.Sheet("namespace", "name", "node", "owner", "watts", "idle_watts", "source", "quality", "as_of",
		"age_s", "stale", "implausible", "power_state", "host", "celsius", "too_hot")
	for _, d := range l.Items {
		t.Add(d.Namespace, d.Name, d.Node, d.Owner, d.Watts, d.IdleWatts, d.Source, d.Quality, d.AsOf, d.AgeSeconds,
			d.Stale, d.Implausible, d.PowerState, d.Host, d.Celsius, d.TooHot)
	}
	return t
}
