package parking

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	internalqueue "k8s.io/kubernetes/pkg/scheduler/backend/queue"

	"github.com/kubenergy/kubenergy/internal/scheduler/place"
)

// Deadlines are kept at most this much late where the hold loop has stopped working.
// kube-scheduler itself tries what it keeps every five minutes.
const lookAgain = 30 * time.Second

// queue is kube-scheduler's own for all but parked pods.
type queue struct {
	internalqueue.SchedulingQueue
	holds map[string]holder // by the name of the profile; a scheduler's profiles never change

	// mu is taken before the lock of the queue within. It is held while that changes, so that of a release and an
	// update of the same pod the later one counts.
	mu     sync.Mutex
	parked map[types.UID]*v1.Pod
	stop   chan struct{}
}

// holder is the plugin of a profile that holds pods.
type holder interface {
	fwk.PreEnqueuePlugin
	ActivateBy(activate func(klog.Logger, map[string]*v1.Pod))
}

// Were it no holder any more, nothing would be parked, silently.
var _ holder = (*place.Hold)(nil)

// Install puts held pods of all profiles that hold any beside the queue of a scheduler, which must not run yet.
func Install(s *scheduler.Scheduler) {
	q := &queue{
		SchedulingQueue: s.SchedulingQueue, holds: map[string]holder{}, parked: map[types.UID]*v1.Pod{},
		stop: make(chan struct{}),
	}
	for name, profile := range s.Profiles {
		for _, p := range profile.PreEnqueuePlugins() {
			if h, ok := p.(holder); ok && p.Name() == place.HoldName {
				q.holds[name] = h
				h.ActivateBy(q.Activate)
			}
		}
	}
	if len(q.holds) > 0 {
		s.SchedulingQueue = q
	}
}

func (q *queue) held(ctx context.Context, pod *v1.Pod) bool {
	h := q.holds[pod.Spec.SchedulerName]
	return h != nil && !h.PreEnqueue(ctx, pod).IsSuccess()
}

// Add parks a pod that is held.
func (q *queue) Add(ctx context.Context, pod *v1.Pod) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.add(ctx, pod)
}

func (q *queue) add(ctx context.Context, pod *v1.Pod) {
	if q.held(ctx, pod) {
		q.parked[pod.UID] = pod
		return
	}
	delete(q.parked, pod.UID)
	q.SchedulingQueue.Add(ctx, pod)
}

// Update lets a parked pod go if it is held no longer. One that is in the queue stays there, unless scheduling
// gates kept it so far: whether it is held is asked now.
func (q *queue) Update(ctx context.Context, oldPod, newPod *v1.Pod) {
	q.mu.Lock()
	defer q.mu.Unlock()
	_, parked := q.parked[newPod.UID]
	switch {
	case oldPod.UID != newPod.UID: // it was created anew under its name while no watch was open
		q.remove(oldPod)
		q.add(ctx, newPod)
	case parked:
		q.add(ctx, newPod)
	case len(oldPod.Spec.SchedulingGates) > 0 && len(newPod.Spec.SchedulingGates) == 0 && q.held(ctx, newPod):
		q.SchedulingQueue.Delete(oldPod)
		q.parked[newPod.UID] = newPod
	default:
		q.SchedulingQueue.Update(ctx, oldPod, newPod)
	}
}

// Delete forgets a pod.
func (q *queue) Delete(pod *v1.Pod) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.remove(pod)
}

func (q *queue) remove(pod *v1.Pod) {
	if _, parked := q.parked[pod.UID]; parked {
		delete(q.parked, pod.UID)
		return
	}
	q.SchedulingQueue.Delete(pod)
}

// Activate lets those of the pods go that are parked and held no longer, and activates the others.
func (q *queue) Activate(logger klog.Logger, pods map[string]*v1.Pod) {
	ctx := klog.NewContext(context.Background(), logger)
	others := make(map[string]*v1.Pod, len(pods))
	var asked []*v1.Pod
	q.mu.Lock()
	defer q.mu.Unlock()
	for key, pod := range pods {
		if parked := q.parked[pod.UID]; parked == nil {
			others[key] = pod
		} else {
			asked = append(asked, parked)
		}
	}
	q.leave(ctx, asked)
	if len(others) > 0 {
		q.SchedulingQueue.Activate(logger, others)
	}
}

// leave puts those of some parked pods into the queue that are held no longer, as they are known by now: the oldest
// first, since it keeps that order among pods of one priority.
func (q *queue) leave(ctx context.Context, parked []*v1.Pod) {
	free := slices.DeleteFunc(parked, func(pod *v1.Pod) bool { return q.held(ctx, pod) })
	slices.SortFunc(free, func(a, b *v1.Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	for _, pod := range free {
		delete(q.parked, pod.UID)
		q.SchedulingQueue.Add(ctx, pod)
	}
}

// Run also looks at all that is parked from time to time.
func (q *queue) Run(logger klog.Logger) {
	q.SchedulingQueue.Run(logger)
	ctx := klog.NewContext(context.Background(), logger)
	go wait.Until(func() { q.checkAll(ctx) }, lookAgain, q.stop)
}

func (q *queue) checkAll(ctx context.Context) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.leave(ctx, slices.Collect(maps.Values(q.parked)))
}

// Close implements [internalqueue.SchedulingQueue].
func (q *queue) Close() {
	close(q.stop)
	q.SchedulingQueue.Close()
}
