package release

import (
	"context"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/pager"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/kube/panics"
)

const (
	bindingLook = 5 * time.Second
	absentLook  = 5 * time.Minute // if the API server does not serve ResourceBindings
)

// Bindings releases ResourceBindings of Karmada that were suspended by admission and not released by
// kubenergy-karmada, until ctx is done. It is idle if the API server is not Karmada's. The function served reports
// whether the API server serves ResourceBindings, because other API servers also forbid to list them.
func Bindings(ctx context.Context, c dynamic.Interface, served func() bool, held *Held, log *slog.Logger) error {
	reported := false
	for {
		err := freeBindings(ctx, c, held, log)
		pause := bindingLook
		switch {
		case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
			if pause = absentLook; !reported && apierrors.IsForbidden(err) && served() {
				reported = true
				log.Warn("Failed to list ResourceBindings of Karmada; apply deploy/karmada/federation.yaml", "error",
					err)
			}
		case err != nil && ctx.Err() == nil:
			log.Warn("Failed to check suspended bindings", "error", err)
		}
		if !kube.Pause(ctx, pause) {
			return nil
		}
	}
}

// freeBindings checks all suspended bindings once. It reads a Job from the API server only if the Job is not known
// to be held, because thousands of bindings may wait for held Jobs.
func freeBindings(ctx context.Context, c dynamic.Interface, held *Held, log *slog.Logger) error {
	var all errgroup.Group
	all.SetLimit(releasesAtOnce)
	defer func() { _ = all.Wait() }() // the functions never return errors
	return pager.New(pager.SimplePageFunc(func(o metav1.ListOptions) (runtime.Object, error) {
		return c.Resource(kube.Bindings).List(ctx, o)
	})).EachListItem(ctx, metav1.ListOptions{LabelSelector: v1alpha1.LabelHeld}, func(o runtime.Object) error {
		b, due := seenBinding(o.(*unstructured.Unstructured))
		if due && !held.waits(b.UID) {
			all.Go(func() error {
				panics.Survive(log, "bindings", "releasing a binding", func() { freeBinding(ctx, c, b, log) })
				return nil
			})
		}
		return nil
	})
}

// seenBinding returns the fields of a binding that are needed to release it, and whether it has been suspended for
// longer than kubenergy-karmada would need to release it.
func seenBinding(o *unstructured.Unstructured) (b *kube.HeldBinding, due bool) {
	suspended, _, _ := unstructured.NestedBool(o.Object, "spec", "suspension", "scheduling")
	of, _, _ := unstructured.NestedStringMap(o.Object, "spec", "resource")
	return &kube.HeldBinding{
		Namespace: o.GetNamespace(), Name: o.GetName(),
		JobNamespace: of["namespace"], Job: of["name"], UID: of["uid"],
	}, suspended && time.Since(o.GetCreationTimestamp().Time) >= bindingLook
}

func freeBinding(ctx context.Context, c dynamic.Interface, b *kube.HeldBinding, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	if freed, err := b.Free(ctx, c); err != nil {
		log.Warn("Failed to release binding", "namespace", b.Namespace, "name", b.Name, "error", err)
	} else if freed {
		log.Warn("Released binding that kubenergy-karmada had not released", "namespace", b.Namespace, "name", b.Name)
	}
}
