package explain

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/cli/cmdutil"
	"github.com/kubenergy/kubenergy/internal/dashboard"
	"github.com/kubenergy/kubenergy/internal/humanize"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/report"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/timeutil"
)

// state sets the state of the object and a sentence that describes it.
func (e *Explainer) state(ctx context.Context, s *subject, job *sched.Job, settings *policy.Settings) {
	switch s.kind {
	case cmdutil.KindCronJob:
		e.cronJobState(s, job, settings)
		e.runTimes(s)
		return
	case cmdutil.KindDeployment:
		e.set(StatePlaced, "%s. They are placed by the scheduler %s and never held, because the pods of a Deployment "+
			"serve requests.", s.ready, s.pod.Spec.SchedulerName)
		return
	case cmdutil.KindNamespace:
		e.namespaceState(ctx, s, settings)
		return
	}
	e.events(ctx, s)
	latest, run := job.LatestStart(), kube.RunOf(s.object)
	// An unreadable CronJob does not shorten the deadlines of its runs.
	if at, err := kube.ReadDeadline(ctx, e.Cluster, s.work.Namespace, job, run); err == nil {
		latest = at
	}
	if job.AllowedDelay > 0 && !job.Submitted.IsZero() {
		e.out.LatestStart = &latest
	}
	if s.kind == cmdutil.KindJob {
		e.jobState(ctx, s.job)
	} else {
		e.podState(s.pod, settings)
	}
	if m := &s.work.Marks; m.Pauses > 0 {
		e.out.Sentence += fmt.Sprintf(" It had done %v of work before its last pause. "+
			"It was paused %s, which cost %v of work.", m.Worked, humanize.Count(m.Pauses, "time"), m.Lost)
	}
	if job.Scaling != nil {
		e.out.Sentence += fmt.Sprintf(" It has %d replicas, scaled between %d and %d; it had done %v of work before "+
			"the last change.", policy.Parallelism(s.job), job.Scaling.Least, job.Scaling.Most(), s.work.Marks.Worked)
	}
	switch e.out.State {
	case StateWaiting, StateSuspended:
		if why := e.notHeld(s, job, settings); why != "" && !e.budget {
			e.out.Sentence = strings.TrimSuffix(e.out.Sentence, ".") + "; not held: " + why + "." +
				e.wouldHold(s, *job, settings)
		}
	case StateRunning, StateReleased, StateFinished:
		if s.kind == cmdutil.KindJob {
			e.out.Sentence += e.past(s, *job, settings)
		}
	}
	e.runTimes(s)
}

// runTimes adds the run times of similar Jobs.
func (e *Explainer) runTimes(s *subject) {
	switch learnt, runs := e.View.RunTimes(s.work.Namespace).Of(&s.work); {
	case learnt != nil:
		e.out.Sentence += " Such Jobs usually run for " + policy.Usually(learnt, runs) + "."
	case runs > 0:
		e.out.Sentence += fmt.Sprintf(" The run time of such Jobs is not known yet (%d of %d runs).", runs,
			policy.EnoughRuns)
	}
}

// notHeld returns the reason why the object is not held, or "".
func (e *Explainer) notHeld(s *subject, job *sched.Job, settings *policy.Settings) string {
	why, never := policy.NeverHeld(s.object)
	switch {
	case never:
		return why
	case s.err != nil:
		return "its annotations are invalid"
	case s.work.Marks.Skip:
		return "requested by annotation (" + v1alpha1.AnnotationSkip + ")"
	case s.work.Marks.RunNow:
		return "requested by annotation (" + v1alpha1.AnnotationRunNow + ")"
	case s.work.Marks.ReleasedBefore:
		return "it was already released"
	case e.noMode:
		return ""
	case !settings.Ours:
		return "it is not marked, and namespace " + s.work.Namespace + " has not opted in"
	case settings.Mode != v1alpha1.ModeEnforce:
		return fmt.Sprintf("the effective mode is %s (%s)", settings.Mode, cmdutil.ModeMeans[settings.Mode])
	case settings.AllowedDelay == 0:
		return "no delay is allowed"
	}
	return policy.NoTime(e.submitted(s), job)
}

