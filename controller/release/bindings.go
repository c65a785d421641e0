package release

import (
	"context"
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/kube"
)

const (
	bindingLook = 5 * time.Second
	absentLook  = 5 * time.Minute // where the API server has no bindings
)

// Bindings is the second releaser of Karmada's bindings: it lets go of those that admission has suspended and that no
// kubenergy-karmada has let go, until ctx ends. Where the API server is not Karmada's it does nothing.
func Bindings(ctx context.Context, c dynamic.Interface, log *slog.Logger) error {
	for {
		list, err := c.Resource(kube.Bindings).List(ctx, metav1.ListOptions{LabelSelector: v1alpha1.LabelHeld})
		pause := bindingLook
		switch {
		case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
			pause = absentLook
		case err != nil:
			log.Warn("looking for suspended bindings", "error", err)
		default:
			for i := range list.Items {
				freeBinding(ctx, c, &list.Items[i], log)
			}
		}
		if !kube.Pause(ctx, pause) {
			return nil
		}
	}
}

func freeBinding(ctx context.Context, c dynamic.Interface, o *unstructured.Unstructured, log *slog.Logger) {
	suspended, _, _ := unstructured.NestedBool(o.Object, "spec", "suspension", "scheduling")
	if !suspended || time.Since(o.GetCreationTimestamp().Time) < bindingLook { // kubenergy-karmada is quicker
		return
	}
	of, _, _ := unstructured.NestedMap(o.Object, "spec", "resource")
	text := func(key string) string { s, _ := of[key].(string); return s }
	b := kube.HeldBinding{
		Namespace: o.GetNamespace(), Name: o.GetName(),
		JobNamespace: text("namespace"), Job: text("name"), UID: text("uid"),
	}
	if freed, err := b.Free(ctx, c); err != nil {
		log.Warn("letting a binding go", "namespace", b.Namespace, "name", b.Name, "error", err)
	} else if freed {
		log.Warn("let a binding go that kubenergy-karmada had not", "namespace", b.Namespace, "name", b.Name)
	}
}
