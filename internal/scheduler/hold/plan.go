package hold

import (
	"context"
	"strings"
	"time"
	"unique"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/kube/panics"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/timeutil"
)

// question returns the job and the settings of the hold according to the view. The allowed delay of the job ends at
// the deadline of the hold.
func (h *hold) question(view *kube.View) (sched.Job, policy.Settings) {
	job, settings := h.settled(view)
	job.StartBy(h.latest)
	job.Foresee()
	return job, settings
}

// settled returns the job and the settings of the hold with the allowed delay according to the view.
func (h *hold) settled(view *kube.View) (sched.Job, policy.Settings) {
	work := h.work()
	return view.Settle(&work)
}

// evaluate computes from the view whether the object may be held, under which settings, and until when. If the
// settings have changed since the last plan, the hold is planned again.
func (l *Loop) evaluate(h *hold, view *kube.View) {
	job, settings := h.settled(view)
	wishes := asks(&job, &settings)
	if wishes == h.asked {
		return
	}
	changed := h.asked != 0
	if changed && !h.reported.IsZero() {
		h.reported = outdated
	}
	if changed && h.basis == onForecast {
		h.basis = fixed // changes by the owner take effect immediately, even if the owner has not been notified yet
	}
	h.asked, h.moved = wishes, time.Time{}
	h.queue.setLatest(h, job.LatestStart())
	h.cut = changed && h.latest.Before(l.clock.Now())
	if t, ok := l.gate.ticket(h.UID); ok {
		t.latest.Store(h.latest.UnixNano())
	}
	switch {
	case h.state >= releasing: // releasing is final
	case h.cron != nil && !job.Released:
		h.queue.enter(h, lookingUp) // the result of a lookup with earlier settings is discarded
		uid, run, namespace, name := h.UID, h.cron, h.namespace(), h.name
		l.goes(func(ctx context.Context) { l.clampToTick(ctx, uid, namespace, name, run, job, wishes) })
	default:
		h.queue.enter(h, waiting)
	}
}

// clampToTick limits the deadline of a CronJob's run by the next one, see [kube.LatestRun]. If the schedule cannot be
// read, the Job is released.
func (l *Loop) clampToTick(ctx context.Context, uid types.UID, namespace, name string, run *kube.Run, job sched.Job,
	wishes uint64,
) {
	// Limit the concurrency: a thousand CronJobs may be due at the full hour, and releases share the client.
	l.lookups <- struct{}{}
	defer func() { <-l.lookups }()
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	latest, err := time.Time{}, panics.ErrPanicked // the parser may panic on a schedule
	safely(klog.FromContext(ctx), func() { latest, err = kube.ReadDeadline(ctx, l.c.Client, namespace, &job, run) })
	if err != nil {
		klog.FromContext(ctx).Error(err, "Failed to read CronJob, Job is not held", "job", klog.KRef(namespace, name))
	}
	l.post(func() {
		h := l.jobs.byUID[uid]
		if h == nil || h.state != lookingUp || h.asked != wishes {
			return
		}
		if err != nil {
			l.jobs.free(h, "the schedule of its CronJob cannot be read")
			return
		}
		l.jobs.enter(h, waiting)
		l.jobs.setLatest(h, latest) // also applies to standby replicas
		if latest.Before(job.LatestStart()) && !latest.After(l.clock.Now()) {
			l.jobs.free(h, "the next run of its CronJob leaves no time to wait")
		}
	})
}

// plan chooses the window of a hold based on the view.
func (l *Loop) plan(logger klog.Logger, h *hold, view *kube.View, now time.Time) {
	q := h.queue
	h.seen = view
	q.ask(h, time.Time{})
	job, settings := h.question(view)
	if why := idle(&settings); why != "" && !job.Released {
		q.unplan(h, settings.Mode, why, now)
		return
	}
	if known := h.submitted.Add(modeLag); !l.locate(&job) && now.Before(known) {
		q.ask(h, known)
		return
	}
	l.choose(logger, h, view, now, job, settings)
}

