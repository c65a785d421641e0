package estimate

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/controller/release"
	"github.com/kubenergy/kubenergy/internal/daemon"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/kube/panics"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/sched"
)

// WorkloadOptions configures Workloads.
type WorkloadOptions struct {
	Client client.Client // reads the Jobs of pods
	View   func() *kube.View
	Node   func(name string) *v1.Node // returns nil if the node does not exist
	Rates  func(node string, from, to time.Time) ledger.Rates
	Leads  func() bool
	Now    func() time.Time
	Log    *slog.Logger
	// Registerer registers the metrics kubenergy_workload_*.
	Registerer prometheus.Registerer
}

// Workloads adds up the usage of finished pods by namespace: all recorded energy from any source (an agent, a meter
// with a model, metrics-server, requests). Times without records, such as those before this replica became leader,
// and pods that ran only between two estimates are estimated from the requests of the pod.
//
// All other usage is unknown: a pod without a known node, power profile or grid data is counted as unaccounted and
// does not add to the totals.
//
// Workloads is safe for concurrent use.
type Workloads struct {
	o       WorkloadOptions
	metrics workloadMetrics
	began   time.Time

	mu      sync.Mutex
	pods    map[types.UID]*tally
	booked  map[string]lastBooking // by node
	waiting []*finished            // oldest first
	led     bool
}

// tally is the recorded usage of a pod.
type tally struct {
	node    string
	state   podState
	deleted bool
	used    ledger.Amount // excluding the PUE
	covered time.Duration // time covered by records
}

// lastBooking is the last record of a node. Later records do not count for times before its end.
type lastBooking struct {
	end   time.Time
	rates ledger.Rates
}

type podState int

const (
	running podState = iota
	ended            // waiting for the last records
	counted          // or excluded
)

// finished is a pod that waits to be counted.
type finished struct {
	pod    *v1.Pod
	tally  *tally
	window sched.Window // running time; Start is zero if unknown
	at     time.Time    // time at which the end was observed
	rates  ledger.Rates // rates of the node's last record
}

const (
	countEvery = 5 * time.Second
	// bookedWithin is how long a finished pod waits for its last records. Estimates replace a missing agent after
	// five minutes.
	bookedWithin = 7 * time.Minute
	maxWaiting   = 50_000
	// unledFor is the maximum time without a leader after the leader has failed: the duration of a Lease plus the
	// retry interval.
	unledFor = 20 * time.Second
	// bookedKept is how long the last record of a node is stored.
	bookedKept = 24 * time.Hour
)

// Reasons for unaccounted pods.
const (
	lacksNode    = "node"    // the node no longer exists
	lacksProfile = "profile" // no record, and the node has no power profile
	lacksGPUs    = "gpus"    // no record, and the number of GPUs of the pod is unknown
	lacksGrid    = "grid"    // the energy is known, but no carbon intensity was recorded while the pod ran
	lacksTime    = "time"    // the running time is unknown
	lacksLeader  = "leader"  // finished just before this replica became leader and possibly not counted by any
	lacksRoom    = "overload"
)

// NewWorkloads returns Workloads without pods.
func NewWorkloads(o WorkloadOptions) *Workloads {
	return &Workloads{
		o: o, metrics: newWorkloadMetrics(o.Registerer), began: o.Now(), pods: map[types.UID]*tally{},
		booked: map[string]lastBooking{},
	}
}

func over(p *v1.Pod) bool { return p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed }

// Saw handles the addition or update of a pod by an informer. A pod that finished before this process started was
// counted by another process. Finished pods are tracked until they are deleted, because they may be updated until
// then.
func (w *Workloads) Saw(o client.Object) {
	p, ok := o.(*v1.Pod)
	if !ok {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	t, known := w.pods[p.UID]
	if !known {
		t = &tally{}
		w.pods[p.UID] = t
		if over(p) && !p.CreationTimestamp.After(w.began) {
			t.state = counted
		}
	}
	if t.node != p.Spec.NodeName { // the node of a pod never changes, and count reads it without the lock
		t.node = p.Spec.NodeName
	}
	if over(p) {
		w.end(p, t)
	}
}

// Lost handles the deletion of a pod. A running pod is considered finished now.
func (w *Workloads) Lost(o client.Object) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p, ok := o.(*v1.Pod)
	t := w.pods[o.GetUID()]
	if t == nil || !ok {
		return
	}
	w.end(p, t)
	if t.deleted = true; t.state == counted {
		delete(w.pods, p.UID)
	}
}

// end marks a running pod as finished and waiting to be counted. The caller must hold mu.
func (w *Workloads) end(p *v1.Pod, t *tally) {
	switch {
	case t.state != running:
	case t.node == "":
		t.state = counted
	case len(w.waiting) >= maxWaiting:
		t.state = counted
		w.metrics.unaccounted.WithLabelValues(lacksRoom).Inc()
	default:
		t.state = ended
		now := w.o.Now()
		w.waiting = append(w.waiting, &finished{pod: p, tally: t, window: ran(p, now), at: now})
	}
}

