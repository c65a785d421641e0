package kube

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/kubenergy/kubenergy/kube/api/v1alpha1"
)

// Objects keeps a [View] up to date with what the API server holds: GridZones, PowerProfiles, EnergyPolicies, what
// namespaces say of themselves, and the hybrid scheduler's knowledge base. What cannot be watched, be it for want of
// rights or because nobody installed it, counts as absent, and is tried again.
//
// Set Defaults, at first those of [BuiltIn], before Run.
type Objects struct {
	Defaults Defaults
	Log      *slog.Logger

	watches []*watched
	view    atomic.Pointer[View]
	changed chan struct{}
	began   time.Time

	gridZones, powerProfiles, energyPolicies, namespaces, knowledge *watched
	last                                                            []string // of the published view
}

// watched is one kind of object.
type watched struct {
	name     string
	informer cache.SharedIndexInformer
	refused  atomic.Bool // the server has no such kind, or we may not read it
}

// patience is how long a server may keep us waiting for policies before what it holds counts as unknown for good.
const patience = 30 * time.Second

// settleFor is how long changes are collected before a view is built of them.
const settleFor = 50 * time.Millisecond

// NewObjects returns an Objects that reads with the given rights.
func NewObjects(config *rest.Config, log *slog.Logger) (*Objects, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("building a client: %w", err)
	}
	ours, err := restClient(config)
	if err != nil {
		return nil, err
	}
	o := &Objects{Defaults: BuiltIn(), Log: log, changed: make(chan struct{}, 1)}
	core := client.CoreV1().RESTClient()
	for _, k := range []struct {
		into     **watched
		client   rest.Interface
		resource string
		example  runtime.Object
		selector fields.Selector
		in       string
	}{
		{&o.gridZones, ours, "gridzones", &v1alpha1.GridZone{}, fields.Everything(), ""},
		{&o.powerProfiles, ours, "powerprofiles", &v1alpha1.PowerProfile{}, fields.Everything(), ""},
		{&o.energyPolicies, ours, "energypolicies", &v1alpha1.EnergyPolicy{}, fields.Everything(), ""},
		{&o.namespaces, core, "namespaces", &v1.Namespace{}, fields.Everything(), ""},
		{&o.knowledge, core, "configmaps", &v1.ConfigMap{}, fields.OneTermEqualSelector("metadata.name", KnowledgeBaseName), KnowledgeBaseNamespace},
	} {
		w := &watched{name: k.resource}
		lw := cache.NewListWatchFromClient(k.client, k.resource, k.in, k.selector)
		w.informer = cache.NewSharedIndexInformer(lw, k.example, 0, cache.Indexers{})
		*k.into = w
		o.watches = append(o.watches, w)
	}
	return o, nil
}

// restClient reads and writes objects of our own group.
func restClient(config *rest.Config) (rest.Interface, error) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	c := rest.CopyConfig(config)
	c.GroupVersion, c.APIPath = &v1alpha1.GroupVersion, "/apis"
	c.ContentType, c.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	c.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	client, err := rest.RESTClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("building a client for %s: %w", v1alpha1.GroupVersion, err)
	}
	return client, nil
}

// View returns what is known now. It never waits and never returns nil. Before policies are known it is unsettled.
func (o *Objects) View() *View {
	if v := o.view.Load(); v != nil {
		return v
	}
	return Unsettled()
}

var unsettled = View{unsettled: true}

// Unsettled returns the view of those who do not know the policies yet.
func Unsettled() *View { return &unsettled }

// Synced reports whether everything that can be read has been read.
func (o *Objects) Synced() bool {
	return !slices.ContainsFunc(o.watches, func(w *watched) bool { return !w.known() })
}

func (w *watched) known() bool { return w.informer.HasSynced() || w.refused.Load() }

// Run watches until ctx ends.
func (o *Objects) Run(ctx context.Context) error {
	o.began = time.Now()
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	poke := func() {
		select {
		case o.changed <- struct{}{}:
		default:
		}
	}
	var running sync.WaitGroup
	defer running.Wait()
	for _, w := range o.watches {
		if err := o.prepare(w, poke); err != nil {
			return fmt.Errorf("watching %s: %w", w.name, err)
		}
		running.Go(func() { w.informer.RunWithContext(ctx) })
	}
	// Also without any change: whether the caches have synced, and whether patience has ended, nobody tells.
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	for settled := false; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-o.changed:
			time.Sleep(settleFor)
			o.publish()
		case <-ticker.C:
			if !settled {
				o.publish()
				settled = o.View().Settled() && o.Synced()
			}
		}
	}
}

