package status

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Write writes the status of an object that came from the cache. It reports false where the cache is behind the API
// server: the object has changed or is gone, and the caller tries again with what it is by then.
func Write(ctx context.Context, c client.Client, o client.Object) (written bool, err error) {
	err = c.Status().Update(ctx, o)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("writing the status of %T %s: %w", o, client.ObjectKeyFromObject(o), err)
	}
	return true, nil
}

// Bounded keeps what others wrote from filling an object.
func Bounded(text string) string {
	const most = 1024
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}
