package karmada

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	resources "k8s.io/component-helpers/resource"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sliceutil"
)

// SchedulerName is the scheduler name in a PropagationPolicy for bindings that are scheduled by the Driver.
const SchedulerName = "kubenergy"

const appliedPlacement = "policy.karmada.io/applied-placement" // placement used to select the clusters

// due reports whether a binding must be scheduled, by the same rules as karmada-scheduler.
func (d *Driver) due(b *binding) bool {
	return b.waits(d.gone) || b.duplicated() && b.Spec.Placement != nil && !alike(b.Spec.Clusters, d.everywhere(b))
}

func alike(a, b []target) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(t target) bool { return !slices.Contains(b, t) })
}

// triggered reports whether rescheduling of a binding was triggered after it was last scheduled.
func (b *binding) triggered() bool {
	at, last := b.Spec.RescheduleTriggeredAt, b.Status.LastScheduledTime
	return at != nil && last != nil && at.After(last.Time)
}

// waits reports whether the clusters of a binding do not match its spec: it was never scheduled, its placement or
// number of replicas has changed, rescheduling was triggered, or one of its clusters no longer exists.
func (b *binding) waits(gone func(cluster string) bool) bool {
	if !b.applied || len(b.Spec.Clusters) == 0 || b.triggered() ||
		slices.ContainsFunc(b.Spec.Clusters, func(t target) bool { return gone(t.Name) }) {
		return true
	}
	sum := int32(0)
	for _, t := range b.Spec.Clusters {
		if sum += t.Replicas; b.duplicated() && t.Replicas != b.Spec.Replicas {
			return true
		}
	}
	return !b.duplicated() && sum != b.Spec.Replicas
}

// place schedules a binding and updates its clusters and status as karmada-scheduler does.
func (d *Driver) place(ctx context.Context, b *binding) error {
	a, err := d.choose(ctx, b)
	generation := b.Generation
	if errors.Is(err, errUnread) {
		return err // an API server failure does not imply that the workload fits nowhere
	}
	if err == nil || errors.Is(err, errNoFit) { // karmada-scheduler also removes the clusters if none fits
		written, errPatch := d.patch(ctx, b, map[string]any{
			"metadata": map[string]any{
				"resourceVersion": b.ResourceVersion,
				"annotations":     map[string]string{appliedPlacement: string(b.Spec.Placement.written)},
			},
			"spec": map[string]any{"clusters": a.targets},
		})
		if errPatch != nil {
			return errPatch // no status update after a conflict
		}
		generation = written.GetGeneration()
	}
	status, condition := map[string]any{}, d.condition(err)
	switch {
	case err == nil:
		status["schedulerObservedGeneration"], status["lastScheduledTime"] = generation, metav1.NewTime(d.Clock())
		if a.on != nil {
			d.Record(a.record, a.on)
		}
	case condition.Reason != unschedulable:
		err = nil // retry only after a change of the binding or a cluster
	}
	placements.WithLabelValues(condition.Reason).Inc()
	conditions := slices.Clone(b.Status.Conditions)
	if meta.SetStatusCondition(&conditions, condition) || len(status) > 0 {
		status["conditions"] = conditions
		_, errPatch := d.patch(ctx, b, map[string]any{"status": status}, "status")
		err = errors.Join(err, errPatch)
	}
	if err == nil && status["lastScheduledTime"] != nil {
		d.awaitPlaced(ctx, b)
	}
	return err
}

// awaitPlaced waits briefly until the informer has observed the update, so that it is considered for the next
// binding.
func (d *Driver) awaitPlaced(ctx context.Context, b *binding) {
	const look = lookEvery / 100
	_ = wait.PollUntilContextTimeout(ctx, look, looks*look, true, func(context.Context) (bool, error) {
		current := d.binding(b.key())
		return current == nil ||
			current.ResourceVersion != b.ResourceVersion && current.Status.LastScheduledTime != nil, nil
	})
}

// condition returns the Scheduled condition, with the same reasons as karmada-scheduler.
func (d *Driver) condition(err error) metav1.Condition {
	c := metav1.Condition{
		Type: "Scheduled", Status: metav1.ConditionFalse, LastTransitionTime: metav1.NewTime(d.Clock()),
	}
	switch {
	case err == nil:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, "Success", "Binding has been scheduled successfully."
		return c
	case errors.Is(err, errUnsupported):
		c.Reason = "SchedulerError"
	case errors.Is(err, errNoFit):
		c.Reason = noClusterFit
	default:
		c.Reason = unschedulable
	}
	c.Message = err.Error()
	return c
}

var errUnread = errors.New("the workload cannot be read")

var errUnsupported = errors.New("the binding is not supported with schedulerName: kubenergy")

var errNoFit = errors.New("no cluster fits")

