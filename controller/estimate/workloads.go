package controller

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/energy"
	"github.com/kubenergy/kubenergy/kube"
	"github.com/kubenergy/kubenergy/policy"
	"github.com/kubenergy/kubenergy/sched"
)

// accounts estimate what finished pods have used, where no meter says it: their share of what their node draws more
// than asleep, for as long as they ran. Pods that ran beside each other share it: together they never pay for more
// than the node can draw.
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
	past    *pastRuns
	elected <-chan struct{} // closed when we lead; nil: never, or always
	sampled time.Time       // when the history was last brought up to date

	mu    sync.Mutex
	known map[types.UID]bool // of pods that exist, whether they have ended
	unled []finished         // pods that ended lately while we did not lead
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
	lacksLeader  = "leader"  // it ended just before we led: perhaps nobody did
	lacksRoom    = "overload"
)

func newAccounts(c client.Client, view func() *kube.View, h *history, leads func() bool, m *instruments,
	log *slog.Logger,
) *accounts {
	return &accounts{
		client: c, view: view, history: h, leads: leads, metrics: m, now: time.Now, log: log, began: time.Now(),
		queue: make(chan finished, accountsQueue), past: newPastRuns(), known: map[types.UID]bool{},
	}
}

func over(p *v1.Pod) bool { return p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed }

// saw is told of every pod that an informer adds or updates. A pod that has ended before we came was somebody else's.
// That a pod has ended is remembered until it is deleted, since it may be updated for as long as it exists.
func (a *accounts) saw(p *v1.Pod) {
	a.mu.Lock()
	ended, known := a.known[p.UID]
	a.known[p.UID] = ended || over(p)
	a.mu.Unlock()
	if over(p) && !ended && (known || p.CreationTimestamp.After(a.began)) {
		a.put(p, a.now())
	}
}

// lost is told of every pod that is deleted. One that still ran has ended now.
func (a *accounts) lost(p *v1.Pod) {
	a.mu.Lock()
	ended, known := a.known[p.UID]
	delete(a.known, p.UID)
	a.mu.Unlock()
	if known && !ended {
		a.put(p, a.now())
	}
}

func (a *accounts) put(p *v1.Pod, end time.Time) {
	if p.Spec.NodeName == "" {
		return
	}
	f := finished{p, end}
	lead := a.leads()
	if run, ok := runOf(p); ok {
		if run.window.End.After(end) {
			run.window.End = end
		}
		run.booked = !lead
		a.past.add(p.Spec.NodeName, run)
	}
	if !lead {
		a.miss(f)
		return
	}
	select {
	case a.queue <- f:
	default:
		a.metrics.unaccounted.WithLabelValues(lacksRoom).Inc()
	}
}

// unledFor is how long nobody may lead after a leader that died: a Lease's duration, and the pauses between looks at
// it.
const unledFor = 20 * time.Second

// miss remembers a pod that ended while we did not lead, for as long as we may find that nobody else did.
func (a *accounts) miss(f finished) {
	a.mu.Lock()
	defer a.mu.Unlock()
	old := 0
	for old < len(a.unled) && (f.end.Sub(a.unled[old].end) > unledFor || len(a.unled)-old >= accountsQueue) {
		old++
	}
	a.unled = append(slices.Delete(a.unled, 0, old), f)
}

// succeed counts what ended just before we led. Whether the one who led before has accounted for it nobody knows, so
// nothing is added for it.
func (a *accounts) succeed() {
	a.mu.Lock()
	missed := a.unled
	a.unled = nil
	a.mu.Unlock()
	view, now := a.view(), a.now()
	for _, f := range missed {
		if _, ours := concerned(view, f.pod); ours && now.Sub(f.end) <= unledFor {
			a.metrics.unaccounted.WithLabelValues(lacksLeader).Inc()
		}
	}
}

// concerned returns a pod as the core sees it, and whether we account for it.
func concerned(view *kube.View, p *v1.Pod) (job sched.Job, ours bool) {
	work, _ := policy.ReadPod(p) // what makes no sense counts as not said
	job, settings := view.Settle(&work)
	return job, settings.Ours && settings.Mode != v1alpha1.ModeOff
}

// run accounts until ctx ends.
func (a *accounts) run(ctx context.Context) error {
	elected := a.elected
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-elected:
			elected = nil
			a.succeed()
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
	running := forever // the first start of those that still run on its node
	defer func() { a.past.settle(f.pod.Spec.NodeName, f.pod.UID, running) }()
	view := a.view()
	job, ours := concerned(view, f.pod)
	if !ours {
		running = time.Time{} // nobody has looked
		return
	}
	own, _ := runOf(f.pod)
	var timed bool
	if own.window, timed = ran(f); !timed {
		running = time.Time{}
		a.metrics.unaccounted.WithLabelValues(lacksTime).Inc()
		return
	}
	node, others, lacks, err := a.node(ctx, view, f.pod)
	if err != nil {
		a.log.Warn("accounting for a finished pod", "namespace", f.pod.Namespace, "pod", f.pod.Name, "error", err)
		lacks, running = lacksNode, time.Time{}
	}
	for i := range others {
		if o := &others[i]; o.window.End.Equal(forever) && o.window.Start.Before(running) {
			running = o.window.Start
		}
	}
	if lacks != "" {
		a.metrics.unaccounted.WithLabelValues(lacks).Inc()
		return
	}
	var c charge
	c.parts, c.wakeUp = share(node, &job, own, others)
	c.site = *node.Site
	c.site.PUE = cmp.Or(job.PUE, node.Facility())
	a.book(ctx, f.pod, &c)
}

