package hold

import (
	"log/slog"
	"sync"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/scheduler/record"
)

// podCache provides access to the current state of pods.
type podCache struct {
	indexer cache.Indexer
	synced  func() bool
	follow  func() // starts to follow pods unless the loop already follows them
}

// get returns the pod and reports whether it still exists and is not bound to a node. Before the cache has synced,
// every pod is assumed to exist.
func (c *podCache) get(t *ticket) (pod *v1.Pod, waits bool) {
	obj, exists, err := c.indexer.GetByKey(t.pod.Namespace + "/" + t.pod.Name)
	if err != nil || !c.synced() {
		return t.pod, true
	}
	pod, ok := obj.(*v1.Pod)
	return pod, exists && ok && pod.UID == t.pod.UID && pod.Spec.NodeName == ""
}

// WatchPods makes the loop follow the pods of the scheduler's informer once the first object is held. The event
// handler is not registered before, because each pod event would cost two more wake-ups. WatchPods may be called
// while Run is running.
func (l *Loop) WatchPods(informer cache.SharedIndexInformer) {
	follow := sync.OnceFunc(func() {
		if err := l.follow(informer); err != nil {
			klog.Background().Error(err, "Pods cannot be followed")
		}
	})
	l.podCache.Store(&podCache{informer.GetIndexer(), informer.HasSynced, follow})
	l.post(func() {
		if !l.idle() { // after a restart, the loop reads the list of held Jobs before WatchPods is called
			follow()
		}
	})
}

// followPods starts to follow pods if WatchPods has been called. Otherwise, WatchPods starts it.
func (l *Loop) followPods() {
	if pods := l.podCache.Load(); pods != nil {
		pods.follow()
	}
}

// follow registers an event handler for pods. The handler is called for every pod of the cluster, so it first
// checks without a lock whether the pod is relevant.
func (l *Loop) follow(informer cache.SharedIndexInformer) error {
	log := slog.New(logr.ToSlogHandler(klog.Background()))
	_, err := informer.AddEventHandler(kube.Surviving(log, cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, initial bool) {
			if pod := obj.(*v1.Pod); pod.Spec.NodeName != "" {
				l.bound(pod, initial)
			}
		},
		UpdateFunc: func(old, obj any) {
			before, pod := old.(*v1.Pod), obj.(*v1.Pod)
			if before.Spec.NodeName == "" && pod.Spec.NodeName != "" {
				l.bound(pod, false)
			} else {
				l.changed(before, pod)
			}
		},
		DeleteFunc: func(obj any) {
			if pod, ok := kube.EventObject[*v1.Pod](obj); ok {
				if _, ours := l.gate.ticket(pod.UID); ours {
					l.post(func() { l.lostPod(pod.UID) })
				}
			}
		},
	}))
	return err
}

// Started reports that a released object has started or, if room is false, that it waits for capacity. It is used
// in a federation, where the pods of the object are not visible. Started is safe for concurrent use and may be
// called repeatedly.
func (l *Loop) Started(uid types.UID, room bool) {
	if _, awaited := l.starts.Load(uid); !awaited {
		return
	}
	at := l.clock.Now()
	l.post(func() {
		if room {
			l.sawStart(uid, at)
		} else {
			l.cancelStart(uid) // the time until there is capacity is not a measure of start latency
		}
	})
}

// bound is called for every pod that has been bound to a node. initial is true for pods from the initial list, which
// were bound at an unknown time before.
func (l *Loop) bound(pod *v1.Pod, initial bool) {
	at, uid := l.clock.Now(), pod.UID
	if start, ok := l.awaited(pod); ok {
		l.post(func() {
			if initial {
				l.cancelStart(start) // the time until now is not a measure of start latency
			} else {
				l.sawStart(start, at)
			}
		})
	}
	if _, ours := l.gate.ticket(uid); ours {
		l.post(func() { l.lostPod(uid) })
	}
}

// awaited returns the UID under which the start of the pod is awaited, which is either its own or that of its Job.
// ok is false if the start is not awaited.
func (l *Loop) awaited(pod *v1.Pod) (uid types.UID, ok bool) {
	if _, ok := l.starts.Load(pod.UID); ok {
		return pod.UID, true
	}
	owner := metav1.GetControllerOfNoCopy(pod)
	if owner == nil {
		return "", false
	}
	_, ok = l.starts.Load(owner.UID)
	return owner.UID, ok
}

