package cli

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
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/dashboard"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/report"
	"github.com/kubenergy/kubenergy/internal/sched"
)

// explanation is what is known about one object, as a document. Pages show the same.
type explanation struct {
	dashboard.Explanation
	now time.Time
}

// States of a workload, as people ask for them.
const (
	stateHeld      = "held"
	stateSuspended = "suspended" // by its user, or by others
	stateReleased  = "released"
	stateWaiting   = "waiting" // for the scheduler
	stateBound     = "bound"
	stateRunning   = "running"
	stateFinished  = "finished"
	stateScheduled = "scheduled" // a CronJob
	statePlaced    = "placed"    // the pods of a Deployment: never held
	stateOptedIn   = "opted in"  // a namespace
	stateNotIn     = "not opted in"
)

// explainable are the kinds of objects that can be explained.
var explainable = []string{kindPod, kindJob, kindCronJob, kindDeployment, kindNamespace}

func newExplain(t terminal) *cobra.Command {
	var f clusterFlags
	var format *choice
	cmd := &cobra.Command{
		Use:   "explain pod|job|cronjob|deployment|namespace NAME",
		Short: "Say why work waits and until when, or why it does not, and which nodes suit it how well",
		Long: `Say what KubEnergy does with a pod or a Job and why: whether it is held and until when, or why it was
not, which settings hold for it and where each comes from, what a start now compares to, which signals that rests on,
and which nodes are ranked how. Of a CronJob it says what its next Job will meet, of a Deployment how its pods are
placed, and of a namespace what its mode, policy and budgets ask. It reads with your own rights; what you may not see
is named. Where a PowerProfile limits the temperature of nodes, the controller is asked how hot they are. Nodes are
ruled out by a model of feasibility: the real scheduler checks more.`,
		Example: `  kubenergy explain job nightly-report -n reports
  kubenergy explain pod/train-7 -o yaml
  kubenergy explain cronjob nightly-report -n reports
  kubenergy explain namespace reports`,
		RunE: func(cmd *cobra.Command, args []string) error {
			kind, name, err := oneObject(args, explainable...)
			if err != nil {
				return err
			}
			c, err := f.open(t)
			if err != nil {
				return err
			}
			e := &explainer{client: c, config: c.config, now: t.now()}
			found, err := e.explain(cmd.Context(), kind, c.namespace, name)
			if err != nil {
				return err
			}
			return t.print(found, format.value)
		},
	}
	f.add(cmd.Flags())
	f.addNamespace(cmd.Flags(), "namespace of the object")
	format = output(cmd.Flags(), "text", "json", "yaml")
	return cmd
}

// explainer collects what one explanation needs.
type explainer struct {
	client kubernetes.Interface
	config *rest.Config
	now    time.Time

	view *kube.View
	job  sched.Job // as it was settled
	out  *explanation

	settled policy.Settings
	best    *sched.Node // that the strategy ranks first; nil: it has no opinion
	pod     sched.Job   // what one pod of the job adds there

	// what the user may not read
	noZones  bool // so what would be decided is not known
	noPolicy bool // the cluster's: what it sets looks as if it were built in
	noMode   bool // neither namespaces nor this one

	budget bool // a budget suspended the object
}

// unknownMode stands for the mode of a namespace that the user may not read.
const unknownMode = "unknown"

// lacks tells of what the view lacks, and remembers what cannot be said without it.
func (e *explainer) lacks(unseen []kube.Unseen) {
	for _, u := range unseen {
		if apierrors.IsNotFound(u.Err) {
			e.unseen("what the scheduler reads from files: this cluster has no GridZones, PowerProfiles and " +
				"EnergyPolicies")
			return
		}
		said := oneLine(u.Err)
		switch u.Resource {
		case "gridzones":
			e.noZones, said = true, said+": what would be decided now cannot be said"
		case "energypolicies":
			e.noPolicy = true
			if u.Own {
				said += ": the policy of this namespace is seen, the cluster's is not"
			}
		case "namespaces":
			if e.noMode = !u.Own; u.Own {
				continue // the others say nothing of this one
			}
			said += ": whether this one has opted in, and its mode, cannot be said"
		}
		e.unseen(said)
	}
}

