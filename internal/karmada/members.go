package karmada

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/sched"
)

// believed is the maximum time that a pod may be unschedulable in a member with apparently sufficient capacity.
// After it the reported capacity is ignored until the pod has been scheduled.
const believed = time.Minute

// lookEvery is the maximum age of a look.
const lookEvery = time.Second

// members contains the clusters of the federation with their nodes and pods. It is safe for concurrent use.
type members struct {
	config *rest.Config // for Karmada's API server, through which the members are accessed
	view   func() *kube.View

	mu sync.Mutex
	of map[string]*member
}

// member is a cluster. Its nodes and pods are watched through Karmada's cluster proxy with the permissions of our
// account. The mutex of members guards cluster, and the mutex of the member guards waits and look.
type member struct {
	cluster     *cluster
	nodes, pods cache.SharedIndexInformer
	stop        context.CancelFunc

	mu    sync.Mutex
	waits map[types.UID]time.Time // when pods were first observed as unschedulable
	look  *look
}

// look is an immutable snapshot of a member.
type look struct {
	at      time.Time
	cluster *cluster
	view    *kube.View
	located map[*v1.Node]*v1.Node // nodes with the labels of the federation
	nodes   []place
	pods    map[string]int32 // number of pods by namespace/name of their Job
	waiting []*v1.Pod        // unschedulable for at least a minute
}

// place is a candidate node.
type place struct {
	node  *v1.Node
	sched *sched.Node
}

// saw handles the addition or update of a cluster and starts watching it. It reports whether the change can affect
// the placement of bindings.
func (m *members) saw(ctx context.Context, c *cluster) (changed bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if known := m.of[c.Name]; known != nil && known.cluster.UID == c.UID {
		previous := known.cluster
		known.cluster = c
		return previous.Generation != c.Generation || !maps.Equal(previous.Labels, c.Labels) ||
			previous.ready() != c.ready() ||
			!reflect.DeepEqual(previous.Status.APIEnablements, c.Status.APIEnablements), nil
	}
	config := rest.CopyConfig(m.config)
	config.Host = fmt.Sprintf("%s/apis/%s/clusters/%s/proxy", strings.TrimSuffix(config.Host, "/"),
		clusterResource.GroupVersion(), c.Name)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return limited{next, maxListedBytes} })
	config.APIPath, config.GroupVersion = "/api", &v1.SchemeGroupVersion
	config.NegotiatedSerializer = kube.CheckedJSON{NegotiatedSerializer: scheme.Codecs.WithoutConversion()}
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return true, fmt.Errorf("creating the client of cluster %s: %w", c.Name, err)
	}
	ctx, stop := context.WithCancel(ctx)
	if old := m.of[c.Name]; old != nil {
		old.stop()
	}
	follow := func(resource string, kind runtime.Object) cache.SharedIndexInformer {
		i := cache.NewSharedIndexInformer(&bounded{ListWatch: cache.NewListWatchFromClient(client, resource,
			v1.NamespaceAll, fields.Everything())}, kind, 0, cache.Indexers{})
		_ = i.SetTransform(kube.Trim) // the informer has not been started
		go i.RunWithContext(ctx)
		return i
	}
	m.of[c.Name] = &member{
		cluster: c, stop: stop, waits: map[types.UID]time.Time{},
		nodes: follow("nodes", &v1.Node{}), pods: follow("pods", &v1.Pod{}),
	}
	return true, nil
}

// maxListed is the maximum number of nodes or pods of a member, above the limits of Kubernetes.
const maxListed = 200_000

// maxListedBytes is the maximum size of a member's response to a list request: tens of thousands of pods.
const maxListedBytes = 256 << 20

// limited is a RoundTripper that fails responses of more than limit bytes, except watches, because the client
// limits the size of each watch event.
type limited struct {
	next  http.RoundTripper
	limit int64
}

func (l limited) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := l.next.RoundTrip(r)
	if err == nil && !r.URL.Query().Has("watch") {
		response.Body = http.MaxBytesReader(nil, response.Body, l.limit)
	}
	return response, err
}

// bounded fails if a member lists more than maxListed objects. The member is then ignored, and the error is logged.
type bounded struct {
	*cache.ListWatch
	listed int // number of objects on all pages of the current list
}