// choose returns the clusters of a binding. Duplicated bindings do not require an opinion.
func (d *Driver) choose(ctx context.Context, b *binding) (a answer, err error) {
	if err := b.unsupported(); err != nil {
		return a, fmt.Errorf("%w: %w", errUnsupported, err)
	}
	var refused []string
	for _, c := range d.clusters() {
		if why := b.refuses(c); why != "" {
			refused = append(refused, c.Name+": "+why)
		}
	}
	if len(refused) == len(d.clusters()) {
		return a, fmt.Errorf("%w: %s", errNoFit, strings.Join(refused, "; "))
	}
	if b.duplicated() {
		return answer{targets: d.everywhere(b)}, nil
	}
	kept := d.kept(b)
	if a, err = d.answer(ctx, b, kept, ""); errors.Is(err, errNoOpinion) { // usually because there are no signals
		return d.answer(ctx, b, kept, stock)
	}
	return a, err
}

// everywhere returns all clusters that accept a binding, up to its maximum number of clusters.
func (d *Driver) everywhere(b *binding) (targets []target) {
	for _, c := range d.clusters() {
		if b.refuses(c) == "" {
			targets = append(targets, target{c.Name, b.Spec.Replicas})
		}
	}
	return b.few(targets)
}

// kept returns the replicas of a binding that remain in their clusters. Replicas in clusters that no longer accept
// the binding are excluded, and all replicas if rescheduling was triggered.
func (d *Driver) kept(b *binding) (kept []target) {
	for _, t := range b.Spec.Clusters {
		if c := d.cluster(t.Name); c != nil && b.refuses(c) == "" && !b.triggered() {
			kept = append(kept, t)
		}
	}
	return b.few(kept)
}

// fewer removes surplus replicas, starting with clusters without a snapshot and then those with the highest
// emissions.
func (d *Driver) fewer(q *sched.Snapshot, kept []target, surplus int32) []target {
	emits := map[string]energy.Grams{}
	for _, t := range kept {
		emits[t.Name] = energy.Grams(math.Inf(1))
		if least, _, ok := d.least(q, t.Name, q.Now); ok {
			emits[t.Name] = least
		}
	}
	slices.SortStableFunc(kept, func(a, b target) int { return cmp.Compare(emits[b.Name], emits[a.Name]) })
	for i := range kept {
		taken := min(surplus, kept[i].Replicas)
		kept[i].Replicas, surplus = kept[i].Replicas-taken, surplus-taken
	}
	return slices.DeleteFunc(kept, func(t target) bool { return t.Replicas == 0 })
}

// answer selects the clusters of a binding with a strategy, given the replicas that remain. If where is empty, the
// strategy of the binding's policy is used.
func (d *Driver) answer(ctx context.Context, b *binding, kept []target, where string) (a answer, err error) {
	missing := b.Spec.Replicas
	for _, t := range kept {
		missing -= t.Replicas
	}
	if missing == 0 {
		return answer{targets: kept}, nil
	}
	job, settings, err := d.about(ctx, b)
	if err != nil {
		return a, err
	}
	q := ask(b, job, &settings, d.View(), d.clusters(), func(c *cluster) ([]*sched.Node, string) {
		return d.room(b, c.Name)
	}, d.Clock())
	q.kept, q.strategy = kept, cmp.Or(where, q.strategy)
	if missing < 0 {
		return answer{targets: d.fewer(q.Snapshot, kept, -missing)}, nil
	}
	if a, err = q.answer(missing); err != nil {
		return a, err
	}
	r := &b.Spec.Resource
	a.record = ledger.Record{
		At: q.Now, Action: "place", Namespace: r.Namespace, OwnerKind: r.Kind, Owner: r.Name, UID: r.UID,
		Strategy: q.strategy, Node: a.first.Node, Start: q.Now, Reason: a.first.Reason.Kind.String(),
		Message: "replicas by cluster: " + written(a.targets),
	}
	return a, nil
}

// written formats the replicas by cluster for messages.
func written(targets []target) string {
	all := sliceutil.Map(targets, func(t target) string { return fmt.Sprintf("%s %d", t.Name, t.Replicas) })
	return strings.Join(all, ", ")
}

// about returns the scheduling Job of a binding and its settings. For kinds other than Job, only the resource
// request is known.
func (d *Driver) about(ctx context.Context, b *binding) (sched.Job, policy.Settings, error) {
	r := &b.Spec.Resource
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: r.Name}}
	if r.APIVersion == "batch/v1" && r.Kind == "Job" {
		var err error
		if j, err = d.client.BatchV1().Jobs(r.Namespace).Get(ctx, r.Name, metav1.GetOptions{}); err != nil {
			return sched.Job{}, policy.Settings{}, fmt.Errorf("%w: Job %s/%s: %w", errUnread, r.Namespace, r.Name, err)
		}
	}
	work, err := policy.ReadJob(j)
	if err != nil {
		d.Log.Warn("Ignored invalid annotations", "namespace", r.Namespace, "name", r.Name, "error", err)
	}
	job, settings := d.View().Settle(&work)
	job.Request = b.needs()
	return job, settings, nil
}

