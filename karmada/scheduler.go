package karmada

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/kubenergy/kubenergy/ledger"
	"github.com/kubenergy/kubenergy/policy"
	"github.com/kubenergy/kubenergy/sched"
	"github.com/kubenergy/kubenergy/scheduler/record"
)

// SchedulerName is what a PropagationPolicy says to have its bindings scheduled here.
const SchedulerName = "kubenergy"

const appliedPlacement = "policy.karmada.io/applied-placement" // what the clusters of a binding were chosen for

// due reports whether a binding is to be placed now, by the rules of karmada-scheduler: it was not, or for another
// placement, or not for as many replicas, or somebody asked for it again, or a cluster of it is gone.
func (b *binding) due(gone func(cluster string) bool) bool {
	return b.Spec.SchedulerName == SchedulerName && !b.suspended() && b.DeletionTimestamp == nil && b.waits(gone)
}

// waits reports whether a binding has no clusters for what it says now.
func (b *binding) waits(gone func(cluster string) bool) bool {
	switch {
	case !sameJSON(b.placement, b.Annotations[appliedPlacement]), len(b.Spec.Clusters) == 0:
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
func (d *driver) place(ctx context.Context, b *binding) error {
	targets, placed, err := d.choose(ctx, b)
	if err == nil {
		err = d.patch(ctx, b, "", map[string]any{
			"metadata": map[string]any{
				"resourceVersion": b.ResourceVersion, "annotations": map[string]string{appliedPlacement: string(b.placement)},
			},
			"spec": map[string]any{"clusters": targets},
		})
	}
	condition := metav1.Condition{
		Type: "Scheduled", Status: metav1.ConditionTrue, Reason: "Success",
		Message: "Binding has been scheduled successfully.", LastTransitionTime: metav1.NewTime(d.now()),
	}
	status := map[string]any{}
	switch {
	case err == nil:
		status["schedulerObservedGeneration"], status["lastScheduledTime"] = b.Generation+1, metav1.NewTime(d.now())
		d.note(b, targets, placed)
		d.tell(b, placed)
	case errors.Is(err, errUnsupported):
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, "SchedulerError", err.Error()
	default:
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, "Unschedulable", err.Error()
	}
	conditions := slices.Clone(b.Status.Conditions)
	if meta.SetStatusCondition(&conditions, condition) || len(status) > 0 {
		status["conditions"] = conditions
		err = errors.Join(err, d.patch(ctx, b, "status", map[string]any{"status": status}))
	}
	return err
}

var errUnsupported = errors.New("schedulerName: kubenergy cannot place this")

// choose returns where a binding goes. What is no Job, or is to be everywhere, needs no opinion: it goes to all clusters
// where it may.
func (d *driver) choose(ctx context.Context, b *binding) (targets []target, all []placed, err error) {
	if err := b.unsupported(); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", errUnsupported, err)
	}
	if b.duplicated() {
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
	job, settings, err := d.work(ctx, b)
	if err != nil {
		return nil, nil, err
	}
	q := ask(b, job, &settings, d.view(), d.members.clusters(), d.room, d.now())
	return q.answer(max(1, b.Spec.Replicas))
}

// work reads what a binding is about. Of what is no Job, only what a replica requests is known.
func (d *driver) work(ctx context.Context, b *binding) (sched.Job, policy.Settings, error) {
	r := &b.Spec.Resource
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: r.Name}}
	if r.APIVersion == "batch/v1" && r.Kind == "Job" {
		var err error
		if j, err = d.client.BatchV1().Jobs(r.Namespace).Get(ctx, r.Name, metav1.GetOptions{}); err != nil {
			return sched.Job{}, policy.Settings{}, fmt.Errorf("reading Job %s/%s: %w", r.Namespace, r.Name, err)
		}
	}
	work, err := policy.ReadJob(j)
	if err != nil {
		d.Log.Warn("reading annotations", "namespace", r.Namespace, "name", r.Name, "error", err)
	}
	job, settings := d.view().Settle(&work)
	job.ID = r.Namespace + "/" + r.Name
	job.Request = b.request(j)
	return job, settings, nil
}

// request is what one replica requests.
func (b *binding) request(j *batchv1.Job) sched.Resources {
	if len(j.Spec.Template.Spec.Containers) > 0 {
		return policy.PodRequest(&v1.Pod{Spec: j.Spec.Template.Spec})
	}
	if b.Spec.ReplicaRequirements == nil {
		return sched.Resources{}
	}
	return policy.ResourcesOf(b.Spec.ReplicaRequirements.ResourceRequest)
}

func (d *driver) patch(ctx context.Context, b *binding, sub string, patch any) error {
	data, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	var subs []string
	if sub != "" {
		subs = []string{sub}
	}
	_, err = d.dynamic.Resource(bindingResource).Namespace(b.Namespace).Patch(ctx, b.Name, types.MergePatchType, data,
		metav1.PatchOptions{}, subs...)
	return err
}

// tell records the decisions about the replicas of a binding, with all that each depended on.
func (d *driver) tell(b *binding, placed []placed) {
	if d.Record == nil {
		return
	}
	r := &b.Spec.Resource
	for i := range placed {
		p := &placed[i]
		d.Record(&record.Entry{Question: p.question, Record: ledger.Record{
			ID: string(uuid.NewUUID()), At: d.now(), Action: record.Place, Namespace: r.Namespace, OwnerKind: r.Kind,
			Owner: r.Name, UID: r.UID, Strategy: p.strategy, Node: p.decision.Node, Start: d.now(),
			Reason: p.decision.Reason.Kind.String(), Message: "cluster " + clusterOf(p.decision.Node),
		}})
	}
}

// note remembers where replicas were sent.
func (d *driver) note(b *binding, targets []target, all []placed) {
	if len(all) == 0 {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, t := range targets {
		d.sent = append(d.sent, sent{
			t.Name, b.Spec.Resource.Namespace + "/" + b.Spec.Resource.Name, all[0].question.Queue[0].Request, t.Replicas,
			d.now(),
		})
	}
}

// room returns the nodes of a cluster with what is free once all that was sent there has come.
func (d *driver) room(name string) (nodes []*sched.Node, why string) {
	nodes, seen, why := d.members.room(name, d.now())
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sent = slices.DeleteFunc(d.sent, func(s sent) bool { return d.now().Sub(s.at) > arrival })
	for _, s := range d.sent {
		if s.cluster != name {
			continue
		}
		for range s.replicas - seen[s.job] {
			if i := slices.IndexFunc(nodes, func(n *sched.Node) bool { return s.request.Within(n.Free) }); i >= 0 {
				taken := nodes[i].Place(s.request)
				nodes[i] = &taken
			}
		}
	}
	return nodes, why
}