// IsWatchListSemanticsUnSupported disables streaming lists.
func (*bounded) IsWatchListSemanticsUnSupported() bool { return true }

// ListWithContext implements [cache.ListerWatcherWithContext].
func (b *bounded) ListWithContext(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	page, err := b.ListWatch.ListWithContext(ctx, o)
	if o.Continue == "" {
		b.listed = 0
	}
	if b.listed += meta.LenList(page); err == nil && b.listed > maxListed {
		return nil, fmt.Errorf("the list contains more than %d objects, ignoring this cluster", maxListed)
	}
	return page, err
}

// lost handles the deletion of a cluster.
func (m *members) lost(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if known := m.of[name]; known != nil {
		known.stop()
		delete(m.of, name)
	}
}

// look returns the current snapshot of a cluster, or the reason why there is none.
func (m *members) look(name string, now time.Time) (*look, string) {
	view := m.view()
	m.mu.Lock()
	known, c := m.of[name], (*cluster)(nil)
	if known != nil {
		c = known.cluster
	}
	m.mu.Unlock()
	switch {
	case known == nil:
		return nil, "the cluster is unknown"
	case !c.ready():
		return nil, "the cluster is not ready"
	case !known.nodes.HasSynced() || !known.pods.HasSynced():
		return nil, "its nodes and pods have not been listed yet"
	}
	known.mu.Lock()
	defer known.mu.Unlock()
	if l := known.look; l == nil || l.cluster != c || l.view != view || now.Sub(l.at) >= lookEvery {
		known.see(c, view, now)
	}
	return known.look, ""
}

// see creates a new snapshot of the nodes and pods. The caller must hold mu.
func (m *member) see(c *cluster, view *kube.View, now time.Time) {
	l := &look{at: now, cluster: c, view: view, located: map[*v1.Node]*v1.Node{}, pods: map[string]int32{}}
	loads, waits := map[string]kube.Load{}, map[types.UID]time.Time{}
	for _, o := range m.pods.GetStore().List() {
		p := o.(*v1.Pod)
		if job := p.Labels[batchv1.JobNameLabel]; job != "" {
			l.pods[p.Namespace+"/"+job]++
		}
		if p.Spec.NodeName != "" {
			load := loads[p.Spec.NodeName]
			load.Add(p)
			loads[p.Spec.NodeName] = load
		} else if p.DeletionTimestamp == nil && p.Status.Phase == v1.PodPending &&
			policy.Scheduled(p).Reason != v1.PodReasonSchedulingGated { // such as held pods
			since, seen := m.waits[p.UID] // by the local clock, because timestamps of a member are not trusted
			if !seen {
				since = now
			}
			if waits[p.UID] = since; now.Sub(since) > believed {
				l.waiting = append(l.waiting, p)
			}
		}
	}
	m.waits = waits
	for _, o := range m.nodes.GetStore().List() {
		n := o.(*v1.Node)
		if n.Spec.Unschedulable {
			continue
		}
		located := (*v1.Node)(nil)
		if m.look != nil && m.look.cluster == c {
			located = m.look.located[n] // a view caches data by node object
		}
		if located == nil {
			located = c.locate(n)
		}
		l.located[n] = located
		load := loads[n.Name]
		node, _ := load.Node(view, located)
		l.nodes = append(l.nodes, place{located, &node})
	}
	slices.SortFunc(l.nodes, func(a, b place) int { return strings.Compare(a.sched.Name, b.sched.Name) })
	m.look = l
}

// locate returns a copy of a node with the name of its cluster as a prefix. The site, zone and region labels are
// taken from the Cluster object, because those of the node are not trusted.
func (c *cluster) locate(n *v1.Node) *v1.Node {
	located := &v1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: c.Name + "/" + n.Name, Labels: maps.Clone(n.Labels), Annotations: n.Annotations,
	}, Spec: n.Spec, Status: n.Status}
	if located.Labels == nil {
		located.Labels = map[string]string{}
	}
	for key, value := range map[string]string{
		v1alpha1.LabelSite: c.Labels[v1alpha1.LabelSite], v1.LabelTopologyZone: c.Spec.Zone,
		v1.LabelTopologyRegion: c.Spec.Region,
	} {
		if delete(located.Labels, key); value != "" {
			located.Labels[key] = value
		}
	}
	return located
}
