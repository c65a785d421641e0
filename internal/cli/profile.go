package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/cli/cmdutil"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/hardware"
	"github.com/kubenergy/kubenergy/internal/humanize"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/report"
)

// profileOwner is the field manager of this command. The API server uses it to distinguish labels set by this
// command from labels set by others.
const profileOwner = "kubenergy-profile"

type profileFlags struct {
	cmdutil.ClusterFlags
	selector, catalogue, results, since            string
	output                                         *cmdutil.Choice
	label, create, remove, overwrite, dryRunServer bool
}

func newProfile(t cmdutil.Terminal) *cobra.Command {
	var f profileFlags
	cmd := &cobra.Command{
		Use:   "profile",
		Short: "List the hardware and power of nodes, and label nodes with their power profiles",
		Long: `List nodes with the hardware that is detected from their labels, annotations and instance types,
and with its power when idle and at full load. All values are estimates. ERROR is the median error of profiles of the
same kind for servers that were not used to build the catalogue. Nodes with unknown hardware are listed as unknown.

With --create, the PowerProfiles of the detected hardware are written to the cluster, where you can correct them. With
--label-nodes, each node gets the label kubenergy.io/power-profile with the name of its profile. --remove removes these
labels. The command uses your own permissions. Unless --overwrite is set, it only changes labels that it has set itself.
The scheduler detects hardware without these labels. A label pins the detected profile.

With --score, the command does not access a cluster, but compares profiles with measured machines of a CSV file. The
columns are cpu, cores or threads, memoryGB, idleWatts, fullWatts, and optionally sockets and date. The result list of
SPECpower_ssj2008 is supported without changes.`,
		Example: `  kubenergy profile
  kubenergy profile --score results.csv --since 2021-06
  kubenergy profile --create --label-nodes --dry-run
  kubenergy profile --label-nodes -l pool=batch
  kubenergy profile --remove`,
		Args:    cmdutil.NoArguments,
		PreRunE: func(*cobra.Command, []string) error { return cmdutil.NewUsageError(f.check()) },
		RunE:    func(cmd *cobra.Command, _ []string) error { return f.run(cmd.Context(), t) },
	}
	f.Add(cmd.Flags(), "")
	flags := cmd.Flags()
	flags.StringVarP(&f.selector, "selector", "l", "", "label selector of the nodes (default: all)")
	flags.StringVar(&f.catalogue, "hardware-profiles", "",
		"file with additional hardware, in the format of Compute Gardener's hardware-profiles.yaml")
	flags.StringVar(&f.results, "score", "", "CSV file with measured machines to compare profiles with")
	flags.StringVar(&f.since, "since", "", "earliest month of results with --score, e.g. 2021-06")
	f.output = cmdutil.Output(flags, "table", "json", "yaml", "csv")
	flags.BoolVar(&f.create, "create", false, "create or update the PowerProfiles of detected hardware")
	flags.BoolVar(&f.label, "label-nodes", false, "label nodes with their power profiles")
	flags.BoolVar(&f.remove, "remove", false, "remove the labels set by --label-nodes")
	flags.BoolVar(&f.overwrite, "overwrite", false, "also change labels and PowerProfiles of other field managers")
	flags.BoolVar(&f.dryRunServer, "dry-run", false, "submit server-side requests without persisting changes")
	return cmd
}

func (f *profileFlags) check() error {
	scoring, changes := f.results != "", f.remove || f.label || f.create
	switch {
	case scoring && (changes || f.selector != ""):
		return errors.New("--score does not access a cluster and cannot be combined with --create, --label-nodes, " +
			"--remove and --selector")
	case !scoring && (f.since != "" || f.output.Value == "csv"):
		return errors.New("--since and --output csv require --score")
	case f.remove && (f.label || f.create):
		return errors.New("--remove cannot be combined with --label-nodes and --create")
	case (f.overwrite || f.dryRunServer) && !changes:
		return errors.New("--overwrite and --dry-run require --create, --label-nodes or --remove")
	}
	return nil
}

func (f *profileFlags) run(ctx context.Context, t cmdutil.Terminal) error {
	catalogue, err := f.readCatalogue(t)
	if err != nil {
		return err
	}
	if f.results != "" {
		return f.score(t, catalogue)
	}
	c, err := f.Open(t)
	if err != nil {
		return err
	}
	p := &profiler{client: c, catalogue: catalogue, profileFlags: f}
	if err := p.look(ctx); err != nil {
		return err
	}
	if f.create {
		p.createProfiles(ctx)
	}
	for i := range p.rows {
		p.change(ctx, &p.rows[i])
	}
	if err := t.Print(&profiles{p.rows, p.made, f.label || f.remove}, f.output.Value); err != nil {
		return err
	}
	if p.failures > 0 {
		return fmt.Errorf("%s failed", humanize.Count(p.failures, "change"))
	}
	return nil
}