// wouldHold describes the decision that the mode enforce would make about an object in mode shadow or advise. It
// returns "" if the mode is not the reason why the object is not held.
func (e *Explainer) wouldHold(s *subject, job sched.Job, settings *policy.Settings) string {
	enforced := *settings
	enforced.Mode = v1alpha1.ModeEnforce
	why := e.notHeld(s, &job, &enforced)
	switch {
	case e.noMode, e.noZones, settings.Mode == v1alpha1.ModeOff, why == e.notHeld(s, &job, settings):
		return ""
	case why != "":
		return " It would not be held in mode enforce either: " + why + "."
	}
	what, d := "it would be ", e.View.Decide(e.Now, job, enforced)
	if s.cron != nil || e.out.State != StateWaiting {
		what, d = "a Job that is created now would be ", e.decideAnew(job, &enforced)
	}
	held, reason := d.Held(e.Now), d.Reason.String()
	for _, event := range e.out.Events { // the decision at its creation, unless the event has expired
		if text, ok := strings.CutPrefix(event.Text, "would be "); ok && event.Reason == "WouldHold" {
			what, held = "it would have been ", true
			reason, _, _ = strings.Cut(text, "; to hold such work")
		}
	}
	if !held {
		return " In mode enforce, " + what + "started immediately: " + reason + "."
	}
	return " In mode enforce, " + what + reason + ". To enforce decisions: " +
		policy.EnforceCommand(s.work.Namespace, s.work.Scheduler) + "."
}

// decideAnew returns the decision for a Job like the given one that is created now.
func (e *Explainer) decideAnew(job sched.Job, settings *policy.Settings) sched.Decision {
	if !job.FinishBy.IsZero() {
		job.FinishBy = job.FinishBy.Add(e.Now.Sub(job.Submitted))
	}
	job.Submitted = e.Now
	return e.View.Decide(e.Now, job, *settings)
}

func (e *Explainer) jobState(ctx context.Context, job *batchv1.Job) {
	suspended := ptr.Deref(job.Spec.Suspend, false)
	held := job.Labels[v1alpha1.LabelHeld] == "true"
	released := job.Annotations[v1alpha1.AnnotationReleasedAt]
	switch end := cmdutil.EndOf(job); {
	case end != "":
		e.set(StateFinished, "It has finished (%s).", end)
	case suspended && held:
		e.held(ctx, job.Annotations)
	case suspended && job.Labels[v1alpha1.LabelBudgetSuspended] != "":
		e.budget = true
		latest := ""
		if till := job.Annotations[v1alpha1.AnnotationBudgetSuspendedTill]; till != "" {
			latest = ", at the latest at " + till
		}
		e.set(StateSuspended, "KubEnergy suspended it because the budget %q is exhausted. It resumes when the budget "+
			"allows it%s. A user with the role kubenergy-releaser can resume it earlier.",
			job.Labels[v1alpha1.LabelBudgetSuspended], latest)
	case suspended:
		e.set(StateSuspended, "It is suspended, but not by KubEnergy, which will not resume it.")
	case job.Status.Active > 0 && ptr.Deref(job.Status.Ready, 0) > 0:
		e.set(StateRunning, "It is running: %d of %s ready.", *job.Status.Ready,
			humanize.Count(int(job.Status.Active), "pod"))
		if released != "" {
			e.out.Sentence = strings.TrimSuffix(e.out.Sentence, ".") + ", released at " + released + "."
		}
	case released != "":
		e.set(StateReleased, "It was released at %s.", released)
	default:
		e.set(StateWaiting, "It is not suspended, and its pods wait for the scheduler.")
	}
}

// startOf sets the planned start of a Job that was held, by its last plan, and its actual start.
func (x *Explanation) startOf(job *batchv1.Job) {
	if job == nil || job.Status.StartTime == nil || x.State == StateHeld || x.State == StateSuspended {
		return
	}
	planned, err := time.Parse(time.RFC3339, job.Annotations[v1alpha1.AnnotationHeldUntil])
	if err != nil {
		return // it was not held, or not long enough for an annotation
	}
	x.Planned, x.Started = &planned, &job.Status.StartTime.Time
}

