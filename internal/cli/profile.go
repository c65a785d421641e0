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
		Short: "List what hardware nodes have and what it draws; label nodes with their power profiles",
		Long: `List nodes with the hardware that their labels, annotations and instance types say they have,
and what it draws with and without load. All of it is estimated. ERROR is how far half of the profiles of the same
kind were off on servers that the catalogue was built without. Nodes of unknown hardware are listed as unknown.

With --create the PowerProfiles of what was recognised are written to the cluster, for you to correct. With
--label-nodes each node gets the label kubenergy.io/power-profile with the name of its profile; --remove takes these
labels off again. All of it happens with your own rights, and only labels that this command wrote are ever changed,
except with --overwrite. The scheduler recognises hardware without any of it: labels pin what it would find out by
itself.

With --score no cluster is asked: profiles are compared with what machines drew when they were measured, as a CSV file
has it: columns cpu, cores or threads, memoryGB, idleWatts, fullWatts and, where known, sockets and date. The list of
SPECpower_ssj2008 results is read as it is.`,
		Example: `  kubenergy profile
  kubenergy profile --score results.csv --since 2021-06
  kubenergy profile --create --label-nodes --dry-run
  kubenergy profile --label-nodes -l pool=batch
  kubenergy profile --remove`,
		Args: cmdutil.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd.Context(), t) },
	}
	f.Add(cmd.Flags())
	flags := cmd.Flags()
	flags.StringVarP(&f.selector, "selector", "l", "", "label selector of the nodes (default: all)")
	flags.StringVar(&f.catalogue, "hardware-profiles", "",
		"file of more hardware, in the format of Compute Gardener's hardware-profiles.yaml")
	flags.StringVar(&f.results, "score", "", "compare profiles with the measured machines of this CSV file")
	flags.StringVar(&f.since, "since", "", "with --score: leave out results before this month, as 2021-06")
	f.output = cmdutil.Output(flags, "table", "json", "yaml", "csv")
	flags.BoolVar(&f.create, "create", false, "create or update the PowerProfiles of recognised hardware")
	flags.BoolVar(&f.label, "label-nodes", false, "label nodes with their power profiles")
	flags.BoolVar(&f.remove, "remove", false, "take the labels off that --label-nodes wrote")
	flags.BoolVar(&f.overwrite, "overwrite", false, "also change labels and PowerProfiles that others wrote")
	flags.BoolVar(&f.dryRunServer, "dry-run", false, "let the API server check every change, and make none")
	return cmd
}

func (f *profileFlags) check() error {
	scoring, changes := f.results != "", f.remove || f.label || f.create
	switch {
	case scoring && (changes || f.selector != ""):
		return errors.New("--score asks no cluster: leave out --create, --label-nodes, --remove and --selector")
	case !scoring && (f.since != "" || f.output.Value == "csv"):
		return errors.New("--since and --output csv go with --score")
	case f.remove && (f.label || f.create):
		return errors.New("--remove goes with neither --label-nodes nor --create")
	case (f.overwrite || f.dryRunServer) && !changes:
		return errors.New("--overwrite and --dry-run go with --create, --label-nodes or --remove")
	}
	return nil
}

func (f *profileFlags) run(ctx context.Context, t cmdutil.Terminal) error {
	if err := f.check(); err != nil {
		return cmdutil.NewUsageError(err)
	}
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
	shown := &profiles{p.rows, p.made, f.label || f.remove}
	if err := t.Print(shown, f.output.Value); err != nil {
		return err
	}
	if p.failures > 0 {
		return fmt.Errorf("%s could not be made", humanize.Count(p.failures, "change"))
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
		return nil, cmdutil.NewUsageError(fmt.Errorf("%s: %s", f.catalogue, cmdutil.OneLine(err)))
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
		return fmt.Errorf("no node has the labels %s", p.selector)
	}
	p.existing = map[string]bool{}
	if p.label || p.create {
		var list v1alpha1.PowerProfileList
		if err := cmdutil.GetJSON(ctx, p.client, cmdutil.ResourcePath+"powerprofiles", &list); err != nil {
			if apierrors.IsNotFound(err) {
				return errors.New(
					"listing PowerProfiles: the cluster has no such kind: install KubEnergy's chart first")
			}
			return fmt.Errorf("listing PowerProfiles: %s", cmdutil.Because(err))
		}
		for i := range list.Items {
			p.existing[list.Items[i].Name] = true
		}
	}
	for i := range nodes.Items {
		p.rows = append(p.rows, p.recognise(&nodes.Items[i]))
	}
	slices.SortFunc(p.rows, func(a, b profileRow) int { return cmp.Compare(a.Node, b.Node) })
	return nil
}

func (p *profiler) recognise(n *v1.Node) profileRow {
	row := profileRow{Node: n.Name, Label: n.Labels[v1alpha1.LabelPowerProfile], node: n}
	capacity := n.Status.Capacity
	row.Profile, row.Kind, row.Known = p.catalogue.Detect(
		n.Labels, n.Annotations, n.Spec.ProviderID, capacity.Cpu().Value(), capacity.Memory().Value(),
		policy.ResourcesOf(capacity).GPU)
	if row.Known {
		of := energy.Watts(row.Kind.Components.GPUs)
		row.IdleWatts = float64(row.Profile.Idle + of*row.Profile.GPUIdle)
		row.MaxWatts = float64(row.Profile.Max + of*row.Profile.GPUMax)
	}
	return row
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
			change.Change = "refused: " + cmdutil.Because(err)
			if apierrors.IsConflict(err) {
				change.Change = "kept: others have changed it; --overwrite would take it over"
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
		row.Change = "has its label"
		return
	case !p.existing[row.Profile.Name]:
		// A label with an unknown profile would leave the node without a profile.
		row.Change = "not labelled: there is no PowerProfile " + row.Profile.Name + "; add --create"
		p.failures++
		return
	default:
		want, row.Change = row.Profile.Name, p.tense("labelled")
	}
	after, err := p.apply(ctx, row.node, want)
	switch {
	case apierrors.HasStatusCause(err, metav1.CauseTypeFieldManagerConflict),
		err == nil && after.Labels[v1alpha1.LabelPowerProfile] != want:
		row.Change = "kept: others wrote its label"
	case err != nil:
		p.failures++
		row.Change = "refused: " + cmdutil.Because(err)
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
	t := report.Heads(9, "NODE", "PROFILE", "IDLE W", "MAX W", "ERROR", "GPUS", "QUALITY", "RECOGNISED AS", "CHANGE")
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
