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

// PodIndexOptions are the options of a PodIndex.
type PodIndexOptions struct {
	// Strategy returns the strategy that placed a pod, or "" for plain kube-scheduler.
	Strategy func(*v1.Pod) string
	// TeamOf returns the team that is charged for a workload in a namespace, given the team that the workload
	// specifies. If nil, the specified team is charged.
	TeamOf func(namespace, named string) string
	// Group returns the name and the account of the work in a control group of a node if another system manages it.
	// If it is nil or returns false, the control group is its own account.
	Group func(node, path string) (name string, a ledger.Account, ok bool)
	// MaxDeleted is the maximum number of deleted pods, and of deleted Jobs, that are retained. It defaults to
	// 200,000.
	MaxDeleted int
	Now        func() time.Time
}

// A PodIndex maps the UIDs of pods to their names, owners and nodes. Informers call Saw and Lost. It is safe for
// concurrent use.
type PodIndex struct {
	o PodIndexOptions

	mu      sync.RWMutex
	pods    register[string, *entry]               // by the UID that agents report
	parents register[types.NamespacedName, string] // owners of Jobs
}

// Deleted objects are retained, because agents keep batches while the controller is unavailable.
const (
	keptFor = 2 * time.Hour
	maxGone = 200_000
)

// entry is a pod. Its strings share memory with the object in the informer's cache.
type entry struct {
	name, owner string // the owner is usually a prefix of the name
	// account has no owner, because many pods share the rest of it.
	account    unique.Handle[ledger.Account]
	node       unique.Handle[string]
	made       int64 // creation in Unix seconds; 0 for static pods, which start before the API server creates them
	containers []container
}

type container struct {
	low, high uint32 // halves of the hash of the ID
	name      unique.Handle[string]
}

var containerSeed = maphash.MakeSeed()

// NewPodIndex returns an empty PodIndex.
func NewPodIndex(o PodIndexOptions) *PodIndex {
	o.MaxDeleted = cmp.Or(o.MaxDeleted, maxGone)
	if o.Group == nil {
		o.Group = func(string, string) (name string, a ledger.Account, ok bool) { return }
	}
	return &PodIndex{o: o, pods: newRegister[string, *entry](o), parents: newRegister[types.NamespacedName, string](o)}
}

// Saw must be called for every pod and Job that an informer adds or updates. Jobs are needed because a pod refers
// only to its Job, and only the Job refers to its CronJob.
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
			e.containers = before.containers // the status of a failed pod may lack them
		}
	}
	d.pods.put(id, e)
}

// Lost must be called for every pod and Job that is deleted. It is retained for keptFor.
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

// register contains existing objects, and deleted objects for some time.
type register[K comparable, V any] struct {
	o     PodIndexOptions
	there map[K]V
	gone  map[K]deleted[V]
	order []K // keys of gone in the order of deletion
}

type deleted[V any] struct {
	v     V
	until time.Time
}

func newRegister[K comparable, V any](o PodIndexOptions) register[K, V] {
	return register[K, V]{o: o, there: map[K]V{}, gone: map[K]deleted[V]{}}
}

// get returns the value of an existing or retained object, or the zero value.
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

// forget drops expired objects, and the oldest ones if there are too many.
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
		e.owner = p.Name[:len(owner)] // shares the memory of the name
	}
	all := [...][]v1.ContainerStatus{
		p.Status.InitContainerStatuses, p.Status.ContainerStatuses, p.Status.EphemeralContainerStatuses,
	}
	for _, statuses := range all {
		for i := range statuses {
			id := statuses[i].ContainerID
			if _, bare, ok := strings.Cut(id, "://"); ok { // control groups are named by the ID without the runtime
				id = bare
			}
			if id != "" && statuses[i].Name != "" {
				e.containers = append(e.containers, containerOf(id, statuses[i].Name))
			}
		}
	}
	return e
}

// same reports whether two entries are the same pod. UIDs are unique, but any user can annotate a pod as the mirror
// of another one.
func (e *entry) same(o *entry) bool {
	return e.name == o.name && e.account.Value().Namespace == o.account.Value().Namespace
}

func containerOf(id, name string) container {
	h := maphash.String(containerSeed, id)
	return container{low: uint32(h), high: uint32(h >> 32), name: unique.Make(name)}
}

// uidOf returns the UID of a pod that agents report. The control group of a static pod contains the hash of its
// manifest instead of the UID of its mirror pod. A hash has no dashes, but every UID has, so the annotation of a
// user can never equal the UID of another pod.
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

// Count returns the numbers of existing pods and of retained pods that were deleted.
func (d *PodIndex) Count() (there, gone int) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return len(d.pods.there), len(d.pods.gone)
}
