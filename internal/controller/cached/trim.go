package cached

import (
	"log/slog"
	"maps"
	"slices"
	"strings"
	"unique"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/resource"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/kube/panics"
	"github.com/kubenergy/kubenergy/internal/sliceutil"
)

// Options returns cache options that trim objects to the fields that some component reads. saw is called with each
// pod before it is trimmed.
func Options(saw func(*v1.Pod), log *slog.Logger) cache.Options {
	t := newTrimmer(saw)
	return cache.Options{
		DefaultTransform: transform(log, func(metav1.Object) {}),
		ByObject: map[client.Object]cache.ByObject{
			&v1.Pod{}:          {Transform: transform(log, t.trimPod)},
			&v1.Node{}:         {Transform: transform(log, trimNode)},
			&batchv1.CronJob{}: {Transform: transform(log, trimCronJob)},
			&v1.Namespace{}: {Transform: transform(log, func(n *v1.Namespace) {
				n.Spec, n.Status.Conditions = v1.NamespaceSpec{}, nil
			})},
			&batchv1.Job{}: {Transform: transform(log, t.trimJob)},
		},
	}
}

// transform returns a transform function that trims objects in place. If trim panics, the object remains untrimmed.
func transform[T metav1.Object](log *slog.Logger, trim func(T)) func(any) (any, error) {
	return func(obj any) (any, error) {
		if o, ok := obj.(metav1.Object); ok {
			o.SetManagedFields(nil)
			shorten(o.GetAnnotations())
		}
		if t, ok := obj.(T); ok {
			panics.Survive(log, "objects", "trimming an object", func() { trim(t) })
		}
		return obj, nil
	}
}

// whole lists the annotations that the controller both writes and reads. They are never shortened. Package budget
// records its actions on a workload in this annotation and would repeat them if it were empty.
var whole = []string{v1alpha1.AnnotationBudgetActions}

// shorten empties all other annotations that exceed the longest meaningful value, such as kubectl's copy of the
// object. Their keys remain, because patches depend on whether an object has annotations.
func shorten(annotations map[string]string) {
	const longest = 1024
	for key, value := range annotations {
		if len(value) > longest && !slices.Contains(whole, key) {
			annotations[key] = ""
		}
	}
}

// trimmer trims pods and Jobs. Values that many pods have in common are shared, because a cluster may have 150,000
// pods. Callers must not modify objects in the cache.
type trimmer struct {
	saw                   func(*v1.Pod)
	sizes, labels, owners *lru.Cache // pools of shared values
}

func newTrimmer(saw func(*v1.Pod)) *trimmer {
	return &trimmer{saw, lru.New(maxPooled), lru.New(maxPooled), lru.New(maxPooled)}
}

func (t *trimmer) trimPod(p *v1.Pod) {
	t.saw(p)
	p.Finalizers, p.GenerateName = nil, ""
	p.Namespace = unique.Make(p.Namespace).Value()
	p.Labels = share(t.labels, labels.Set(p.Labels).String(), p.Labels)
	p.OwnerReferences = share(t.owners, writtenOwners(p.OwnerReferences), p.OwnerReferences)
	p.Spec = v1.PodSpec{
		NodeName: unique.Make(p.Spec.NodeName).Value(), SchedulerName: unique.Make(p.Spec.SchedulerName).Value(),
		PriorityClassName: p.Spec.PriorityClassName, NodeSelector: p.Spec.NodeSelector, Containers: t.size(p),
		ResourceClaims: p.Spec.ResourceClaims,
	}
	status := v1.PodStatus{
		Phase: v1.PodPhase(unique.Make(string(p.Status.Phase)).Value()), StartTime: p.Status.StartTime,
	}
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == v1.PodScheduled {
			status.Conditions = []v1.PodCondition{{
				Type: c.Type, Status: c.Status, Reason: c.Reason, LastTransitionTime: c.LastTransitionTime,
			}}
		}
	}
	for i := range p.Status.ContainerStatuses {
		current := &p.Status.ContainerStatuses[i]
		if t := current.State.Terminated; t != nil { // saw has already processed all other states
			status.ContainerStatuses = append(status.ContainerStatuses, v1.ContainerStatus{
				Name: current.Name, RestartCount: current.RestartCount,
				State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
					StartedAt: t.StartedAt, FinishedAt: t.FinishedAt,
				}},
			})
		}
	}
	p.Status = status
}

