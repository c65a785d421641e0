package karmada

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/kubenergy/kubenergy/internal/daemon"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/kube/panics"
	"github.com/kubenergy/kubenergy/internal/sched"
)

const (
	moveLook = 30 * time.Second
	moveGain = 0.2              // minimum fraction of the remaining emissions that a move must save
	minStay  = 10 * time.Minute // minimum time in a cluster before a move
)

// move periodically reschedules interruptible Jobs if running them from the start in another cluster emits
// significantly less than completing them in their current one. It returns when ctx is done.
func (d *Driver) move(ctx context.Context) {
	if d.Moves <= 0 {
		return
	}
	limit := flowcontrol.NewTokenBucketRateLimiter(float32(d.Moves/3600), max(1, int(d.Moves/10)))
	moved := map[types.UID]time.Time{}
	for kube.Pause(ctx, moveLook) {
		maps.DeleteFunc(moved, func(_ types.UID, at time.Time) bool { return d.Clock().Sub(at) > minStay })
		if !d.leads() {
			continue
		}
		round, cancel := context.WithTimeout(ctx, moveLook) // the order of the store is random
		for _, o := range d.movable.GetStore().List() {
			j := o.(*batchv1.Job)
			if round.Err() != nil {
				break
			}
			if _, just := moved[j.UID]; just {
				continue // Karmada may not have processed the move yet
			}
			daemon.Round(ctx, func() {
				panics.Survive(d.Log, "karmada", "considering a move", func() {
					moves, err := d.consider(round, d.binding(j.Namespace+"/"+j.Name+"-job"), limit)
					if err != nil {
						d.Log.Warn("Failed to move Job", "namespace", j.Namespace, "job", j.Name, "error", err)
					}
					if moves {
						moved[j.UID] = d.Clock()
					}
				})
			})
		}
		cancel()
	}
}

// consider moves the Job of a binding if that pays off, and reports whether it did.
func (d *Driver) consider(ctx context.Context, b *binding, limit flowcontrol.RateLimiter) (bool, error) {
	if b == nil || !d.stays(b) || !d.enforces(b) {
		return false, nil
	}
	from := b.Spec.Clusters[0].Name
	a, err := d.answer(ctx, b, nil, "")
	if err != nil || slices.ContainsFunc(a.targets, func(t target) bool { return t.Name == from }) {
		return false, nil //nolint:nilerr // no other cluster has capacity, or none is better
	}
	since := b.Status.LastScheduledTime.Time
	stays, lost, seen := d.least(a.on, from, since)
	goes := a.first.Cost.Carbon
	if !seen || goes >= stays*(1-moveGain) || !limit.TryAccept() {
		return false, nil
	}
	r := &b.Spec.Resource
	rebalancer := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": rebalancerResource.GroupVersion().String(), "kind": "WorkloadRebalancer",
		"metadata": map[string]any{"generateName": "kubenergy-"},
		"spec": map[string]any{"ttlSecondsAfterFinished": int64(3600), "workloads": []any{map[string]any{
			"apiVersion": r.APIVersion, "kind": r.Kind, "namespace": r.Namespace, "name": r.Name,
		}}},
	}}
	if _, err = d.dynamic.Resource(rebalancerResource).Create(ctx, rebalancer, metav1.CreateOptions{}); err != nil {
		return false, err
	}
	moves.Inc()
	a.record.Action, a.record.Saved = "move", stays-goes
	a.record.Message = fmt.Sprintf("from cluster %s, discarding work that has used %.4g kWh", from, lost.KWh())
	d.Record(a.record, a.on)
	return true, nil
}

// stays reports whether a binding is of a Job that has been running in a single cluster for the minimum time.
func (d *Driver) stays(b *binding) bool {
	last := b.Status.LastScheduledTime
	if len(b.Spec.Clusters) != 1 || b.suspended() || b.duplicated() || b.unsupported() != nil || b.waits(d.gone) ||
		last == nil || d.Clock().Sub(last.Time) < minStay {
		return false
	}
	for _, s := range b.Status.AggregatedStatus {
		if s.ClusterName == b.Spec.Clusters[0].Name {
			return s.Status.Active > 0
		}
	}
	return false
}

// least returns the minimum emissions of the rest of a job on any node of a cluster if it started at since, and the
// energy used so far. It returns false if the cluster has no snapshot or no nodes.
func (d *Driver) least(q *sched.Snapshot, cluster string, since time.Time) (
	rest energy.Grams, used energy.Joules, seen bool,
) {
	l, why := d.members.look(cluster, d.Clock())
	if why != "" {
		return 0, 0, false
	}
	job := q.Queue[0]
	for _, p := range l.nodes {
		job.Done = min(time.Duration(float64(q.Now.Sub(since))*cmp.Or(p.sched.Speed, 1)), job.Duration)
		ends := q.Now.Add(p.sched.Runtime(&job))
		if e := q.Estimate(&job, p.sched, sched.Window{Start: q.Now, End: ends}); !seen || e.Carbon < rest {
			rest, seen = e.Carbon, true
			used = q.Estimate(&job, p.sched, sched.Window{Start: since, End: q.Now}).Energy
		}
	}
	return rest, used, seen
}
