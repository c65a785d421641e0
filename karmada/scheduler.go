package karmada

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubenergy/kubenergy/kube"
	"github.com/kubenergy/kubenergy/ledger"
	"github.com/kubenergy/kubenergy/policy"
	"github.com/kubenergy/kubenergy/sched"
)

// SchedulerName is what a PropagationPolicy says to have its bindings scheduled here.
const SchedulerName = "kubenergy"

const appliedPlacement = "policy.karmada.io/applied-placement" // what the clusters of a binding were chosen for

// due reports whether a binding is to be placed now, by the rules of karmada-scheduler: it was not, or for another
// placement, or not for as many replicas, or it was asked for again, or a cluster of it is gone.
func (b *binding) due(gone func(cluster string) bool) bool {
	return b.Spec.SchedulerName == SchedulerName && !b.suspended() && b.DeletionTimestamp == nil && b.waits(gone)
}

// waits reports whether a binding has no clusters for what it says now.
func (b *binding) waits(gone func(cluster string) bool) bool {
	switch {
	case !sameJSON(b.Spec.placement, b.Annotations[appliedPlacement]), len(b.Spec.Clusters) == 0:
		return true
	case b.Spec.RescheduleTriggeredAt != nil && b.Status.LastScheduledTime != nil &&
		b.Spec.RescheduleTriggeredAt.After(b.Status.LastScheduledTime.Time):
		return true
	case slices.ContainsFunc(b.Spec.Clusters, func(t target) bool { return gone(t.Name) }):
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

func sameJSON(a json.RawMessage, b string) bool {
	var one, other any
	if json.Unmarshal(a, &one) != nil || json.Unmarshal([]byte(b), &other) != nil {
		return false
	}
	x, _ := json.Marshal(one)
	y, _ := json.Marshal(other)
	return string(x) == string(y)
}

// place chooses the clusters of a binding and writes them, with what karmada-scheduler would say of it.
func (d *Driver) place(ctx context.Context, b *binding) error {
	targets, entry, err := d.choose(ctx, b)
	generation := b.Generation
	if errors.Is(err, errUnread) {
		return err // it says nothing of the work either
	}
	if err == nil {
		written, errPatch := d.patch(ctx, b, "", map[string]any{
			"metadata": map[string]any{
				"resourceVersion": b.ResourceVersion,
				"annotations":     map[string]string{appliedPlacement: string(b.Spec.placement)},
			},
			"spec": map[string]any{"clusters": targets},
		})
		if errPatch != nil {
			return errPatch // it says nothing of the work
		}
		generation = written.GetGeneration()
	}
	condition := metav1.Condition{
		Type: "Scheduled", Status: metav1.ConditionTrue, Reason: "Success",
		Message: "Binding has been scheduled successfully.", LastTransitionTime: metav1.NewTime(d.Clock()),
	}
	status := map[string]any{}
	switch {
	case err == nil:
		status["schedulerObservedGeneration"], status["lastScheduledTime"] = generation, metav1.NewTime(d.Clock())
		if entry != nil {
			d.Record(entry.record, entry.on)
		}
	case errors.Is(err, errUnsupported):
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, "SchedulerError", err.Error()
	default:
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, "Unschedulable", err.Error()
	}
	conditions := slices.Clone(b.Status.Conditions)
	if meta.SetStatusCondition(&conditions, condition) || len(status) > 0 {
		status["conditions"] = conditions
		_, errPatch := d.patch(ctx, b, "status", map[string]any{"status": status})
		err = errors.Join(err, errPatch)
	}
	for range looks { // the next binding is to know of this one
		known := d.binding(b.Namespace + "/" + b.Name)
		if err != nil || known == nil ||
			known.ResourceVersion != b.ResourceVersion && known.Status.LastScheduledTime != nil {
			break
		}
		kube.Pause(ctx, lookEvery/100)
	}
	return err
}

var errUnread = errors.New("the workload cannot be read")

var errUnsupported = errors.New("schedulerName: kubenergy cannot place this")

// choose returns where a binding goes, and what that was decided on. What is to be everywhere needs no opinion: it goes
// to all clusters where it may.
func (d *Driver) choose(ctx context.Context, b *binding) (targets []target, e *entry, err error) {
	if err := b.unsupported(); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", errUnsupported, err)
	}
	if !b.duplicated() {
		return d.answer(ctx, b)
	}
	for _, c := range d.members.clusters() {
		if b.refuses(c) == "" {
			targets = append(targets, target{c.Name, b.Spec.Replicas})
		}
	}
	if len(targets) == 0 {
		return nil, nil, errors.New("no cluster fits")
	}
	return targets, nil, nil
}

// entry is a decision, and what it was made on.
type entry struct {
	on     *sched.Snapshot
	record ledger.Record
}

// answer asks the core about a binding.
func (d *Driver) answer(ctx context.Context, b *binding) ([]target, *entry, error) {
	job, settings, err := d.about(ctx, b)
	if err != nil {
		return nil, nil, err
	}
	q := ask(b, job, &settings, d.View(), d.members.clusters(), func(c *cluster) ([]*sched.Node, string) {
		return d.room(b, c.Name)
	}, d.Clock())
	a, err := q.answer(max(1, b.Spec.Replicas))
	if err != nil {
		return nil, nil, err
	}
	r := &b.Spec.Resource
	return a.targets, &entry{a.on, ledger.Record{
		At: q.Now, Action: "place", Namespace: r.Namespace, OwnerKind: r.Kind, Owner: r.Name, UID: r.UID,
		Strategy: q.strategy, Node: a.first.Node, Start: q.Now, Reason: a.first.Reason.Kind.String(),
		Message: fmt.Sprintf("clusters and replicas: %v", a.targets),
	}}, nil
}

// about reads what a binding is about. Of what is no Job, only what a replica requests is known.
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
		d.Log.Warn("reading annotations", "namespace", r.Namespace, "name", r.Name, "error", err)
	}
	job, settings := d.View().Settle(&work)
	job.Request = b.request(j)
	return job, settings, nil
}