// Booked adds a record of the ledger to the usage of its pods. If an agent reports a time that was already
// estimated, the time is counted once.
func (w *Workloads) Booked(b *ledger.Booking, _ ledger.Receipt) {
	w.mu.Lock()
	defer w.mu.Unlock()
	node, start, end := b.Batch.Stream.Node, b.Batch.Start, b.Batch.End
	until := w.booked[node].end
	if !end.After(until) || !end.After(start) {
		return
	}
	w.booked[node] = lastBooking{end, b.Rates}
	part := 1.0
	if until.After(start) {
		part = float64(end.Sub(until)) / float64(end.Sub(start))
	}
	covered := time.Duration(part * float64(end.Sub(start)-b.Batch.Unmeasured))
	rates := b.Rates
	rates.PUE = 1
	var last *tally
	for i := range b.Batch.Shares {
		s := &b.Batch.Shares[i]
		uid, _, isPod := energy.PodOf(s.ID)
		t := w.pods[types.UID(uid)]
		if !isPod || t == nil || t.node != node || t.state == counted {
			continue
		}
		a := ledger.Amount{
			Dynamic: energy.Microjoules(part * float64(s.Dynamic)), Idle: energy.Microjoules(part * float64(s.Idle)),
		}
		rates.Charge(&a, b.Estimated())
		t.used.Add(&a)
		if t != last { // the containers of a pod are consecutive
			t.covered += covered
			last = t
		}
	}
}

// Estimated adds an estimate that is not recorded in a ledger.
func (w *Workloads) Estimated(_ context.Context, b *batch.Batch) error {
	w.Booked(&ledger.Booking{
		Batch: b, Rates: w.o.Rates(b.Stream.Node, b.Start, b.End), Agentless: true,
	}, ledger.Receipt{Booked: true})
	return nil
}

// Run counts finished pods until ctx is done. It always returns nil.
func (w *Workloads) Run(ctx context.Context) error {
	wait.NonSlidingUntilWithContext(ctx, w.tick, countEvery)
	return nil
}

func (w *Workloads) tick(ctx context.Context) {
	for _, f := range w.ready(w.o.Now(), w.o.Leads()) {
		panics.Survive(w.o.Log, "account", "finished pod", func() {
			daemon.Round(ctx, func() { w.count(ctx, f) })
		})
	}
}

// ready removes and returns the finished pods with complete records, and pods that have waited for too long.
func (w *Workloads) ready(now time.Time, leads bool) (ready []*finished) {
	w.mu.Lock()
	defer w.mu.Unlock()
	maps.DeleteFunc(w.booked, func(_ string, b lastBooking) bool { return now.Sub(b.end) > bookedKept })
	elected := leads && !w.led
	w.led = leads
	w.waiting = slices.DeleteFunc(w.waiting, func(f *finished) bool {
		waited := now.Sub(f.at)
		switch {
		case elected:
			// The pod finished just before this replica became leader. It is unknown whether the previous leader
			// has counted it, so it does not add to the totals.
			panics.Survive(w.o.Log, "account", "pod", func() {
				if _, ours := concerned(w.o.View(), f.pod); ours {
					w.metrics.unaccounted.WithLabelValues(lacksLeader).Inc()
				}
			})
		case !leads:
			if waited <= unledFor {
				return false
			}
		case waited <= bookedWithin && w.booked[f.tally.node].end.Before(f.window.End):
			return false
		default:
			f.rates = w.booked[f.tally.node].rates
			ready = append(ready, f)
		}
		f.tally.state = counted
		if f.tally.deleted {
			delete(w.pods, f.pod.UID)
		}
		return true
	})
	return ready
}

// concerned returns the scheduling Job of a pod, and whether the pod is accounted for.
func concerned(view *kube.View, p *v1.Pod) (job sched.Job, ours bool) {
	work, _ := policy.ReadPod(p) // invalid settings are ignored
	job, settings := view.Settle(&work)
	return job, settings.Ours && settings.Mode != v1alpha1.ModeOff
}

// count adds a pod to the totals of its namespace.
func (w *Workloads) count(ctx context.Context, f *finished) {
	view := w.o.View()
	job, ours := concerned(view, f.pod)
	if !ours {
		return
	}
	if !f.window.End.After(f.window.Start) {
		w.metrics.unaccounted.WithLabelValues(lacksTime).Inc()
		return
	}
	used, rates := f.tally.used, f.rates
	n := w.o.Node(f.tally.node)
	if n != nil {
		rates = w.o.Rates(f.tally.node, f.window.Start, f.window.End)
	}
	pue := cmp.Or(job.PUE, rates.PUE)
	rates.PUE = 1
	if lacks := f.complete(view, n, &job, &rates, &used); lacks != "" {
		w.metrics.unaccounted.WithLabelValues(lacks).Inc()
		return
	}
	unheld := used
	if held := w.heldFor(ctx, f.pod); held > 0 && n != nil {
		earlier := w.o.Rates(f.tally.node, f.window.Start.Add(-held), f.window.End.Add(-held))
		earlier.PUE = 1
		if earlier.Charge(&unheld, false); unheld.Uncharted > 0 {
			unheld.Carbon = used.Carbon // claim no saving without data
		}
		if unheld.Unpriced > 0 {
			unheld.Cost = used.Cost
		}
	}
	w.metrics.add(f.pod.Namespace, f.window.End.Sub(f.window.Start), pue, &rates, &used, &unheld)
}