// readCatalogue returns the bundled catalogue, extended by the given file if there is one.
func (f *profileFlags) readCatalogue(t cmdutil.Terminal) (*hardware.Catalog, error) {
	if f.catalogue == "" {
		return hardware.Default(), nil
	}
	text, err := os.ReadFile(f.catalogue)
	if err != nil {
		return nil, cmdutil.NewUsageError(err)
	}
	all, err := hardware.WithFile(text)
	if err != nil {
		return nil, cmdutil.UsageErrorf("%s: %s", f.catalogue, cmdutil.OneLine(err))
	}
	for _, w := range all.Warnings() {
		fmt.Fprintf(t.Err, "%s: %s\n", f.catalogue, w)
	}
	return all, nil
}

// profileRow describes one node.
type profileRow struct {
	Node    string          `json:"node"`
	Known   bool            `json:"known"`
	Profile *energy.Profile `json:"profile,omitempty"`
	// Power of the whole node including its GPUs.
	IdleWatts float64       `json:"idleWatts,omitempty"`
	MaxWatts  float64       `json:"maxWatts,omitempty"`
	Kind      hardware.Kind `json:"hardware"`
	Label     string        `json:"label,omitempty"`  // label of the node before the change
	Change    string        `json:"change,omitempty"` // change that was made, or the reason why none was made

	node *v1.Node
}

// profiler detects the hardware of nodes and labels them.
type profiler struct {
	*profileFlags
	client    kubernetes.Interface
	catalogue *hardware.Catalog

	rows     []profileRow
	existing map[string]bool // existing PowerProfiles by name
	made     []profileChange
	failures int
}

// profileChange is the result of applying a PowerProfile.
type profileChange struct {
	Name   string `json:"name"`
	Change string `json:"change"`
}

func (p *profiler) look(ctx context.Context) error {
	nodes, err := p.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: p.selector})
	if err != nil {
		return fmt.Errorf("listing nodes: %s", cmdutil.Because(err))
	}
	if len(nodes.Items) == 0 && p.selector != "" {
		return fmt.Errorf("no node matches the selector %s", p.selector)
	}
	p.existing = map[string]bool{}
	if p.label || p.create {
		var list v1alpha1.PowerProfileList
		if err := cmdutil.GetJSON(ctx, p.client, cmdutil.ResourcePath+"powerprofiles", &list); err != nil {
			if apierrors.IsNotFound(err) {
				return errors.New(
					"listing PowerProfiles: the kind is not installed: install the chart of KubEnergy first")
			}
			return fmt.Errorf("listing PowerProfiles: %s", cmdutil.Because(err))
		}
		for _, profile := range list.Items {
			p.existing[profile.Name] = true
		}
	}
	for _, n := range nodes.Items {
		row := profileRow{Node: n.Name, Label: n.Labels[v1alpha1.LabelPowerProfile], node: &n}
		capacity := n.Status.Capacity
		row.Profile, row.Kind, row.Known = p.catalogue.Detect(n.Labels, n.Annotations, n.Spec.ProviderID,
			capacity.Cpu().Value(), capacity.Memory().Value(), policy.CountGPUs(capacity))
		if row.Known {
			of := energy.Watts(row.Kind.Components.GPUs)
			row.IdleWatts = float64(row.Profile.Idle + of*row.Profile.GPUIdle)
			row.MaxWatts = float64(row.Profile.Max + of*row.Profile.GPUMax)
		}
		p.rows = append(p.rows, row)
	}
	slices.SortFunc(p.rows, func(a, b profileRow) int { return cmp.Compare(a.Node, b.Node) })
	return nil
}

// createProfiles applies one PowerProfile per kind of hardware.
func (p *profiler) createProfiles(ctx context.Context) {
	for _, row := range p.rows {
		if !row.Known || slices.ContainsFunc(p.made, func(c profileChange) bool { return c.Name == row.Profile.Name }) {
			continue
		}
		object := hardware.ToPowerProfile(row.Profile, p.catalogue.DefaultPUE) // the PUE of a node takes precedence
		done := "created"
		if p.existing[object.Name] {
			done = "applied"
		}
		change := profileChange{object.Name, p.tense(done)}
		if err := p.applyProfile(ctx, object); err != nil {
			p.failures++
			change.Change = "failed: " + cmdutil.Because(err)
			if apierrors.IsConflict(err) {
				change.Change = "unchanged: modified by others, use --overwrite to replace it"
			}
		} else {
			p.existing[object.Name] = true
		}
		p.made = append(p.made, change)
	}
}

