package hold

import (
	"strings"
	"time"
	"unique"

	"k8s.io/klog/v2"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/kube/panics"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/timeutil"
)

// question returns the job and the settings of a hold as a view has them. The job's allowed delay ends at the hold's
// deadline.
func (h *hold) question(view *kube.View) (sched.Job, policy.Settings) {
	job, settings := h.settled(view)
	job.AllowedDelay = h.latest.Sub(job.Submitted)
	return job, settings
}

// settled returns the same with the delay that the object is allowed.
func (h *hold) settled(view *kube.View) (sched.Job, policy.Settings) {
	work := h.work()
	return view.Settle(&work)
}

// plan chooses the window of a hold on what is known now.
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

// choose chooses the window of a hold that may wait where it is.
func (l *Loop) choose(logger klog.Logger, h *hold, view *kube.View, now time.Time, job sched.Job,
	settings policy.Settings,
) {
	q := h.queue
	d, ok := l.decide(logger, h, view, now, job, settings)
	if ok && !l.jointly(h, now, &settings, &d) {
		return // until there is a plan
	}
	switch {
	case ok && l.steady(h, view, now, job, settings, &d):
	case ok && d.Held(now):
		l.keep(h, now, &d)
	case h.basis != unplanned && h.basis != onHope && !job.Released && (!ok || blind(d.Reason.Kind)):
		h.rolls = false // signals have vanished since: see the package documentation
		q.enter(h, waiting)
	case h.basis != unplanned && ok && !job.Released:
		// It has waited for this, as others may have: they take turns.
		h.reason = unique.Make(d.Reason.String())
		q.enter(h, opened)
	default:
		q.free(h, notHeld(&d, &job, now))
		h.kind = d.Reason.Kind
	}
}

// locate says where a job may run, and reports whether that is known.
func (l *Loop) locate(job *sched.Job) (known bool) {
	if l.c.Sites == nil {
		return true
	}
	job.Sites, known = l.c.Sites(job.ID)
	return known
}

// blind reports whether a decision fell for want of signals.
func blind(k sched.ReasonKind) bool { return k == sched.NoFreshSignal || k == sched.BeyondForecast }

// unplan lets go what nothing keeps.
func (q *queue) unplan(h *hold, mode v1alpha1.Mode, why string, now time.Time) {
	if young := h.submitted.Add(modeLag); mode != v1alpha1.ModeEnforce && now.Before(young) {
		q.ask(h, young) // admission may know better: see modeLag
		return
	}
	q.free(h, why)
}

// notHeld tells owners why nothing keeps a hold. The core reports AlreadyReleased for all that is to be let go, and
// NoRoom where it was offered no node.
func notHeld(d *sched.Decision, job *sched.Job, now time.Time) string {
	if d.Reason.Kind != sched.AlreadyReleased && d.Reason.Kind != sched.NoRoom {
		return d.Reason.String()
	}
	if why := policy.NoTime(now, job); why != "" && !job.Released {
		return why
	}
	return "it is asked to run now, or not to be held"
}

// keep lets a hold wait for the window that was decided.
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
		// What is known of a budget ages without a change of the view, and its hold ends with it, signals or not.
		again, h.basis = now.Add(budgetLook), onHope
	case d.Reason.Kind == sched.AboveThreshold && d.Reason.Until.IsZero():
		h.basis = onHope
	case d.Reason.Kind == sched.CheaperLater && !h.rolls:
		h.basis = onForecast
	}
	h.queue.enter(h, waiting)
	h.queue.ask(h, again)
}

// budgetLook is how often it is asked whether a budget that holds still does.
const budgetLook = 30 * time.Second

// modeLag is how long a new hold is given the benefit of the doubt where the mode seems to allow none: a namespace
// that was just switched to enforce is known to admission sooner than to us, and released is final.
const modeLag = 2 * time.Second

// idle returns why settings keep nothing from running; "" if they may.
func idle(s *policy.Settings) string {
	switch {
	case !s.Ours:
		return "it does not ask to be held"
	case s.Mode != v1alpha1.ModeEnforce:
		return "the mode here is " + string(s.Mode)
	case s.AllowedDelay <= 0:
		return "no delay is allowed"
	}
	return ""
}

