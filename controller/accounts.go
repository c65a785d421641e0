package controller

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubenergy/kubenergy/kube"
	"github.com/kubenergy/kubenergy/kube/api/v1alpha1"
	"github.com/kubenergy/kubenergy/sched"
)

// accounts estimate what finished pods have used, where no meter says it: the power that their node draws more for their
// requests, for as long as they ran. The idle power of nodes that are awake anyway is nobody's: ten pods of a node do not
// pay it ten times.
//
// Nothing is guessed: a pod whose node, power profile or grid is not known is counted as such, and adds nothing.
type accounts struct {
	client  client.Client // with an index of pods by node
	view    func() *kube.View
	history *history
	leads   func() bool
	metrics *instruments
	now     func() time.Time
	log     *slog.Logger
	began   time.Time
	queue   chan finished

	mu      sync.Mutex
	running map[types.UID]struct{} // pods that were seen before their end
}

// finished is a pod and when it ended.
type finished struct {
	pod *v1.Pod
	end time.Time
}

// nodeIndex is the name of the index of pods by node.
const nodeIndex = "spec.nodeName"

const accountsQueue = 8192

// Why a finished pod is not accounted for.
const (
	lacksNode    = "node"    // it is gone
	lacksProfile = "profile" // nobody says what its node draws
	lacksGrid    = "grid"    // its energy is known, its emissions are not: intensities were not recorded while it ran
	lacksTime    = "time"    // it does not say how long it ran
	lacksRoom    = "overload"
)

func newAccounts(c client.Client, view func() *kube.View, h *history, leads func() bool, m *instruments, log *slog.Logger) *accounts {
	return &accounts{
		client: c, view: view, history: h, leads: leads, metrics: m, now: time.Now, log: log, began: time.Now(),
		queue: make(chan finished, accountsQueue), running: map[types.UID]struct{}{},
	}
}

func over(p *v1.Pod) bool { return p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed }

// saw is told of every pod that an informer adds or updates. A pod that has ended before we came was somebody else's.
func (a *accounts) saw(p *v1.Pod) {
	a.mu.Lock()
	_, known := a.running[p.UID]
	if !over(p) {
		a.running[p.UID] = struct{}{}
		a.mu.Unlock()
		return
	}
	delete(a.running, p.UID)
	a.mu.Unlock()
	if known || p.CreationTimestamp.After(a.began) && a.now().Sub(p.CreationTimestamp.Time) < time.Minute {
		a.put(p, a.now())
	}
}

// lost is told of every pod that is deleted. One that still ran has ended now.
func (a *accounts) lost(p *v1.Pod) {
	a.mu.Lock()
	_, known := a.running[p.UID]
	delete(a.running, p.UID)
	a.mu.Unlock()
	if known {
		a.put(p, a.now())
	}
}

func (a *accounts) put(p *v1.Pod, end time.Time) {
	if !a.leads() || p.Spec.NodeName == "" {
		return
	}
	select {
	case a.queue <- finished{p, end}:
	default:
		a.metrics.unaccounted.WithLabelValues(lacksRoom).Inc()
	}
}

// run accounts until ctx ends.
func (a *accounts) run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case f := <-a.queue:
			a.account(ctx, f)
		}
	}
}

func (a *accounts) account(ctx context.Context, f finished) {
	defer func() {
		if r := recover(); r != nil {
			a.log.Error("accounting panicked", "namespace", f.pod.Namespace, "pod", f.pod.Name, "panic", r)
		}
	}()
	work, _ := kube.ReadPod(f.pod) // what makes no sense counts as not said
	view := a.view()
	job, settings := view.Settle(&work)
	if !settings.Ours || settings.Mode == v1alpha1.ModeOff {
		return
	}
	window, ok := ran(f)
	if !ok {
		a.metrics.unaccounted.WithLabelValues(lacksTime).Inc()
		return
	}
	node, lacks, err := a.node(ctx, view, f.pod)
	if err != nil {
		a.log.Warn("accounting for a finished pod", "namespace", f.pod.Namespace, "pod", f.pod.Name, "error", err)
		lacks = lacksNode
	}
	if lacks != "" {
		a.metrics.unaccounted.WithLabelValues(lacks).Inc()
		return
	}
	a.book(ctx, view, f.pod, &job, node, window)
}

// book adds a pod to the counters of its namespace.
func (a *accounts) book(ctx context.Context, view *kube.View, pod *v1.Pod, job *sched.Job, node *sched.Node, window sched.Window) {
	ns := pod.Namespace
	site := node.Site
	used, known := a.estimate(view, job, node, site, window)
	a.metrics.finished.WithLabelValues(ns).Inc()
	a.metrics.runtime.WithLabelValues(ns).Add(window.End.Sub(window.Start).Seconds())
	a.metrics.energy.WithLabelValues(ns).Add(max(0, float64(used.Energy)))
	unheld, unheldKnown := used, known
	if held := a.heldFor(ctx, pod); held > 0 {
		unheld, unheldKnown = a.estimate(view, job, node, site, sched.Window{Start: window.Start.Add(-held), End: window.End.Add(-held)})
	}
	if !known.carbon {
		a.metrics.unaccounted.WithLabelValues(lacksGrid).Inc()
	} else {
		if !unheldKnown.carbon {
			unheld.Carbon = used.Carbon // no saving is claimed that cannot be shown
		}
		a.metrics.carbon.WithLabelValues(ns).Add(max(0, float64(used.Carbon)))
		a.metrics.counterfactualCarbon.WithLabelValues(ns).Add(max(0, float64(unheld.Carbon)))
	}
	if known.price {
		if !unheldKnown.price {
			unheld.Cost = used.Cost
		}
		currency := a.currency(ctx, site.Name)
		a.metrics.cost.WithLabelValues(ns, currency).Add(float64(used.Cost))
		a.metrics.counterfactualCost.WithLabelValues(ns, currency).Add(float64(unheld.Cost))
	}
}