func (p *profiler) applyProfile(ctx context.Context, object *v1alpha1.PowerProfile) error {
	// Omit the empty status, because applying it would claim its fields.
	body, err := json.Marshal(map[string]any{
		"apiVersion": object.APIVersion, "kind": object.Kind, "metadata": map[string]any{"name": object.Name},
		"spec": object.Spec,
	})
	if err != nil {
		return err
	}
	return p.client.Discovery().RESTClient().Patch(types.ApplyPatchType).
		AbsPath(cmdutil.ResourcePath+"powerprofiles", object.Name).
		SpecificallyVersionedParams(new(p.options().ToPatchOptions()), scheme.ParameterCodec, v1.SchemeGroupVersion).
		Body(body).Do(ctx).Error()
}

// change sets or removes the label of a node.
func (p *profiler) change(ctx context.Context, row *profileRow) {
	want := ""
	switch {
	case p.remove && row.Label == "", !p.remove && !p.label:
		return
	case p.remove:
		row.Change = "label " + p.tense("removed")
	case !row.Known:
		row.Change = "not labelled: unknown hardware"
		return
	case row.Label == row.Profile.Name:
		row.Change = "label is up to date"
		return
	case !p.existing[row.Profile.Name]:
		// A label with an unknown profile would leave the node without a profile.
		row.Change = "not labelled: PowerProfile " + row.Profile.Name + " does not exist, use --create"
		p.failures++
		return
	default:
		want, row.Change = row.Profile.Name, p.tense("labelled")
	}
	after, err := p.apply(ctx, row.node, want)
	switch {
	case apierrors.HasStatusCause(err, metav1.CauseTypeFieldManagerConflict),
		err == nil && after.Labels[v1alpha1.LabelPowerProfile] != want:
		row.Change = "unchanged: label set by others"
	case err != nil:
		p.failures++
		row.Change = "failed: " + cmdutil.Because(err)
	}
}

// apply sets the label of a node, or removes it if label is empty. Unless --overwrite is set, labels of other field
// managers are preserved. The UID prevents changes to a node that was deleted and created again.
func (p *profiler) apply(ctx context.Context, n *v1.Node, label string) (*v1.Node, error) {
	nodes, o := p.client.CoreV1().Nodes(), p.options()
	if label == "" && p.overwrite { // an empty apply only removes fields owned by this field manager
		return nodes.Patch(ctx, n.Name, types.MergePatchType,
			fmt.Appendf(nil, `{"metadata":{"labels":{%q:null}}}`, v1alpha1.LabelPowerProfile),
			metav1.PatchOptions{FieldManager: o.FieldManager, DryRun: o.DryRun})
	}
	with := corev1.Node(n.Name).WithUID(n.UID)
	if label != "" {
		with.WithLabels(map[string]string{v1alpha1.LabelPowerProfile: label})
	}
	return nodes.Apply(ctx, with, o)
}

func (p *profiler) options() metav1.ApplyOptions {
	o := metav1.ApplyOptions{FieldManager: profileOwner, Force: p.overwrite}
	if p.dryRunServer {
		o.DryRun = []string{metav1.DryRunAll}
	}
	return o
}

// tense returns the given participle, prefixed by "would be" in a dry run.
func (p *profiler) tense(done string) string {
	if p.dryRunServer {
		return "would be " + done
	}
	return done
}

// profiles is the output of the command profile.
type profiles struct {
	Nodes         []profileRow    `json:"nodes"`
	PowerProfiles []profileChange `json:"powerProfiles,omitempty"`

	changes bool // whether labels are set or removed
}

// Text returns a table of nodes, followed by the results for PowerProfiles.
func (p *profiles) Text(bool, bool) string {
	t := report.Heads(9, "NODE", "PROFILE", "IDLE W", "MAX W", "ERROR", "GPUS", "QUALITY", "DETECTED AS", "CHANGE")
	if !p.changes {
		t.Columns = t.Columns[:8]
	}
	for _, row := range p.Nodes {
		name, idle, full, off, quality := "unknown", "-", "-", "-", "-"
		if row.Known {
			name, quality = row.Profile.Name, row.Profile.Quality.String()
			idle, full = fmt.Sprintf("%.1f", row.IdleWatts), fmt.Sprintf("%.1f", row.MaxWatts)
		}
		if e := row.Kind.Error; row.Known && e != nil {
			off = fmt.Sprintf("±%.0f, ±%.0f %%", 100*e.IdleMedian, 100*e.FullMedian)
		}
		t.Add(row.Node, name, idle, full, off, row.Kind.Components.GPUs, quality, row.Kind, cmp.Or(row.Change, "-"))
	}
	var b strings.Builder
	b.WriteString(t.Plain())
	for _, c := range p.PowerProfiles {
		fmt.Fprintf(&b, "PowerProfile %s: %s\n", c.Name, c.Change)
	}
	return b.String()
}