// decide asks for an opinion. ok is false if that panicked, or too much does: then there is none. What was not planned
// is let go.
func (l *Loop) decide(logger klog.Logger, h *hold, view *kube.View, now time.Time, job sched.Job,
	settings policy.Settings,
) (d sched.Decision, ok bool) {
	defer func() {
		if r := recover(); r != nil {
			panics.Count("hold")
			logger.Error(nil, "Planning panicked: not held", "job", job.ID, "panic", r)
			d, ok = sched.Decision{}, false
		}
	}()
	if panics.Open() {
		return sched.Decision{}, false
	}
	work := h.work()
	until, _, closed := view.BudgetClosed(now, work.Namespace, work.Owners) // a budget may be that of one object
	key := asking{
		alike: h.alike, submitted: h.submitted, finishBy: h.finishBy, asked: h.asked, latest: h.latest, closed: closed,
		until: until, sites: strings.Join(job.Sites, ","),
	}
	if l.opinions.view != view || !l.opinions.now.Equal(now) {
		l.opinions = opinions{view: view, now: now, of: map[asking]sched.Decision{}}
	}
	d, ok = l.opinions.of[key]
	if !ok {
		d = l.c.opinion(view, now, job, settings)
		l.opinions.of[key] = d
	}
	return d, true
}

// opinions are those of one turn: many Jobs differ in nothing but their names, and are asked about one after the other.
type opinions struct {
	view *kube.View
	now  time.Time
	of   map[asking]sched.Decision
}

// asking is all that an opinion is of.
type asking struct {
	alike                              unique.Handle[policy.Work]
	submitted, finishBy, latest, until time.Time
	asked                              uint64
	sites                              string
	closed                             bool
}

// A plan that only a forecast changes is changed at most once in minHold, and only where that saves at least
// minGain of what starting at once would cost, or the policy's MinSaving if that is more. Forecasts come every five
// minutes to every hour, so real news waits for no longer than the next ones would. A saving below
// minGain, which is also the least saving that holds by default, is not worth moving a start for.
const (
	minHold   = 5 * time.Minute
	minGain   = 0.01
	sameStart = time.Minute // starts that differ by less are the same
)

// steady reports whether a hold keeps its start although a decision names another, and lets it be asked again where
// that is for a time only. What is no forecast is obeyed at once: deadlines, people, thresholds that are met, budgets,
// and signals that vanish.
func (l *Loop) steady(h *hold, view *kube.View, now time.Time, job sched.Job, settings policy.Settings,
	d *sched.Decision,
) bool {
	held := d.Held(now)
	if h.reported.Equal(outdated) || !h.steadies(d, held) { // people are obeyed at once
		return false
	}
	if held && sameTime(d.Window.Start, h.start) {
		if h.reported.IsZero() { // what its owner will be told is what it stands on now
			h.reason = unique.Make(d.Reason.String())
		}
		return true
	}
	if end := h.moved.Add(minHold); !h.moved.IsZero() && now.Before(end) {
		h.queue.ask(h, end)
		return true
	}
	// A threshold that will not be met in time is held for as with "window".
	byCost := settings.When == "window" || settings.When == "threshold"
	if !held || h.basis != onForecast || d.Reason.Kind != sched.CheaperLater || !byCost {
		return false
	}
	saving, _, known := view.Saving(now, job, settings, h.start)
	return known && d.Reason.Saving-saving < max(minGain, settings.MinSaving)
}

// steadies reports whether nothing but a forecast made the plan of a hold, or now changes when it is to start.
func (h *hold) steadies(d *sched.Decision, held bool) bool {
	return h.basis != unplanned && !h.rolls && d.Again.IsZero() && d.Reason.Kind != sched.BudgetUsedUp &&
		(held || h.basis == onForecast)
}

// sameTime reports whether two starts differ by too little to move anything.
func sameTime(a, b time.Time) bool { return a.Sub(b).Abs() < sameStart }
