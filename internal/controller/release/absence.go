package release

import (
	"context"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubenergy/kubenergy/internal/kube"
)

const eventNoScheduler = "NoScheduler"

const (
	warnEvery     = 5 * time.Second
	maxWarnings   = 50              // per check; kubenergy doctor reports all Jobs
	plannedWithin = 2 * time.Second // a running scheduler plans a new Job within this time
)

// Warn creates an event for each held Job without a plan while no scheduler is running, once per Job, until ctx is
// done. Only the leader creates events. Releases are independent of Warn.
func (r *Releaser) Warn(ctx context.Context) error {
	for kube.Pause(ctx, warnEvery) {
		if r.o.Leads() && r.o.Held.Count("") > 0 && r.o.NoScheduler(ctx) {
			r.warn()
		}
	}
	return nil
}

func (r *Releaser) warn() {
	now, view, left := r.clock.Now(), r.o.View(), maxWarnings
	r.o.Held.mu.Lock()
	defer r.o.Held.mu.Unlock()
	for uid, j := range r.o.Held.jobs {
		if j.reported || !j.suspended || j.free || j.Queued || !j.written.IsZero() ||
			now.Sub(j.work.Submitted) < plannedWithin {
			continue
		}
		deadline, known := r.o.Held.deadline(r.o.Log, j, view, now)
		if !known || left == 0 {
			return
		}
		left--
		j.reported = true
		r.o.Events.Eventf(&batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: j.namespace, Name: j.name, UID: uid}},
			nil, v1.EventTypeWarning, eventNoScheduler, "Holding",
			"Held while no scheduler is running: the controller releases it at its latest start, %s",
			deadline.UTC().Format(time.RFC3339))
	}
}