// charge is what a pod is charged for, before it is priced.
type charge struct {
	site   sched.Site // whose PUE is that of the node
	parts  []part
	wakeUp energy.Joules
}

// window returns from when to when the pod ran.
func (c *charge) window() sched.Window {
	return sched.Window{Start: c.parts[0].window.Start, End: c.parts[len(c.parts)-1].window.End}
}

// book adds a pod to the counters of its namespace.
func (a *accounts) book(ctx context.Context, pod *v1.Pod, c *charge) {
	ns, w := pod.Namespace, c.window()
	used := a.estimate(c, 0)
	a.metrics.finished.WithLabelValues(ns).Inc()
	a.metrics.runtime.WithLabelValues(ns).Add(w.End.Sub(w.Start).Seconds())
	a.metrics.energy.WithLabelValues(ns).Add(max(0, float64(used.Energy)))
	unheld := used
	if held := a.heldFor(ctx, pod); held > 0 {
		unheld = a.estimate(c, held)
	}
	if !used.knowsCarbon {
		a.metrics.unaccounted.WithLabelValues(lacksGrid).Inc()
	} else {
		if !unheld.knowsCarbon {
			unheld.Carbon = used.Carbon // no saving is claimed that cannot be shown
		}
		a.metrics.carbon.WithLabelValues(ns, used.signal).Add(max(0, float64(used.Carbon)))
		a.metrics.counterfactualCarbon.WithLabelValues(ns, used.signal).Add(max(0, float64(unheld.Carbon)))
	}
	if used.knowsPrice {
		if !unheld.knowsPrice {
			unheld.Cost = used.Cost
		}
		a.metrics.cost.WithLabelValues(ns, used.currency).Add(float64(used.Cost))
		a.metrics.counterfactualCost.WithLabelValues(ns, used.currency).Add(float64(unheld.Cost))
	}
}

// bill is what a charge amounts to.
type bill struct {
	sched.Estimate
	units
	knowsCarbon, knowsPrice bool // the signals were recorded
}

// estimate prices a charge with what is known since, or what it would have come to earlier.
func (a *accounts) estimate(c *charge, earlier time.Duration) bill {
	if now := a.now(); now.Sub(a.sampled).Abs() >= time.Second { // the last minutes
		a.history.sample(a.view(), now)
		a.sampled = now
	}
	w := c.window()
	w.Start, w.End = w.Start.Add(-earlier), w.End.Add(-earlier)
	past := c.site
	var b bill
	past.Carbon, b.knowsCarbon = a.history.carbon(past.Name, w.Start, w.End)
	past.Price, b.knowsPrice = a.history.price(past.Name, w.Start, w.End)
	b.units = a.history.units(past.Name)
	burst := c.wakeUp
	for _, p := range c.parts {
		e := past.Account(p.power, burst, sched.Window{
			Start: p.window.Start.Add(-earlier), End: p.window.End.Add(-earlier),
		})
		b.Energy += e.Energy
		b.Carbon += e.Carbon
		b.Cost += e.Cost
		burst = 0
	}
	return b
}

// ran returns when the pod ran. A container that was started again tells its last start only, so the pod's is taken
// then.
func ran(f finished) (sched.Window, bool) {
	w := sched.Window{End: f.end}
	if f.pod.Status.StartTime != nil {
		w.Start = f.pod.Status.StartTime.Time
	}
	var first, last time.Time
	restarted := false
	for i := range f.pod.Status.ContainerStatuses {
		restarted = restarted || f.pod.Status.ContainerStatuses[i].RestartCount > 0
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
		w.End = last
		if !restarted || w.Start.IsZero() {
			w.Start = first
		}
	}
	return w, !w.Start.IsZero() && w.End.After(w.Start)
}

// node returns the pod's node, and the runs of all other pods on it that are known.
func (a *accounts) node(ctx context.Context, view *kube.View,
	pod *v1.Pod,
) (node *sched.Node, others []podRun, lacks string, err error) {
	var n v1.Node
	if err := a.client.Get(ctx, types.NamespacedName{Name: pod.Spec.NodeName}, &n); err != nil {
		if apierrors.IsNotFound(err) {
			err = nil
		}
		return nil, nil, lacksNode, err
	}
	var pods v1.PodList
	if err := a.client.List(ctx, &pods, client.MatchingFields{nodeIndex: n.Name},
		client.UnsafeDisableDeepCopy); err != nil {
		return nil, nil, lacksNode, err
	}
	seen := map[types.UID]bool{pod.UID: true}
	past := a.past.beside(n.Name)
	for i := range past { // first: a pod may have ended that the cache shows running
		if r := &past[i]; !seen[r.uid] {
			seen[r.uid] = true
			others = append(others, *r)
		}
	}
	for i := range pods.Items {
		p := &pods.Items[i]
		if seen[p.UID] {
			continue
		}
		if r, ok := runOf(p); ok {
			others = append(others, r)
		}
	}
	var none load
	found, ok := none.on(view, &n)
	if !ok {
		return nil, others, lacksProfile, nil
	}
	return &found, others, "", nil
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
	l.requested = l.requested.Add(policy.PodRequest(p))
	l.jobs += count(policy.KeepsAwake(p))
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
	if err := a.client.Get(ctx, types.NamespacedName{Namespace: pod.Namespace, Name: owner.Name}, &job); err != nil ||
		job.UID != owner.UID {
		return 0
	}
	released, err := time.Parse(time.RFC3339, job.Annotations[v1alpha1.AnnotationReleasedAt])
	if err != nil || !plausible(released, job.CreationTimestamp.Time) {
		return 0
	}
	return released.Sub(job.CreationTimestamp.Time)
}
