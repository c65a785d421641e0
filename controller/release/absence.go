package release

import (
	"context"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubenergy/kubenergy/kube"
)

const eventNoScheduler = "NoScheduler"

// Events about single Jobs are best effort: beyond this rate, kubenergy doctor alone reports.
const (
	eventsPerSecond = 10
	eventBurst      = 50
	warnEvery       = 5 * time.Second
	plannedWithin   = 2 * time.Second // after the creation, by a scheduler that runs
)

// Warn records an event on each Job that waits for a plan while no scheduler runs, once per Job, until ctx ends. The
// replica that leads does. Releases do not wait for it.
func (r *Releaser) Warn(ctx context.Context) error {
	for kube.Pause(ctx, warnEvery) {
		if r.o.Leads() && r.o.Held.Count("") > 0 && r.o.NoScheduler(ctx) {
			r.warn()
		}
	}
	return nil
}

func (r *Releaser) warn() {
	now, view := r.clock.Now(), r.o.View()
	r.o.Held.mu.Lock()
	defer r.o.Held.mu.Unlock()
	for uid, j := range r.o.Held.jobs {
		if j.told || !j.suspended || j.free || j.Queued || !j.written.IsZero() ||
			now.Sub(j.work.Submitted) < plannedWithin {
			continue
		}
		deadline, known := r.o.Held.deadline(r.o.Log, j, view, now)
		if !known || !r.events.TryAccept() {
			return
		}
		j.told = true
		r.o.Events.Eventf(&batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: j.namespace, Name: j.name, UID: uid}},
			nil, v1.EventTypeWarning, eventNoScheduler, "Holding",
			"it is held, and no scheduler runs: the controller releases it at its latest start, %s",
			deadline.UTC().Format(time.RFC3339))
	}
}
