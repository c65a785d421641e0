package place

import (
	"reflect"
	"sync"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/utils/lru"

	"github.com/kubenergy/kubenergy/internal/policy"
)

// fewNodes is the number up to which kube-scheduler always looks at all nodes. Narrowing a cycle among so few saves
// nothing.
const fewNodes = 100

// retries give a pod whose cycle we narrowed in vain an ordinary cycle: at once, and before preemption evicts others
// for it. Nil retries narrow nothing.
type retries struct {
	activate func(*v1.Pod)
	first    func() bool             // our PostFilter is asked before all others
	again    *atomic.Pointer[v1.Pod] // to be tried before it has backed off; all profiles share the queue
	failed   *lru.Cache              // UIDs of pods whose narrowed cycles were in vain
}

func (d Deps) newRetries(logger klog.Logger, handle fwk.Handle, again *atomic.Pointer[v1.Pod]) *retries {
	return &retries{
		again: again, failed: lru.New(memorable),
		activate: func(pod *v1.Pod) {
			handle.Activate(logger, map[string]*v1.Pod{pod.Namespace + "/" + pod.Name: pod})
		},
		first: sync.OnceValue(func() bool { // kube-scheduler tells only once it is complete
			enabled := enabledAt(handle, "PostFilter")
			first := len(enabled) > 0 && enabled[0].name == EnergyName
			if !first {
				d.Log.Warn("cycles are not narrowed, and batch plans lead by scores only: "+EnergyName+" is not the "+
					"first plugin at postFilter", "profile", handle.ProfileName())
			}
			return first
		}),
	}
}

// allow reports whether a cycle over so many nodes may be narrowed.
func (r *retries) allow(nodes int) bool { return r != nil && nodes > fewNodes && r.first() }

// wakeFailed lets a pod that failed in a narrowed cycle be tried again without backing off. By the beginning of the
// next cycle, of whichever profile of ours, it is back in the queue for sure, and not being tried already; if there is
// no next cycle, the queue is empty, and kube-scheduler takes it out of its backoff itself.
func (r *retries) wakeFailed(current *v1.Pod) {
	if r == nil || r.again.Load() == nil {
		return
	}
	if pod := r.again.Swap(nil); pod != nil && pod.UID != current.UID {
		r.activate(pod)
	}
}

// retry ends a cycle that was narrowed in vain. No pod is evicted for that, since this one may well fit on the nodes
// that were not looked at.
func (r *retries) retry(pod *v1.Pod, why string) *fwk.Status {
	r.failed.Add(pod.UID, nil)
	// While the pod is in flight this only notes that it is worth another try, and puts it into the queue that backs
	// off instead of the pool of those that wait for an event.
	r.activate(pod)
	r.again.Store(pod)
	// New for each cycle: the framework writes on it.
	return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, why+": tried again on all nodes")
}

// untried reports whether the pod has not yet failed, as far as is known. Its status tells for good, but only after a
// while.
func (r *retries) untried(pod *v1.Pod) bool {
	if c := policy.Scheduled(pod); c.Status == v1.ConditionFalse && c.Reason == v1.PodReasonUnschedulable {
		return false
	}
	_, failed := r.failed.Get(pod.UID)
	return !failed
}

// memorable is how many pods with failed narrowed cycles are remembered.
const memorable = 1 << 15

// enabled is a plugin of a profile at an extension point, with its weight if that scores.
type enabled struct {
	name   string
	weight int64
}

// enabledAt lists a profile's plugins at an extension point in their order. Only kube-scheduler's own type tells,
// which is not linked here; if that type has changed, the list is empty.
func enabledAt(handle fwk.Handle, point string) (plugins []enabled) {
	defer func() {
		if recover() != nil {
			plugins = nil
		}
	}()
	reported := reflect.ValueOf(handle).MethodByName("ListPlugins").Call(nil)[0]
	list := reflect.Indirect(reflect.ValueOf(reported.Interface())).FieldByName(point).FieldByName("Enabled")
	for i := range list.Len() {
		plugins = append(plugins, enabled{
			list.Index(i).FieldByName("Name").String(), list.Index(i).FieldByName("Weight").Int(),
		})
	}
	return plugins
}
