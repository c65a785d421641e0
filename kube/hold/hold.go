package hold

import (
	"cmp"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubenergy/kubenergy/kube"
	"github.com/kubenergy/kubenergy/kube/api/v1alpha1"
	"github.com/kubenergy/kubenergy/sched"
)

// hold is one Job or pod that is kept from running. It belongs to the goroutine of Run.
type hold struct {
	uid             types.UID
	namespace, name string
	work            *kube.Work
	settings        kube.Settings
	job             sched.Job // its AllowedDelay ends at latest
	asked           asked
	latest          time.Time   // the deadline: nothing keeps it longer
	start           time.Time   // of the chosen window; not after latest
	releaseBy       time.Time   // set by queue.spread
	retry           time.Time   // no attempt before: the last one went wrong
	again           time.Time   // when it is planned anew even if nothing has changed; zero: never
	seen            *kube.View  // what it was planned on
	reason          string      // of the plan
	unrecorded      *unrecorded // what is yet to be recorded of the plan; nil: nothing
	said            time.Time   // the start that its condition or annotation names; zero: none
	version         string      // resourceVersion of a pod
	patch           kube.HeldJob
	cron            *seenJob // of a CronJob that may not overlap; nil: none, or not known yet
	unheld          bool     // the plan is to run now
	planned         bool     // start came from a forecast, here or (a Job's) in an earlier process
	waiting         bool     // for the schedule of its CronJob: not planned yet
	rolls           bool     // its plan is made anew at again, before which nothing lets it go
	hoping          bool     // its plan names no time, only a threshold that the next signals may meet
	releasing       bool     // an attempt is under way
	failures        uint8    // of attempts
	handOver        bool     // take off our label and leave the Job suspended: somebody else resumes it
}

// asked is all that a plan depends on, besides what is known of the grids.
type asked struct {
	delay, duration time.Duration
	finishBy        time.Time
	released        bool
	limits          sched.Limits
	when            string
	weights         sched.Weights
	mode            v1alpha1.Mode
}

func asks(j *sched.Job, s *kube.Settings) asked {
	return asked{
		delay: j.AllowedDelay, duration: j.Duration, finishBy: j.FinishBy.UTC(), released: j.Released,
		limits: j.Limits, when: s.When, weights: s.Weights, mode: s.Mode,
	}
}

func (h *hold) compare(o *hold) int {
	return cmp.Or(h.latest.Compare(o.latest), cmp.Compare(h.uid, o.uid))
}

// lastCall returns when the hold is released whatever the plan says. Only the Lease holder and pods' own queues use the
// exact instant of the ramp.
func (h *hold) lastCall(early bool) time.Time {
	if early {
		return h.releaseBy
	}
	return earlier(h.releaseBy.Add(standbyLag), h.latest)
}

// opens returns when the plan lets it go.
func (h *hold) opens(lead time.Duration) time.Time {
	switch {
	case h.unheld:
		return time.Time{}
	case h.rolls:
		return h.latest
	}
	return h.start.Add(-lead)
}

// cause tells people why it was released at a given time.
func (h *hold) cause(now time.Time, lead time.Duration) string {
	if h.unheld || h.start.Before(h.latest) && !now.Add(lead).Before(h.start) {
		return reasonReleased
	}
	return reasonDeadlineForced
}
