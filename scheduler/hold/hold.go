package hold

import (
	"hash/maphash"
	"math/bits"
	"time"
	"unique"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/kube"
	"github.com/kubenergy/kubenergy/policy"
	"github.com/kubenergy/kubenergy/sched"
)

// hold is one Job or pod that is kept from running. It belongs to the goroutine of Run. There may be a hundred
// thousand, so what can be told from the view is asked there, and what many have in common is there once.
type hold struct {
	uid     types.UID
	version string // resourceVersion
	work    policy.KeptWork
	asked   uint64 // what its plan depends on besides the view: see asks
	rank    int64  // the lower, the earlier its turn: see rankOf

	latest time.Time // the deadline: nothing keeps it longer
	start  time.Time // of the chosen window; not after latest
	retry  time.Time // the last attempt to release it went wrong: none before
	again  time.Time // when it is planned anew even if nothing has changed; zero: never
	moved  time.Time // when its plan last changed; zero: never
	said   time.Time // the start that its condition or annotation names; zero: none

	seen       *kube.View            // what it was planned on; nil: it is to be planned
	reason     unique.Handle[string] // of the plan
	unrecorded *unrecorded           // what is yet to be recorded of the plan; nil: nothing
	cron       *cronRun              // of a CronJob that may not overlap; nil: none, or not known yet

	at, askAt int32 // in the heap of its place, and in that of what is asked again; 0: in none
	place     place
	failures  uint8 // of attempts

	annotated bool // a Job: it has annotations
	unheld    bool // it is not to wait at all
	opened    bool // its window has opened, which is final: it waits for its turn only
	planned   bool // start came from a forecast, here or (a Job's) in an earlier process
	forecast  bool // and only a forecast keeps it: it waits because later is cheaper
	waiting   bool // for the schedule of its CronJob: not planned yet
	rolls     bool // its plan is made anew at again, before which nothing lets it go
	hoping    bool // its plan names no time, only a threshold that the next signals may meet
	listed    bool // it is in queue.todo
	untold    bool // it is in Loop.untold
	stale     bool // its owner was told of a plan that was made on other wishes
	cut       bool // its deadline was moved to before the moment at which that was said
	refused   int  // notes on it that were not written
	forced    bool // its deadline let it go
	handOver  bool // take off our label and leave the Job suspended: somebody else resumes it
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

// seed makes the sums of asks. Nothing but equality within a process depends on it.
var seed = maphash.MakeSeed()

// asks returns a sum of what a plan depends on: plans are made anew when it changes. It stands for 150 bytes.
func asks(j *sched.Job, s *policy.Settings) uint64 {
	return maphash.Comparable(seed, asked{
		delay: j.AllowedDelay, duration: j.Duration, finishBy: j.FinishBy.UTC(), released: j.Released,
		limits: j.Limits, when: s.When, weights: s.Weights, mode: s.Mode,
	})
}

// perDoubling is the head start that each doubling of a priority gives; users' priorities end at a billion, 2³⁰.
const perDoubling = 2 * time.Minute

// rankOf orders what waits for its turn: by age, and a priority counts as age, an hour up or down. So whatever keeps
// coming, nothing that was created two hours after a hold takes its turn.
func rankOf(created time.Time, priority int32) int64 {
	headStart := time.Duration(bits.Len32(uint32(max(priority, -priority)))) * perDoubling
	if priority < 0 {
		headStart = -headStart
	}
	return created.Add(-headStart).UnixNano()
}

// turns orders holds by rank.
func turns(a, b *hold) bool {
	if a.rank != b.rank {
		return a.rank < b.rank
	}
	return a.uid < b.uid
}

// opens orders holds by their window.
func opens(a, b *hold) bool {
	if !a.start.Equal(b.start) {
		return a.start.Before(b.start)
	}
	return turns(a, b)
}

// why returns the reason of the plan, for people.
func (h *hold) why() string {
	if h.reason == (unique.Handle[string]{}) {
		return ""
	}
	return h.reason.Value()
}

// letGo makes it one that is not to wait.
func (h *hold) letGo(why string) { h.unheld, h.reason = true, unique.Make(why) }

// patch returns what patches need of the Job.
func (h *hold) patch() kube.HeldJob {
	return kube.HeldJob{UID: h.uid, Version: h.version, Annotated: h.annotated}
}

// cause tells people why it was released at a given time.
func (h *hold) cause(now time.Time, lead time.Duration) string {
	if h.unheld || h.opened || h.start.Before(h.latest) && !now.Add(lead).Before(h.start) {
		return reasonReleased
	}
	return reasonDeadlineForced
}
