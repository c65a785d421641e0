package place

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/scheduler/batch"
)

// HoldName is the name of [Hold] in KubeSchedulerConfiguration.
const HoldName = "KubEnergyHold"

// Gate decides which bare pods are not scheduled yet.
type Gate interface {
	// Hold reports whether the pod must be kept out of the scheduling queue, and until when at most. It is called
	// with the lock of the scheduling queue held for every pod that enters it, so it must neither block nor call
	// the queue.
	Hold(pod *v1.Pod) (until time.Time, held bool)
	// Holds reports whether a pod is held, without any side effects. Held pods are not planned.
	Holds(uid types.UID) bool
	// LatestStart returns the latest start of a Job that was held and released, by the UID of the Job. Neither this
	// method nor Holds blocks.
	LatestStart(job types.UID) (latest time.Time, known bool)
	// SetActivator sets the function that moves released pods to the queue. The gate must call it, because no other
	// event does so. The keys of the map are chosen by the gate. SetActivator may be called once per profile with
	// equivalent functions.
	SetActivator(activate func(pods map[string]*v1.Pod))
	// WatchPods sets the pod informer of the scheduler. It is called once, regardless of the number of profiles.
	WatchPods(informer cache.SharedIndexInformer)
	// Nodes sets the function that lists the nodes with their running work and its expected end. It is called once.
	Nodes(notify func(view *kube.View, now time.Time) []sched.Node)
}

// shared is the state shared by the plugins of all profiles. The queue is known to run once a pod of any profile
// has been seen, and the activator of any profile may be used.
type shared struct {
	watch   sync.Once
	running atomic.Bool
	again   atomic.Pointer[v1.Pod] // pod to be retried without backoff

	follow   sync.Once
	seen     kube.SeenWatts
	arrivals arrivals
	turns    turns // of the pods that the plugins Hold of all profiles have admitted to the queue

	energies map[string]*Energy // by profile; complete before the queue is started
}

// watchCluster records when other components change the power in node annotations, and which pods arrive.
func (s *shared) watchCluster(d Deps, handle fwk.Handle) (err error) {
	s.follow.Do(func() {
		core := handle.SharedInformerFactory().Core().V1()
		_, err = core.Nodes().Informer().AddEventHandler(kube.Surviving(d.Log, s.seen.Handler(d.Clock)))
		if err == nil {
			_, err = core.Pods().Informer().AddEventHandler(kube.Surviving(d.Log, s.arrivals.handler(d.Clock)))
		}
	})
	return err
}

// watchPods connects the gate to the informers. It is called by every plugin, because a profile may enable only
// some of them.
func (s *shared) watchPods(gate Gate, handle fwk.Handle) {
	if gate != nil {
		s.watch.Do(func() {
			gate.Nodes(machinesOf(handle))
			gate.WatchPods(handle.SharedInformerFactory().Core().V1().Pods().Informer())
		})
	}
}

// Hold is a plugin that keeps pods out of the scheduling queue that are held by the Gate or gathered for a joint plan.
type Hold struct {
	gate    Gate // nil if no pods are held
	clock   func() time.Time
	common  *shared
	profile string
	logger  klog.Logger
	rescue  rescue

	gatherer *Energy // nil if no pods are gathered
	activate func(pods map[string]*v1.Pod)
}

var (
	_ fwk.PreEnqueuePlugin  = &Hold{}
	_ fwk.EnqueueExtensions = &Hold{}
)

// held is shared by all pods, because a cluster may hold thousands of pods, and PreEnqueue is called for each of
// them more than once. The reason and the deadline are in the condition of the pod, which the hold loop writes.
var held = fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "held by KubEnergy: see the pod's PodScheduled condition")

// gathered is the status of pods that are gathered for a joint plan.
var gathered = fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "waiting for other pods to be planned with")

func (d Deps) newHold(ctx context.Context, s *shared, handle fwk.Handle) *Hold {
	h := &Hold{
		gate: d.Gate, clock: d.Clock, common: s, profile: handle.ProfileName(), logger: klog.FromContext(ctx),
		rescue: rescue{log: d.Log},
	}
	s.watchPods(h.gate, handle)
	s.turns.pods = handle.SharedInformerFactory().Core().V1().Pods().Lister()
	h.ActivateBy(handle.Activate)
	return h
}

// ActivateBy sets the function that receives the released pods. Package parking uses it, because it wraps the queue
// of kube-scheduler.
func (h *Hold) ActivateBy(activate func(klog.Logger, map[string]*v1.Pod)) {
	h.activate = func(pods map[string]*v1.Pod) {
		// The handle has no queue until all profiles are built. Before the first pod has been seen, no pod needs to
		// be activated, because PreEnqueue is called for each new pod.
		if h.common.running.Load() {
			activate(h.logger, pods)
		}
	}
	if h.gate != nil {
		h.gate.SetActivator(h.activate)
	}
}

// GatherWith enables the gathering of pods for joint plans. nodes returns the nodes outside of scheduling cycles. It
// is called from one goroutine at a time, and its result is only read until the next call.
func (h *Hold) GatherWith(nodes func() []fwk.NodeInfo) {
	e := h.common.energies[h.profile]
	if e == nil || e.batch == nil {
		return
	}
	h.gatherer = e
	e.batch.planner.GatherWith(func() *batch.Question { return e.question(e.view(), nodes) },
		func(pods map[string]*v1.Pod) {
			defer h.rescue.from("gathering", nil) // the pods are checked again later, see package parking
			h.activate(pods)
		})
}

// Name implements [fwk.Plugin].
func (*Hold) Name() string { return HoldName }

// PreEnqueue rejects the pod if it is held or gathered, and otherwise sets its position in the queue. It checks the
// deadline itself, so that a gate that has stopped working does not hold pods beyond it.
func (h *Hold) PreEnqueue(_ context.Context, pod *v1.Pod) (status *fwk.Status) {
	if !h.common.running.Load() {
		h.common.running.Store(true)
	}
	defer h.rescue.from("PreEnqueue", func() { status = nil })
	if h.gate != nil {
		if until, ok := h.gate.Hold(pod); ok && h.clock().Before(until) {
			return held
		}
	}
	if h.gatherer.gathers(pod, h.gate) {
		return gathered
	}
	h.common.turns.enter(pod)
	return nil
}

// EventsToRegister returns no events, because held pods are activated by the gate. Any registered event would make
// kube-scheduler iterate over all held pods whenever it occurs. Without this method, all events would be
// registered.
func (*Hold) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return []fwk.ClusterEventWithHint{}, nil
}
