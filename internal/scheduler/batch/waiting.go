package batch

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1 "k8s.io/component-helpers/scheduling/corev1"

	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sliceutil"
)

// Pod is a waiting pod with its requirements, as read with a view.
type Pod struct {
	Object  *v1.Pod
	View    *kube.View
	Job     sched.Job
	Where   string // name of a strategy that plans a whole queue
	Weights sched.Weights
}

// waiter is the state of a waiting pod.
type waiter struct {
	pod    Pod
	demand demand
	seq    uint64 // order of arrival

	away     bool // in a scheduling cycle or being bound
	failed   bool // was tried before without success
	excluded bool // must not be planned any more
	held     bool // was held at the time of the last plan

	decided uint64 // number of the last plan that considered the pod
	step    Step   // of that plan
	planned bool   // whether the step has not been taken yet
}

// unplanned reports whether w can be planned but was not considered by the plan with the given number.
func (w *waiter) unplanned(plan uint64) bool { return !w.away && !w.excluded && w.decided != plan }

// unused reports whether the plan with the given number has a step for w that has not been taken yet.
func (w *waiter) unused(plan uint64) bool { return !w.away && w.planned && w.decided == plan }

// change applies f to w and updates the counts of the planner. The caller must hold mu.
func (p *Planner) change(w *waiter, f func(*waiter)) {
	p.count(w, -1)
	f(w)
	p.count(w, +1)
}

// note applies f to the waiter of a pod, if there is one.
func (p *Planner) note(uid types.UID, f func(*waiter)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w := p.pods[uid]; w != nil {
		p.change(w, f)
	}
}

func (p *Planner) count(w *waiter, n int) {
	if w.unplanned(p.number) {
		p.unplanned += n
	}
	if w.unused(p.number) {
		p.unused += n
	}
}

// Put adds or updates a waiting pod.
func (p *Planner) Put(pod Pod) {
	d := demandOf(pod.Object)
	p.mu.Lock()
	defer p.mu.Unlock()
	if w := p.pods[pod.Object.UID]; w != nil {
		w.pod, w.demand = pod, d
		return
	}
	p.arrivals++
	w := &waiter{pod: pod, demand: d, seq: p.arrivals}
	p.pods[pod.Object.UID] = w
	p.count(w, +1)
}

// Drop removes a pod.
func (p *Planner) Drop(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w := p.pods[uid]; w != nil {
		p.count(w, -1)
		delete(p.pods, uid)
	}
}

// Turn records that the cycle of a pod starts. It returns the step of the current plan for the pod, but only once,
// so a pod that is retried has an ordinary cycle. If wanted is true, the caller must pass the nodes to
// [Planner.Ask] in the same cycle.
func (p *Planner) Turn(uid types.UID) (step Step, planned, wanted bool) {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.plan && now.After(p.until) {
		p.plan = false
		p.number++
		p.beyond = 0
		p.recount()
	}
	if w := p.pods[uid]; w != nil {
		if w.held {
			p.resumeHeld()
		}
		p.change(w, func(w *waiter) {
			step, planned = w.step, w.planned && p.plan && w.decided == p.number && !w.excluded
			w.away, w.planned = true, false
		})
	}
	return step, planned, p.wanted(now) && p.busy.CompareAndSwap(false, true)
}

// wanted reports whether a new plan is needed. This is the case if there are enough pods that the current plan did
// not consider, or enough pods that exceeded its size and few remaining steps. A plan with many remaining steps is
// not replaced because of a few new pods, which usually have to wait for the others anyway. While pods are gathered,
// no plan is needed, because all waiting pods are planned with them.
func (p *Planner) wanted(now time.Time) bool {
	newcomers := p.unplanned >= p.c.MinPods && 2*p.unplanned >= p.unused
	rest := p.beyond >= p.c.MinPods && p.unused < p.c.MinPods
	return (newcomers || rest) && p.kept == 0 && !now.Before(p.notBefore)
}

// resumeHeld makes released pods available for planning. It is called when the cycle of a held pod starts, because
// other pods may have been released at the same time. The caller must hold mu.
func (p *Planner) resumeHeld() {
	for _, w := range p.pods {
		if w.held && !p.c.Held(w.pod.Object) {
			p.change(w, func(w *waiter) { w.held, w.decided = false, 0 })
		}
	}
}

// Requeue records that a pod waits again.
func (p *Planner) Requeue(uid types.UID) {
	p.note(uid, func(w *waiter) { w.away, w.failed = false, true })
}

// Exclude permanently excludes a pod from plans.
func (p *Planner) Exclude(uid types.UID) { p.note(uid, func(w *waiter) { w.excluded = true }) }

// recount recomputes the counts after the plan number has changed. The caller must hold mu.
func (p *Planner) recount() {
	p.unplanned, p.unused = 0, 0
	for _, w := range p.pods {
		p.count(w, +1)
	}
}

// intake contains the pods of a plan.
type intake struct {
	queue    []waiter    // copies of the waiters at the time when the nodes were copied
	arrivals uint64      // waiters that arrived later are not part of the plan
	held     []types.UID // pods that were not planned because they are held
	beyond   int         // number of pods that exceeded the max size of the plan
}

// intake returns at most MaxPods pods to plan. Pods that have not failed before come first, so that unschedulable
// pods do not displace all others. The order is then by priority and arrival.
func (p *Planner) intake() *intake {
	p.mu.Lock()
	in := &intake{arrivals: p.arrivals}
	all := make([]waiter, 0, len(p.pods))
	for _, w := range p.pods {
		if !w.away && !w.excluded {
			all = append(all, *w)
		}
	}
	p.mu.Unlock()
	slices.SortFunc(all, func(a, b waiter) int {
		return cmp.Or(sliceutil.TrueFirst(!a.failed, !b.failed),
			cmp.Compare(corev1.PodPriority(b.pod.Object), corev1.PodPriority(a.pod.Object)), cmp.Compare(a.seq, b.seq))
	})
	in.queue = all[:0]
	for _, w := range all {
		switch {
		case p.c.Held(w.pod.Object):
			in.held = append(in.held, w.pod.Object.UID)
		case len(in.queue) >= p.c.MaxPods:
			in.beyond++
		case p.refresh(&w.pod):
			in.queue = append(in.queue, w)
		}
	}
	return in
}

// refresh reads a pod again if the view has changed since it was last read. It reports whether the pod must still
// be planned.
func (p *Planner) refresh(pod *Pod) bool {
	if pod.View == p.c.View() {
		return true
	}
	fresh, ok := p.c.Read(pod.Object)
	if ok {
		*pod = fresh
	}
	return ok
}