// choose chooses the window of an object that may be held.
func (l *Loop) choose(logger klog.Logger, h *hold, view *kube.View, now time.Time, job sched.Job,
	settings policy.Settings,
) {
	q := h.queue
	var d sched.Decision
	ok := !panics.Open() && safely(logger.WithValues("job", job.ID), func() {
		d = l.decide(h, view, now, job, settings)
	})
	if ok && !l.jointly(h, now, &settings, &d) {
		return // wait for the joint plan
	}
	switch {
	case ok && l.steady(h, view, now, job, settings, &d):
	case ok && d.Held(now):
		l.keep(h, now, &d)
	case h.basis != unplanned && h.basis != onHope && !job.Released && (!ok || blind(d.Reason.Kind)):
		h.rolls = false // signals have disappeared since the last plan, see the package documentation
		q.enter(h, waiting)
	case h.basis != unplanned && ok && !job.Released:
		// The hold has waited for this time, possibly together with others, so it waits for its turn.
		h.reason = unique.Make(d.Reason.String())
		q.enter(h, opened)
	default:
		q.free(h, notHeld(&d, &job, now, h.work().Marks.Skip))
		h.kind = d.Reason.Kind
	}
}

// locate sets the sites where the job may run. It reports whether they are known.
func (l *Loop) locate(job *sched.Job) (known bool) {
	if l.c.Sites == nil {
		return true
	}
	job.Sites, known = l.c.Sites(job.ID)
	return known
}

// blind reports whether a decision was made without usable signals.
func blind(k sched.ReasonKind) bool { return k == sched.NoFreshSignal || k == sched.BeyondForecast }

// unplan frees a hold that its settings do not allow, except for a new object, because its mode may not be up to
// date.
func (q *queue) unplan(h *hold, mode v1alpha1.Mode, why string, now time.Time) {
	if young := h.submitted.Add(modeLag); mode != v1alpha1.ModeEnforce && now.Before(young) {
		q.ask(h, young) // admission may have seen a newer mode, see modeLag
		return
	}
	q.free(h, why)
}

// notHeld returns the human-readable reason for not holding a job. The reasons AlreadyReleased and Cheapest are not
// specific: the core returns them for every job that must start now.
func notHeld(d *sched.Decision, job *sched.Job, now time.Time, skip bool) string {
	if d.Reason.Kind != sched.AlreadyReleased && d.Reason.Kind != sched.Cheapest {
		return d.Reason.String()
	}
	if why := policy.NoTime(now, job); why != "" && !job.Released {
		return why
	}
	if skip {
		return "requested not to be held"
	}
	return "requested to run now"
}

// keep sets the window of a hold to that of the decision and lets it wait.
func (l *Loop) keep(h *hold, now time.Time, d *sched.Decision) {
	start := timeutil.Earlier(d.Window.Start, h.latest)
	if h.basis != unplanned && !start.Equal(h.start) {
		h.moved = now
	}
	h.start, h.reason, h.rolls = start, unique.Make(d.Reason.String()), !d.Again.IsZero()
	h.unrecorded = &unrecorded{now, d.Reason.Kind, d.Reason.Saving, d.Reason.Carbon, len(l.together.of)}
	again := d.Again
	h.basis = fixed
	switch {
	case d.Reason.Kind == sched.BudgetUsedUp:
		// The usage of a budget grows without a change of the view, and the hold ends when the budget recovers,
		// with or without signals.
		again, h.basis = now.Add(budgetLook), onHope
	case d.Reason.Kind == sched.AboveThreshold && d.Reason.Until.IsZero():
		h.basis = onHope
	case d.Reason.Kind == sched.CheaperLater && !h.rolls:
		h.basis = onForecast
	}
	h.queue.enter(h, waiting)
	h.queue.ask(h, again)
}

// budgetLook is the interval at which a hold for a budget is planned again.
const budgetLook = 30 * time.Second

// modeLag is the grace period of a new hold if its mode does not allow holding. Admission may have seen that a
// namespace was switched to enforce before the loop does, and a release is final.
const modeLag = 2 * time.Second

