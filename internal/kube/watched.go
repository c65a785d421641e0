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

// watched is one kind of object. It is watched without its schema: a list that holds one object which cannot be read is
// still a list of the others.
type watched struct {
	*kind
	informer cache.SharedIndexInformer

	mu sync.Mutex
	// since when the server has no such kind, or we may not read it; zero: it answers, or fails otherwise
	refused  time.Time
	reported string // the last error
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

// Watching lists and watches what a client of one kind selects. heard is told what comes of each call, and whether it
// has begun to watch. of is what tells whether lists are streamed: the client, or the set that it comes from.
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

// heard takes note of an answer. A failure that is no refusal, such as that of a server which restarts, says nothing
// about what it holds, and a refusal must last to be believed. While it is watched, the next failure is news, whatever
// it is.
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

// refusedFor reports whether the server has refused for so long.
func (w *watched) refusedFor(least time.Duration, now time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.refused.IsZero() && now.Sub(w.refused) >= least
}

// known reports whether the objects have been read, or are known to be out of reach.
func (w *watched) known(now time.Time, belief time.Duration) bool {
	return w.informer.HasSynced() || w.refusedFor(belief, now)
}

// withdrawn reports whether what was read once no longer counts.
func (w *watched) withdrawn(now time.Time, grace time.Duration) bool { return w.refusedFor(grace, now) }

func (w *watched) prepare(poke func(), log *slog.Logger) error {
	if err := w.informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		w.complain(err, log)
	}); err != nil {
		return err
	}
	if err := w.informer.SetTransform(func(obj any) (any, error) {
		if u, ok := obj.(*unstructured.Unstructured); ok {
			return w.read(u), nil
		}
		return obj, nil // it was read before
	}); err != nil {
		return err
	}
	// Most changes change nothing for us: counts in a status, and whatever else is said of namespaces.
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
	return err
}

// complain logs why a watch ended, unless watches end so, or it was the same the last time.
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
	how := "without it"
	if w.refused.IsZero() {
		how = "with what was read before"
	}
	log.Warn("cannot be watched", "resource", w.resource.Resource, "deciding", how, "error", err)
}

// items returns what the objects of a kind say, by namespace and name.
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
