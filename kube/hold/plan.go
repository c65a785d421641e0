package hold

import (
	"time"

	"k8s.io/klog/v2"

	"github.com/kubenergy/kubenergy/kube"
	"github.com/kubenergy/kubenergy/kube/api/v1alpha1"
	"github.com/kubenergy/kubenergy/sched"
)

// plan chooses the window of a hold on what is known now.
func (l *Loop) plan(logger klog.Logger, h *hold, view *kube.View, now time.Time) {
	h.seen, h.again = view, time.Time{}
	if h.unheld {
		return
	}
	if why := idle(&h.settings); why != "" && !h.job.Released {
		if h.settings.Mode != v1alpha1.ModeEnforce && now.Sub(h.work.Submitted()) < modeLag {
			h.seen = nil // admission may know better: see modeLag
			return
		}
		h.unheld, h.reason = true, why
		return
	}
	d, ok := l.decide(logger, view, now, h)
	switch {
	case ok && d.Held(now):
		start := earlier(d.Window.Start, h.latest)
		h.start, h.planned, h.reason = start, true, d.Reason.String()
		l.keepHold(h, now, d.Reason.Kind)
		h.hoping = d.Reason.Kind == sched.AboveThreshold && d.Reason.Until.IsZero()
		h.again, h.rolls = d.Again, !d.Again.IsZero()
		if d.Reason.Kind == sched.BudgetUsedUp {
			// What is known of a budget ages without a change of the view, and its hold ends with it, signals or not.
			h.again, h.hoping = now.Add(budgetLook), true
		}
		return
	case h.planned && !h.hoping && !h.job.Released && (!ok || blind(d.Reason.Kind)):
		h.rolls = false
		return // signals have vanished since: see the package documentation
	}
	h.unheld, h.reason = true, d.Reason.String()
}

// budgetLook is how often it is asked whether a budget that holds still does.
const budgetLook = 30 * time.Second

// blind reports whether a decision fell for want of signals.
func blind(k sched.ReasonKind) bool { return k == sched.NoFreshSignal || k == sched.BeyondForecast }

// modeLag is how long a new hold is given the benefit of the doubt where the mode seems to allow none: a namespace that was
// just switched to enforce is known to admission sooner than to us, and released is final.
const modeLag = 2 * time.Second

// idle returns why settings keep nothing from running; "" if they may.
func idle(s *kube.Settings) string {
	switch {
	case !s.Ours:
		return "nobody asks for it to be held"
	case s.Mode != v1alpha1.ModeEnforce:
		return "the mode here is " + string(s.Mode)
	case s.AllowedDelay <= 0:
		return "no delay is allowed"
	}
	return ""
}

// decide asks for an opinion. ok is false if that panicked: then there is none.
func (l *Loop) decide(logger klog.Logger, view *kube.View, now time.Time, h *hold) (d sched.Decision, ok bool) {
	defer func() {
		if r := recover(); r != nil {
			logger.Error(nil, "Planning panicked: not held", "job", h.job.ID, "panic", r)
			d, ok = sched.Decision{}, false
		}
	}()
	return l.opinion(view, now, h.job, h.settings), true
}
