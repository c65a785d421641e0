package explain

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/cli/cmdutil"
	"github.com/kubenergy/kubenergy/internal/dashboard"
	"github.com/kubenergy/kubenergy/internal/humanize"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/report"
	"github.com/kubenergy/kubenergy/internal/sliceutil"
)

// HeldList is the output of the command held.
type HeldList struct {
	APIVersion string           `json:"apiVersion"`
	Items      []dashboard.Held `json:"items"`
	Kind       string           `json:"kind"`

	Now        time.Time `json:"-"`
	namespaces bool      // whether to print the column NAMESPACE
}

// NewHeldCommand returns the command held, which lists the Jobs and bare pods that are held now.
func NewHeldCommand(t cmdutil.Terminal) *cobra.Command {
	var f cmdutil.ClusterFlags
	var all bool
	var format *cmdutil.Choice
	cmd := &cobra.Command{
		Use:   "held",
		Short: "List held Jobs and pods with planned start, latest start, expected saving and reason",
		Long: `List the Jobs and bare pods that are currently held, with creation time, planned start, latest start,
expected saving relative to an immediate start, and reason. The command uses your own permissions. The saving is the
one in the reason, as when the start was planned. Grams of a joint plan are based on the power of the planned machine,
and other grams on a nominal power per requested core. Use kubenergy explain for more details, and kubenergy run-now to
start a held Job or pod.`,
		Example: `  kubenergy held -n reports
  kubenergy held -A -o wide`,
		Args: cmdutil.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if all && f.Namespace != "" {
				return cmdutil.UsageErrorf("-A and -n %s are mutually exclusive", f.Namespace)
			}
			c, err := f.Open(t)
			if err != nil {
				return err
			}
			namespace := c.Namespace
			if all {
				namespace = v1.NamespaceAll
			}
			return printHeld(cmd.Context(), t, c, namespace, format.Value)
		},
	}
	f.Add(cmd.Flags(), "namespace of the workloads (default: namespace of the kubeconfig)")
	cmd.Flags().BoolVarP(&all, "all-namespaces", "A", false, "list the workloads of all namespaces")
	format = cmdutil.Output(cmd.Flags(), "table", "wide", "json", "csv", "yaml")
	return cmd
}

func printHeld(ctx context.Context, t cmdutil.Terminal, c *cmdutil.Cluster, namespace, format string) error {
	h := &Holdings{Cluster: c, Now: t.Now()}
	if err := h.Read(ctx, namespace); err != nil {
		return err
	}
	if len(h.Items) == 0 && namespace != v1.NamespaceAll {
		if _, err := c.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{}); apierrors.IsNotFound(err) {
			return fmt.Errorf("namespace %s does not exist", namespace)
		}
	}
	for _, u := range h.Unseen {
		fmt.Fprintln(t.Err, "not readable:", u)
	}
	if h.absence != "" && len(h.Items) > 0 {
		fmt.Fprintln(t.Err, "Warning:", h.absence)
	}
	if len(h.Items) == 0 && (format == "table" || format == "wide") {
		where := "in namespace " + namespace
		if namespace == v1.NamespaceAll {
			where = "in any namespace"
		}
		said := "No held Jobs or pods found " + where
		if h.noPods {
			said = "No held Jobs found " + where + ", pods are not readable"
		}
		_, err := fmt.Fprintln(t.Err, said+".")
		return err
	}
	items := sliceutil.Map(h.Items, func(j dashboard.Job) dashboard.Held { return j.Held })
	list := &HeldList{"kubenergy.io/v1alpha1", items, "HeldList", t.Now(), namespace == v1.NamespaceAll}
	return t.Print(list, format)
}

// Holdings collects held Jobs and pods.
type Holdings struct {
	*cmdutil.Cluster
	Now time.Time

	View     *kube.View
	noMode   bool // modes of namespaces are unknown
	NoPolicy bool // the policy of the cluster is unknown
	noPods   bool // pods could not be listed
	Items    []dashboard.Job
	Unseen   []string
	absence  string // describes how held Jobs are released if no scheduler runs
}

// Read reads Jobs and pods, and the data required to estimate savings.
func (h *Holdings) Read(ctx context.Context, namespace string) error {
	defaults, _ := cmdutil.ReadDefaults(ctx, h.Cluster) // best effort: they only affect the expected savings
	view, unseen, err := kube.ListView(ctx, h.Config, namespace, defaults)
	if err != nil {
		return fmt.Errorf("reading grid zones, power profiles and policies: %s", cmdutil.Because(err))
	}
	h.View = view
	h.absence, _ = cmdutil.WithoutScheduler(ctx, h.Cluster, v1alpha1.SystemNamespace, h.Now,
		"releases Jobs at their latest start")
	for _, u := range unseen {
		switch u.Resource {
		case "gridzones":
			h.Unseen = append(h.Unseen, cmdutil.OneLine(u.Err)+": only the savings in reasons are known")
		case "energypolicies":
			h.NoPolicy = true
		case "namespaces":
			h.noMode = !u.Own
		}
	}
	if err := cmdutil.EachItem(ctx, metav1.ListOptions{LabelSelector: v1alpha1.LabelHeld + "=true"},
		h.BatchV1().Jobs(namespace).List, h.addJob); err != nil {
		return fmt.Errorf("listing Jobs: %s", cmdutil.Because(err))
	}
	if err := cmdutil.EachItem(ctx, metav1.ListOptions{FieldSelector: "status.phase=Pending,spec.nodeName="},
		h.CoreV1().Pods(namespace).List, h.addPod); err != nil {
		h.noPods, h.Unseen = true, append(h.Unseen, "pods: "+cmdutil.Because(err))
	}
	slices.SortStableFunc(h.Items, func(a, b dashboard.Job) int {
		return strings.Compare(a.Namespace+" "+a.Name, b.Namespace+" "+b.Name)
	})
	return nil
}

