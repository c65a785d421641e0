package release

import (
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

// Held are the Jobs that carry our label, and the CronJobs that may shorten their holds. Informers' handlers write
// them.
type Held struct {
	mu          sync.Mutex
	jobs        map[types.UID]*heldJob
	byNamespace map[string]int
	cronJobs    map[types.NamespacedName]*batchv1.CronJob
	updates     int // that are left to the present pass over the Jobs
}

// heldJob is what is needed to let a Job go.
type heldJob struct {
	kube.HeldJob
	namespace, name string
	suspended       bool
	free            bool // nothing holds it: its owner wants it to run now, or it is never held
	work            policy.Work
	run             *kube.Run // nil: no CronJob controls it
	written         time.Time // latest start that the hold loop wrote; zero: none that makes sense

	seen   *kube.View       // that latest was computed from; nil: latest is out of date
	cron   *batchv1.CronJob // that latest was computed from; nil: none
	latest time.Time

	deadline time.Time // of a copy that is to be released
	progress
}

// progress is the state of a Job's release, which outlives changes of the Job.
type progress struct {
	freed    time.Time // when free was first seen; zero: never
	reported bool      // the event NoScheduler was recorded
	attempts int
	retry    time.Time // no attempt before
	busy     bool      // an attempt is under way
}

// NewHeld returns an index without Jobs.
func NewHeld() *Held {
	return &Held{
		jobs: map[types.UID]*heldJob{}, byNamespace: map[string]int{},
		cronJobs: map[types.NamespacedName]*batchv1.CronJob{},
	}
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

// SawCronJob updates the schedule by which runs of a CronJob must end.
func (h *Held) SawCronJob(c *batchv1.CronJob) {
	h.mu.Lock()
	defer h.mu.Unlock()
	key := client.ObjectKeyFromObject(c)
	// Its status changes with each run. Only another spec makes its runs' deadlines be computed anew.
	if before := h.cronJobs[key]; before == nil || !equality.Semantic.DeepEqual(before.Spec, c.Spec) {
		h.cronJobs[key] = c
	}
}

// LostCronJob forgets a CronJob. The deadlines of its runs do not change.
func (h *Held) LostCronJob(c *batchv1.CronJob) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.cronJobs, client.ObjectKeyFromObject(c))
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
