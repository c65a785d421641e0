package release

import (
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/kube"
	"github.com/kubenergy/kubenergy/policy"
)

// Held are the Jobs that carry our label. An informer's handler writes them.
type Held struct {
	mu          sync.Mutex
	jobs        map[types.UID]*heldJob
	byNamespace map[string]int
}

// heldJob is what is needed to let a Job go.
type heldJob struct {
	kube.HeldJob
	namespace, name string
	suspended       bool
	work            policy.Work
	latest          time.Time // that the Job itself names; zero: none that makes sense

	seen     *kube.View // that fallback was computed from
	fallback time.Time

	deadline time.Time // of a copy that is to be released
	attempts int
	retry    time.Time // no attempt before
	busy     bool      // an attempt is under way
}

// NewHeld returns an index without Jobs.
func NewHeld() *Held {
	return &Held{jobs: map[types.UID]*heldJob{}, byNamespace: map[string]int{}}
}

// Saw takes in a Job or what has changed on it.
func (h *Held) Saw(o client.Object) {
	j, ok := o.(*batchv1.Job)
	if !ok {
		return
	}
	if j.Labels[v1alpha1.LabelHeld] != "true" {
		h.Lost(j)
		return
	}
	seen := &heldJob{
		HeldJob: kube.SeenJob(j), namespace: j.Namespace, name: j.Name, suspended: ptr.Deref(j.Spec.Suspend, false),
	}
	seen.work, _ = policy.ReadJob(j) // what makes no sense counts as not said
	if latest, err := time.Parse(time.RFC3339, j.Annotations[v1alpha1.AnnotationLatestStart]); err == nil &&
		Plausible(latest, j.CreationTimestamp.Time) {
		seen.latest = latest
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if before := h.jobs[j.UID]; before != nil {
		seen.attempts, seen.retry, seen.busy = before.attempts, before.retry, before.busy
	} else {
		h.byNamespace[j.Namespace]++
	}
	h.jobs[j.UID] = seen
}

// Plausible reports whether a hold that began with the creation may end then.
func Plausible(latest, created time.Time) bool {
	const longest = 366 * 24 * time.Hour
	return !latest.Before(created) && latest.Before(created.Add(longest))
}

// Lost is told of every Job that is deleted.
func (h *Held) Lost(o client.Object) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.jobs[o.GetUID()] == nil {
		return
	}
	delete(h.jobs, o.GetUID())
	if h.byNamespace[o.GetNamespace()]--; h.byNamespace[o.GetNamespace()] <= 0 {
		delete(h.byNamespace, o.GetNamespace())
	}
}

// waits reports whether a Job is known to be held, and suspended.
func (h *Held) waits(uid string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	j := h.jobs[types.UID(uid)]
	return j != nil && j.suspended
}

// Count returns how many Jobs are held in a namespace, or in all.
func (h *Held) Count(namespace string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	if namespace == "" {
		return len(h.jobs)
	}
	return h.byNamespace[namespace]
}

// Each calls f with the number of Jobs held in each namespace that has any.
func (h *Held) Each(f func(namespace string, count int)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for namespace, count := range h.byNamespace {
		f(namespace, count)
	}
}
