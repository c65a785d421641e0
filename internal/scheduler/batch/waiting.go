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
)

// Pod is one that waits, with what it asks for as it was read under a view.
type Pod struct {
	Object  *v1.Pod
	View    *kube.View
	Job     sched.Job
	Where   string // of a strategy that looks at a whole queue
	Weights sched.Weights
}

// waiter is what is remembered of a pod that waits.
type waiter struct {
	pod    Pod
	demand demand
	seq    uint64 // of arrival

	away     bool // its cycle runs, or it has a node and is being bound
	failed   bool // it was tried and got no node
	excluded bool // it is not to be planned any more
	held     bool // it was kept from the scheduler when the last plan looked at it

	decided uint64 // number of the last plan that has looked at it
	step    Step   // of that plan
	planned bool   // there is a step that was not taken
}

// unplanned reports whether w could be in a plan, and the one of this number has not looked at it.
func (w *waiter) unplanned(plan uint64) bool { return !w.away && !w.excluded && w.decided != plan }

// unused reports whether the plan of this number has a step for w that is still to be taken.
func (w *waiter) unused(plan uint64) bool { return !w.away && w.planned && w.decided == plan }

// change lets f change w, and keeps the planner's counts right. The lock is held.
func (p *Planner) change(w *waiter, f func(*waiter)) {
	p.count(w, -1)
	f(w)
	p.count(w, +1)
}

// note lets f change what is remembered of a pod, if anything is.
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

// Put notes that a pod waits, or that it has changed.
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

// Drop forgets a pod.
func (p *Planner) Drop(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w := p.pods[uid]; w != nil {
		p.count(w, -1)
		delete(p.pods, uid)
	}
}

// Turn notes that the cycle of a pod begins. It returns the step that the plan in force has for it, once: a pod that
// comes back has an ordinary cycle. If wanted, the caller must hand over the nodes with [Planner.Ask], in the same
// cycle.
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

// wanted reports whether enough pods wait that no plan knows of, or that had no place in the one in force, of which
// little is left. A plan of which more is left is not replaced for a few newcomers: their turn comes later, as a
// rule.
func (p *Planner) wanted(now time.Time) bool {
	newcomers := p.unplanned >= p.c.MinPods && 2*p.unplanned >= p.unused
	rest := p.beyond >= p.c.MinPods && p.unused < p.c.MinPods
	return (newcomers || rest) && !now.Before(p.notBefore)
}

// resumeHeld lets pods be planned that were held and are no longer: when the turn of one has come, others may be free
// as well. The lock is held.
func (p *Planner) resumeHeld() {
	for _, w := range p.pods {
		if w.held && !p.c.Held(w.pod.Object) {
			p.change(w, func(w *waiter) { w.held, w.decided = false, 0 })
		}
	}
}

// Requeue notes that a pod waits again.
func (p *Planner) Requeue(uid types.UID) {
	p.note(uid, func(w *waiter) { w.away, w.failed = false, true })
}

// Exclude keeps a pod out of all plans from now on.
func (p *Planner) Exclude(uid types.UID) { p.note(uid, func(w *waiter) { w.excluded = true }) }

// recount counts anew, after a new number. The lock is held.
func (p *Planner) recount() {
	p.unplanned, p.unused = 0, 0
	for _, w := range p.pods {
		p.count(w, +1)
	}
}

// intake is what a plan looks at.
type intake struct {
	queue    []waiter    // copies, as they were when the nodes were copied
	arrivals uint64      // it looks at no waiter that came later
	held     []types.UID // it finds no place for these,
	beyond   int         // nor for so many others
}

// intake returns the pods to plan for: at most so many, those that have not failed yet first, then by priority and
// arrival. Otherwise pods that fit nowhere would keep all others out.
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
		if a.failed != b.failed {
			if a.failed {
				return 1
			}
			return -1
		}
		return cmp.Or(cmp.Compare(corev1.PodPriority(b.pod.Object), corev1.PodPriority(a.pod.Object)),
			cmp.Compare(a.seq, b.seq))
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

// refresh reads a pod again if more is known by now than when it was read. It returns whether the pod is still to be
// planned.
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