func (e *explainer) explain(ctx context.Context, kind, namespace, name string) (*explanation, error) {
	s, err := e.read(ctx, kind, namespace, name)
	if err != nil {
		return nil, err
	}
	e.out = &explanation{now: e.now, Explanation: dashboard.Explanation{
		APIVersion: "kubenergy.io/v1alpha1", Kind: "Explanation", Object: kind, Namespace: s.object.GetNamespace(),
		Name: name,
	}}
	defaults, errDefaults := readDefaults(ctx, e.client)
	view, unseen, err := kube.ListView(ctx, e.config, e.out.Namespace, defaults)
	if err != nil {
		return nil, fmt.Errorf("reading what the cluster knows of grids and hardware: %s", because(err))
	}
	e.lacks(unseen)
	if errDefaults != nil && s.work.OfGardener() {
		e.unseen(errDefaults.Error() + ": what it sets by default for pods of " + policy.GardenerSchedulerName +
			" cannot be said")
	}
	e.view = view
	e.warn(ctx, s)
	job, settings := view.Settle(&s.work)
	e.job, e.settled = job, settings
	e.out.Mode = string(settings.Mode)
	if e.noMode {
		e.out.Mode = unknownMode
	}
	e.state(ctx, s, &job, &settings)
	e.out.Sentence = report.Plain(e.out.Sentence, e.now)
	e.settings(s, &settings)
	if kind == kindNamespace {
		return e.out, nil
	}
	e.out.startOf(s.job)
	e.strands(ctx, s)
	e.signals(ctx)
	switch e.out.State {
	case stateBound, stateRunning, stateFinished:
		return e.out, nil // nothing is left to decide
	}
	e.rank(ctx, s, &job, &settings)
	if !e.noZones && e.out.State != statePlaced && !(e.out.State == stateHeld && e.job.Released) {
		e.decide(&job, &settings)
	}
	return e.out, nil
}

// settings lists the settings, and which of them cannot be told.
func (e *explainer) settings(s *subject, settings *policy.Settings) {
	e.out.Settings = settingsOf(e.view.Origins(&s.work), settings)
	for i := range e.out.Settings {
		switch set := &e.out.Settings[i]; {
		case e.noMode && set.Name == "mode":
			set.Value, set.From = unknownMode, "namespaces, which you may not read"
		case e.noPolicy && set.From == "built in":
			set.From = "built in, unless the cluster's policy differs"
		}
	}
}

