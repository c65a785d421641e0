package kube

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
)

// watched watches objects of one kind. The objects are unstructured, so that an object that cannot be decoded does
// not prevent reading the rest of a list.
type watched struct {
	*kind
	informer cache.SharedIndexInformer

	mu sync.Mutex
	// time since when the server has rejected requests because the kind does not exist or access is forbidden; zero
	// if the last request did not fail for such a reason
	refused  time.Time
	reported string // last logged error
}

func newWatched(k *kind, all dynamic.Interface) *watched {
	w, client, selector := &watched{kind: k}, all.Resource(k.resource).Namespace(k.in), ""
	if k.name != "" {
		selector = fields.OneTermEqualSelector(metav1.ObjectNameField, k.name).String()
	}
	lw := Watching(client, client, func(o *metav1.ListOptions) { o.FieldSelector = selector }, w.heard)
	w.informer = cache.NewSharedIndexInformer(lw, &unstructured.Unstructured{}, 0, cache.Indexers{})
	return w
}

// Watching returns a ListerWatcher for the objects that the client selects. heard is called with the result of each
// request and whether a watch has been established. of is the object that determines whether lists are streamed,
// which is the client or the clientset that it belongs to.
func Watching[L runtime.Object](of any, client interface {
	List(ctx context.Context, o metav1.ListOptions) (L, error)
	Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error)
}, selects func(*metav1.ListOptions), heard func(err error, watching bool),
) cache.ListerWatcher {
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			selects(&o)
			list, err := client.List(ctx, o)
			heard(err, false)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			selects(&o)
			events, err := client.Watch(ctx, o)
			heard(err, err == nil)
			return events, err
		},
	}, of)
}

// heard records the result of a request. Failures other than rejections, e.g. of a restarting server, do not affect
// the cached objects, and a rejection must persist before it takes effect. After a watch has been established, the
// next failure is logged again.
func (w *watched) heard(err error, watching bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if watching {
		w.reported = ""
	}
	switch refused := apierrors.IsNotFound(err) || apierrors.IsForbidden(err); {
	case !refused:
		w.refused = time.Time{}
	case w.refused.IsZero():
		w.refused = time.Now()
	}
}

// refusedFor reports whether the server has rejected requests for at least the given time.
func (w *watched) refusedFor(least time.Duration, now time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.refused.IsZero() && now.Sub(w.refused) >= least
}

// known reports whether the objects have been read, or are known to be inaccessible.
func (w *watched) known(now time.Time, belief time.Duration) bool {
	return w.informer.HasSynced() || w.refusedFor(belief, now)
}

// withdrawn reports whether the cached objects must no longer be used.
func (w *watched) withdrawn(now time.Time, grace time.Duration) bool { return w.refusedFor(grace, now) }

func (w *watched) prepare(poke func(), log *slog.Logger) error {
	errHandler := w.informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		w.complain(err, log)
	})
	errTransform := w.informer.SetTransform(func(obj any) (any, error) {
		if u, ok := obj.(*unstructured.Unstructured); ok {
			return w.read(u), nil
		}
		return obj, nil // already converted
	})
	// Most updates do not affect views, such as counts in a status and unrelated metadata of namespaces.
	_, err := w.informer.AddEventHandler(Surviving(log, cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			if it, ok := obj.(*item); ok && it.version != "" {
				poke()
			}
		},
		UpdateFunc: func(before, after any) {
			a, _ := before.(*item)
			if b, ok := after.(*item); !ok || a == nil || !a.same(b) {
				poke()
			}
		},
		DeleteFunc: func(obj any) {
			if it, ok := obj.(*item); !ok || it.version != "" {
				poke()
			}
		},
	}))
	return errors.Join(errHandler, errTransform, err)
}

// complain logs the error that terminated a watch, unless it is expected or was logged before.
func (w *watched) complain(err error, log *slog.Logger) {
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || errors.Is(err, io.EOF) ||
		errors.Is(err, io.ErrUnexpectedEOF) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err.Error() == w.reported {
		return
	}
	w.reported = err.Error()
	how := "without these objects"
	if w.refused.IsZero() {
		how = "with the cached objects"
	}
	log.Warn("Objects cannot be watched", "resource", w.resource.Resource, "deciding", how, "error", err)
}

// items returns the items of a kind that affect views, sorted by namespace and name.
func (w *watched) items() []*item {
	var items []*item
	for _, obj := range w.informer.GetStore().List() {
		if it, ok := obj.(*item); ok && it.version != "" {
			items = append(items, it)
		}
	}
	slices.SortFunc(items, func(a, b *item) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return items
}
