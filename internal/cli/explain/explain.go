// Package explain implements the command explain, which shows why a pod or Job waits or where it was placed, and
// the command held, which lists held Jobs and pods.
package explain

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/cli/cmdutil"
	"github.com/kubenergy/kubenergy/internal/dashboard"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/humanize"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sliceutil"
)

// Explanation is the explanation of one object as a document. The dashboard shows the same content.
type Explanation struct {
	dashboard.Explanation
	now time.Time
}

// States of a workload.
const (
	StateHeld      = "held"
	StateSuspended = "suspended" // by its user or by another controller
	StateReleased  = "released"
	StateWaiting   = "waiting" // waiting for the scheduler
	StateBound     = "bound"
	StateRunning   = "running"
	StateFinished  = "finished"
	StateScheduled = "scheduled" // state of a CronJob
	StatePlaced    = "placed"    // state of a Deployment, because its pods are never held
	StateOptedIn   = "opted in"  // state of a namespace
	StateNotIn     = "not opted in"
)

// explainable lists the supported kinds of objects.
var explainable = []string{
	cmdutil.KindPod, cmdutil.KindJob, cmdutil.KindCronJob, cmdutil.KindDeployment, cmdutil.KindNamespace,
}

// NewCommand returns the command explain.
func NewCommand(t cmdutil.Terminal) *cobra.Command {
	var f cmdutil.ClusterFlags
	var format *cmdutil.Choice
	cmd := &cobra.Command{
		Use:   "explain pod|job|cronjob|deployment|namespace NAME",
		Short: "Explain why a workload is held or not, and how nodes are ranked for it",
		Long: `Explain the decisions of KubEnergy about a pod or a Job. The output shows whether it is held and until
when, the effective settings and their sources, a comparison with an immediate start, the signals used, and the ranking
of nodes. For a CronJob it explains the next Job, for a Deployment the placement of its pods, and for a namespace its
mode, policy and budgets. For a finished Job in the mode enforce, the output contains the savings by the ledger. The
command uses your own permissions and lists the resources that you may not read. If a PowerProfile limits the
temperature of nodes, their temperatures are requested from the controller. Infeasible nodes are excluded by a model,
and the scheduler itself checks additional conditions.`,
		Example: `  kubenergy explain job nightly-report -n reports
  kubenergy explain pod/train-7 -o yaml
  kubenergy explain cronjob nightly-report -n reports
  kubenergy explain namespace reports`,
		RunE: func(cmd *cobra.Command, args []string) error {
			kind, name, err := cmdutil.OneObject(args, explainable...)
			if err != nil {
				return err
			}
			c, err := f.Open(t)
			if err != nil {
				return err
			}
			e := &Explainer{Cluster: c, Now: t.Now()}
			found, err := e.Explain(cmd.Context(), kind, c.Namespace, name)
			if err != nil {
				return err
			}
			return t.Print(found, format.Value)
		},
	}
	f.Add(cmd.Flags(), "namespace of the object")
	format = cmdutil.Output(cmd.Flags(), "text", "json", "yaml")
	return cmd
}

// Explainer collects the data of one explanation.
type Explainer struct {
	*cmdutil.Cluster
	Now time.Time

	View *kube.View
	Job  sched.Job // job with settings applied
	out  *Explanation

	Settled policy.Settings
	Best    *sched.Node // highest-ranked node; nil if the strategy cannot rank nodes

	reason string // reason of the hold; empty if it is not held or the reason is unknown

	// Resources that the user may not read.
	noZones  bool // grid zones, so the current decision is unknown
	noPolicy bool // policy of the cluster, so its settings appear as built in
	noMode   bool // namespaces, including the namespace of the object

	budget bool // the object was suspended because of a budget
}

// UnknownMode is the mode of a namespace that the user may not read.
const UnknownMode = "unknown"

// lacks reports resources that could not be read and records which parts of the explanation depend on them.
func (e *Explainer) lacks(unseen []kube.Unseen) {
	for _, u := range unseen {
		if apierrors.IsNotFound(u.Err) {
			e.unseen("settings in files of the scheduler: this cluster has no GridZones, PowerProfiles and " +
				"EnergyPolicies")
			return
		}
		said := cmdutil.OneLine(u.Err)
		switch u.Resource {
		case "gridzones":
			e.noZones, said = true, said+": the current decision is unknown"
		case "energypolicies":
			e.noPolicy = true
			if u.Own {
				said += ": only the policy of this namespace is readable"
			}
		case "namespaces":
			if e.noMode = !u.Own; u.Own {
				continue // other namespaces are not relevant
			}
			said += ": it is unknown whether this namespace has opted in, and in which mode"
		}
		e.unseen(said)
	}
}

