package hold

import (
	"time"

	"k8s.io/klog/v2"

	"github.com/kubenergy/kubenergy/kube"
	"github.com/kubenergy/kubenergy/sched"
)

// plan chooses the window of a hold on what is known now.
func (l *Loop) plan(logger klog.Logger, h *hold, view *kube.View, now time.Time) {
	h.seen = view
	if h.unheld {
		return
	}
	snapshot := &sched.Snapshot{Now: now, Queue: []sched.Job{h.job}, Sites: view.Sites(), Policy: l.policy}
	d, ok := l.decide(logger, snapshot)
	switch {
	case ok && d.Held(now):
		start := earlier(d.Window.Start, h.latest)
		h.start, h.planned, h.reason = start, true, d.Reason.String()
		return
	case h.planned && !h.job.Released && (!ok || blind(d.Reason.Kind)):
		return // signals have vanished since: see the package documentation
	}
	h.unheld, h.reason = true, d.Reason.String()
}

// blind reports whether a decision fell for want of signals.
func blind(k sched.ReasonKind) bool { return k == sched.NoFreshSignal || k == sched.BeyondForecast }

// decide calls the strategy. ok is false if it panicked: then there is no opinion.
func (l *Loop) decide(logger klog.Logger, s *sched.Snapshot) (d sched.Decision, ok bool) {
	defer func() {
		if r := recover(); r != nil {
			logger.Error(nil, "Planning panicked: not held", "job", s.Queue[0].ID, "panic", r)
			d, ok = sched.Decision{}, false
		}
	}()
	return l.strategy.Plan(s)[0], true
}
