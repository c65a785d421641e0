package intake

import (
	"cmp"
	"hash/maphash"
	"strings"
	"sync"
	"time"
	"unique"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/policy"
)

// PodIndexOptions are what a PodIndex needs.
type PodIndexOptions struct {
	// Strategy returns what placed a pod; "": kube-scheduler alone.
	Strategy func(*v1.Pod) string
	// TeamOf returns which team is charged with what runs in a namespace and names a team. nil: the named one.
	TeamOf func(namespace, named string) string
	// Group returns what a control group of a node is the work of, where another system knows it, and what that is
	// called; nil, or false: the group stands for itself.
	Group func(node, path string) (name string, a ledger.Account, ok bool)
	// MaxDeleted is how many pods, and Jobs, that were deleted are remembered at most. 0: 200,000.
	MaxDeleted int
	Now        func() time.Time
}

// A PodIndex knows pods by their UIDs: their names, their owners and their nodes. It is told of them by informers.
type PodIndex struct {
	o PodIndexOptions

	mu      sync.RWMutex
	pods    register[string, *entry]               // by what agents call them
	parents register[types.NamespacedName, string] // of Jobs
}

// Batches come late: an agent keeps them while the controller is away.
const (
	keptFor = 2 * time.Hour
	maxGone = 200_000
)

// entry is a pod. Its strings are those of the object that it was made from: they cost nothing while an informer
// keeps it.
type entry struct {
	name, owner string // an owner is mostly the beginning of its pod's name
	// but for the owner, which few pods have in common
	account    unique.Handle[ledger.Account]
	node       unique.Handle[string]
	made       int64 // Unix seconds, by the API server; 0: it ran before it was known there, as a static pod
	containers []container
}

type container struct {
	low, high uint32 // of a hash of its ID
	name      unique.Handle[string]
}

var containerSeed = maphash.MakeSeed()

// NewPodIndex returns a PodIndex that knows no pod.
func NewPodIndex(o PodIndexOptions) *PodIndex {
	o.MaxDeleted = cmp.Or(o.MaxDeleted, maxGone)
	return &PodIndex{o: o, pods: newRegister[string, *entry](o), parents: newRegister[types.NamespacedName, string](o)}
}

// Saw is told of every pod and Job that an informer adds or updates: a pod names its Job, and only the Job names its
// CronJob.
func (d *PodIndex) Saw(o client.Object) {
	switch o := o.(type) {
	case *v1.Pod:
		d.sawPod(o)
	case *batchv1.Job:
		if owner := metav1.GetControllerOfNoCopy(o); owner != nil {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.parents.put(client.ObjectKeyFromObject(o), owner.Name)
		}
	}
}

func (d *PodIndex) sawPod(p *v1.Pod) {
	id, e := uidOf(p), d.entryOf(p)
	d.mu.Lock()
	defer d.mu.Unlock()
	if before := d.pods.get(id); before != nil {
		if !before.same(e) {
			return
		}
		if len(e.containers) == 0 {
			e.containers = before.containers // a pod that has failed may forget them
		}
	}
	d.pods.put(id, e)
}

// Lost is told of every pod and Job that was deleted. It is known for some more time.
func (d *PodIndex) Lost(o client.Object) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch o := o.(type) {
	case *v1.Pod:
		id, last := uidOf(o), d.entryOf(o)
		if e := d.pods.get(id); e == nil {
			d.pods.put(id, last)
		} else if !e.same(last) {
			return
		}
		d.pods.lose(id)
	case *batchv1.Job:
		d.parents.lose(client.ObjectKeyFromObject(o))
	}
}

// register holds what there is, and for some time what was deleted.
type register[K comparable, V any] struct {
	o     PodIndexOptions
	there map[K]V
	gone  map[K]deleted[V]
	order []K // in which they were deleted
}

type deleted[V any] struct {
	v     V
	until time.Time
}