func (h *Holdings) addJob(job *batchv1.Job) {
	work, err := policy.ReadJob(job)
	w := cmdutil.ReadWritten(job.Annotations)
	item := dashboard.Job{MayWait: true, Held: dashboard.Held{
		Namespace: job.Namespace, Kind: "Job", Name: job.Name, Since: job.CreationTimestamp.UTC(),
		PlannedStart: w.Until, LatestStart: w.Latest, Why: w.Reason,
	}}
	item.Team = h.View.TeamOf(job.Namespace, policy.TeamOf(job.Spec.Template.Labels))
	if err == nil {
		h.save(&item, &work)
		if settled, _ := h.View.Settle(&work); w.Latest == nil && !h.noMode && !h.NoPolicy && kube.RunOf(job) == nil {
			item.LatestStart = new(settled.LatestStart().UTC())
		}
	}
	if item.Why == "" && h.absence != "" {
		item.Why = "no scheduler is running"
	}
	h.Items = append(h.Items, item)
}

// addPod adds a pod if it is held. The reason is read from its condition, and the planned start is the current
// decision.
func (h *Holdings) addPod(pod *v1.Pod) {
	message := cmdutil.HeldMessage(pod)
	work, err := policy.ReadPod(pod)
	if message == "" || err != nil {
		return
	}
	job, settings := h.View.Settle(&work)
	if !settings.Enforced() && !h.noMode {
		return
	}
	start, latest := h.View.Decide(h.Now, job, settings).Window.Start.UTC(), job.LatestStart().UTC()
	item := dashboard.Job{MayWait: true, Held: dashboard.Held{
		Namespace: pod.Namespace, Kind: "Pod", Name: pod.Name, Since: pod.CreationTimestamp.UTC(), LatestStart: &latest,
		Why: message,
	}}
	item.Team = h.View.TeamOf(pod.Namespace, policy.TeamOf(pod.Labels))
	if start.After(h.Now) {
		item.PlannedStart = &start
	}
	h.save(&item, &work)
	h.Items = append(h.Items, item)
}

// save sets the expected saving of the planned start if it is known: the one in the reason, or else the current one.
func (h *Holdings) save(item *dashboard.Job, work *policy.Work) {
	if item.PlannedStart == nil {
		return
	}
	job, settings := h.View.Settle(work)
	item.PlannedEnd = new(item.PlannedStart.Add(job.Duration))
	if item.Saving, item.SavedGrams = dashboard.Expected(item.Why); item.Saving != nil {
		return
	}
	if share, carbon, ok := h.View.Saving(h.Now, job, settings, *item.PlannedStart); ok {
		item.Saving, item.SavedGrams = &share, new(float64(carbon))
	}
}

// Text lists the items like kubectl. Times are relative unless wide is set.
func (l *HeldList) Text(wide, _ bool) string {
	t := report.Heads(6, "NAMESPACE", "KIND", "NAME", "SINCE", "STARTS", "LATEST", "SAVES", "gCO2e", "WHY")
	if !l.namespaces {
		t.Columns[0].Name = ""
	}
	t.Columns[6].Show = func(v float64) string { return fmt.Sprintf("%.0f %%", 100*v) }
	t.Columns[7].Show = func(v float64) string { return fmt.Sprintf("%.3g", v) }
	at, say := l.Distance, dashboard.Briefly
	if wide {
		at, say = func(t *time.Time) any { return t }, func(reason string) string { return reason }
	}
	for _, w := range l.Items {
		t.Add(w.Namespace, w.Kind, w.Name, at(&w.Since), at(w.PlannedStart), at(w.LatestStart), w.Saving, w.SavedGrams,
			say(w.Why))
	}
	return t.Plain()
}

// Distance formats the distance of a time from now, or "–" if it is nil.
func (l *HeldList) Distance(t *time.Time) any {
	if t == nil {
		return "–"
	}
	return humanize.Away(*t, l.Now)
}

// Sheet returns a table with all fields.
func (l *HeldList) Sheet() *report.Table {
	t := report.Sheet("namespace", "kind", "name", "since", "planned_start", "latest_start", "saving", "saved_g", "why")
	for _, h := range l.Items {
		t.Add(h.Namespace, h.Kind, h.Name, h.Since, h.PlannedStart, h.LatestStart, h.Saving, h.SavedGrams, h.Why)
	}
	return t
}
