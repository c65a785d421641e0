package hold

import (
	"fmt"
	"hash/maphash"
	"math/bits"
	"strings"
	"time"
	"unique"

	v1 "k8s.io/api/core/v1"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/sched"
)

// state is the state of a hold in its lifecycle. The following transitions exist, and queue.enter performs all of
// them.
//
//	from               to         when
//	gone               waiting    a Job or a pod that may be held is added
//	gone               freed      a Job that must not be held is added
//	waiting, opened    lookingUp  its settings have been read, and a CronJob created it (evaluate)
//	lookingUp          waiting    the schedule of its CronJob is read, which may change its deadline (clampToTick)
//	waiting            waiting    it is planned for another window (keep)
//	waiting            opened     its window opens (wake), or a new plan starts it now
//	opened, freed      waiting    its settings have changed (evaluate)
//	any before release freed      there is no reason to hold it any longer: no policy, data or schedule of its CronJob
//	waiting, lookingUp releasing  its deadline is reached (due)
//	opened             releasing  its turn or its deadline is reached (due)
//	freed              releasing  in the next iteration of the loop, or when its deadline is reached (due)
//	releasing          retrying   the attempt failed (fail)
//	retrying           releasing  the next attempt is due (due)
//	any                gone       it was released, or the object was deleted or is no longer managed by the loop
type state uint8

const (
	gone      state = iota // not in the queue
	lookingUp              // waits for the schedule of its CronJob to be read; is neither planned nor opened
	waiting                // waits for its window or, if its plan is rolling, for its next plan
	opened                 // waits for its turn; its window has opened, which is final
	freed                  // is released in the next iteration of the loop
	releasing              // an attempt to release it is in progress
	retrying               // waits for the next attempt, because the last one failed
	states                 // number of states
)

// basis is the basis of a hold's planned start.
type basis uint8

const (
	unplanned  basis = iota // not planned yet; the start is the deadline
	fixed                   // a plan that does not depend on a forecast, or the plan of an earlier process
	onForecast              // a later start is cheaper according to the forecast
	onHope                  // unknown start: a signal may fall below its threshold, or a budget may recover
)

// hold is a Job or pod that is kept from running. It is only accessed by the goroutine of Run. There may be a
// hundred thousand holds, so they share equal values, and everything that can be derived from the view is derived
// on demand.
type hold struct {
	kube.HeldJob // only UID and Version are set for a pod

	name      string
	submitted time.Time                  // creation time of the object
	finishBy  time.Time                  // requested completion time, which often differs between similar objects
	alike     unique.Handle[policy.Work] // other properties of the object, see remember

	queue *queue // nil if the hold has not been added to a queue
	asked uint64 // hash of the settings that its plan depends on, see asks
	rank  int64  // position in the order of turns, lowest first; see rankOf

	latest   time.Time // the deadline, at which the hold is released unconditionally
	start    time.Time // start of the chosen window, at most latest
	retry    time.Time // time of the next attempt to release the hold after a failed one
	again    time.Time // time of the next planning even if nothing changes; zero if there is none
	moved    time.Time // time of the last change of the plan; zero if it never changed
	reported time.Time // start in the condition or annotation on the object; zero if there is none; or outdated

	seen       *kube.View            // view of the last planning; nil if the hold must be planned
	reason     unique.Handle[string] // reason for the plan
	unrecorded *unrecorded           // decision that has not been recorded yet; nil if there is none
	cron       *kube.Run             // run of a CronJob that forbids overlapping runs; nil if there is none

	heapAt, askAt int32 // positions in the heap of its state and in the heap askers, from 1; 0 if not in the heap
	state, left   state // left is the state in which the release was decided
	basis         basis
	// reason of the plan that freed the hold; NoOpinion if it was freed for another reason
	kind     sched.ReasonKind
	failures uint8 // number of failed attempts to release
	refused  uint8 // number of failed notes

	listed bool // in queue.todo
	rolls  bool // the plan is rolling: it is renewed at the time again, and only the deadline releases the hold before
	cut    bool // the deadline had already passed when it was set
	forced bool // released because of the deadline
	wrong  bool // the annotations are invalid
}