// idle returns the reason why the settings do not allow holding, or "" if they do.
func idle(s *policy.Settings) string {
	switch {
	case !s.Ours:
		return "no hold is requested"
	case s.Mode != v1alpha1.ModeEnforce:
		return "the mode of the namespace is " + string(s.Mode)
	case s.AllowedDelay <= 0:
		return "no delay is allowed"
	}
	return ""
}

// decide calls the opinion of the configuration, with a cache.
func (l *Loop) decide(h *hold, view *kube.View, now time.Time, job sched.Job, settings policy.Settings) sched.Decision {
	work := h.work()
	until, _, closed := view.BudgetClosed(now, work.Namespace, work.Owners) // a budget may apply to a single object
	key := asking{
		alike: h.alike, submitted: h.submitted, finishBy: h.finishBy, asked: h.asked, latest: h.latest, closed: closed,
		until: until, sites: strings.Join(job.Sites, ","),
	}
	if l.opinions.view != view || !l.opinions.now.Equal(now) {
		l.opinions = opinions{view: view, now: now, of: map[asking]sched.Decision{}}
	}
	d, ok := l.opinions.of[key]
	if !ok {
		d = l.c.opinion(view, now, job, settings)
		l.opinions.of[key] = d
	}
	return d
}

// opinions caches the decisions of one iteration. Many Jobs differ only in their names and are planned one after
// the other.
type opinions struct {
	view *kube.View
	now  time.Time
	of   map[asking]sched.Decision
}

// asking is the cache key of a decision. It contains everything that the decision depends on.
type asking struct {
	alike                              unique.Handle[policy.Work]
	submitted, finishBy, latest, until time.Time
	asked                              uint64
	sites                              string
	closed                             bool
}

// A plan that depends only on a forecast changes at most once per minHold, and only if that saves at least minGain
// of the cost of starting immediately, or the MinSaving of the policy if that is more. Forecasts are published
// every five minutes to every hour, so a real change is delayed by no more than one forecast interval. A saving
// below minGain, which is also the default minimum saving for holding a job, does not justify moving a start.
const (
	minHold   = 5 * time.Minute
	minGain   = 0.01
	sameStart = time.Minute // starts that differ by less are considered equal
)

// steady reports whether a hold keeps its start although the decision has a different one. If that is temporary,
// steady schedules the hold for planning. Changes that are not caused by a forecast take effect immediately:
// deadlines, changes by users, thresholds that are met, budgets, and missing signals.
func (l *Loop) steady(h *hold, view *kube.View, now time.Time, job sched.Job, settings policy.Settings,
	d *sched.Decision,
) bool {
	held := d.Held(now)
	if h.reported.Equal(outdated) || !h.steadies(d, held) { // changes by users take effect immediately
		return false
	}
	if held && sameTime(d.Window.Start, h.start) {
		if h.reported.IsZero() { // the owner has not been notified yet, so use the current reason
			h.reason = unique.Make(d.Reason.String())
		}
		return true
	}
	if end := h.moved.Add(minHold); !h.moved.IsZero() && now.Before(end) {
		h.queue.ask(h, end)
		return true
	}
	// A hold with a threshold that will not be met in time is planned like one with "window".
	byCost := settings.When == "window" || settings.When == "threshold" || sched.StartRules[settings.When].Together
	if !held || h.basis != onForecast || d.Reason.Kind != sched.CheaperLater || !byCost {
		return false
	}
	saving, _, known := view.Saving(now, job, settings, h.start)
	return known && d.Reason.Saving-saving < max(minGain, settings.MinSaving)
}

// steadies reports whether the plan of the hold, or the change of its start, depends only on a forecast.
func (h *hold) steadies(d *sched.Decision, held bool) bool {
	return h.basis != unplanned && !h.rolls && d.Again.IsZero() && d.Reason.Kind != sched.BudgetUsedUp &&
		(held || h.basis == onForecast)
}

// sameTime reports whether two starts are considered equal.
func sameTime(a, b time.Time) bool { return a.Sub(b).Abs() < sameStart }
