package release

import (
	"context"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/kube"
	"github.com/kubenergy/kubenergy/kube/panics"
)

// Events about single Jobs are best effort: beyond this rate, the metrics and kubenergy doctor alone report.
const (
	eventsPerSecond = 10
	eventBurst      = 50
	lookForHolder   = 5 * time.Second
	plannedWithin   = 2 * time.Second // the scheduler has planned new Jobs
)

// warn records an event on each Job that is held without a plan while no scheduler runs, once per Job. The replica that
// leads does.
func (r *Releaser) warn(ctx context.Context) {
	now := r.clock.Now()
	if now.Before(r.look) || !r.o.Leads() {
		return
	}
	waiting := r.o.Held.unplanned(now, eventBurst)
	if len(waiting) == 0 {
		return
	}
	if r.look = now.Add(lookForHolder); r.schedulerRuns(ctx) {
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
		r.o.Events.Eventf(j.object(), nil, v1.EventTypeWarning, "NoScheduler", "Holding",
			"it is held, and no scheduler runs: the controller releases it at its latest start, %s",
			deadline.UTC().Format(time.RFC3339))
	}
}

// unplanned returns at most n Jobs that have waited for their plan for too long, and have no event about it.
func (h *Held) unplanned(now time.Time, n int) (waiting []types.UID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for uid, j := range h.jobs {
		if j.suspended && !j.told && !j.free && !j.Queued && j.written.IsZero() &&
			now.Sub(j.work.Submitted) > plannedWithin {
			if waiting = append(waiting, uid); len(waiting) == n {
				break
			}
		}
	}
	return waiting
}

// schedulerRuns reports whether a scheduler runs, as far as is known.
func (r *Releaser) schedulerRuns(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	var pods v1.PodList
	if err := r.o.Pods.List(ctx, &pods, client.InNamespace(v1alpha1.SystemNamespace),
		client.MatchingLabels{kube.LabelName: kube.Scheduler}); err != nil {
		return true
	}
	lease := &coordinationv1.Lease{}
	err := r.o.Client.Get(ctx, client.ObjectKey{Namespace: v1alpha1.SystemNamespace, Name: kube.HoldLease}, lease)
	if err != nil && !apierrors.IsNotFound(err) {
		return true
	}
	return kube.Runs(kube.Scheduler, lease, &pods, r.clock.Now())
}

// tellReleased records an event on a Job that this replica released.
func (r *Releaser) tellReleased(j *heldJob) {
	if !r.events.TryAccept() {
		return
	}
	reason, text := "DeadlineForced", "the allowed delay is used up"
	if j.free {
		reason, text = "Released", "nothing holds it"
	}
	panics.Survive(r.o.Log, "overdue", "an event", func() {
		r.o.Events.Eventf(j.object(), nil, v1.EventTypeNormal, reason, "Holding",
			"%s; the controller released it, because no scheduler did", text)
	})
}

func (j *heldJob) object() *batchv1.Job {
	return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: j.namespace, Name: j.name, UID: j.UID}}
}
