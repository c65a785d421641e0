package hold

import (
	"cmp"
	"log/slog"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/kube/panics"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/sched"
)

// ruleTogether is the rule under which all that is held is planned together.
const ruleTogether = "plan"

// together is the plan over all that the rule "plan" holds. It is made beside the loop, which never waits for it: what
// it does not know of yet stays held for a moment, and deadlines are kept all the same. While no plan can be made, each
// hold is planned alone, as by the rule "window".
type together struct {
	nodes  func(view *kube.View, now time.Time) []sched.Node   // nil: not known, each is planned alone
	record func(s *sched.Snapshot, plan sched.Plan, looks int) // nil: nothing is recorded
	most   int                                                 // holds in a plan
	broken bool                                                // the last one could not be made
	busy   bool                                                // one is being made
	wanted bool                                                // something waits for the next one
	began  time.Time                                           // the last one
	next   time.Time                                           // from when another may be begun
	of     map[types.UID]sched.Decision
	jobs   map[types.UID]sched.Job // that the last plan is of
	apart  map[types.UID]bool      // holds that it leaves out: each is planned alone
}

// A plan is begun every planEvery, after planSoon if something new is held, and never before planShare times as long
// has passed as the last one took. It knows maxPlanned holds: those of each namespace have the same share, pods first
// and the earliest deadlines first. After planLimit it is not improved any more. Where one takes longer than timeout,
// each hold is planned alone; after one that panicked, another is begun after as long.
const (
	planEvery  = 10 * time.Second
	planSoon   = time.Second
	planShare  = 20
	maxPlanned = 20_000
	planLimit  = 2 * time.Second
	timeout    = time.Minute
)

// Nodes tells how the loop finds out what machines there are, what runs on them, and until when: without it, each hold
// is planned alone. Any goroutine calls it.
func (l *Loop) Nodes(nodes func(view *kube.View, now time.Time) []sched.Node) {
	l.post(func() { l.together.nodes = nodes })
}

// jointly replaces what was decided on a hold alone by what the plan over all holds says. ok is false where the plan
// that knows of it is yet to be made.
func (l *Loop) jointly(h *hold, now time.Time, settings *policy.Settings, d *sched.Decision) (ok bool) {
	t := &l.together
	stuck := t.busy && now.Sub(t.began) > timeout
	mayWait := d.Reason.Kind == sched.CheaperLater || d.Reason.Kind == sched.NothingToSave
	if settings.When != ruleTogether || t.nodes == nil || t.broken || stuck || !mayWait || t.apart[h.UID] {
		return true
	}
	planned, ok := t.of[h.UID]
	if !ok {
		t.wanted = true
		h.queue.ask(h, now.Add(planEvery)) // a plan asks sooner
		return false
	}
	if planned.Reason.Kind == sched.NoOpinion { // no machine is large enough, as for a Job of many pods
		return true
	}
	*d = planned
	// Each plan may move starts by a little: owners are not to be told every few seconds, the less the longer it waits.
	const seldom = 10
	rest := min(minHold, h.start.Sub(now)/seldom)
	if d.Held(now) && h.rolls && rest > 0 && now.Before(h.moved.Add(rest)) {
		d.Window.Start = h.start
	}
	d.Again = d.Window.Start
	return true
}

// replan begins a plan over all holds that wait under the rule, if it is time for one.
func (l *Loop) replan(now time.Time) {
	t := &l.together
	if t.busy || now.Before(t.next) || !t.wanted && (len(t.of) == 0 || now.Sub(t.began) < planEvery) {
		return
	}
	t.wanted = false
	l.planTogether(l.known(), now)
}

// planTogether begins a plan over all holds that wait under the rule.
func (l *Loop) planTogether(view *kube.View, now time.Time) {
	t := &l.together
	uids, snapshot := l.allWaiting(view, now)
	if len(uids) == 0 {
		t.of, t.jobs, t.apart = nil, nil, nil
		return
	}
	t.jobs = make(map[types.UID]sched.Job, len(uids))
	for i, uid := range uids {
		t.jobs[uid] = snapshot.Queue[i]
	}
	t.busy, t.began = true, now
	nodes, record := t.nodes, t.record
	began := time.Now()
	go func() { // it ends within its limit
		of := map[types.UID]sched.Decision{}
		log := slog.New(logr.ToSlogHandler(klog.Background()))
		var plan sched.Plan
		var looks int
		ok := panics.Survive(log, "plan", "all that is held", func() {
			stop := func() bool { return time.Since(began) > planLimit }
			plan, looks = policy.PlanTogether(snapshot, nodes(view, now), stop)
			for i, d := range plan {
				of[uids[i]] = d
			}
		})
		if ok && record != nil { // a plan that cannot be recorded is carried out all the same
			panics.Survive(log, "plan", "recording a plan", func() { record(snapshot, plan, looks) })
		}
		l.post(func() { l.adopt(of, ok, time.Since(began)) }) // with the time that recording took: see planShare
	}()
}

