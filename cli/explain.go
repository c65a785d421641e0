package cli

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
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/grid"
	"github.com/kubenergy/kubenergy/kube"
	"github.com/kubenergy/kubenergy/policy"
	"github.com/kubenergy/kubenergy/report"
	"github.com/kubenergy/kubenergy/sched"
)

// explanation is what is known about one pod or Job.
type explanation struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Object     string `json:"object"` // pod or job
	Namespace  string `json:"namespace"`
	Name       string `json:"name"`

	State       string     `json:"state"`
	Sentence    string     `json:"sentence"`
	HeldUntil   *time.Time `json:"heldUntil,omitempty"`
	LatestStart *time.Time `json:"latestStart,omitempty"`
	Planned     *time.Time `json:"plannedStart,omitempty"` // of a Job that was held and has started
	Started     *time.Time `json:"started,omitempty"`
	Node        string     `json:"node,omitempty"`
	Mode        string     `json:"mode"`

	Settings  []setting      `json:"settings,omitempty"`
	Decision  *decision      `json:"decisionNow,omitempty"`
	Compare   []comparison   `json:"nowAndThen,omitempty"`
	Signals   []signalSource `json:"signals,omitempty"`
	Placement *placement     `json:"placement,omitempty"`
	Warnings  []string       `json:"warnings,omitempty"`
	Unseen    []string       `json:"unseen,omitempty"` // what the user may not read
}

type setting struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	From  string `json:"from"`
}

// decision is what the same code that runs in the scheduler says now.
type decision struct {
	Held   bool      `json:"held"`
	Until  time.Time `json:"until"`
	Reason string    `json:"reason"` // CamelCase
	Text   string    `json:"text"`
	Saving float64   `json:"saving,omitempty"` // share
	Grams  float64   `json:"savedGrams,omitempty"`
}

// comparison is what the signals of one site say of a start now and of the start that was chosen.
type comparison struct {
	Site       string   `json:"site"`
	CarbonNow  *float64 `json:"carbonNow,omitempty"` // gCO2e/kWh at this moment
	CarbonOver *float64 `json:"carbonIfStartedNow,omitempty"`
	CarbonThen *float64 `json:"carbonIfStartedThen,omitempty"`
	PriceOver  *float64 `json:"priceIfStartedNow,omitempty"`
	PriceThen  *float64 `json:"priceIfStartedThen,omitempty"`
}

// signalSource is what one figure rests on.
type signalSource struct {
	Zone     string  `json:"zone"`
	Quantity string  `json:"quantity"`
	Now      float64 `json:"now"`
	Unit     string  `json:"unit"`
	Age      string  `json:"age"`
	Source   string  `json:"source"`
	Forecast string  `json:"forecast,omitempty"`
	Quality  string  `json:"quality"`
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
)

