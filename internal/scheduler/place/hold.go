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
)

// HoldName is the name of [Hold] in KubeSchedulerConfiguration.
const HoldName = "KubEnergyHold"

// Gate says which bare pods are not to be tried yet.
type Gate interface {
	// Hold reports whether the pod is to be kept from the scheduler, and until when at the latest. It is called with
	// the lock of the scheduling queue held, for every pod that enters it, so it must neither wait nor call back.
	Hold(pod *v1.Pod) (until time.Time, held bool)
	// Holds reports whether a pod is held, and decides nothing: such pods are in no plan until they are let go.
	Holds(uid types.UID) bool
	// SetActivator hands over what moves pods, keyed as the gate likes, from the held ones to the queue. The gate calls
	// it when it releases pods: no event of the cluster does. It may be called once per profile, with equal effect.
	SetActivator(activate func(pods map[string]*v1.Pod))
	// WatchPods hands over the scheduler's own informer, once, however many profiles there are.
	WatchPods(informer cache.SharedIndexInformer)
	// Nodes hands over what tells of the cluster's machines, what runs on them and until when, as WatchPods does.
	Nodes(notify func(view *kube.View, now time.Time) []sched.Node)
}

// shared is what the plugins of all profiles have in common. A pod of any profile shows that the queue works, and the
// activator of any profile may be the one that is used.
type shared struct {
	watch   sync.Once
	running atomic.Bool
	again   atomic.Pointer[v1.Pod] // to be tried before it has backed off

	follow sync.Once
	seen   kube.SeenWatts
}

// watchNodes notes when others change the watts that stand on nodes.
func (s *shared) watchNodes(d Deps, handle fwk.Handle) (err error) {
	s.follow.Do(func() {
		nodes := handle.SharedInformerFactory().Core().V1().Nodes().Informer()
		_, err = nodes.AddEventHandler(kube.Surviving(d.Log, s.seen.Handler(d.Clock)))
	})
	return err
}

// watchPods lets the gate follow pods, whichever plugins a profile has.
func (s *shared) watchPods(gate Gate, handle fwk.Handle) {
	if gate != nil {
		s.watch.Do(func() {
			gate.Nodes(machinesOf(handle))
			gate.WatchPods(handle.SharedInformerFactory().Core().V1().Pods().Informer())
		})
	}
}

// Hold keeps the pods that the Gate holds out of the scheduling queue.
type Hold struct {
	gate    Gate // nil: nothing is held
	clock   func() time.Time
	running *atomic.Bool // whether the queue, which all profiles share, has begun to work
	logger  klog.Logger
	rescue  rescue
}

var (
	_ fwk.PreEnqueuePlugin  = &Hold{}
	_ fwk.EnqueueExtensions = &Hold{}
)

// held is shared by all pods: a cluster may hold thousands, and asks for each more than once. Why and until when stands
// in the pod's condition, which the gate's owner writes.
var held = fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "held by KubEnergy: see the pod's PodScheduled condition")

func (d Deps) newHold(ctx context.Context, s *shared, handle fwk.Handle) *Hold {
	h := &Hold{gate: d.Gate, clock: d.Clock, running: &s.running, rescue: rescue{log: d.Log}}
	s.watchPods(h.gate, handle)
	if h.gate != nil {
		h.logger = klog.FromContext(ctx)
		h.ActivateBy(handle.Activate)
	}
	return h
}

// ActivateBy sets the function that receives the pods that the gate lets go: package parking keeps a queue in front of
// kube-scheduler's.
func (h *Hold) ActivateBy(activate func(klog.Logger, map[string]*v1.Pod)) {
	if h.gate == nil {
		return
	}
	h.gate.SetActivator(func(pods map[string]*v1.Pod) {
		// The handle has no queue until all profiles are built. Before the first pod was seen there is nothing to
		// activate: it will be asked for when it comes.
		if h.running.Load() {
			activate(h.logger, pods)
		}
	})
}

// Name implements [fwk.Plugin].
func (*Hold) Name() string { return HoldName }

// PreEnqueue gates the pod if it is held. It compares the deadline with the clock itself: a gate that has stopped
// working holds no pod beyond it.
func (h *Hold) PreEnqueue(_ context.Context, pod *v1.Pod) (status *fwk.Status) {
	if h.gate == nil {
		return nil
	}
	if !h.running.Load() {
		h.running.Store(true)
	}
	defer h.rescue.from("PreEnqueue", func() { status = nil })
	if until, ok := h.gate.Hold(pod); ok && h.clock().Before(until) {
		return held
	}
	return nil
}

// EventsToRegister returns none: a held pod is activated by its gate. Any event listed here would make kube-scheduler
// walk over all held pods whenever it happens, and no method at all would list every event.
func (*Hold) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return []fwk.ClusterEventWithHint{}, nil
}
