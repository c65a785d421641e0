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

// together is the joint plan of all holds with a rule that plans jointly, such as "guarded". It is computed outside
// the loop, which never waits for it. New objects remain held until the next plan, and deadlines are enforced
// regardless. If no plan can be made, each hold is planned separately, as a single job under its rule.
type together struct {
	// nil if nodes are not available, in which case holds are planned separately
	nodes  func(view *kube.View, now time.Time) []sched.Node
	record func(string, *sched.Snapshot, sched.Plan, int) // see [Config.RecordPlan]
	most   int                                            // max number of holds in a plan
	rule   string                                         // rule of the last plan
	broken bool                                           // the last plan failed
	busy   bool                                           // a plan is in progress
	wanted bool                                           // a hold waits for the next plan
	began  time.Time                                      // start of the last plan
	next   time.Time                                      // earliest start of the next plan
	of     map[types.UID]sched.Decision                   // decisions of the last plan, by UID
	jobs   map[types.UID]sched.Job                        // jobs of the last plan
	apart  map[types.UID]bool                             // holds that are planned separately
	// shortages are recorded at each plan, and at least every lookEvery. Only the goroutine of a plan uses them.
	shortages sched.Shortages
}

// A plan starts every planEvery, or after planSoon if there is a new hold, but not before planShare times the
// duration of the last plan has passed. It contains at most maxPlanned holds, which are distributed equally among
// namespaces, pods before Jobs and early deadlines first. The planner stops improving the plan after planLimit. If
// a plan takes longer than timeout, each hold is planned separately. After a panic, the next plan starts after
// timeout.
const (
	planEvery  = 10 * time.Second
	lookEvery  = time.Minute
	planSoon   = time.Second
	planShare  = 20
	maxPlanned = 20_000
	planLimit  = 2 * time.Second
	timeout    = time.Minute
)

// Nodes sets the function that returns the nodes with their running work and its expected end. Without it, each
// hold is planned separately. The function is called from any goroutine.
func (l *Loop) Nodes(nodes func(view *kube.View, now time.Time) []sched.Node) {
	l.post(func() { l.together.nodes = nodes })
}

// jointly replaces the decision for a single hold with that of the joint plan. ok is false if the hold is not part
// of a plan yet.
func (l *Loop) jointly(h *hold, now time.Time, settings *policy.Settings, d *sched.Decision) (ok bool) {
	t := &l.together
	stuck := t.busy && now.Sub(t.began) > timeout
	mayWait := d.Reason.Kind == sched.CheaperLater || d.Reason.Kind == sched.NothingToSave ||
		d.Reason.Kind == sched.FlatSignal
	if !sched.StartRules[settings.When].Together || t.nodes == nil || t.broken || stuck || !mayWait || t.apart[h.UID] {
		return true
	}
	planned, ok := t.of[h.UID]
	if !ok {
		t.wanted = true
		h.queue.ask(h, now.Add(planEvery)) // a new plan triggers planning sooner
		return false
	}
	if planned.Reason.Kind == sched.NoOpinion { // no node is large enough, e.g. for a Job with many pods
		return true
	}
	alone := d.Reason
	if *d = planned; !d.Held(now) {
		d.Reason = startsNow(d.Reason, alone)
	}
	// Plans may move starts slightly. Limit the notifications of the owner, more so the longer the hold still has
	// to wait.
	const seldom = 10
	rest := min(minHold, h.start.Sub(now)/seldom)
	if d.Held(now) && h.rolls && rest > 0 && now.Before(h.moved.Add(rest)) {
		d.Window.Start = h.start
	}
	d.Again = d.Window.Start
	return true
}

// startsNow returns the reason for not delaying a hold, given the reasons of the joint plan and of the decision for the
// hold alone. If waiting does not pay off for the hold alone, this is the reason, regardless of the plan.
func startsNow(plan, alone sched.Reason) sched.Reason {
	switch {
	case alone.Kind != sched.CheaperLater:
		return alone
	case plan.Kind == sched.Cheapest, plan.Kind == sched.NoRoom, plan.Kind == sched.AlreadyReleased:
		return sched.Reason{Kind: sched.Planned}
	}
	return plan
}

// replan starts a joint plan if it is due.
func (l *Loop) replan(now time.Time) {
	t := &l.together
	every := planEvery
	if len(t.of) == 0 {
		every = lookEvery
	}
	if t.busy || now.Before(t.next) || !t.wanted && (t.began.IsZero() || now.Sub(t.began) < every) {
		return
	}
	t.wanted = false
	l.planTogether(l.known(), now)
}