func newExplain(t terminal) *cobra.Command {
	var f clusterFlags
	var format *choice
	cmd := &cobra.Command{
		Use:   "explain pod|job NAME",
		Short: "Say why a pod or a Job waits and until when, or which nodes suit it how well",
		Long: `Say what KubEnergy does with a pod or a Job and why: whether it is held and until when, which
settings hold for it and where each comes from, what a start now compares to, which signals that rests on, and which
nodes are ranked how. It reads with your own rights; what you may not see is named. Nodes are ruled out by a model of
feasibility: the real scheduler checks more.`,
		Example: `  kubenergy explain job nightly-report -n reports
  kubenergy explain pod/train-7 -o yaml`,
		RunE: func(cmd *cobra.Command, args []string) error {
			kind, name, err := oneObject(args, kindPod, kindJob)
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
	out  *explanation

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

// subject is a pod or a Job, as far as both are the same.
type subject struct {
	object metav1.Object
	pod    *v1.Pod // of a Job: its template
	job    *batchv1.Job
	work   policy.Work
	err    error // of annotations that make no sense
}

func (e *explainer) explain(ctx context.Context, kind, namespace, name string) (*explanation, error) {
	s, err := e.read(ctx, kind, namespace, name)
	if err != nil {
		return nil, err
	}
	e.out = &explanation{
		APIVersion: "kubenergy.io/v1alpha1", Kind: "Explanation", Object: kind, Namespace: namespace, Name: name,
	}
	view, unseen, err := kube.ListView(ctx, e.config, namespace)
	if err != nil {
		return nil, fmt.Errorf("reading what the cluster knows of grids and hardware: %s", because(err))
	}
	e.lacks(unseen)
	e.view = view
	e.warn(ctx, s)
	job, settings := view.Settle(&s.work)
	e.out.Mode = string(settings.Mode)
	if e.noMode {
		e.out.Mode = unknownMode
	}
	e.state(s, &job, &settings)
	e.out.Settings = settingsOf(view.Origins(&s.work), &settings)
	for i := range e.out.Settings {
		switch set := &e.out.Settings[i]; {
		case e.noMode && set.Name == "mode":
			set.Value, set.From = unknownMode, "namespaces, which you may not read"
		case e.noPolicy && set.From == "built in":
			set.From = "built in, unless the cluster's policy differs"
		}
	}
	e.out.startOf(s.job)
	e.signals(ctx)
	switch e.out.State {
	case stateBound, stateRunning, stateFinished:
		return e.out, nil // nothing is left to decide
	}
	if !e.noZones {
		e.decide(&job, &settings)
	}
	e.rank(ctx, s, &job, &settings)
	return e.out, nil
}

func (e *explainer) read(ctx context.Context, kind, namespace, name string) (*subject, error) {
	if kind == kindPod {
		pod, err := e.client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, fmt.Errorf("reading pod %s/%s: %s", namespace, name, because(err))
		}
		s := &subject{object: pod, pod: pod}
		s.work, s.err = policy.ReadPod(pod)
		return s, nil
	}
	job, err := e.client.BatchV1().Jobs(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading Job %s/%s: %s", namespace, name, because(err))
	}
	template := &v1.Pod{ObjectMeta: job.Spec.Template.ObjectMeta, Spec: job.Spec.Template.Spec}
	template.Namespace = namespace
	s := &subject{object: job, pod: template, job: job}
	s.work, s.err = policy.ReadJob(job)
	return s, nil
}

// settingsOf lists the settings that were made, and of the built-in ones those that matter most.
func settingsOf(said []policy.Origin, settings *policy.Settings) []setting {
	builtIn := map[string]string{
		"allowedDelay": settings.AllowedDelay.String(), "expectedDuration": settings.Duration().String(),
		"hold.minSaving": fmt.Sprint(settings.MinSaving), "hold.rule": settings.When, "strategy": settings.Where,
		"hold.minSavingPerHour": fmt.Sprint(settings.MinSavingPerHour),
	}
	if settings.Where == "" {
		builtIn["strategy"], _, _ = strings.Cut(settings.Strategy(), "+")
	}
	var all []setting
	for _, o := range said {
		all = append(all, setting{o.Setting, o.Value, o.From})
		delete(builtIn, o.Setting)
	}
	for name, value := range builtIn {
		all = append(all, setting{name, value, "built in"})
	}
	slices.SortFunc(all, func(a, b setting) int { return strings.Compare(a.Name, b.Name) })
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
	found := append(policy.FindKeys(s.object.GetLabels(), both...), e.view.Find(e.now, &s.work)...)
	// Without the right to read the namespace, lacks has told of that.
	if n, err := e.client.CoreV1().Namespaces().Get(ctx, s.work.Namespace, metav1.GetOptions{}); err == nil {
		found = append(found, policy.FindNamespace(n)...)
	}
	for _, f := range found {
		e.out.Warnings = append(e.out.Warnings, f.String())
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

// state says in which state the object is, in one word and in one sentence.
func (e *explainer) state(s *subject, job *sched.Job, settings *policy.Settings) {
	latest := job.LatestStart()
	if job.AllowedDelay > 0 && !job.Submitted.IsZero() {
		e.out.LatestStart = &latest
	}
	if s.job != nil {
		e.jobState(s.job)
	} else {
		e.podState(s.pod, settings)
	}
	if e.out.State != stateWaiting && e.out.State != stateSuspended || e.budget {
		return
	}
	if why := e.notHeld(s, settings); why != "" {
		e.out.Sentence = strings.TrimSuffix(e.out.Sentence, ".") + "; not held: " + why + "."
	}
}

// notHeld is why we keep our hands off, or "".
func (e *explainer) notHeld(s *subject, settings *policy.Settings) string {
	why, never := policy.NeverHeld(s.object)
	switch {
	case never:
		return why
	case s.err != nil:
		return "its annotations make no sense"
	case s.work.Marks.Skip:
		return "it says so itself (" + v1alpha1.AnnotationSkip + ")"
	case s.work.Marks.RunNow:
		return "it says so itself (" + v1alpha1.AnnotationRunNow + ")"
	case s.work.Marks.ReleasedBefore:
		return "it was released before, and that is final"
	case e.noMode:
		return ""
	case !settings.Ours:
		return "it is not marked, and namespace " + s.work.Namespace + " has not opted in"
	case settings.Mode != v1alpha1.ModeEnforce:
		return fmt.Sprintf("the mode here is %s (%s)", settings.Mode, modeMeans[settings.Mode])
	case settings.AllowedDelay == 0:
		return "no delay is allowed"
	}
	return ""
}

func (e *explainer) jobState(job *batchv1.Job) {
	suspended := job.Spec.Suspend != nil && *job.Spec.Suspend
	held := job.Labels[v1alpha1.LabelHeld] == "true"
	released := job.Annotations[v1alpha1.AnnotationReleasedAt]
	for _, c := range job.Status.Conditions {
		if (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == v1.ConditionTrue {
			e.say(stateFinished, "It is finished (%s).", c.Type)
			return
		}
	}
	switch {
	case suspended && held:
		e.held(job.Annotations)
	case suspended && job.Labels[v1alpha1.LabelBudgetSuspended] != "":
		e.budget = true
		e.say(stateSuspended, "KubEnergy suspended it: the budget %q is used up. It goes on when the budget allows it"+
			"%s; a user with the role kubenergy-releaser can resume it before.",
			job.Labels[v1alpha1.LabelBudgetSuspended], until(job.Annotations[v1alpha1.AnnotationBudgetSuspendedTill]))
	case suspended:
		e.say(stateSuspended, "It is suspended, but not by KubEnergy, which does not resume it.")
	case job.Status.Active > 0 && job.Status.Ready != nil && *job.Status.Ready > 0:
		e.say(stateRunning, "It runs: %d of %s ready.", *job.Status.Ready, count(int(job.Status.Active), "pod"))
		if released != "" {
			e.out.Sentence = strings.TrimSuffix(e.out.Sentence, ".") + ", released at " + released + "."
		}
	case released != "":
		e.say(stateReleased, "It was released at %s.", released)
	default:
		e.say(stateWaiting, "It is not suspended: its pods are the scheduler's business.")
	}
}

// startOf adds when a Job that was held should have started, by the last plan, and when it did.
func (x *explanation) startOf(job *batchv1.Job) {
	if job == nil || job.Status.StartTime == nil || x.State == stateHeld || x.State == stateSuspended {
		return
	}
	planned, err := time.Parse(time.RFC3339, job.Annotations[v1alpha1.AnnotationHeldUntil])
	if err != nil {
		return // it was never held, or not for long enough to be told
	}
	x.Planned, x.Started = &planned, &job.Status.StartTime.Time
}

// until names an instant that may not be known.
func until(text string) string {
	if text == "" {
		return ""
	}
	return ", at " + text + " at the latest"
}

// held tells what the hold loop wrote on the Job.
func (e *explainer) held(annotations map[string]string) {
	until, err := time.Parse(time.RFC3339, annotations[v1alpha1.AnnotationHeldUntil])
	if t, err := time.Parse(time.RFC3339, annotations[v1alpha1.AnnotationLatestStart]); err == nil {
		e.out.LatestStart = &t
	}
	if err != nil {
		e.say(stateHeld, "It is held, and the hold loop has not said yet until when.")
		return
	}
	e.out.HeldUntil = &until
	e.say(stateHeld, "It is held until %s.", e.clock(until))
	if reason := annotations[v1alpha1.AnnotationHeldReason]; reason != "" {
		e.out.Sentence += " The scheduler said: " + reason + "."
	}
	if until.Before(e.now) {
		e.out.Sentence += " That time has come: if it stays, ask kubenergy doctor."
	}
}

func (e *explainer) podState(pod *v1.Pod, settings *policy.Settings) {
	e.out.Node = pod.Spec.NodeName
	switch {
	case pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed:
		e.say(stateFinished, "It is finished (%s).", pod.Status.Phase)
	case pod.Status.Phase == v1.PodRunning:
		e.say(stateRunning, "It runs on %s.", pod.Spec.NodeName)
	case pod.Spec.NodeName != "":
		e.say(stateBound, "It is bound to %s.", pod.Spec.NodeName)
	case len(pod.Spec.SchedulingGates) > 0:
		e.say(stateSuspended, "It has scheduling gates, which are not ours.")
	default:
		for _, c := range pod.Status.Conditions {
			if c.Type == v1.PodScheduled && c.Reason == v1.PodReasonSchedulingGated && settings.Enforced() {
				e.say(stateHeld, "It is held. The scheduler said: %s.", strings.TrimSuffix(c.Message, "."))
				return
			}
		}
		e.say(stateWaiting, "It waits for the scheduler %s.", pod.Spec.SchedulerName)
	}
}

func (e *explainer) say(state, format string, args ...any) {
	e.out.State, e.out.Sentence = state, fmt.Sprintf(format, args...)
}

// clock shows an instant, and how far off it is.
func (e *explainer) clock(t time.Time) string {
	if d := t.Sub(e.now); d >= 0 {
		return fmt.Sprintf("%s (in %s)", t.UTC().Format(time.RFC3339), report.Rounded(d))
	}
	return fmt.Sprintf("%s (%s ago)", t.UTC().Format(time.RFC3339), report.Rounded(e.now.Sub(t)))
}

// decide asks the core what it would do now.
func (e *explainer) decide(job *sched.Job, settings *policy.Settings) {
	d := e.view.Decide(e.now, *job, *settings)
	held := d.Held(e.now)
	e.out.Decision = &decision{
		Held: held, Until: d.Window.Start.UTC(), Reason: d.Reason.Kind.String(), Text: d.Reason.String(),
		Saving: d.Reason.Saving, Grams: float64(d.Reason.Carbon),
	}
	then := d.Window.Start
	if e.out.HeldUntil != nil && e.out.HeldUntil.After(e.now) {
		then = *e.out.HeldUntil // what is promised counts, not what would be promised today
	}
	for _, site := range e.view.Sites() {
		e.compare(site, job.Duration, then)
	}
}

// compare adds what a site's signals say of a start now and then, as far as they are known.
func (e *explainer) compare(site *sched.Site, duration time.Duration, then time.Time) {
	c := comparison{Site: site.Name}
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
	for i := range zones {
		z := &zones[i]
		for quantity, s := range map[string]*v1alpha1.SignalStatus{"carbon": z.Status.Carbon, "price": z.Status.Price} {
			if s == nil {
				continue
			}
			age := "does not age"
			if s.AsOf != nil {
				age = report.Rounded(max(0, e.now.Sub(s.AsOf.Time)))
			}
			e.out.Signals = append(e.out.Signals, signalSource{
				Zone: z.Name, Quantity: quantity, Now: s.Now, Unit: s.Unit, Age: age, Source: s.Source,
				Forecast: s.ForecastSource, Quality: s.Quality,
			})
		}
	}
	slices.SortFunc(e.out.Signals, func(a, b signalSource) int {
		return strings.Compare(a.Zone+" "+a.Quantity, b.Zone+" "+b.Quantity)
	})
}