// changed is called for every update of a pod that is not bound to a node.
func (l *Loop) changed(before, pod *v1.Pod) {
	if policy.Scheduled(pod).Reason == v1.PodReasonUnschedulable &&
		policy.Scheduled(before).Reason != v1.PodReasonUnschedulable {
		if start, ok := l.awaited(pod); ok {
			// the time until there is capacity is not a measure of start latency
			l.post(func() { l.cancelStart(start) })
		}
	}
	if t, ours := l.gate.ticket(pod.UID); ours && !t.released.Load() {
		l.post(func() { l.sawPod(pod, refusal{}) })
	}
}

// sawPod adds or updates the hold of a pod, or reports that the gate refused to hold it. If that panics, the pod is
// released.
func (l *Loop) sawPod(pod *v1.Pod, no refusal) {
	if t, ok := l.gate.ticket(pod.UID); !safely(klog.Background(), func() { l.acceptPod(pod, no) }) && ok {
		h := &hold{HeldJob: kube.HeldJob{UID: pod.UID}, latest: time.Unix(0, t.latest.Load())}
		h.remember(policy.Work{Namespace: pod.Namespace, Name: pod.Name, Submitted: pod.CreationTimestamp.Time})
		l.pods.letGo(h)
	}
}

func (l *Loop) acceptPod(pod *v1.Pod, no refusal) {
	if no != (refusal{}) {
		l.queueEvent(l.pods.object(pod.UID, pod.Namespace, pod.Name), v1.EventTypeWarning, no.reason, no.text)
		if l.leads {
			record.Decided(record.Refuse, "", no.reason)
		}
		return
	}
	t, ok := l.gate.ticket(pod.UID)
	if !ok || t.released.Load() {
		return
	}
	work, err := policy.ReadPod(pod)
	h := l.pods.byUID[pod.UID]
	first := h == nil
	if first {
		h = &hold{
			HeldJob: kube.HeldJob{UID: pod.UID}, rank: rankOf(work.Submitted, ptr.Deref(pod.Spec.Priority, 0)),
			latest: time.Unix(0, t.latest.Load()).UTC(),
		}
		h.start = h.latest
		if heldBefore(pod) {
			h.reported = h.latest // its event was written by an earlier process or another replica
		}
	}
	h.Version = pod.ResourceVersion
	h.remember(work)
	if first {
		l.pods.add(h)
	}
	if why, never := policy.NeverHeldPod(pod); never || err != nil {
		if err != nil {
			why = err.Error()
		}
		l.pods.free(h, why)
		return
	}
	if view := l.known(); view.Settled() {
		l.evaluate(h, view)
	}
}

func (l *Loop) lostPod(uid types.UID) {
	l.gate.forget(uid)
	l.cancelStart(uid)
	if h := l.pods.byUID[uid]; h != nil {
		l.pods.remove(h)
	}
}

// releaseDuePods activates pods that are due in the queue of this process.
func (l *Loop) releaseDuePods(logger klog.Logger, now time.Time) {
	activate := l.activator.Load()
	if activate == nil {
		return
	}
	due := l.pods.due(now, true)
	batch := l.unactivated
	if l.unactivated = nil; len(due)+len(batch) == 0 {
		return
	}
	if batch == nil {
		batch = make(map[string]*v1.Pod, len(due))
	}
	left := due[:0]
	for _, h := range due {
		if t, ok := l.gate.ticket(h.UID); ok && l.gate.release(h.UID) {
			batch[t.pod.Namespace+"/"+t.pod.Name] = t.pod
			left = append(left, h)
			// The gate admits the pod from now on, so it must be activated.
			safely(logger, func() { l.awaitStart(h, now, l.leads) })
		}
		l.pods.remove(h)
	}
	if !safely(logger, func() { (*activate)(batch) }) {
		l.unactivated = batch
	}
	for _, h := range left { // last, because recording may panic
		safely(logger, func() { l.released(h, now, l.leads) })
	}
}

// sweep removes pods if their deletion or binding was missed, because the scheduler may call the gate for a deleted
// pod.
func (l *Loop) sweep(now time.Time) {
	const every = time.Minute
	pods := l.podCache.Load()
	if pods == nil || now.Sub(l.swept) < every {
		return
	}
	l.swept = now
	for uid, t := range l.gate.tickets.Range {
		if _, waits := pods.get(t.(*ticket)); !waits {
			l.lostPod(uid.(types.UID))
		}
	}
}