// planTogether starts a joint plan of all waiting holds with the rule.
func (l *Loop) planTogether(view *kube.View, now time.Time) {
	t := &l.together
	uids, rule, snapshot := l.allWaiting(view, now)
	t.jobs = make(map[types.UID]sched.Job, len(uids))
	for i, uid := range uids {
		t.jobs[uid] = snapshot.Queue[i]
	}
	t.busy, t.began = true, now
	nodes, record := t.nodes, t.record
	began := time.Now()
	go func() { // terminates within planLimit
		of := map[types.UID]sched.Decision{}
		log := slog.New(logr.ToSlogHandler(klog.Background()))
		var plan sched.Plan
		var looks int
		ok := panics.Survive(log, "plan", "the joint plan of held objects", func() {
			all := nodes(view, now)
			t.shortages.Look(now, all)
			if len(uids) == 0 {
				return
			}
			t.shortages.Set(now, snapshot.Queue)
			stop := func() bool { return time.Since(began) > planLimit }
			plan, looks = policy.PlanTogether(rule, snapshot, all, stop)
			for i, d := range plan {
				of[uids[i]] = d
			}
		})
		if ok && record != nil && len(uids) > 0 { // the plan is used even if it cannot be recorded
			panics.Survive(log, "plan", "recording a plan", func() { record(rule, snapshot, plan, looks) })
		}
		l.post(func() { l.adopt(of, ok, time.Since(began)) }) // the duration includes recording, see planShare
	}()
}

// allWaiting returns the jobs for a joint plan. These are all waiting holds with the rule, and released jobs that
// have not been bound to a node yet, because they need capacity. If there are too many holds, they are selected
// from the namespaces in turn, so that no namespace can displace the holds of others. A plan has a single rule and
// policy, which mainTerms chooses. Holds with others are excluded.
func (l *Loop) allWaiting(view *kube.View, now time.Time) (uids []types.UID, rule string, s *sched.Snapshot) {
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
			with := terms{settings.When, settings.Policy()}
			with.policy.MaxDelay = 0 // already included in the allowed delay of the job
			taken = append(taken, planned{c, job, with})
		}
	}
	slices.SortFunc(taken, func(a, b planned) int { return cmp.Compare(a.place, b.place) })
	main := mainTerms(taken)
	s.Policy = main.policy
	if len(taken) > 0 { // otherwise there are only released jobs
		l.together.rule = main.rule
	}
	for _, c := range taken {
		if c.terms != main {
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
	return uids, l.together.rule, s
}

// candidate is a hold that may be planned jointly.
type candidate struct {
	hold  *hold
	place int // index among all candidates: pods first, then by deadline
	turn  int // index among the candidates of its namespace
}

// planned is a candidate with its job, rule and policy.
type planned struct {
	candidate
	job sched.Job
	terms
}

// terms are the rule and the policy of a plan.
type terms struct {
	rule   string
	policy sched.Policy
}

// candidates returns all holds ordered by place.
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

// mainTerms returns the terms that are used in most namespaces. Ties are broken by the number of holds and then by
// order.
func mainTerms(all []planned) (main terms) {
	type backing struct {
		terms
		namespace string
	}
	seen, votes := map[backing]bool{}, map[terms]int{}
	for _, c := range all {
		by := backing{c.terms, c.hold.namespace()}
		if !seen[by] {
			seen[by] = true
			votes[c.terms] += len(all)
		}
		votes[c.terms]++
	}
	most := 0
	for _, c := range all {
		if n := votes[c.terms]; n > most {
			main, most = c.terms, n
		}
	}
	return main
}

// plannable returns the job and settings of a hold. ok reports whether the hold waits with the rule and is not held
// for another reason, such as a budget.
func (l *Loop) plannable(h *hold, view *kube.View, now time.Time) (job sched.Job, s policy.Settings, ok bool) {
	if job, s = h.question(view); h.state != waiting && h.state != opened || idle(&s) != "" ||
		!sched.StartRules[s.When].Together {
		return job, s, false
	}
	work := h.work()
	if _, _, closed := view.BudgetClosed(now, work.Namespace, work.Owners); closed {
		return job, s, false
	}
	l.locate(&job)
	job.Released = h.state == opened // it starts as soon as its turn comes
	if d, known := l.together.of[h.UID]; known && d.Held(now) {
		job.Place = d.Place()
	}
	return job, s, true
}

// adopt stores the result of a joint plan and schedules the affected holds for planning.
func (l *Loop) adopt(of map[types.UID]sched.Decision, ok bool, took time.Duration) {
	t := &l.together
	t.busy, t.broken, t.of = false, !ok, of
	t.next = l.clock.Now().Add(max(planSoon, planShare*took))
	if t.broken { // the cause of a panic is likely to persist
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
