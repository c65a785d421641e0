package cached

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/policy"
)

// NodeIndex is the name of the index of pods by node.
const NodeIndex = "spec.nodeName"

// PodsByNode is the indexer function of [NodeIndex].
func PodsByNode(obj client.Object) []string {
	if p, ok := obj.(*v1.Pod); ok && p.Spec.NodeName != "" {
		return []string{p.Spec.NodeName}
	}
	return nil
}

// AllowanceIndex is the name of the index of Jobs and pods with annotations that may give them a budget. They are
// listed under MayHaveAllowance. Pods of a Job are not listed, although they inherit the annotations of its
// template, because the budget applies to the Job.
const (
	AllowanceIndex   = "allowance"
	MayHaveAllowance = "may-have"
)

// ByAllowance is the indexer function of [AllowanceIndex].
func ByAllowance(obj client.Object) []string {
	job, _ := obj.(*batchv1.Job)
	if owner := metav1.GetControllerOfNoCopy(obj); job == nil && owner != nil && owner.Kind == "Job" {
		return nil
	}
	if policy.MayHaveAllowance(obj.GetAnnotations()) ||
		job != nil && policy.MayHaveAllowance(job.Spec.Template.Annotations) {
		return []string{MayHaveAllowance}
	}
	return nil
}

// Handler returns an event handler that calls saw and then created for each added object, saw for each updated
// object, and lost for each deleted object. Functions that are nil are not called.
func Handler[T client.Object](created, saw, lost func(T)) toolscache.ResourceEventHandler {
	call := func(f func(T), obj any) {
		if o, ok := kube.EventObject[T](obj); ok && f != nil {
			f(o)
		}
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			call(saw, obj)
			call(created, obj)
		},
		UpdateFunc: func(_, obj any) { call(saw, obj) },
		DeleteFunc: func(obj any) { call(lost, obj) },
	}
}

// Follow delivers events of all objects of a kind to a handler until ctx is done. It retries while the API server
// is unavailable or denies access. It increments synced after the handler has received all initial objects.
func Follow(ctx context.Context, m manager.Manager, kind client.Object, h toolscache.ResourceEventHandler,
	synced *atomic.Int32, log *slog.Logger,
) error {
	const retry = 5 * time.Second
	reported := ""
	h = kube.Surviving(log, h)
	var registration toolscache.ResourceEventHandlerRegistration
	err := wait.PollUntilContextCancel(ctx, retry, true, func(ctx context.Context) (done bool, err error) {
		if registration, err = register(ctx, m, kind, h); err != nil && err.Error() != reported && ctx.Err() == nil {
			reported = err.Error()
			log.Warn("Failed to watch objects, retrying", "kind", fmt.Sprintf("%T", kind), "error", err)
		}
		return err == nil, nil
	})
	if err == nil && toolscache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
		synced.Add(1)
	}
	<-ctx.Done()
	return nil
}

func register(ctx context.Context, m manager.Manager, kind client.Object,
	h toolscache.ResourceEventHandler,
) (toolscache.ResourceEventHandlerRegistration, error) {
	indexes := map[string]client.IndexerFunc{}
	switch kind.(type) {
	case *v1.Pod:
		indexes[NodeIndex], indexes[AllowanceIndex] = PodsByNode, ByAllowance
	case *batchv1.Job:
		indexes[AllowanceIndex] = ByAllowance
	}
	for name, key := range indexes {
		if err := m.GetFieldIndexer().IndexField(ctx, kind, name, key); err != nil {
			return nil, err
		}
	}
	informer, err := m.GetCache().GetInformer(ctx, kind, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, err
	}
	return informer.AddEventHandler(h)
}