// settingsOf lists the settings that were made, and of the built-in ones those that matter most.
func settingsOf(said []policy.Origin, settings *policy.Settings) []dashboard.Setting {
	builtIn := map[string]string{
		"allowedDelay": settings.AllowedDelay.String(), "expectedDuration": settings.Duration().String(),
		"hold.minSaving": fmt.Sprint(settings.MinSaving), "hold.rule": settings.When, "strategy": settings.Where,
		"hold.minSavingPerHour": fmt.Sprint(settings.MinSavingPerHour),
	}
	if settings.Where == "" {
		builtIn["strategy"], _, _ = strings.Cut(settings.Strategy(), "+")
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

func (e *explainer) unseen(what string) { e.out.Unseen = append(e.out.Unseen, what) }

// warn tells of what was written and is not, or not quite, obeyed.
func (e *explainer) warn(ctx context.Context, s *subject) {
	if s.err != nil {
		for line := range strings.Lines(s.err.Error()) {
			e.out.Warnings = append(e.out.Warnings,
				strings.TrimSpace(line)+": it is treated as unmarked")
		}
	}
	both := []map[string]string{s.object.GetAnnotations(), s.pod.Annotations}
	for _, annotations := range both {
		for _, key := range aliasesIn(annotations) {
			said := fmt.Sprintf("annotation %s is another system's: it is obeyed as one of ours", key)
			if !slices.Contains(e.out.Warnings, said) {
				e.out.Warnings = append(e.out.Warnings, said)
			}
		}
	}
	found := slices.Concat(s.above, policy.FindKeys(s.object.GetLabels(), both...),
		policy.FindOwner(s.object, &s.work), e.view.Find(e.submitted(s), &s.work))
	// Without the right to read the namespace, lacks has told of that.
	if n, err := e.client.CoreV1().Namespaces().Get(ctx, s.work.Namespace, metav1.GetOptions{}); err == nil {
		found = append(found, policy.FindNamespace(n)...)
	}
	for _, f := range found {
		e.out.Warnings = append(e.out.Warnings, report.Plain(f.String(), e.now))
	}
}

// aliasesIn returns the keys of other systems that say something to us.
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

// submitted is when the object was created; of one that is to come, now.
func (e *explainer) submitted(s *subject) time.Time {
	return cmp.Or(s.work.Submitted, e.now)
}

func (e *explainer) say(state, format string, args ...any) {
	e.out.State, e.out.Sentence = state, fmt.Sprintf(format, args...)
}

// clock shows an instant, and how far off it is.
func (e *explainer) clock(t time.Time) string {
	return report.Clock(t, e.now) + " UTC (" + report.Away(t, e.now) + ")"
}

// decide asks the core what it would do now.
func (e *explainer) decide(job *sched.Job, settings *policy.Settings) {
	d := e.view.Decide(e.now, *job, *settings)
	held := d.Held(e.now)
	if held {
		e.spare(&d)
	}
	e.out.Decision = &dashboard.Decision{
		Held: held, Until: d.Window.Start.UTC(), Reason: d.Reason.Kind.String(),
		Text: report.Plain(d.Reason.String(), e.now), Saving: d.Reason.Saving, Grams: float64(d.Reason.Carbon),
	}
	then := d.Window.Start
	if e.out.HeldUntil != nil && e.out.HeldUntil.After(e.now) {
		then = *e.out.HeldUntil // what is promised counts, not what would be promised today
	}
	for _, site := range e.view.Sites() {
		e.compare(site, job.Duration, then)
	}
}

// spare sets what a hold saves in grams and money to what the table of nodes comes to, on the node that is ranked
// first: the core decides before there is a node, on a nominal power.
func (e *explainer) spare(d *sched.Decision) {
	then := d.Window.Start
	if e.best == nil || e.best.Profile == nil {
		return
	}
	on := func(start time.Time) (sched.Estimate, bool) {
		w := sched.Window{Start: start, End: start.Add(e.best.Runtime(&e.pod))}
		s := e.best.Site.Carbon.Series
		return (&sched.Snapshot{}).Estimate(&e.pod, e.best, w), s == nil || s.Covers(w.Start, w.End)
	}
	was, _ := on(e.now)
	is, known := on(then)
	if !known {
		return
	}
	pods := 1.0
	if e.pod.Request.MilliCPU > 0 {
		pods = float64(e.job.Request.MilliCPU) / float64(e.pod.Request.MilliCPU)
	}
	if d.Reason.Carbon != 0 {
		d.Reason.Carbon = energy.Grams(pods) * (was.Carbon - is.Carbon)
	}
	if d.Reason.Money != 0 {
		d.Reason.Money = grid.Money(pods) * (was.Cost - is.Cost)
	}
}

// compare adds what a site's signals say of a start now and then, as far as they are known.
func (e *explainer) compare(site *sched.Site, duration time.Duration, then time.Time) {
	c := dashboard.Comparison{Site: site.Name}
	over := func(s *grid.Series) (now, later *float64) {
		if s != nil && s.Covers(e.now, e.now.Add(duration)) {
			now = new(s.Mean(e.now, e.now.Add(duration)))
		}
		if s != nil && then.After(e.now) && s.Covers(then, then.Add(duration)) {
			later = new(s.Mean(then, then.Add(duration)))
		}
		return now, later
	}
	if s := site.Carbon.Series; s != nil && s.Covers(e.now, e.now) {
		c.CarbonNow = new(s.At(e.now))
		c.CarbonOver, c.CarbonThen = over(s)
	}
	if now, later := over(site.Price.Series); now != nil {
		c.PriceOver, c.PriceThen = now, later
	}
	if c.CarbonNow != nil || c.PriceOver != nil {
		e.out.Compare = append(e.out.Compare, c)
	}
}

// signals names what every figure rests on.
func (e *explainer) signals(ctx context.Context) {
	zones, err := listZones(ctx, e.client)
	if err != nil {
		return // named already: the view needed them as well
	}
	for _, z := range zones {
		for quantity, s := range map[string]*v1alpha1.SignalStatus{"carbon": z.Status.Carbon, "price": z.Status.Price} {
			if s == nil {
				continue
			}
			age := "does not age"
			if s.AsOf != nil {
				age = report.Rounded(max(0, e.now.Sub(s.AsOf.Time)))
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