// outdated is a special value of hold.reported. The reported plan was made with settings that have changed since.
var outdated = time.Unix(0, 0)

// settings contains everything that a plan depends on except the signals of the grid.
type settings struct {
	delay, duration time.Duration
	done, restart   time.Duration
	finishBy        time.Time
	released        bool
	interruptible   bool
	scaling         string
	limits          sched.Limits
	when            string
	weights         sched.Weights
	mode            v1alpha1.Mode
}

// seed is the random seed of the hashes of asks, which are only compared within a process.
var seed = maphash.MakeSeed()

// asks returns a hash of the settings that a plan depends on. The hold is planned again when it changes. Storing
// the hash saves 150 bytes of settings per hold.
func asks(j *sched.Job, s *policy.Settings) uint64 {
	scaling := ""
	if j.Scaling != nil {
		scaling = fmt.Sprint(*j.Scaling)
	}
	return maphash.Comparable(seed, settings{
		scaling: scaling,
		delay:   j.AllowedDelay, duration: j.Duration, done: j.Done, restart: j.RestartCost,
		finishBy: j.FinishBy.UTC(), released: j.Released, interruptible: j.Interruptible,
		limits: j.Limits, when: s.When, weights: s.Weights, mode: s.Mode,
	})
}

// perDoubling is the head start for each doubling of the priority. Priorities of users are at most a billion, about
// 2³⁰.
const perDoubling = 2 * time.Minute

// rankOf returns the rank by which holds take turns. It is the creation time minus a head start of at most an hour
// for the priority, or plus a delay of at most an hour if the priority is negative. Therefore a hold is never
// overtaken by an object that was created two hours later.
func rankOf(created time.Time, priority int32) int64 {
	headStart := time.Duration(bits.Len32(uint32(max(priority, -priority)))) * perDoubling
	if priority < 0 {
		headStart = -headStart
	}
	return created.Add(-headStart).UnixNano()
}

// byRank reports whether a comes before b by rank.
func byRank(a, b *hold) bool {
	if a.rank != b.rank {
		return a.rank < b.rank
	}
	return a.UID < b.UID
}

// byWindow reports whether a comes before b by the start of its window.
func byWindow(a, b *hold) bool {
	if !a.start.Equal(b.start) {
		return a.start.Before(b.start)
	}
	return byRank(a, b)
}

// remember stores the properties of the object. Properties that are equal for many objects, such as the runs of one
// CronJob or Jobs with the same template, are shared.
func (h *hold) remember(w policy.Work) {
	h.name, h.submitted, h.finishBy = w.Name, w.Submitted, w.Marks.FinishBy
	w.Owners.Owner = strings.TrimSuffix(w.Owners.Owner, "/"+w.Name) // most objects are their own owner
	w.Name, w.Submitted, w.Marks.FinishBy = "", time.Time{}, time.Time{}
	h.alike = unique.Make(w)
}

// work returns the properties of the object that remember has stored.
func (h *hold) work() policy.Work {
	w := h.alike.Value()
	w.Name, w.Submitted, w.Marks.FinishBy = h.name, h.submitted, h.finishBy
	if !strings.Contains(w.Owners.Owner, "/") {
		w.Owners.Owner += "/" + h.name
	}
	return w
}

func (h *hold) namespace() string { return h.alike.Value().Namespace }

// why returns the human-readable reason for the plan.
func (h *hold) why() string {
	if h.reason == (unique.Handle[string]{}) {
		return ""
	}
	return h.reason.Value()
}

// cause returns the event reason for a release at the given time.
func (h *hold) cause(now time.Time, lead time.Duration) string {
	if h.left == freed || h.left == opened || h.start.Before(h.latest) && !now.Add(lead).Before(h.start) {
		return reasonReleased
	}
	return reasonDeadlineForced
}

// object returns a reference to the Job or the pod.
func (h *hold) object() v1.ObjectReference {
	return h.queue.object(h.UID, h.namespace(), h.name)
}
