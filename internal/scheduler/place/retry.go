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

// fewNodes is the cluster size up to which kube-scheduler always considers all nodes. Narrowing a cycle has no
// benefit for so small a cluster.
const fewNodes = 100

// retries gives a pod an ordinary cycle after a narrowed cycle found no node. The retry is immediate and happens
// before preemption evicts pods. A nil retries disables narrowing.
type retries struct {
	activate func(*v1.Pod)
	first    func() bool             // whether the plugin is the first PostFilter plugin
	again    *atomic.Pointer[v1.Pod] // pod to be retried without backoff; shared by all profiles like the queue
	failed   *lru.Cache              // UIDs of pods after a failed narrowed cycle
}

func (d Deps) newRetries(logger klog.Logger, handle fwk.Handle, again *atomic.Pointer[v1.Pod]) *retries {
	return &retries{
		again: again, failed: lru.New(memorable),
		activate: func(pod *v1.Pod) {
			handle.Activate(logger, map[string]*v1.Pod{pod.Namespace + "/" + pod.Name: pod})
		},
		first: sync.OnceValue(func() bool { // the list of plugins is available only once kube-scheduler is complete
			enabled := enabledAt(handle, "PostFilter")
			first := len(enabled) > 0 && enabled[0].name == EnergyName
			if !first {
				d.Log.Warn("Every cycle evaluates all nodes, and batch plans only affect scores, because "+EnergyName+
					" is not the first postFilter plugin", "profile", handle.ProfileName())
			}
			return first
		}),
	}
}

// allow reports whether a cycle over the given number of nodes may be narrowed.
func (r *retries) allow(nodes int) bool { return r != nil && nodes > fewNodes && r.first() }

// wakeFailed activates a pod after its narrowed cycle failed, so that it is retried without backoff. It is called
// at the start of the next cycle of any profile, when the pod is certainly back in the queue and not in flight. If
// there is no next cycle, the queue is empty, and kube-scheduler ends the backoff itself.
func (r *retries) wakeFailed(current *v1.Pod) {
	if r == nil || r.again.Load() == nil {
		return
	}
	if pod := r.again.Swap(nil); pod != nil && pod.UID != current.UID {
		r.activate(pod)
	}
}

// retry ends a narrowed cycle that found no node. The returned status prevents preemption, because the pod may fit
// on the remaining nodes.
func (r *retries) retry(pod *v1.Pod, why string) *fwk.Status {
	r.failed.Add(pod.UID, nil)
	// Activating a pod in flight makes kube-scheduler add it to the backoff queue instead of the unschedulable
	// pods, which wait for an event.
	r.activate(pod)
	r.again.Store(pod)
	// The framework modifies the status, so each cycle needs a new one.
	return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, why+", retrying on all nodes")
}

// untried reports whether the pod is not known to have failed before. The condition of the pod is authoritative,
// but it is updated with a delay.
func (r *retries) untried(pod *v1.Pod) bool {
	if c := policy.Scheduled(pod); c.Status == v1.ConditionFalse && c.Reason == v1.PodReasonUnschedulable {
		return false
	}
	_, failed := r.failed.Get(pod.UID)
	return !failed
}

// memorable is the max number of pods with failed narrowed cycles to remember.
const memorable = 1 << 15

// enabled is a plugin of a profile at an extension point, with its weight if it is a score plugin.
type enabled struct {
	name   string
	weight int64
}

// enabledAt returns the plugins of a profile at an extension point in order. It uses reflection, because only an
// internal type of kube-scheduler has this information, which is not linked here. If that type has changed, the
// list is empty.
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