// maxRecords is the maximum number of decisions that are read for the savings of a Job.
const maxRecords = 2000

// saved sets the savings of a finished Job.
func (e *Explainer) saved(ctx context.Context, s *subject) {
	if s.job == nil || !e.Settled.Enforced() {
		return
	}
	q := &ledger.Query{From: s.job.CreationTimestamp.Time, To: e.Now, Namespaces: []string{e.out.Namespace}}
	if end := s.job.Status.CompletionTime; end != nil { // the last energy is booked minutes later
		q.To = timeutil.Earlier(e.Now, end.Add(15*time.Minute))
	}
	var evidence *report.Evidence
	var missing []string
	c, err := cmdutil.ThroughProxy(ctx, e.Config, v1alpha1.SystemNamespace, e.out.Namespace,
		func() time.Time { return e.Now })
	if err == nil {
		evidence, _, missing, err = c.Evidence(ctx, q, true, maxRecords)
	}
	for _, what := range missing {
		e.unseen("savings: " + what)
	}
	if err != nil {
		e.unseen("savings: " + cmdutil.Because(err))
	}
	if err != nil || evidence == nil {
		return
	}
	evidence.Records = slices.DeleteFunc(evidence.Records, func(r ledger.Record) bool {
		return r.OwnerName() != "Job/"+e.out.Name
	})
	found, err := report.Compare(evidence, report.DefaultBaseline, q.From, 1)
	switch {
	case err != nil:
		e.unseen("savings: " + err.Error())
	case found.Jobs+len(found.Left) > 0:
		e.out.Saved = found.Sentence()
	}
}

// held describes a held Job based on the annotations of the hold loop, and how the Job will be released.
func (e *Explainer) held(ctx context.Context, annotations map[string]string) {
	w := cmdutil.ReadWritten(annotations)
	if computed := e.out.LatestStart; w.Latest != nil &&
		(computed == nil || e.noMode || e.noPolicy || w.Latest.Before(*computed)) {
		e.out.LatestStart = w.Latest
	}
	e.out.HeldUntil = w.Until
	does := "releases it at its latest start"
	if e.Job.Released {
		does = "releases it within seconds"
	}
	absence, _ := cmdutil.WithoutScheduler(ctx, e.Cluster, v1alpha1.SystemNamespace, e.Now, does)
	switch {
	case e.Job.Released:
		e.set(StateHeld, "It is held and about to start.")
	case w.Until == nil && absence == "":
		e.set(StateHeld, "It is held, but the scheduler has not planned its start yet.")
	case w.Until == nil:
		e.set(StateHeld, "It is held.")
	default:
		e.set(StateHeld, "It is held until %s.", e.clock(*w.Until))
		if w.Reason != "" {
			e.reason = w.Reason
			e.out.Sentence += " Reason: " + w.Reason + "."
		}
		if w.Until.Before(e.Now) {
			e.out.Sentence += " This time has passed. If the Job remains held, run kubenergy doctor."
		}
	}
	if absence != "" {
		e.out.Sentence += " However, " + absence + "."
	}
}

func (e *Explainer) podState(pod *v1.Pod, settings *policy.Settings) {
	e.out.Node = pod.Spec.NodeName
	switch {
	case pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed:
		e.set(StateFinished, "It has finished (%s).", pod.Status.Phase)
	case pod.Status.Phase == v1.PodRunning:
		e.set(StateRunning, "It is running on %s.", pod.Spec.NodeName)
	case pod.Spec.NodeName != "":
		e.set(StateBound, "It is bound to %s.", pod.Spec.NodeName)
	case len(pod.Spec.SchedulingGates) > 0:
		e.set(StateSuspended, "It has scheduling gates of other controllers.")
	case cmdutil.HeldMessage(pod) != "" && settings.Enforced():
		e.reason = cmdutil.HeldMessage(pod)
		e.set(StateHeld, "It is held. Reason: %s.", e.reason)
	case policy.Scheduled(pod).Reason == v1.PodReasonUnschedulable:
		e.set(StateWaiting, "It is waiting for a node. Scheduler %s reported: %s.", pod.Spec.SchedulerName,
			strings.TrimSuffix(policy.Scheduled(pod).Message, "."))
	default:
		e.set(StateWaiting, "It is waiting for the scheduler %s.", pod.Spec.SchedulerName)
		age := e.Now.Sub(pod.CreationTimestamp.Time)
		if policy.Scheduled(pod).Type == "" && !pod.CreationTimestamp.IsZero() && age > cmdutil.Lateness {
			e.set(StateWaiting, "It is waiting for the scheduler %s, but no scheduler has processed it for %s.",
				pod.Spec.SchedulerName, humanize.Rounded(age))
		}
	}
}