// size returns a single container that replaces all containers of a pod. Its requests are those of the whole pod,
// including init containers, sidecars and overhead.
func (t *trimmer) size(p *v1.Pod) []v1.Container {
	requests := resource.PodRequests(p, resource.PodResourcesOptions{})
	var key strings.Builder
	for _, name := range slices.Sorted(maps.Keys(requests)) {
		amount := requests[name]
		key.WriteString(string(name) + "=" + amount.String() + ",")
	}
	return share(t.sizes, key.String(), []v1.Container{{Resources: v1.ResourceRequirements{Requests: requests}}})
}

func writtenOwners(owners []metav1.OwnerReference) string {
	return strings.Join(sliceutil.Map(owners, func(o metav1.OwnerReference) string { return o.String() }), "")
}

// maxPooled is the maximum size of a pool. Values that have been removed from a pool remain valid.
const maxPooled = 50_000

// share returns the value in a pool with the given key, or adds v to the pool.
func share[V any](pool *lru.Cache, key string, v V) V {
	if known, ok := pool.Get(key); ok {
		return known.(V)
	}
	pool.Add(key, v)
	return v
}

// trimJob keeps the fields that requests, annotations and the rules for never held workloads depend on.
func (t *trimmer) trimJob(j *batchv1.Job) {
	j.Finalizers = nil
	template := v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{
		Labels: j.Spec.Template.Labels, Annotations: j.Spec.Template.Annotations,
	}}
	shorten(template.Annotations)
	s := &j.Spec.Template.Spec
	template.Spec = v1.PodSpec{
		SchedulerName: s.SchedulerName, PriorityClassName: s.PriorityClassName, NodeSelector: s.NodeSelector,
		Containers: t.size(&v1.Pod{Spec: *s}),
	}
	j.Spec = batchv1.JobSpec{
		Suspend: j.Spec.Suspend, Parallelism: j.Spec.Parallelism, Completions: j.Spec.Completions, Template: template,
		ManagedBy: j.Spec.ManagedBy, CompletionMode: j.Spec.CompletionMode, MaxFailedIndexes: j.Spec.MaxFailedIndexes,
		SuccessPolicy: j.Spec.SuccessPolicy,
	}
	var ended []batchv1.JobCondition
	for i := range j.Status.Conditions {
		if c := &j.Status.Conditions[i]; c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed {
			ended = append(ended, batchv1.JobCondition{Type: c.Type, Status: c.Status})
		}
	}
	j.Status = batchv1.JobStatus{
		Conditions: ended, StartTime: j.Status.StartTime, CompletionTime: j.Status.CompletionTime,
		Succeeded: j.Status.Succeeded, UncountedTerminatedPods: j.Status.UncountedTerminatedPods,
	}
}

// trimCronJob keeps the fields that the deadlines of runs depend on, and the metadata that findings are about.
func trimCronJob(c *batchv1.CronJob) {
	c.Status = batchv1.CronJobStatus{}
	c.Spec = batchv1.CronJobSpec{
		Schedule: c.Spec.Schedule, TimeZone: c.Spec.TimeZone, ConcurrencyPolicy: c.Spec.ConcurrencyPolicy,
		JobTemplate: batchv1.JobTemplateSpec{ObjectMeta: c.Spec.JobTemplate.ObjectMeta},
	}
}

func trimNode(n *v1.Node) {
	n.Spec = v1.NodeSpec{ProviderID: n.Spec.ProviderID, Unschedulable: n.Spec.Unschedulable, Taints: n.Spec.Taints}
	status := v1.NodeStatus{Capacity: n.Status.Capacity, Allocatable: n.Status.Allocatable}
	for _, c := range n.Status.Conditions {
		if c.Type == v1.NodeReady { // nodes that are not ready are not estimated
			status.Conditions = []v1.NodeCondition{{Type: c.Type, Status: c.Status}}
		}
	}
	n.Status = status
}
