package release

import (
	"maps"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/policy"
)

// Held is an index of held Jobs, and of CronJobs that may shorten their holds. It is updated by event handlers of
// informers and is safe for concurrent use.
type Held struct {
	mu          sync.Mutex
	jobs        map[types.UID]*heldJob
	byNamespace map[string]int
	cronJobs    map[types.NamespacedName]*batchv1.CronJob
	updates     int // remaining deadline updates in the current pass
}

// heldJob contains the fields of a Job that are needed to release it.
type heldJob struct {
	kube.HeldJob
	namespace, name string
	suspended       bool
	free            bool // must not be held: its owner has requested to run it now, or it must never be held
	work            policy.Work
	run             *kube.Run // nil if it has no CronJob
	written         time.Time // latest start written by the hold loop; zero if missing or implausible

	seen   *kube.View       // view used to compute latest; nil if latest is not computed
	cron   *batchv1.CronJob // CronJob used to compute latest; nil if none
	latest time.Time

	deadline time.Time // set only in copies that are to be released
	progress
}

// progress is the state of a Job's release. It is retained when the Job changes.
type progress struct {
	freed    time.Time // when free was first observed; zero if never
	reported bool      // the event NoScheduler was created
	attempts int
	retry    time.Time // earliest time of the next attempt
	busy     bool      // an attempt is in progress
}

// NewHeld returns an empty index.
func NewHeld() *Held {
	return &Held{
		jobs: map[types.UID]*heldJob{}, byNamespace: map[string]int{},
		cronJobs: map[types.NamespacedName]*batchv1.CronJob{},
	}
}

// Saw handles the addition or update of a Job.
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
	var err error
	seen.work, err = policy.ReadJob(j)
	m := &seen.work.Marks
	_, never := policy.NeverHeldJob(j)
	seen.free = err != nil || never || m.RunNow || m.Skip || m.ReleasedBefore
	seen.run = kube.RunOf(j)
	if written, err := time.Parse(time.RFC3339, j.Annotations[v1alpha1.AnnotationLatestStart]); err == nil &&
		Plausible(written, j.CreationTimestamp.Time) {
		seen.written = written
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if before := h.jobs[j.UID]; before != nil {
		seen.progress = before.progress
	} else {
		h.byNamespace[j.Namespace]++
	}
	h.jobs[j.UID] = seen
}

// Plausible reports whether latest is a plausible end of a hold that started at created.
func Plausible(latest, created time.Time) bool {
	const longest = 366 * 24 * time.Hour
	return !latest.Before(created) && latest.Before(created.Add(longest))
}

// Lost handles the deletion of a Job.
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

// SawCronJob handles the addition or update of a CronJob. Its schedule limits the holds of its runs.
func (h *Held) SawCronJob(c *batchv1.CronJob) {
	h.mu.Lock()
	defer h.mu.Unlock()
	key := client.ObjectKeyFromObject(c)
	// The status changes with every run. Deadlines are recomputed only if the spec or the metadata has changed.
	if before := h.cronJobs[key]; before == nil || !equality.Semantic.DeepEqual(before.Spec, c.Spec) ||
		!maps.Equal(before.Annotations, c.Annotations) || !maps.Equal(before.Labels, c.Labels) {
		h.cronJobs[key] = c
	}
}

// LostCronJob handles the deletion of a CronJob. The deadlines of its runs do not change.
func (h *Held) LostCronJob(c *batchv1.CronJob) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.cronJobs, client.ObjectKeyFromObject(c))
}

// CronJob returns a CronJob with its metadata and the fields that the deadlines of its runs depend on. It returns nil
// if the CronJob is unknown.
func (h *Held) CronJob(namespace, name string) *batchv1.CronJob {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.cronJobs[types.NamespacedName{Namespace: namespace, Name: name}]
}

// waits reports whether a Job is known to be held and suspended.
func (h *Held) waits(uid string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	j := h.jobs[types.UID(uid)]
	return j != nil && j.suspended
}

// Count returns the number of held Jobs in a namespace, or in all namespaces if namespace is "".
func (h *Held) Count(namespace string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	if namespace == "" {
		return len(h.jobs)
	}
	return h.byNamespace[namespace]
}

// Each calls f with the number of held Jobs for each namespace that has any.
func (h *Held) Each(f func(namespace string, count int)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for namespace, count := range h.byNamespace {
		f(namespace, count)
	}
}