// Explain returns the explanation of one object. Resources that the user may not read are listed in the
// explanation. It only returns an error if the object itself, or the grid zones and profiles of the cluster, cannot
// be read.
func (e *Explainer) Explain(ctx context.Context, kind, namespace, name string) (*Explanation, error) {
	s, err := e.read(ctx, kind, namespace, name)
	if err != nil {
		return nil, err
	}
	e.out = &Explanation{now: e.Now, Explanation: dashboard.Explanation{
		APIVersion: "kubenergy.io/v1alpha1", Kind: "Explanation", Object: kind, Namespace: s.object.GetNamespace(),
		Name: name,
	}}
	defaults, errDefaults := cmdutil.ReadDefaults(ctx, e.Cluster)
	view, unseen, err := kube.ListView(ctx, e.Config, e.out.Namespace, defaults)
	if err != nil {
		return nil, fmt.Errorf("reading grid zones, power profiles and policies: %s", cmdutil.Because(err))
	}
	e.lacks(unseen)
	if errDefaults != nil && s.work.OfGardener() {
		e.unseen(errDefaults.Error() + ": the default settings for pods of " + policy.GardenerSchedulerName +
			" are unknown")
	}
	e.View = view
	e.warn(ctx, s)
	job, settings := view.Settle(&s.work)
	e.Job, e.Settled = job, settings
	e.out.Mode = string(settings.Mode)
	if e.noMode {
		e.out.Mode = UnknownMode
	}
	e.state(ctx, s, &job, &settings)
	e.out.Sentence = humanize.Plain(e.out.Sentence, e.Now)
	e.settings(s, &settings)
	if kind == cmdutil.KindNamespace {
		return e.out, nil
	}
	e.out.startOf(s.job)
	e.strands(ctx, s)
	e.signals(ctx)
	switch e.out.State {
	case StateFinished:
		e.saved(ctx, s)
		return e.out, nil
	case StateBound, StateRunning:
		return e.out, nil // there is no decision left to make
	}
	e.rank(ctx, s, &job, &settings)
	if !e.noZones && e.out.State != StatePlaced && !(e.out.State == StateHeld && e.Job.Released) {
		e.decide(&job, &settings)
	}
	return e.out, nil
}

// settings lists the settings and marks unknown ones.
func (e *Explainer) settings(s *subject, settings *policy.Settings) {
	e.out.Settings = settingsOf(e.View.Origins(&s.work), settings)
	for i := range e.out.Settings {
		switch set := &e.out.Settings[i]; {
		case e.noMode && set.Name == "mode":
			set.Value, set.From = UnknownMode, "namespaces, which are not readable"
		case e.noPolicy && set.From == "built in":
			set.From = "built in, unless set by the policy of the cluster"
		}
	}
}

// settingsOf lists the settings with a source and the most important built-in ones.
func settingsOf(said []policy.Origin, settings *policy.Settings) []dashboard.Setting {
	placement, _, _ := strings.Cut(settings.Strategy(), "+")
	builtIn := map[string]string{
		"allowedDelay": settings.AllowedDelay.String(), "expectedDuration": settings.Duration().String(),
		"hold.minSaving": fmt.Sprintf("%.4g %%", 100*settings.MinSaving), "hold.rule": settings.When,
		"strategy":              placement,
		"hold.minSavingPerHour": fmt.Sprintf("%.4g %% per hour", 100*settings.MinSavingPerHour),
	}
	var all []dashboard.Setting
	for _, o := range said {
		all = append(all, dashboard.Setting{Name: o.Setting, Value: o.Value, From: o.From})
		delete(builtIn, o.Setting)
	}
	for name, value := range builtIn {
		all = append(all, dashboard.Setting{Name: name, Value: value, From: "built in"})
	}
	slices.SortFunc(all, func(a, b dashboard.Setting) int { return strings.Compare(a.Name, b.Name) })
	return all
}

func (e *Explainer) unseen(what string) { e.out.Unseen = append(e.out.Unseen, what) }

// warn adds warnings for settings that are ignored or modified.
func (e *Explainer) warn(ctx context.Context, s *subject) {
	if s.err != nil {
		for line := range strings.Lines(s.err.Error()) {
			e.out.Warnings = append(e.out.Warnings, strings.TrimSpace(line)+
				": all KubEnergy annotations of this object are ignored")
		}
	}
	both := []map[string]string{s.object.GetAnnotations(), s.pod.Annotations}
	for _, key := range sliceutil.Distinct(slices.Concat(aliasesIn(both[0]), aliasesIn(both[1]))) {
		e.out.Warnings = append(e.out.Warnings,
			"annotation "+key+" of another system is interpreted like an annotation of KubEnergy")
	}
	found := slices.Concat(s.above, policy.FindKeys(s.object.GetLabels(), both...),
		policy.FindOwner(s.object, &s.work), policy.FindGPUs(s.pod), e.View.Find(e.submitted(s), &s.work),
		e.View.FindDuration(&s.work))
	// If the namespace cannot be read, lacks has reported it.
	if n, err := e.CoreV1().Namespaces().Get(ctx, s.work.Namespace, metav1.GetOptions{}); err == nil {
		found = append(found, policy.FindNamespace(n)...)
	}
	for _, f := range found {
		e.out.Warnings = append(e.out.Warnings, humanize.Plain(f.String(), e.Now))
	}
}

