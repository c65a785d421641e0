package release

import (
	"context"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const eventNoScheduler = "NoScheduler"

// Events about single Jobs are best effort: beyond this rate, the metrics and kubenergy doctor alone report.
const (
	eventsPerSecond = 10
	eventBurst      = 50
	lookEvery       = 5 * time.Second // for a scheduler
	plannedWithin   = 2 * time.Second // after the creation, by a scheduler that runs
)

// warn records an event on each Job that waits for a plan while no scheduler runs, once per Job. The replica that leads
// does.
func (r *Releaser) warn(ctx context.Context) {
	now := r.clock.Now()
	if now.Before(r.look) || !r.o.Leads() {
		return
	}
	waiting := r.o.Held.unplanned(now)
	if len(waiting) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	if r.look = now.Add(lookEvery); !r.o.NoScheduler(ctx) {
		return
	}
	r.look = now.Add(time.Second)
	view := r.o.View()
	r.o.Held.mu.Lock()
	defer r.o.Held.mu.Unlock()
	for _, uid := range waiting {
		j := r.o.Held.jobs[uid]
		if j == nil {
			continue // released meanwhile
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

// unplanned returns some of the Jobs that have waited for their plan for too long, and have no event about it.
func (h *Held) unplanned(now time.Time) (waiting []types.UID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for uid, j := range h.jobs {
		if j.suspended && !j.told && !j.free && !j.Queued && j.written.IsZero() &&
			now.Sub(j.work.Submitted) > plannedWithin {
			if waiting = append(waiting, uid); len(waiting) == eventBurst {
				break
			}
		}
	}
	return waiting
}