// allWaiting returns the jobs of a plan: all holds that wait under the rule, and what was released and has no node yet,
// because that takes room. If there are more holds than fit, namespaces take turns, so that none can displace the holds
// of others. A plan has one policy, which is chosen by mainPolicy; holds under another are left out.
func (l *Loop) allWaiting(view *kube.View, now time.Time) (uids []types.UID, s *sched.Snapshot) {
	s = &sched.Snapshot{Now: now, Sites: view.Sites()}
	l.together.apart = map[types.UID]bool{}
	all := l.candidates()
	if len(all) > l.together.most {
		slices.SortStableFunc(all, func(a, b candidate) int { return cmp.Compare(a.turn, b.turn) })
	}
	var taken []planned
	for _, c := range all {
		if len(taken) == l.together.most {
			l.together.apart[c.hold.UID] = true
		} else if job, settings, ok := l.plannable(c.hold, view, now); ok {
			p := planned{c, job, settings.Policy()}
			p.policy.MaxDelay = 0 // the job's allowed delay heeds it
			taken = append(taken, p)
		}
	}
	slices.SortFunc(taken, func(a, b planned) int { return cmp.Compare(a.place, b.place) })
	s.Policy = mainPolicy(taken)
	for _, c := range taken {
		if c.policy != s.Policy {
			l.together.apart[c.hold.UID] = true
			continue
		}
		uids, s.Queue = append(uids, c.hold.UID), append(s.Queue, c.job)
	}
	for uid := range l.starts.Range {
		if job, known := l.together.jobs[uid.(types.UID)]; known {
			job.Released = true
			uids, s.Queue = append(uids, uid.(types.UID)), append(s.Queue, job)
		}
	}
	return uids, s
}

// candidate is a hold that may be planned with others.
type candidate struct {
	hold  *hold
	place int // among all: pods first, then the earliest deadlines
	turn  int // among those of its namespace
}

// planned is a candidate as a plan sees it.
type planned struct {
	candidate
	job    sched.Job
	policy sched.Policy
}

// candidates returns all holds by place.
func (l *Loop) candidates() (all []candidate) {
	turns := map[string]int{}
	for _, q := range [2]*queue{l.pods, l.jobs} {
		q.order.sort()
		for h := range q.order.all() {
			namespace := h.namespace()
			all = append(all, candidate{hold: h, place: len(all), turn: turns[namespace]})
			turns[namespace]++
		}
	}
	return all
}

// mainPolicy returns the policy of the most namespaces, then of the most holds, then of the first one.
func mainPolicy(all []planned) (main sched.Policy) {
	type backing struct {
		policy    sched.Policy
		namespace string
	}
	seen, votes := map[backing]bool{}, map[sched.Policy]int{}
	for _, c := range all {
		by := backing{c.policy, c.hold.namespace()}
		if !seen[by] {
			seen[by] = true
			votes[c.policy] += len(all)
		}
		votes[c.policy]++
	}
	most := 0
	for _, c := range all {
		if n := votes[c.policy]; n > most {
			main, most = c.policy, n
		}
	}
	return main
}

// plannable returns a hold as a plan sees it, if it waits under the rule and nothing but a plan keeps it.
func (l *Loop) plannable(h *hold, view *kube.View, now time.Time) (job sched.Job, s policy.Settings, ok bool) {
	if job, s = h.question(view); h.state != waiting && h.state != opened || s.When != ruleTogether || idle(&s) != "" {
		return job, s, false
	}
	work := h.work()
	if _, _, closed := view.BudgetClosed(now, work.Namespace, work.Owners); closed {
		return job, s, false
	}
	l.locate(&job)
	job.Released = h.state == opened // it starts as soon as it is its turn
	if d, known := l.together.of[h.UID]; known && d.Held(now) {
		job.Place = d.Place()
	}
	return job, s, true
}

// adopt takes in a plan, and lets all that it is about be looked at again.
func (l *Loop) adopt(of map[types.UID]sched.Decision, ok bool, took time.Duration) {
	t := &l.together
	t.busy, t.broken, t.of = false, !ok, of
	t.next = l.clock.Now().Add(max(planSoon, planShare*took))
	if t.broken { // what made it panic is probably there to stay
		t.next, t.wanted = l.clock.Now().Add(timeout), true
	}
	for _, q := range [2]*queue{l.pods, l.jobs} {
		for uid, h := range q.byUID {
			if _, planned := of[uid]; (planned || t.apart[uid]) && h.state == waiting {
				q.plan(h)
			}
		}
	}
}
