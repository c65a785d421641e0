package status

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kubenergy/kubenergy/internal/humanize"
)

// Write writes the status of an object from the cache and returns when to reconcile the object again: after look,
// or soon if the object has changed or no longer exists. In the latter case, the cache is outdated and the status
// is not written.
func Write(ctx context.Context, c client.Client, o client.Object, look time.Duration,
) (again reconcile.Result, written bool, err error) {
	const behind = time.Second // retry delay; each retry is a write, and the watch may lag
	err = c.Status().Update(ctx, o)
	switch {
	case err == nil:
		return reconcile.Result{RequeueAfter: look}, true, nil
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return reconcile.Result{RequeueAfter: behind}, false, nil
	}
	return again, false, fmt.Errorf("writing the status of %T %s: %w", o, client.ObjectKeyFromObject(o), err)
}

// Bounded truncates text from users to 1024 bytes, so that it does not fill an object.
func Bounded(text string) string { return humanize.Truncated(text, 1024) }