func newRegister[K comparable, V any](o PodIndexOptions) register[K, V] {
	return register[K, V]{o: o, there: map[K]V{}, gone: map[K]deleted[V]{}}
}

// get returns what is or was there, or the zero value.
func (r *register[K, V]) get(key K) V {
	v, ok := r.there[key]
	if previous := r.gone[key]; !ok && r.o.Now().Before(previous.until) {
		return previous.v
	}
	return v
}

func (r *register[K, V]) put(key K, v V) {
	r.there[key] = v
	delete(r.gone, key)
	r.forget()
}

func (r *register[K, V]) lose(key K) {
	if v, ok := r.there[key]; ok {
		delete(r.there, key)
		r.gone[key] = deleted[V]{v, r.o.Now().Add(keptFor)}
		r.order = append(r.order, key)
	}
	r.forget()
}

// forget drops what was deleted too long ago, and what was deleted first where that is too much.
func (r *register[K, V]) forget() {
	now := r.o.Now()
	for len(r.order) > 0 && (len(r.order) > r.o.MaxDeleted || !now.Before(r.gone[r.order[0]].until)) {
		delete(r.gone, r.order[0])
		r.order = r.order[1:]
	}
}

func (d *PodIndex) entryOf(p *v1.Pod) *entry {
	ownerKind, owner := policy.OwnerOf(p)
	e := &entry{
		name: p.Name, owner: owner, node: unique.Make(p.Spec.NodeName),
		account: unique.Make(ledger.Account{
			Kind: ledger.Workload, Namespace: p.Namespace, OwnerKind: ownerKind, Team: policy.TeamOf(p.Labels),
			Strategy: d.o.Strategy(p),
		}),
	}
	if uidOf(p) == string(p.UID) && !p.CreationTimestamp.IsZero() {
		e.made = p.CreationTimestamp.Unix()
	}
	if strings.HasPrefix(p.Name, owner) {
		e.owner = p.Name[:len(owner)] // the same bytes
	}
	all := [...][]v1.ContainerStatus{
		p.Status.InitContainerStatuses, p.Status.ContainerStatuses, p.Status.EphemeralContainerStatuses,
	}
	for _, statuses := range all {
		for i := range statuses {
			id := statuses[i].ContainerID
			if _, bare, ok := strings.Cut(id, "://"); ok { // its control group is called so, without the runtime's name
				id = bare
			}
			if id != "" && statuses[i].Name != "" {
				e.containers = append(e.containers, containerOf(id, statuses[i].Name))
			}
		}
	}
	return e
}

// same reports whether two are the same pod. UIDs do not come again, but any user can write on a pod that it is the
// image of another one.
func (e *entry) same(o *entry) bool {
	return e.name == o.name && e.account.Value().Namespace == o.account.Value().Namespace
}

func containerOf(id, name string) container {
	h := maphash.String(containerSeed, id)
	return container{low: uint32(h), high: uint32(h >> 32), name: unique.Make(name)}
}

// uidOf returns what agents call a pod. A static pod's control group bears the hash of its file; the UID of its image
// in the API server does not appear on the node. A hash has no dashes and every UID has some: what any user can write
// on a pod is never the UID of another one.
func uidOf(p *v1.Pod) string {
	if hash := p.Annotations["kubernetes.io/config.mirror"]; hash != "" && !strings.Contains(hash, "-") {
		return hash
	}
	return string(p.UID)
}

// Container returns the name of a pod's container, or "".
func (d *PodIndex) Container(podUID, containerID string) string {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if e := d.pods.get(podUID); e != nil {
		return e.container(containerID)
	}
	return ""
}

func (e *entry) container(id string) string {
	h := maphash.String(containerSeed, id)
	for i := range e.containers {
		if c := &e.containers[i]; uint64(c.high)<<32|uint64(c.low) == h {
			return c.name.Value()
		}
	}
	return ""
}

// Count returns how many pods there are, and how many of the others are remembered.
func (d *PodIndex) Count() (there, gone int) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return len(d.pods.there), len(d.pods.gone)
}
