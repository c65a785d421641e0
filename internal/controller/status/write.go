package status

import (
	"context"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Write writes the status of an object that came from the cache, and says when to look at the object again: after look,
// or soon where the cache is behind the API server. Then nothing is written: the object has changed or is gone.
func Write(ctx context.Context, c client.Client, o client.Object, look time.Duration,
) (again reconcile.Result, written bool, err error) {
	const behind = time.Second // a watch may lag: each try is a write
	err = c.Status().Update(ctx, o)
	switch {
	case err == nil:
		return reconcile.Result{RequeueAfter: look}, true, nil
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return reconcile.Result{RequeueAfter: behind}, false, nil
	}
	return again, false, fmt.Errorf("writing the status of %T %s: %w", o, client.ObjectKeyFromObject(o), err)
}

// Bounded keeps what others wrote from filling an object.
func Bounded(text string) string {
	const most = 1024
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}
