package batch

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"
)

const (
	// MaxKept is the maximum time that a pod is kept out of the scheduling queue, including the computation of the
	// plan.
	MaxKept = time.Second

	minGathered     = 2       // fewer pods are placed one by one
	maxRemembered   = 1 << 15 // pods that are not gathered again
	maxClosedGroups = 1       // closed groups that wait for the planner; further groups are not planned
)

// gathering keeps pods that arrive together out of the scheduling queue until they are planned jointly. Otherwise, a
// scheduler that keeps up with the arrival of pods would place each of them before a plan exists.
type gathering struct {
	nodes    func() *Question // returns nil if the nodes cannot be copied
	activate func(pods map[string]*v1.Pod)
	closed   chan *group // complete groups
	groups   *lru.Cache  // *group by the UID of its pods

	open *group // accepts pods; guarded by Planner.mu, like kept
	kept int    // number of groups that have not been released
}

// group contains pods that arrived within [Limits.Gather]. It is guarded by Planner.mu.
type group struct {
	until time.Time
	pods  map[string]*v1.Pod // by namespace/name; nil if the group has been released
}

// GatherWith enables gathering. nodes copies the nodes outside of a scheduling cycle and is called from the goroutine
// of [Planner.Run]. activate moves pods to the scheduling queue, must be safe for concurrent use and must not panic.
// GatherWith must be called before the first call of [Planner.Kept].
func (p *Planner) GatherWith(nodes func() *Question, activate func(pods map[string]*v1.Pod)) {
	p.nodes, p.activate = nodes, activate
}

// Kept reports whether a pod must be kept out of the queue. known is false if the pod has not been passed to
// [Planner.Gather].
func (p *Planner) Kept(uid types.UID) (kept, known bool) {
	found, known := p.groups.Get(uid)
	if !known {
		return false, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	g := found.(*group)
	return g.pods != nil && time.Now().Before(g.until), true
}

// Gather adds a pod to the open group. It reports whether the pod must be kept out of the queue until it is
// activated, after at most [MaxKept]. It neither blocks nor calls the queue. A pod is gathered only once, so Gather
// must not be called for a pod that is known to [Planner.Kept].
func (p *Planner) Gather(pod *v1.Pod) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if p.nodes == nil || p.c.Gather.Duration == 0 || now.Before(p.notBefore) ||
		p.open != nil && len(p.open.pods) >= p.c.MaxPods {
		return false
	}
	if p.open == nil {
		g := &group{until: now.Add(MaxKept), pods: map[string]*v1.Pod{}}
		p.open = g
		p.kept++
		time.AfterFunc(p.c.Gather.Duration, func() { p.complete(g) })
		time.AfterFunc(MaxKept, func() { p.release(g) }) // even if the planner is stuck
	}
	p.open.pods[pod.Namespace+"/"+pod.Name] = pod
	p.groups.Add(pod.UID, p.open)
	return true
}

// complete passes a group to the planner. A pod that is alone is released.
func (p *Planner) complete(g *group) {
	p.mu.Lock()
	p.close(g)
	enough := len(g.pods) >= minGathered
	p.mu.Unlock()
	if enough {
		select {
		case p.closed <- g:
			return
		default:
		}
	}
	p.release(g)
}

// close makes a group accept no more pods. The caller must hold p.mu.
func (p *Planner) close(g *group) {
	if p.open == g {
		p.open = nil
	}
}

// answerGroup plans a group together with the other waiting pods, and releases it.
func (p *Planner) answerGroup(ctx context.Context, g *group) {
	defer p.release(g)
	q := p.nodes()
	if q == nil {
		p.pause()
		return
	}
	q.asked = time.Now()
	p.answer(ctx, q)
}

// release moves the pods of a group to the queue unless it has been released before.
func (p *Planner) release(g *group) {
	p.mu.Lock()
	p.close(g) // if it is released before it is complete
	pods := g.pods
	if g.pods = nil; pods != nil {
		p.kept--
	}
	p.mu.Unlock()
	if pods != nil {
		p.activate(pods)
	}
}
