package hold

import (
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

// state is where a hold is in its life. Only these transitions exist; queue.enter makes all of them.
//
//	from               to         when
//	gone               waiting    a Job or a pod that may be held is seen
//	gone               freed      a Job is seen that must not be held
//	waiting, opened    lookingUp  its settings were read, and a CronJob made it (evaluate)
//	lookingUp          waiting    the CronJob's schedule is read, which may have moved its deadline (clampToTick)
//	waiting            waiting    it is planned for another window (keep)
//	waiting            opened     its window comes (wake), or a new plan says now
//	opened, freed      waiting    its settings changed (evaluate)
//	any before release freed      nothing holds it any longer: no policy, no data, no schedule of its CronJob
//	waiting, lookingUp releasing  its deadline comes (due)
//	opened             releasing  its turn or its deadline comes (due)
//	freed              releasing  with the next turn of the loop, or its deadline comes (due)
//	releasing          retrying   the attempt failed (fail)
//	retrying           releasing  the time of the next attempt comes (due)
//	any                gone       it was released, or the object is gone or no longer ours
type state uint8

const (
	gone      state = iota // never added, or no longer in the queue
	lookingUp              // the schedule of its CronJob is being read: neither planned nor woken
	waiting                // for its window; where it rolls, for its next plan
	opened                 // for its turn: its window has opened, which is final
	freed                  // nothing holds it: it goes with the next turn of the loop
	releasing              // an attempt to release it is under way
	retrying               // the attempt failed: for the next one
	states                 // how many there are
)

// basis is what the start of a hold rests on.
type basis uint8

const (
	unplanned  basis = iota // nothing: the start is the deadline
	fixed                   // what no forecast moves, or the plan of an earlier process
	onForecast              // later is cheaper
	onHope                  // no time is known: the next signals may meet its threshold, or its budget may recover
)

// hold is one Job or pod that is kept from running. It belongs to the goroutine of Run. There may be a hundred
// thousand, so what can be told from the view is asked there, and holds share equal values.
type hold struct {
	kube.HeldJob // of a pod, its UID and version

	name      string
	submitted time.Time                  // when the object was created
	finishBy  time.Time                  // that it asks for: an instant, so many differ in it
	alike     unique.Handle[policy.Work] // what else was read of it: see remember

	queue *queue // nil: none yet
	asked uint64 // what its plan depends on besides the view: see asks
	rank  int64  // the lower, the earlier its turn: see rankOf

	latest   time.Time // the deadline: nothing keeps it longer
	start    time.Time // of the chosen window; not after latest
	retry    time.Time // when the next attempt to release it is made, after one that failed
	again    time.Time // when it is planned anew even if nothing has changed; zero: never
	moved    time.Time // when its plan last changed; zero: never
	reported time.Time // the start that its condition or annotation names; zero: none; or outdated

	seen       *kube.View            // what it was planned on; nil: it is to be planned
	reason     unique.Handle[string] // of the plan
	unrecorded *unrecorded           // what is yet to be recorded of the plan; nil: nothing
	cron       *kube.Run             // of a CronJob that may not overlap; nil: none, or not known yet

	heapAt, askAt int32 // place in the heap of its state, and among those that ask again; 0: in none
	state, left   state // left: the state in which its release was decided
	basis         basis
	kind          sched.ReasonKind // why it was freed, if a plan says so; else NoOpinion
	failures      uint8            // attempts to release it that failed
	refused       uint8            // notes on it that were not written

	listed bool // it is in queue.todo
	rolls  bool // its plan is made anew at again, before which only its deadline lets it go
	cut    bool // its deadline was set to a time already past
	forced bool // its deadline let it go
	wrong  bool // its annotations make no sense
}

// outdated stands for the start of a plan that was made on other settings, and that its owner was told of.
var outdated = time.Unix(0, 0)

// settings is all that a plan depends on, besides what is known of the grids.
type settings struct {
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

// asks returns a sum of what a plan depends on: plans are made anew when it changes. The sum replaces 150 bytes of
// settings in each hold.
func asks(j *sched.Job, s *policy.Settings) uint64 {
	return maphash.Comparable(seed, settings{
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

// byRank orders holds by rank.
func byRank(a, b *hold) bool {
	if a.rank != b.rank {
		return a.rank < b.rank
	}
	return a.UID < b.UID
}

// byWindow orders holds by their window.
func byWindow(a, b *hold) bool {
	if !a.start.Equal(b.start) {
		return a.start.Before(b.start)
	}
	return byRank(a, b)
}

// remember takes in what was read of the object. What is the same in many, as runs of one CronJob and Jobs of one
// template are, is there once.
func (h *hold) remember(w policy.Work) {
	h.name, h.submitted, h.finishBy = w.Name, w.Submitted, w.Marks.FinishBy
	w.Owners.Owner = strings.TrimSuffix(w.Owners.Owner, "/"+w.Name) // most objects are charged to themselves
	w.Name, w.Submitted, w.Marks.FinishBy = "", time.Time{}, time.Time{}
	h.alike = unique.Make(w)
}

// work returns what was read of the object.
func (h *hold) work() policy.Work {
	w := h.alike.Value()
	w.Name, w.Submitted, w.Marks.FinishBy = h.name, h.submitted, h.finishBy
	if !strings.Contains(w.Owners.Owner, "/") {
		w.Owners.Owner += "/" + h.name
	}
	return w
}

func (h *hold) namespace() string { return h.alike.Value().Namespace }

// why returns the reason of the plan, for people.
func (h *hold) why() string {
	if h.reason == (unique.Handle[string]{}) {
		return ""
	}
	return h.reason.Value()
}

// cause tells people why it was released at a given time.
func (h *hold) cause(now time.Time, lead time.Duration) string {
	if h.left == freed || h.left == opened || h.start.Before(h.latest) && !now.Add(lead).Before(h.start) {
		return reasonReleased
	}
	return reasonDeadlineForced
}

// object refers to the Job or the pod.
func (h *hold) object() v1.ObjectReference {
	return h.queue.object(h.UID, h.namespace(), h.name)
}