// complete adds an estimate for the time without records, and computes emissions and costs that were unknown at the
// time of recording. If the usage cannot be determined, it returns the reason.
func (f *finished) complete(view *kube.View, n *v1.Node, job *sched.Job, rates *ledger.Rates,
	used *ledger.Amount,
) (lacks string) {
	if gap := f.window.End.Sub(f.window.Start) - f.tally.covered; gap > 0 && n == nil && f.tally.covered == 0 {
		return lacksNode
	} else if gap > 0 && f.tally.covered == 0 && policy.UnknownGPUs(f.pod) != "" {
		return lacksGPUs
	} else if gap > 0 && n != nil {
		capacity := kube.Allocatable(n)
		node, known := view.Node(n, capacity, capacity, 0)
		if !known && f.tally.covered == 0 {
			return lacksProfile
		}
		if known {
			a := ledger.Amount{Dynamic: PodPower(&node, job).For(gap).Microjoules()}
			rates.Charge(&a, true)
			used.Add(&a)
		}
	}
	if used.Uncharted > 0 || used.Unpriced > 0 {
		whole := *used
		rates.Charge(&whole, false)
		if used.Uncharted > 0 {
			used.Carbon, used.Uncharted = whole.Carbon, whole.Uncharted
		}
		if used.Unpriced > 0 {
			used.Cost, used.Unpriced = whole.Cost, whole.Unpriced
		}
	}
	return ""
}

// PodPower returns the power of a pod based on its requests: its fraction of the node at full load, and its GPUs.
// The sum over all pods never exceeds the maximum power of the node.
func PodPower(n *sched.Node, job *sched.Job) energy.Watts {
	power := n.Profile.GPUPower(job.GPUClass) * energy.Watts(min(job.Request.Devices(), n.Capacity.Devices()))
	if n.Capacity.MilliCPU > 0 {
		part := float64(job.Request.MilliCPU) / float64(n.Capacity.MilliCPU)
		power += (n.Profile.Power(1) - n.Profile.Memory) * energy.Watts(min(part, 1))
		if n.Capacity.Memory > 0 { // otherwise use the CPU fraction
			part = float64(job.Request.Memory) / float64(n.Capacity.Memory)
		}
		power += n.Profile.Memory * energy.Watts(min(part, 1))
	}
	return power
}

// ran returns the running time of a pod that finished by now. The status of a restarted container contains only its
// last start, so the start time of the pod is used in this case.
func ran(p *v1.Pod, now time.Time) sched.Window {
	w := sched.Window{End: now}
	if p.Status.StartTime != nil {
		w.Start = p.Status.StartTime.Time
	}
	var first, last time.Time
	restarted := false
	for i := range p.Status.ContainerStatuses {
		restarted = restarted || p.Status.ContainerStatuses[i].RestartCount > 0
		t := p.Status.ContainerStatuses[i].State.Terminated
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
	if over(p) && !first.IsZero() {
		w.End = last
		if !restarted || w.Start.IsZero() {
			w.Start = first
		}
	}
	if w.Start.IsZero() {
		w.End = w.Start // the running time is unknown
	}
	return w
}

// heldFor returns how long the Job of a pod was held. It is a lower bound if the Job ran on more than its minimum
// number of replicas before a pause.
func (w *Workloads) heldFor(ctx context.Context, pod *v1.Pod) time.Duration {
	owner := metav1.GetControllerOfNoCopy(pod)
	if owner == nil || owner.Kind != "Job" || !strings.HasPrefix(owner.APIVersion, batchv1.GroupName+"/") {
		return 0
	}
	var job batchv1.Job
	key := types.NamespacedName{Namespace: pod.Namespace, Name: owner.Name}
	if err := w.o.Client.Get(ctx, key, &job); err != nil || job.UID != owner.UID {
		return 0
	}
	released, err := time.Parse(time.RFC3339, job.Annotations[v1alpha1.AnnotationReleasedAt])
	if err != nil || !release.Plausible(released, job.CreationTimestamp.Time) {
		return 0
	}
	work, _ := policy.ReadJob(&job) // invalid annotations do not matter
	return max(0, released.Sub(job.CreationTimestamp.Time)-work.Marks.Worked)
}