func (o *Objects) prepare(w *watched, poke func()) error {
	var told string
	err := w.informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		refused := apierrors.IsNotFound(err) || apierrors.IsForbidden(err)
		w.refused.Store(refused)
		if err.Error() != told && refused { // other errors are the API server's and pass
			told = err.Error()
			o.Log.Warn("cannot be watched: deciding without it", "resource", w.name, "error", err)
		}
		poke()
	})
	if err != nil {
		return err
	}
	if err := w.informer.SetTransform(slim); err != nil {
		return err
	}
	_, err = w.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { poke() }, UpdateFunc: func(any, any) { poke() }, DeleteFunc: func(any) { poke() },
	})
	return err
}

// slim drops what no view needs.
func slim(obj any) (any, error) {
	if m, ok := obj.(metav1.Object); ok {
		m.SetManagedFields(nil)
	}
	return obj, nil
}

// publish builds a view of what the caches hold, unless it would say what the last one says.
func (o *Objects) publish() {
	waiting := !o.energyPolicies.known() || !o.namespaces.known()
	c, digest := o.contents()
	c.Unsettled = waiting && time.Since(o.began) < patience
	digest = append(digest, strconv.FormatBool(c.Unsettled))
	if slices.Equal(digest, o.last) && o.view.Load() != nil {
		return
	}
	v, err := c.View()
	if err != nil {
		o.Log.Error("publishing a view", "error", err) // each part was checked before
		v = &View{}
	}
	o.last = digest
	o.view.Store(v)
}

// contents reads the caches. The digest changes with whatever a view depends on: not with counts in a status.
func (o *Objects) contents() (*Contents, []string) {
	a := assembly{Contents: Contents{Defaults: o.Defaults, Regions: map[string]string{}}, log: o.Log}
	for _, obj := range sorted[*v1alpha1.GridZone](o.gridZones) {
		a.addZone(obj)
	}
	for _, obj := range sorted[*v1alpha1.PowerProfile](o.powerProfiles) {
		a.addProfile(obj)
	}
	for _, obj := range sorted[*v1alpha1.EnergyPolicy](o.energyPolicies) {
		a.addPolicy(obj)
	}
	for _, obj := range sorted[*v1.Namespace](o.namespaces) {
		a.addNamespace(obj)
	}
	for _, obj := range sorted[*v1.ConfigMap](o.knowledge) {
		a.addKnowledge(obj)
	}
	return &a.Contents, a.digest
}

// sorted returns the objects of a kind by namespace and name.
func sorted[T metav1.Object](w *watched) []T {
	list := w.informer.GetStore().List()
	objects := make([]T, 0, len(list))
	for _, obj := range list {
		if t, ok := obj.(T); ok {
			objects = append(objects, t)
		}
	}
	slices.SortFunc(objects, func(a, b T) int {
		return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
	})
	return objects
}

// ListView takes one look at what the API server holds, for the command line. What the user may not read is left out,
// and named by the error beside the view.
func ListView(ctx context.Context, config *rest.Config) (*View, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("building a client: %w", err)
	}
	ours, err := restClient(config)
	if err != nil {
		return nil, err
	}
	a := assembly{Contents: Contents{Defaults: BuiltIn(), Regions: map[string]string{}}, log: slog.New(slog.DiscardHandler)}
	var zones v1alpha1.GridZoneList
	var profiles v1alpha1.PowerProfileList
	var policies v1alpha1.EnergyPolicyList
	refused := map[string]error{}
	for resource, into := range map[string]runtime.Object{"gridzones": &zones, "powerprofiles": &profiles, "energypolicies": &policies} {
		if err := ours.Get().Resource(resource).Do(ctx).Into(into); err != nil {
			refused[resource] = err
		}
	}
	namespaces, err := client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		refused["namespaces"], namespaces = err, &v1.NamespaceList{}
	}
	for i := range zones.Items {
		a.addZone(&zones.Items[i])
	}
	for i := range profiles.Items {
		a.addProfile(&profiles.Items[i])
	}
	for i := range policies.Items {
		a.addPolicy(&policies.Items[i])
	}
	for i := range namespaces.Items {
		a.addNamespace(&namespaces.Items[i])
	}
	if kb, err := client.CoreV1().ConfigMaps(KnowledgeBaseNamespace).Get(ctx, KnowledgeBaseName, metav1.GetOptions{}); err == nil {
		a.addKnowledge(kb)
	}
	v, err := a.View()
	if err != nil {
		return nil, err
	}
	var errs error
	for _, resource := range slices.Sorted(maps.Keys(refused)) {
		errs = cmp.Or(errs, fmt.Errorf("reading %s: %w", resource, refused[resource]))
	}
	return v, errs
}