// request is what one replica requests.
func (b *binding) request(j *batchv1.Job) sched.Resources {
	if len(j.Spec.Template.Spec.Containers) > 0 {
		return policy.PodRequest(&v1.Pod{Spec: j.Spec.Template.Spec})
	}
	return b.needs()
}

func (d *Driver) patch(ctx context.Context, b *binding, sub string, patch any) (*unstructured.Unstructured, error) {
	data, err := json.Marshal(patch)
	if err != nil {
		return nil, err
	}
	var subs []string
	if sub != "" {
		subs = []string{sub}
	}
	return d.dynamic.Resource(kube.Bindings).Namespace(b.Namespace).Patch(ctx, b.Name, types.MergePatchType, data,
		metav1.PatchOptions{}, subs...)
}

// room returns the nodes of a cluster that a binding may use, with what is free once all that was sent there has come;
// or why there are none.
func (d *Driver) room(b *binding, name string) (nodes []*sched.Node, why string) {
	l, why := d.members.look(name, d.Clock())
	there := d.sent(name)
	if why == "" {
		why = disproved(l, b, there)
	}
	if why != "" {
		return nil, why
	}
	may := suits(b.pod())
	for _, p := range l.nodes {
		if may(p.node) {
			nodes = append(nodes, p.sched)
		}
	}
	for _, sent := range there {
		last := sent.Status.LastScheduledTime
		if last == nil || l.at.Sub(last.Time) > arrival {
			continue
		}
		request := sent.needs()
		for range sent.replicas(name) - l.pods[sent.Spec.Resource.Namespace+"/"+sent.Spec.Resource.Name] {
			if i := slices.IndexFunc(nodes, func(n *sched.Node) bool { return request.Within(n.Free) }); i >= 0 {
				taken := nodes[i].Place(request)
				nodes[i] = &taken
			}
		}
	}
	return nodes, ""
}

// arrival is how long what was sent counts as there, seen or not.
const arrival = 30 * time.Second

// disproved returns why the room that a member claims is not believed for a binding. A pod that has found no node for a
// minute although there seems to be one disproves it: for all work, if the member's scheduler says nothing or that room
// is short; for the work of its own namespace if there is another reason, which may be the pod's fault. So does a Job
// of which the member says nothing, for the work of its namespace: quotas look like that.
func disproved(l *look, b *binding, there []*binding) string {
	namespace := b.Spec.Resource.Namespace
	for _, p := range l.waiting {
		may, request := suits(p), policy.PodRequest(p)
		seemsRoom := func(n place) bool { return request.Within(n.sched.Free) && may(n.node) }
		if (p.Namespace == namespace || lacksRoom(p)) && slices.ContainsFunc(l.nodes, seemsRoom) {
			return fmt.Sprintf("pod %s/%s has found no node there for a minute", p.Namespace, p.Name)
		}
	}
	for _, sent := range there {
		r, last := &sent.Spec.Resource, sent.Status.LastScheduledTime
		if r.Namespace == namespace && r.Kind == "Job" && last != nil && l.at.Sub(last.Time) > believed &&
			!sent.heardOf(l.cluster.Name) {
			return fmt.Sprintf("Job %s/%s was sent there and has not begun", r.Namespace, r.Name)
		}
	}
	return ""
}

// lacksRoom reports whether a scheduler found too little room for a pod and nothing else, or has not looked at it. One
// that is not the default may not run there.
func lacksRoom(p *v1.Pod) bool {
	if said := policy.Scheduled(p); said.Type != "" {
		others := []string{"affinity rules", "topology spread", "volume", "free ports", "claim"}
		return strings.Contains(said.Message, "Insufficient ") &&
			!slices.ContainsFunc(others, func(why string) bool { return strings.Contains(said.Message, why) })
	}
	return p.Spec.SchedulerName == v1.DefaultSchedulerName
}

// heardOf reports whether a cluster tells anything of a Job.
func (b *binding) heardOf(cluster string) bool {
	for _, s := range b.Status.AggregatedStatus {
		if s.ClusterName == cluster {
			return s.Status.Active+s.Status.Succeeded+s.Status.Failed > 0 || len(s.Status.Conditions) > 0
		}
	}
	return false
}
