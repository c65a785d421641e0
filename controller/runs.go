package controller

import (
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubenergy/kubenergy/energy"
	"github.com/kubenergy/kubenergy/policy"
	"github.com/kubenergy/kubenergy/sched"
)

// podRun is what a pod took of its node, and when.
type podRun struct {
	uid    types.UID
	cpu    int64 // requested, in thousandths of a core
	awake  bool  // it keeps its node from sleeping
	window sched.Window
	booked bool // nothing is to be computed for it any more
}

// forever ends the run of a pod that has not ended.
var forever = time.Unix(1<<40, 0)

// runOf returns the run of a pod. ok is false where it never ran, or does not say when.
func runOf(p *v1.Pod) (r podRun, ok bool) {
	r = podRun{uid: p.UID, cpu: policy.PodRequest(p).MilliCPU, awake: policy.KeepsAwake(p)}
	f := finished{pod: p}
	if !over(p) {
		f.end = forever
	}
	r.window, ok = ran(f)
	return r, ok
}

// pastRuns remembers the runs of pods that have ended, since those of their node that end later shared it with them.
// Pods are often deleted as soon as they end.
type pastRuns struct {
	mu     sync.Mutex
	byNode map[string][]podRun
	count  int
}

// Beyond these, what is oldest is forgotten: pods that ran beside it for longer than that pay its share too.
const (
	maxRuns        = 32_768
	maxRunsPerNode = 1024
)

func newPastRuns() *pastRuns { return &pastRuns{byNode: map[string][]podRun{}} }

func (r *pastRuns) add(node string, run podRun) {
	r.mu.Lock()
	defer r.mu.Unlock()
	runs := append(r.byNode[node], run)
	r.count++
	if over := len(runs) - maxRunsPerNode; over > 0 {
		runs = slices.Delete(runs, 0, over)
		r.count -= over
	}
	r.byNode[node] = runs
	if r.count > maxRuns {
		for name, all := range r.byNode {
			r.keep(name, slices.Delete(all, 0, (len(all)+1)/2))
		}
	}
}

func (r *pastRuns) keep(node string, runs []podRun) {
	r.count -= len(r.byNode[node])
	delete(r.byNode, node)
	if len(runs) > 0 {
		r.byNode[node] = runs
		r.count += len(runs)
	}
}

// beside returns the runs of a node.
func (r *pastRuns) beside(node string) []podRun {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.byNode[node])
}

// settle notes that a pod is done with, and forgets the runs that no pod of the node shares any more. since is the
// start of the first one of those that still run.
func (r *pastRuns) settle(node string, uid types.UID, since time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	runs := r.byNode[node]
	for i := range runs {
		if runs[i].uid == uid {
			runs[i].booked = true
		}
		if !runs[i].booked && runs[i].window.Start.Before(since) {
			since = runs[i].window.Start
		}
	}
	before := len(runs)
	runs = slices.DeleteFunc(runs, func(p podRun) bool { return p.booked && p.window.End.Before(since) })
	r.count -= before - len(runs)
	r.byNode[node] = runs
	if len(runs) == 0 {
		delete(r.byNode, node)
	}
}

// part is power that is charged during an interval.
type part struct {
	window sched.Window
	power  energy.Watts
}

// share returns what a pod is charged of what its node draws more than asleep: at every moment an equal part of what
// being awake costs, the part of the CPU's power that its request is of all requests, and its own GPUs. The charges
// of all pods add up to what the node draws, whatever its power curve. Being woken costs those who started first.
func share(n *sched.Node, job *sched.Job, own podRun, others []podRun) (parts []part, wakeUp energy.Joules) {
	if own.awake {
		wakeUp = wakingShare(n, own, others)
	}
	load := loadOf(own, others)
	for i, at := range load {
		end := own.window.End
		if i+1 < len(load) {
			end = load[i+1].time
		}
		if end.After(at.time) {
			parts = append(parts, part{sched.Window{Start: at.time, End: end}, at.charge(n, job, own)})
		}
	}
	return parts, wakeUp
}

// moment is when the load of a node changes, and what it is from then on.
type moment struct {
	time  time.Time
	cpu   int64
	awake int
}

// loadOf returns the load of a node with all runs, from the start of one's own on until its end.
func loadOf(own podRun, others []podRun) []moment {
	changes := []moment{{own.window.Start, own.cpu, count(own.awake)}}
	for i := range others {
		o := &others[i]
		from, to := o.window.Start, o.window.End
		if !to.After(own.window.Start) || !from.Before(own.window.End) {
			continue
		}
		if from.Before(own.window.Start) {
			from = own.window.Start
		}
		changes = append(changes, moment{from, o.cpu, count(o.awake)})
		if to.Before(own.window.End) {
			changes = append(changes, moment{to, -o.cpu, -count(o.awake)})
		}
	}
	slices.SortStableFunc(changes, func(a, b moment) int { return a.time.Compare(b.time) })
	for i := 1; i < len(changes); i++ {
		changes[i].cpu += changes[i-1].cpu
		changes[i].awake += changes[i-1].awake
	}
	return changes
}

func count(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

func (m moment) charge(n *sched.Node, job *sched.Job, own podRun) energy.Watts {
	if m.awake == 0 {
		return 0 // nobody keeps the node from sleeping
	}
	var power energy.Watts
	idle := n.Profile.Power(0)
	if own.awake {
		power = max(0, idle+n.Profile.GPUIdle*energy.Watts(n.Capacity.GPU)-n.Profile.Sleep) / energy.Watts(m.awake)
	}
	if m.cpu > 0 && n.Capacity.MilliCPU > 0 {
		busy := n.Profile.Power(float64(m.cpu) / float64(n.Capacity.MilliCPU))
		power += max(0, busy-idle) * energy.Watts(own.cpu) / energy.Watts(m.cpu)
	}
	if job.Request.GPU > 0 {
		power += max(0, n.Profile.GPUPower(job.Class)-n.Profile.GPUIdle) * energy.Watts(job.Request.GPU)
	}
	return power
}

// wakingShare returns what a pod is charged for waking its node. Timestamps have whole seconds, so several may be
// first.
func wakingShare(n *sched.Node, own podRun, others []podRun) energy.Joules {
	first := 1
	for i := range others {
		o := &others[i]
		switch {
		case !o.awake || o.window.Start.After(own.window.Start):
		case o.window.Start.Equal(own.window.Start):
			first++
		case !o.window.End.Before(own.window.Start):
			return 0
		}
	}
	return n.Profile.WakeUp / energy.Joules(first)
}
