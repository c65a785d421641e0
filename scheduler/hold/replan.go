package hold

import (
	"time"

	"github.com/kubenergy/kubenergy/kube"
	"github.com/kubenergy/kubenergy/policy"
	"github.com/kubenergy/kubenergy/sched"
)

// A plan that only a forecast changes is changed at most once in leastHold, and only where that saves at least
// leastGain of what starting at once would cost, or the policy's MinSaving if that is more. Forecasts come every five
// minutes to every hour, so real news waits for no longer than the next ones would. People for whom a hold for less
// than a hundredth is not worth it, as is built in, do not want to be moved about for less either.
const (
	leastHold = 5 * time.Minute
	leastGain = 0.01
	sameStart = time.Minute // starts that differ by less are the same
)

// steady reports whether a hold keeps its start although a decision names another, and lets it be asked again where
// that is for a time only. What is no forecast is obeyed at once: deadlines, people, thresholds that are met, budgets,
// and signals that vanish.
func (l *Loop) steady(h *hold, view *kube.View, now time.Time, job sched.Job, settings policy.Settings,
	d *sched.Decision,
) bool {
	held := d.Held(now)
	if h.told.Equal(outdated) || !h.steadies(d, held) { // people are obeyed at once
		return false
	}
	if held && sameTime(d.Window.Start, h.start) {
		return true
	}
	if end := h.moved.Add(leastHold); !h.moved.IsZero() && now.Before(end) {
		h.queue.ask(h, end)
		return true
	}
	if !held || h.basis != onForecast || d.Reason.Kind != sched.CheaperLater || settings.When != "window" {
		return false
	}
	saving, known := view.Saving(now, job, settings, h.start)
	return known && d.Reason.Saving-saving < max(leastGain, settings.MinSaving)
}

// steadies reports whether nothing but a forecast made the plan of a hold, or now changes when it is to start.
func (h *hold) steadies(d *sched.Decision, held bool) bool {
	return h.basis != unplanned && !h.rolls && d.Again.IsZero() && d.Reason.Kind != sched.BudgetUsedUp &&
		(held || h.basis == onForecast)
}

// sameTime reports whether two starts differ by too little to move anything.
func sameTime(a, b time.Time) bool {
	apart := a.Sub(b)
	return apart < sameStart && apart > -sameStart
}