// known says which signals of a site were recorded.
type known struct{ carbon, price bool }

// estimate predicts, with what is known since, what the job has added on its node.
func (a *accounts) estimate(view *kube.View, job *sched.Job, node *sched.Node, site *sched.Site, w sched.Window) (sched.Estimate, known) {
	a.history.sample(view, a.now()) // the last minutes
	past := *site
	var k known
	past.Carbon, k.carbon = a.history.carbon(site.Name, w.Start, w.End)
	past.Price, k.price = a.history.price(site.Name, w.Start, w.End)
	there := *node
	there.Site = &past
	var s sched.Snapshot
	return s.Estimate(job, &there, w), k
}

// ran returns when the pod ran.
func ran(f finished) (sched.Window, bool) {
	w := sched.Window{End: f.end}
	if f.pod.Status.StartTime != nil {
		w.Start = f.pod.Status.StartTime.Time
	}
	var first, last time.Time
	for i := range f.pod.Status.ContainerStatuses {
		t := f.pod.Status.ContainerStatuses[i].State.Terminated
		if t == nil || t.StartedAt.IsZero() || t.FinishedAt.IsZero() {
			continue
		}
		if first.IsZero() || t.StartedAt.Time.Before(first) {
			first = t.StartedAt.Time
		}
		if t.FinishedAt.After(last) {
			last = t.FinishedAt.Time
		}
	}
	if over(f.pod) && !first.IsZero() {
		w.Start, w.End = first, last
	}
	return w, !w.Start.IsZero() && w.End.After(w.Start)
}

// node returns the pod's node as it is without the pod.
func (a *accounts) node(ctx context.Context, view *kube.View, pod *v1.Pod) (node *sched.Node, lacks string, err error) {
	var n v1.Node
	if err := a.client.Get(ctx, types.NamespacedName{Name: pod.Spec.NodeName}, &n); err != nil {
		if apierrors.IsNotFound(err) {
			err = nil
		}
		return nil, lacksNode, err
	}
	var pods v1.PodList
	if err := a.client.List(ctx, &pods, client.MatchingFields{nodeIndex: n.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, lacksNode, err
	}
	var others load
	for i := range pods.Items {
		if p := &pods.Items[i]; p.UID != pod.UID {
			others.add(p)
		}
	}
	found, ok := others.on(view, &n)
	if !ok {
		return nil, lacksProfile, nil
	}
	return &found, "", nil
}

// load is what pods have requested of a node.
type load struct {
	requested sched.Resources
	jobs      int // but those of DaemonSets, which let a node sleep
}

func (l *load) add(p *v1.Pod) {
	if over(p) {
		return
	}
	l.requested = l.requested.Add(kube.PodRequest(p))
	if owner := metav1.GetControllerOfNoCopy(p); owner == nil || owner.Kind != "DaemonSet" && owner.Kind != "Node" {
		l.jobs++
	}
}

// on returns the node with this load. ok is false where nobody says what it draws.
func (l *load) on(view *kube.View, n *v1.Node) (sched.Node, bool) {
	capacity := kube.Allocatable(n)
	return view.Node(n, capacity, capacity.Sub(l.requested), l.jobs)
}

// heldFor returns for how long we have put off the start of a pod's Job.
func (a *accounts) heldFor(ctx context.Context, pod *v1.Pod) time.Duration {
	owner := metav1.GetControllerOfNoCopy(pod)
	if owner == nil || owner.Kind != "Job" || !strings.HasPrefix(owner.APIVersion, batchv1.GroupName+"/") {
		return 0
	}
	var job batchv1.Job
	if err := a.client.Get(ctx, types.NamespacedName{Namespace: pod.Namespace, Name: owner.Name}, &job); err != nil || job.UID != owner.UID {
		return 0
	}
	released, err := time.Parse(time.RFC3339, job.Annotations[kube.AnnotationReleasedAt])
	if err != nil || !plausible(released, job.CreationTimestamp.Time) {
		return 0
	}
	return released.Sub(job.CreationTimestamp.Time)
}

// currency returns that of a site's prices.
func (a *accounts) currency(ctx context.Context, site string) string {
	var zone v1alpha1.GridZone
	if err := a.client.Get(ctx, types.NamespacedName{Name: site}, &zone); err != nil || zone.Spec.Price == nil {
		return "unknown"
	}
	return zone.Spec.Price.Currency
}
