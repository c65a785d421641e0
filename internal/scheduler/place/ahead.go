package place

import (
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/sched"
)

// arrivals learns which pods arrive in the cluster, so that placements leave room for the next ones.
type arrivals struct {
	mu sync.Mutex
	of sched.Arrivals
}

// handler returns the handler of an informer of pods.
func (a *arrivals) handler(clock func() time.Time) cache.ResourceEventHandler {
	locked := func(obj any, do func(pod *v1.Pod)) {
		if pod, ok := kube.EventObject[*v1.Pod](obj); ok && policy.KeepsAwake(pod) {
			a.mu.Lock()
			defer a.mu.Unlock()
			do(pod)
		}
	}
	arrives := func(pod *v1.Pod) { a.of.Add(clock(), pod.CreationTimestamp.Time, demandOf(pod)) }
	leaves := func(pod *v1.Pod) { a.of.Left(string(pod.UID)) }
	seen := func(pod *v1.Pod) {
		if pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil && waitsForRoom(pod) {
			a.of.Waits(clock(), string(pod.UID), demandOf(pod))
		} else {
			leaves(pod)
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { locked(obj, arrives); locked(obj, seen) },
		UpdateFunc: func(before, obj any) {
			if before.(*v1.Pod).UID != obj.(*v1.Pod).UID {
				locked(before, leaves)
				locked(obj, arrives)
			}
			locked(obj, seen)
		},
		DeleteFunc: func(obj any) { locked(obj, leaves) },
	}
}

func demandOf(pod *v1.Pod) *sched.Job {
	return &sched.Job{Request: policy.PodRequest(pod), Selector: pod.Spec.NodeSelector}
}

// reserved records that a waiting pod has a node, before this is visible in its spec, or no longer.
func (a *arrivals) reserved(pod *v1.Pod, now time.Time, has bool) {
	if a == nil || !waitsForRoom(pod) {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if has {
		a.of.Left(string(pod.UID))
	} else {
		a.of.Waits(now, string(pod.UID), demandOf(pod))
	}
}

// waitsForRoom reports whether a pod was not scheduled for lack of CPU, memory or GPUs, according to the message of
// kube-scheduler.
func waitsForRoom(pod *v1.Pod) bool {
	c := policy.Scheduled(pod)
	if c.Reason != v1.PodReasonUnschedulable {
		return false
	}
	for _, rest := range strings.Split(c.Message, "Insufficient ")[1:] {
		word, _, _ := strings.Cut(rest, " ")
		name := v1.ResourceName(strings.TrimRight(word, ",."))
		if name == v1.ResourceCPU || name == v1.ResourceMemory || policy.GPUsOf(name) != (sched.Resources{}) {
			return true
		}
	}
	return false
}

// outlook contains the pods that are expected to arrive and find little room.
type outlook struct {
	ahead []sched.Demand
	from  int       // node at which the last search for room ended
	until time.Time // until then, the outlook is not updated
}

// An outlook that takes longer than slowLook, as with thousands of full nodes, is used for rareLook times as long, so
// that a small part of the scheduler's time is spent on it.
const (
	slowLook = time.Millisecond
	rareLook = 20
)

// lookAhead returns the pods that the placement of the request's pod has to leave room for. Nodes that are full,
// cordoned or tainted have none, except for sleeping nodes.
func (e *Energy) lookAhead(r *request, pod *v1.Pod) []sched.Demand {
	if e.arrivals == nil || !e.wheres[r.settings.Where].LeavesRoom() {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.arrivals.mu.Lock()
	defer e.arrivals.mu.Unlock()
	o, now := &e.outlook, e.clock()
	if now.Before(o.until) {
		return o.ahead
	}
	e.book.open(r.view, r.cluster)
	job := sched.Job{ID: string(pod.UID), Request: r.job.Request}
	var current fwk.NodeInfo
	nodes := func(yield func(*sched.Node) bool) {
		for i := range r.cluster {
			at := (o.from + i) % len(r.cluster)
			current = r.cluster[at]
			seat := e.book.find(current)
			if s := &e.book.seats[seat]; !s.full && !s.off && !yield(&e.book.nodes[seat]) {
				o.from = at
				return
			}
		}
	}
	o.ahead = e.arrivals.of.Ahead(now, &job, nodes, func(*sched.Node) []sched.End {
		return e.book.endsOn(current, now)
	})
	if took := e.clock().Sub(now); took > slowLook {
		o.until = now.Add(rareLook * took)
	}
	return o.ahead
}

// addEnds sets the expected ends of the pods on copied nodes if the snapshot depends on them.
func (e *Energy) addEnds(to *copies, nodes []fwk.NodeInfo, s *sched.Snapshot) {
	contested := s.Contested()
	for i, n := range nodes {
		if slices.Contains(contested, to.nodes[i].Name) {
			to.nodes[i].Ends = slices.Clone(e.book.endsOn(n, s.Now))
		}
	}
}

// expectedRun is a pod with an expected duration.
type expectedRun struct {
	began   time.Time
	length  time.Duration
	request sched.Resources
}

// expectRun returns false if it is unknown how long a pod runs. Without an expected duration, a pod of a Job is
// expected to run for an hour, as if it were held.
func expectRun(pod *v1.Pod, view *kube.View, now time.Time) (e expectedRun, ok bool) {
	work, err := policy.ReadPod(pod)
	if err != nil {
		return e, false
	}
	kind, _ := policy.OwnerOf(pod)
	job, settings := view.Settle(&work)
	if settings.ExpectedDuration <= 0 && kind != "Job" {
		return e, false
	}
	e.began = now // the pod has just been bound
	if pod.Status.StartTime != nil {
		e.began = pod.Status.StartTime.Time
	}
	job.Foresee()
	e.length, e.request = job.Duration, policy.PodRequest(pod)
	return e, true
}

// end returns the expected end. A pod that has exceeded its expected duration is expected to run for the same time
// again as it has so far.
func (e *expectedRun) end(now time.Time) sched.End {
	at := e.began.Add(e.length)
	if !at.After(now) {
		at = now.Add(now.Sub(e.began))
	}
	return sched.End{At: at, Request: e.request}
}

// A pod is late if it has exceeded its expected duration by more than a tenth. Before, it is expected to end now,
// because its end may not have been reported yet.
const late = 10

// nodeRuns contains the pods on a node of a generation with an expected duration.
type nodeRuns struct {
	generation int64
	runs       []expectedRun
}

// endsOn returns the expected ends of the pods on a node, sorted by time, until the next call. Expected durations are
// read when the pods of the node have changed, and may therefore be of an earlier view.
func (b *nodeBook) endsOn(n fwk.NodeInfo, now time.Time) []sched.End {
	name := n.Node().Name
	on := b.runs[name]
	if on.generation != n.GetGeneration() {
		on = nodeRuns{generation: n.GetGeneration()}
		for _, p := range n.GetPods() {
			if run, ok := expectRun(p.GetPod(), b.view, now); ok && policy.KeepsAwake(p.GetPod()) {
				on.runs = append(on.runs, run)
			}
		}
		slices.SortFunc(on.runs, func(a, b expectedRun) int {
			return a.began.Add(a.length).Compare(b.began.Add(b.length))
		})
		if b.runs == nil {
			b.runs = map[string]nodeRuns{}
		}
		b.runs[name] = on
	}
	b.ends = b.ends[:0]
	for i := range on.runs {
		b.ends = append(b.ends, on.runs[i].end(now.Add(-on.runs[i].length/late)))
	}
	byTime := func(a, b sched.End) int { return a.At.Compare(b.At) }
	if !slices.IsSortedFunc(b.ends, byTime) { // some are late
		slices.SortFunc(b.ends, byTime)
	}
	return b.ends
}
