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
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	internalqueue "k8s.io/kubernetes/pkg/scheduler/backend/queue"

	"github.com/kubenergy/kubenergy/internal/scheduler/place"
)

// lookAgain is the interval at which all parked pods are checked. It bounds the lateness of releases at deadlines
// if the hold loop is not running. kube-scheduler itself retries unschedulable pods every five minutes.
const lookAgain = 30 * time.Second

// queue wraps the scheduling queue of kube-scheduler and keeps held pods out of it.
type queue struct {
	internalqueue.SchedulingQueue
	holds map[string]holder // by profile name; the profiles of a scheduler never change

	// mu is acquired before the lock of the wrapped queue. It is held while the wrapped queue changes, so that a
	// release and a concurrent update of the same pod are applied in order.
	mu     sync.Mutex
	parked map[types.UID]*v1.Pod
	stop   chan struct{}
}

// holder is the plugin of a profile that holds pods.
type holder interface {
	fwk.PreEnqueuePlugin
	ActivateBy(activate func(klog.Logger, map[string]*v1.Pod))
	GatherWith(nodes func() []fwk.NodeInfo)
}

// place.Hold must implement holder. Otherwise no pod would be parked, without an error.
var _ holder = (*place.Hold)(nil)

// Install makes the scheduler park the held pods of all profiles with a hold plugin. It must be called before the
// scheduler runs.
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
				h.GatherWith(nodesOf(s))
			}
		}
	}
	if len(q.holds) > 0 {
		s.SchedulingQueue = q
	}
}

// nodesOf returns a function that lists the nodes with the assumed pods. It has its own snapshot, because that of
// kube-scheduler changes with every scheduling cycle.
func nodesOf(s *scheduler.Scheduler) func() []fwk.NodeInfo {
	snapshot := internalcache.NewEmptySnapshot()
	return func() []fwk.NodeInfo {
		// kube-scheduler recovers from an inconsistent snapshot, and an incomplete plan does no harm.
		_ = s.Cache.UpdateSnapshot(klog.Background(), snapshot)
		nodes, _ := snapshot.List()
		return nodes
	}
}

func (q *queue) held(ctx context.Context, pod *v1.Pod) bool {
	h := q.holds[pod.Spec.SchedulerName]
	return h != nil && !h.PreEnqueue(ctx, pod).IsSuccess()
}

// Add parks the pod if it is held. Otherwise it adds the pod to the wrapped queue.
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

// Update moves a parked pod to the wrapped queue if it is no longer held. A pod that is already in the wrapped
// queue remains there unless its scheduling gates have just been removed, in which case the plugin decides whether
// to hold it.
func (q *queue) Update(ctx context.Context, oldPod, newPod *v1.Pod) {
	q.mu.Lock()
	defer q.mu.Unlock()
	_, parked := q.parked[newPod.UID]
	switch {
	// the pod was deleted and recreated with the same name while the watch was interrupted
	case oldPod.UID != newPod.UID:
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

// Delete removes the pod.
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

// Activate moves parked pods that are no longer held to the wrapped queue, and activates all other pods there.
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

// leave moves the parked pods that are no longer held to the wrapped queue in their latest version. Pods are added
// oldest first, because the queue preserves the order of pods with the same priority.
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

// Run runs the wrapped queue and checks all parked pods periodically.
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