func (d *Driver) patch(ctx context.Context, b *binding, patch any, sub ...string) (*unstructured.Unstructured, error) {
	data, err := json.Marshal(patch)
	if err != nil {
		return nil, err
	}
	return d.dynamic.Resource(kube.Bindings).Namespace(b.Namespace).Patch(ctx, b.Name, types.MergePatchType, data,
		metav1.PatchOptions{}, sub...)
}

// room returns the nodes of a cluster that a binding may use, with the capacity that remains after all recently
// scheduled replicas have started, or the reason why there are none.
func (d *Driver) room(b *binding, name string) (nodes []*sched.Node, why string) {
	l, why := d.members.look(name, d.Clock())
	there := d.sent(name)
	if why == "" {
		why = disproved(l, b, there)
	}
	if why != "" {
		return nil, why
	}
	admission := kube.AdmissionOf(b.pod())
	for _, p := range l.nodes {
		if admission.Admits(p.node) {
			nodes = append(nodes, p.sched)
		}
	}
	for _, sent := range there {
		last := sent.Status.LastScheduledTime
		if last == nil || l.at.Sub(last.Time) > arrival {
			continue
		}
		request, r := sent.needs(), &sent.Spec.Resource
		comes := int64(replicas(sent.Spec.Clusters, name) - l.pods[r.Namespace+"/"+r.Name])
		for i, n := range nodes {
			if here := min(comes, request.CountIn(n.Free)); here > 0 {
				taken := n.Place(policy.Times(request, here))
				nodes[i], comes = &taken, comes-here
			}
		}
	}
	return nodes, ""
}

// arrival is how long scheduled replicas are considered to use capacity if their pods are not observed.
const arrival = 30 * time.Second

// disproved returns the reason why the reported capacity of a member is not used for a binding, or "". A pod that
// has been unschedulable for a minute although a node seems to have capacity affects all workloads if its condition
// reports insufficient capacity or is missing. With another reason it affects only workloads in the same namespace,
// because the reason may be specific to the pod. A Job without any status from the member also affects workloads in
// its namespace, because this is typical for exceeded quotas.
func disproved(l *look, b *binding, there []*binding) string {
	namespace := b.Spec.Resource.Namespace
	for _, p := range l.waiting {
		admission, request := kube.AdmissionOf(p), policy.PodRequest(p)
		seemsRoom := func(n place) bool { return request.Within(n.sched.Free) && admission.Admits(n.node) }
		if (p.Namespace == namespace || lacksRoom(p)) && slices.ContainsFunc(l.nodes, seemsRoom) {
			return fmt.Sprintf("pod %s/%s has been unschedulable there for a minute", p.Namespace, p.Name)
		}
	}
	for _, sent := range there {
		r, last := &sent.Spec.Resource, sent.Status.LastScheduledTime
		if r.Namespace == namespace && r.Kind == "Job" && last != nil && l.at.Sub(last.Time) > believed &&
			!sent.heardOf(l.cluster.Name) {
			return fmt.Sprintf("Job %s/%s was scheduled there and has not started", r.Namespace, r.Name)
		}
	}
	return ""
}

// lacksRoom reports whether a pod is unschedulable only because of insufficient capacity, or has not been processed
// by the default scheduler. Other schedulers may not be running. A pod with requests of other resources does not
// affect other workloads.
func lacksRoom(p *v1.Pod) bool {
	for name, q := range resources.PodRequests(p, resources.PodResourcesOptions{}) {
		if !q.IsZero() && policy.ResourcesOf(v1.ResourceList{name: q}) == (sched.Resources{}) {
			return false
		}
	}
	said := policy.Scheduled(p)
	mentions := func(why string) bool { return strings.Contains(said.Message, why) }
	if said.Type != "" {
		return slices.ContainsFunc([]string{"Insufficient cpu", "Insufficient memory", "Too many pods"}, mentions) &&
			!slices.ContainsFunc([]string{"affinity rules", "topology spread", "volume", "free ports", "claim"},
				mentions)
	}
	return p.Spec.SchedulerName == v1.DefaultSchedulerName
}

// heardOf reports whether a cluster has reported a status for the Job of a binding.
func (b *binding) heardOf(cluster string) bool {
	for _, s := range b.Status.AggregatedStatus {
		if s.ClusterName == cluster {
			return s.Status.Active+s.Status.Succeeded+s.Status.Failed > 0 || len(s.Status.Conditions) > 0
		}
	}
	return false
}