// aliasesIn returns the annotations of other systems that KubEnergy interprets.
func aliasesIn(annotations map[string]string) (keys []string) {
	for key, value := range annotations {
		if strings.HasPrefix(key, v1alpha1.GroupVersion.Group+"/") {
			continue
		}
		if marks, err := policy.ReadMarks(map[string]string{key: value}); err != nil || marks != (policy.Marks{}) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// submitted returns the creation time of the object, or the current time if it has not been created yet.
func (e *Explainer) submitted(s *subject) time.Time {
	return cmp.Or(s.work.Submitted, e.Now)
}

func (e *Explainer) set(state, format string, args ...any) {
	e.out.State, e.out.Sentence = state, fmt.Sprintf(format, args...)
}

// clock formats a time with its distance from now.
func (e *Explainer) clock(t time.Time) string {
	return humanize.Clock(t, e.Now) + " UTC (" + humanize.Away(t, e.Now) + ")"
}

// decide adds the decision that would be made now. For a held object, it contains the saving of the hold, so that all
// outputs show the same one.
func (e *Explainer) decide(job *sched.Job, settings *policy.Settings) {
	d := e.View.Decide(e.Now, *job, *settings)
	held, text := d.Held(e.Now), d.Reason.String()
	if d.Reason.Kind == sched.Cheapest {
		if text = "starts immediately"; settings.AllowedDelay <= 0 {
			text += ", because no delay is allowed"
		}
	}
	e.out.Decision = &dashboard.Decision{
		Held: held, Until: d.Window.Start.UTC(), Reason: d.Reason.Kind.String(),
		Saving: d.Reason.Saving, Grams: float64(d.Reason.Carbon),
	}
	if share, grams := dashboard.Expected(e.reason); held && share != nil {
		text, e.out.Decision.Saving, e.out.Decision.Grams = e.reason, *share, ptr.Deref(grams, 0)
		if dashboard.Jointly(text) {
			e.out.Decision.Reason = sched.PlannedLater.String()
		}
	}
	e.out.Decision.Text = humanize.Plain(text, e.Now)
	then := d.Window.Start
	if e.out.HeldUntil != nil && e.out.HeldUntil.After(e.Now) {
		then = *e.out.HeldUntil // compare with the current plan of the hold instead of a new one
	}
	for _, site := range e.View.Sites() {
		e.compare(site, job.Duration, then)
	}
}

// compare adds the signals of a site for a start now and for a start at the given time, if they are known.
func (e *Explainer) compare(site *sched.Site, duration time.Duration, then time.Time) {
	c := dashboard.Comparison{Site: site.Name}
	over := func(s *grid.Series) (now, later *float64) {
		if s != nil && s.Covers(e.Now, e.Now.Add(duration)) {
			now = new(s.Mean(e.Now, e.Now.Add(duration)))
		}
		if s != nil && then.After(e.Now) && s.Covers(then, then.Add(duration)) {
			later = new(s.Mean(then, then.Add(duration)))
		}
		return now, later
	}
	if s := site.Carbon.Series; s != nil && s.Covers(e.Now, e.Now) {
		c.CarbonNow = new(s.At(e.Now))
		c.CarbonOver, c.CarbonThen = over(s)
	}
	if now, later := over(site.Price.Series); now != nil {
		c.PriceOver, c.PriceThen = now, later
	}
	if c.CarbonNow != nil || c.PriceOver != nil {
		e.out.Compare = append(e.out.Compare, c)
	}
}

// signals lists the sources of all signals.
func (e *Explainer) signals(ctx context.Context) {
	zones, err := cmdutil.ListZones(ctx, e.Cluster)
	if err != nil {
		return // already reported, because the view requires zones as well
	}
	for _, z := range zones {
		for quantity, s := range map[string]*v1alpha1.SignalStatus{"carbon": z.Status.Carbon, "price": z.Status.Price} {
			if s == nil {
				continue
			}
			age := "constant"
			if s.AsOf != nil {
				age = humanize.Rounded(max(0, e.Now.Sub(s.AsOf.Time)))
			}
			e.out.Signals = append(e.out.Signals, dashboard.SignalSource{
				Zone: z.Name, Quantity: quantity, Now: s.Now, Unit: s.Unit, Age: age, Source: s.Source,
				Forecast: s.ForecastSource, Quality: s.Quality,
			})
		}
	}
	slices.SortFunc(e.out.Signals, func(a, b dashboard.SignalSource) int {
		return strings.Compare(a.Zone+" "+a.Quantity, b.Zone+" "+b.Quantity)
	})
}
