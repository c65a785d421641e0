package place

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/kube/panics"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/sched"
)

// SortName is the name of [Sort] in KubeSchedulerConfiguration.
const SortName = "KubEnergySort"

// Sort sorts the scheduling queue like PrioritySort of kube-scheduler, by priority and time, except that the time of
// pods with the order "aging" is at least their turn. Without such pods, the overhead is an atomic read. As in
// PrioritySort, the time of a pod is that of its last failed attempt, or its arrival.
//
// The time of a pod is never earlier than with PrioritySort, so that other pods only gain, and it is the same once its
// turn has come, so that no pod starves. The turn must not change while the pod is in a heap of kube-scheduler.
// Therefore it is set when the pod enters the queue, by [Hold]. Without that plugin, all pods are sorted as by
// PrioritySort.
type Sort struct{ turns *turns }

var _ fwk.QueueSortPlugin = &Sort{}

// Name implements [fwk.Plugin].
func (*Sort) Name() string { return SortName }

// Less reports whether a is scheduled before b.
func (s *Sort) Less(a, b fwk.QueuedPodInfo) bool {
	x, y := a.GetPodInfo().GetPod(), b.GetPodInfo().GetPod()
	if p, q := corev1.PodPriority(x), corev1.PodPriority(y); p != q {
		return p > q
	}
	return s.turns.later(x.UID, a.GetTimestamp()).Before(s.turns.later(y.UID, b.GetTimestamp()))
}

// turns contains the turns of pods in the queue with the order "aging". It is safe for concurrent use.
type turns struct {
	view  func() *kube.View
	bound time.Duration
	pods  corelisters.PodLister

	some   atomic.Bool // a turn has been set
	mu     sync.RWMutex
	at     map[types.UID]turn
	tidyAt int // number of turns at which those of pods that have left the queue are removed
}

type turn struct {
	pod *v1.Pod // as of its arrival
	at  time.Time
}

// later returns the turn of a pod, or its time in the queue if that is later or the pod has no turn.
func (t *turns) later(uid types.UID, queued time.Time) time.Time {
	if !t.some.Load() {
		return queued
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	if turn, ok := t.at[uid]; ok && turn.at.After(queued) {
		return turn.at
	}
	return queued
}

// enter sets the turn of a pod that enters the queue, unless it was set before. A pod without the order "aging" has no
// turn. It must not be called while the pod is in a heap of the queue, except for a pod that leaves it.
func (t *turns) enter(pod *v1.Pod) {
	expected, aging := t.aging(pod)
	if !aging && !t.some.Load() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	_, known := t.at[pod.UID]
	switch {
	case !aging:
		delete(t.at, pod.UID)
	case !known:
		if len(t.at) >= t.tidyAt {
			t.tidy()
		}
		t.some.Store(true)
		// kube-scheduler also uses this clock for the times in its queue
		t.at[pod.UID] = turn{pod, sched.Turn(time.Now(), expected, t.bound)}
	}
}

// aging returns the expected run time of a pod, and whether it has the order "aging" and decisions are enforced.
func (t *turns) aging(pod *v1.Pod) (expected time.Duration, aging bool) {
	view := t.view()
	if panics.Open() || !view.Settled() || !view.Concerns(pod) {
		return 0, false
	}
	work, err := policy.ReadPod(pod)
	job, settings := view.Settle(&work)
	job.Foresee()
	return job.Duration, err == nil && settings.Enforced() && settings.Order == sched.Aging
}

// tidy removes the turns of pods that are deleted or have a node. The cost per pod is constant, because at least as
// many turns are set between two calls.
func (t *turns) tidy() {
	if t.at == nil {
		t.at = map[types.UID]turn{}
	}
	maps.DeleteFunc(t.at, func(uid types.UID, turn turn) bool {
		pod, err := t.pods.Pods(turn.pod.Namespace).Get(turn.pod.Name)
		return err != nil || pod.UID != uid || pod.Spec.NodeName != ""
	})
	t.tidyAt = max(fewTurns, 2*len(t.at))
}

// fewTurns is a number of turns that use little memory.
const fewTurns = 1024