// events reads the events of the scheduler and the controller for the object. The API server retains them for an
// hour.
func (e *Explainer) events(ctx context.Context, s *subject) {
	list, err := e.CoreV1().Events(s.object.GetNamespace()).List(ctx, metav1.ListOptions{
		FieldSelector: "involvedObject.uid=" + string(s.object.GetUID()),
	})
	if err != nil {
		e.unseen("events: " + cmdutil.Because(err))
		return
	}
	for _, event := range list.Items {
		if strings.HasPrefix(event.ReportingController, "kubenergy-") {
			e.out.Events = append(e.out.Events, dashboard.Reported{
				At:     cmp.Or(event.EventTime.Time, event.LastTimestamp.Time, event.CreationTimestamp.Time),
				Reason: event.Reason, Text: event.Message,
			})
		}
	}
	slices.SortFunc(e.out.Events, func(a, b dashboard.Reported) int { return a.At.Compare(b.At) })
}

// past explains why a running or finished Job was held or not. It uses recorded annotations and events, then the
// current settings, and finally the decision that would be made for such a Job now.
func (e *Explainer) past(s *subject, job sched.Job, settings *policy.Settings) string {
	w := cmdutil.ReadWritten(s.job.Annotations)
	released := s.job.Annotations[v1alpha1.AnnotationReleasedAt] != ""
	if released && w.Reason != "" {
		return " It was held before, with the reason: " + w.Reason + "."
	}
	if released {
		return ""
	}
	for _, event := range slices.Backward(e.out.Events) {
		if event.Reason == "NotHeld" {
			return " It was not held: " + strings.TrimPrefix(event.Text, "not held: ") + "."
		}
	}
	if why := e.notHeld(s, &job, settings); why != "" {
		return " It was not held: " + why + "." + e.wouldHold(s, job, settings)
	}
	switch {
	case e.noMode:
		return " It is unknown whether it should have been held."
	case e.noZones:
		return " It was not held, and the reason is unknown."
	}
	text := " It was not held, and the event with the reason has expired. A Job that is created now would "
	d := e.decideAnew(job, settings)
	why := d.Reason.String()
	if d.Held(e.Now) {
		return text + "be " + why + ". If no Job is ever held, run kubenergy doctor."
	}
	return text + "also start immediately: " + why + "."
}

// strands adds a warning if the pods wait for a scheduler of KubEnergy that does not run.
func (e *Explainer) strands(ctx context.Context, s *subject) {
	name := s.pod.Spec.SchedulerName
	placed := slices.Contains([]string{StateFinished, StateRunning, StateBound}, e.out.State)
	if name == "" || name == v1.DefaultSchedulerName || placed {
		return
	}
	found, err := cmdutil.ReadServing(ctx, e.Cluster, v1alpha1.SystemNamespace, e.Now)
	switch {
	case !slices.Contains(found.Names(), name):
	case err != nil:
		e.unseen("state of the scheduler " + name + ": " + cmdutil.Because(err))
	case slices.Contains(found.Stranded(), name):
		object, what := metav1.Object(s.pod), "its pods remain"
		switch {
		case s.cron != nil:
			object = s.cron
		case s.job != nil:
			object = s.job
		case s.kind == cmdutil.KindPod:
			what = "it remains"
		}
		e.out.Warnings = append(e.out.Warnings, fmt.Sprintf("%s pending, because no scheduler with the name %s is "+
			"running: start one, or %s", what, name, cmdutil.MendScheduler(titles[s.kind], name, object)))
	}
}
