package parking

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	internalqueue "k8s.io/kubernetes/pkg/scheduler/backend/queue"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/queuesort"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
	"pgregory.net/rapid"

	"github.com/kubenergy/kubenergy/internal/scheduler/place"
)

const profile = "kubenergy"

// gate is the hold plugin of a profile. Tests change its decisions.
type gate struct {
	mu   sync.Mutex
	held map[types.UID]bool

	activate func(klog.Logger, map[string]*v1.Pod)
}

func (g *gate) ActivateBy(activate func(klog.Logger, map[string]*v1.Pod)) { g.activate = activate }

func (*gate) GatherWith(func() []fwk.NodeInfo) {}

func (*gate) Name() string { return place.HoldName }

func (g *gate) PreEnqueue(_ context.Context, pod *v1.Pod) *fwk.Status {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.held[pod.UID] {
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "held")
	}
	return nil
}

func (g *gate) hold(pod *v1.Pod, held bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.held[pod.UID] = held
}

func newQueue(t interface{ Context() context.Context }) (*queue, *gate) {
	metrics.Register()
	g := &gate{held: map[types.UID]bool{}}
	ctx := t.Context()
	return &queue{
		SchedulingQueue: internalqueue.NewTestQueue(ctx, (&queuesort.PrioritySort{}).Less),
		holds:           map[string]holder{profile: g}, parked: map[types.UID]*v1.Pod{}, stop: make(chan struct{}),
	}, g
}

func pod(name, version string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, UID: types.UID("uid-" + name), ResourceVersion: version,
		},
		Spec: v1.PodSpec{SchedulerName: profile},
	}
}

func keyed(pods ...*v1.Pod) map[string]*v1.Pod {
	all := map[string]*v1.Pod{}
	for _, p := range pods {
		all[p.Namespace+"/"+p.Name] = p
	}
	return all
}

// waiting returns the pods in the active queue.
func (q *queue) waiting() (names []string) {
	for _, p := range q.PodsInActiveQ() {
		names = append(names, p.Name+"@"+p.ResourceVersion)
	}
	slices.Sort(names)
	return names
}

func (q *queue) want(t *testing.T, when string, parked int, waiting ...string) {
	t.Helper()
	if got := q.waiting(); !slices.Equal(got, waiting) || len(q.parked) != parked || len(q.UnschedulablePods()) > 0 {
		t.Errorf("%s, %v are queued, %d are parked and %d unschedulable, want %v and %d", when, got, len(q.parked),
			len(q.UnschedulablePods()), waiting, parked)
	}
}

// gated is a profile with the given PreEnqueue plugins.
type gated struct {
	framework.Framework
	plugins []fwk.PreEnqueuePlugin
}

func (g gated) PreEnqueuePlugins() []fwk.PreEnqueuePlugin { return g.plugins }

func TestInstall(t *testing.T) {
	inner, g := newQueue(t)
	s := &scheduler.Scheduler{
		SchedulingQueue: inner.SchedulingQueue, Profiles: map[string]framework.Framework{"stock": gated{}},
	}
	Install(s)
	if s.SchedulingQueue != inner.SchedulingQueue {
		t.Error("the queue of a scheduler without a hold plugin is replaced")
	}
	s.Profiles[profile] = gated{plugins: []fwk.PreEnqueuePlugin{g}}
	Install(s)
	held := pod("held", "1")
	g.hold(held, true)
	s.SchedulingQueue.Add(t.Context(), held)
	if len(inner.UnschedulablePods()) > 0 || len(inner.PodsInActiveQ()) > 0 {
		t.Error("a held pod is in kube-scheduler's own queue")
	}
	g.hold(held, false)
	g.activate(klog.Background(), keyed(held))
	if got := inner.waiting(); !slices.Equal(got, []string{"held@1"}) {
		t.Errorf("%v are queued after the pod was released", got)
	}
}

func TestHeldPodsStandBeside(t *testing.T) {
	q, gate := newQueue(t)
	ctx, logger := t.Context(), klog.Background()
	held, other := pod("held", "1"), pod("other", "1")
	gate.hold(held, true)
	q.Add(ctx, held)
	q.Add(ctx, other)
	q.want(t, "at first", 1, "other@1")

	elsewhere := pod("elsewhere", "1")
	elsewhere.Spec.SchedulerName = "stock"
	gate.hold(elsewhere, true)
	q.Add(ctx, elsewhere)
	q.want(t, "with a pod of a profile without a hold plugin", 1, "elsewhere@1", "other@1")

	q.MoveAllToActiveOrBackoffQueue(logger, framework.EventAssignedPodDelete, other, nil, nil)
	q.Activate(logger, keyed(held))
	q.want(t, "after activating a held pod", 1, "elsewhere@1", "other@1")

	newer := pod("held", "2")
	q.Update(ctx, held, newer)
	q.want(t, "after an update", 1, "elsewhere@1", "other@1")

	gate.hold(held, false)
	q.Activate(logger, keyed(held)) // the version of the pod that was held
	q.want(t, "let go", 0, "elsewhere@1", "held@2", "other@1")

	q.Delete(newer)
	q.want(t, "after it was deleted", 0, "elsewhere@1", "other@1")
}

func TestParkedPodsAreForgotten(t *testing.T) {
	q, gate := newQueue(t)
	held := pod("held", "1")
	gate.hold(held, true)
	q.Add(t.Context(), held)
	q.Delete(held)
	gate.hold(held, false)
	q.Activate(klog.Background(), keyed(held))
	q.checkAll(t.Context())
	q.want(t, "after it was deleted", 0)
}

func TestUpdatesLetGo(t *testing.T) {
	q, gate := newQueue(t)
	held := pod("held", "1")
	gate.hold(held, true)
	q.Add(t.Context(), held)
	gate.hold(held, false)
	q.Update(t.Context(), held, pod("held", "2"))
	q.want(t, "after an update", 0, "held@2")
}

// TestTheOldestLeaveFirst verifies that pods that are released together are scheduled oldest first.
func TestTheOldestLeaveFirst(t *testing.T) {
	q, gate := newQueue(t)
	began := time.Now()
	var pods []*v1.Pod
	for i := range 100 {
		p := pod(fmt.Sprintf("p%02d", i), "1")
		p.CreationTimestamp = metav1.NewTime(began.Add(time.Duration(i*37%100) * time.Second))
		gate.hold(p, true)
		q.Add(t.Context(), p)
		pods = append(pods, p)
	}
	for i, p := range pods {
		gate.hold(p, false)
		if i == 49 {
			q.Activate(klog.Background(), keyed(pods[:50]...))
		}
	}
	q.checkAll(t.Context())
	for _, half := range [][]*v1.Pod{pods[:50], pods[50:]} {
		slices.SortFunc(half, func(a, b *v1.Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
		for _, want := range half {
			got, err := q.Pop(klog.Background())
			if err != nil {
				t.Fatal(err)
			}
			if got.Pod.Name != want.Name {
				t.Fatalf("%s is scheduled, want %s", got.Pod.Name, want.Name)
			}
		}
	}
}

// TestPodsThatOthersGated verifies that pods with scheduling gates remain in kube-scheduler's queue, and are parked
// if they are held once the gates have been removed.
func TestPodsThatOthersGated(t *testing.T) {
	q, gate := newQueue(t)
	gated := pod("gated", "1")
	gated.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "example.com/quota"}}
	q.Add(t.Context(), gated) // no plugin of this queue checks scheduling gates
	gate.hold(gated, true)
	other := pod("gated", "2")
	other.Spec.SchedulingGates = gated.Spec.SchedulingGates
	q.Update(t.Context(), gated, other)
	q.want(t, "while it is gated", 0, "gated@2")
	q.Update(t.Context(), other, pod("gated", "3"))
	q.want(t, "afterwards", 1)
}

// TestNoPodIsForgotten verifies that the queue checks a gate that does not release a pod at its deadline.
func TestNoPodIsForgotten(t *testing.T) {
	q, gate := newQueue(t)
	held := pod("held", "1")
	gate.hold(held, true)
	q.Add(t.Context(), held)
	q.checkAll(t.Context())
	q.want(t, "while it is held", 1)
	gate.hold(held, false)
	q.checkAll(t.Context())
	q.want(t, "afterwards", 0, "held@1")
}

// TestReleasesRaceWithUpdates verifies that concurrent releases and updates neither lose a pod nor queue an
// outdated version.
func TestReleasesRaceWithUpdates(t *testing.T) {
	q, gate := newQueue(t)
	ctx := t.Context()
	var pods []*v1.Pod
	for i := range 500 {
		p := pod(fmt.Sprintf("p%03d", i), "1")
		gate.hold(p, true)
		pods = append(pods, p)
	}
	var group sync.WaitGroup
	group.Go(func() {
		for _, p := range pods {
			q.Add(ctx, p)
			q.Update(ctx, p, pod(p.Name, "2"))
		}
	})
	group.Go(func() {
		for _, p := range pods {
			gate.hold(p, false)
			q.Activate(klog.Background(), keyed(p))
		}
	})
	group.Wait()
	var want []string
	for _, p := range pods {
		want = append(want, p.Name+"@2")
	}
	q.want(t, "in the end", 0, want...)
}

// TestPodsStandInOnePlace verifies that a pod is always in exactly one place in its latest version, and in the
// queue if its gate has released it.
func TestPodsStandInOnePlace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q, gate := newQueue(t)
		ctx, logger := context.Background(), klog.Background()
		seen, born := map[string]int{}, map[string]int{}
		pod := func(name string, version int) *v1.Pod {
			p := pod(name, strconv.Itoa(version))
			p.UID = types.UID(fmt.Sprint(name, "-", born[name]))
			return p
		}
		for step := range rapid.IntRange(1, 60).Draw(t, "steps") {
			name := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "pod")
			now := pod(name, step+1)
			last, known := seen[name]
			switch rapid.SampledFrom([]string{"see", "see", "delete", "recreate", "let go", "look", "bind"}).Draw(t,
				"what") {
			case "see":
				if !known {
					gate.hold(now, rapid.Bool().Draw(t, "held"))
					q.Add(ctx, now)
				} else {
					q.Update(ctx, pod(name, last), now)
				}
				seen[name] = step + 1
			case "delete":
				q.Delete(now)
				delete(seen, name)
			case "recreate": // the deletion was missed
				if !known {
					continue
				}
				old := pod(name, last)
				born[name]++
				now = pod(name, step+1)
				gate.hold(now, rapid.Bool().Draw(t, "held"))
				q.Update(ctx, old, now)
				seen[name] = step + 1
			case "let go":
				gate.hold(now, false)
				q.Activate(logger, keyed(now))
			case "look":
				q.checkAll(ctx)
			case "bind":
				q.MoveAllToActiveOrBackoffQueue(logger, framework.EventAssignedPodAdd, nil, pod("bound", 1), nil)
			}
			var want []string
			parked := 0
			for name, version := range seen {
				if p := pod(name, version); !gate.PreEnqueue(ctx, p).IsSuccess() {
					if got := q.parked[p.UID]; got == nil || got.ResourceVersion != p.ResourceVersion {
						t.Fatalf("step %d: %s is parked as %v", step, name, got)
					}
					parked++
				} else {
					want = append(want, fmt.Sprint(name, "@", version))
				}
			}
			slices.Sort(want)
			if got := q.waiting(); !slices.Equal(got, want) || len(q.parked) != parked {
				t.Fatalf("step %d: %v are queued, %d are parked, want %v and %d", step, got, len(q.parked), want, parked)
			}
		}
	})
}

// BenchmarkBound measures the cost of a bound pod to a queue with 2,000 held pods, which are either gated in the
// queue or parked.
func BenchmarkBound(b *testing.B) {
	for _, name := range []string{"gated", "parked"} {
		b.Run(name, func(b *testing.B) {
			metrics.Register()
			g := &gate{held: map[types.UID]bool{}}
			interested := internalqueue.QueueingHintMap{framework.EventAssignedPodAdd: {{PluginName: "InterPodAffinity"}}}
			q := &queue{
				SchedulingQueue: internalqueue.NewTestQueue(b.Context(), (&queuesort.PrioritySort{}).Less,
					internalqueue.WithPreEnqueuePluginMap(
						map[string]map[string]fwk.PreEnqueuePlugin{profile: {g.Name(): g}}),
					internalqueue.WithQueueingHintMapPerProfile(
						internalqueue.QueueingHintMapPerProfile{profile: interested})),
				holds: map[string]holder{}, parked: map[types.UID]*v1.Pod{}, stop: make(chan struct{}),
			}
			if name == "parked" {
				q.holds[profile] = g
			}
			for i := range 2000 {
				p := pod(fmt.Sprint("held", i), "1")
				g.hold(p, true)
				q.Add(b.Context(), p)
			}
			if len(q.parked)+len(q.UnschedulablePods()) != 2000 {
				b.Fatalf("%d are parked, %d gated", len(q.parked), len(q.UnschedulablePods()))
			}
			bound := pod("bound", "1")
			for b.Loop() {
				q.MoveAllToActiveOrBackoffQueue(klog.Background(), framework.EventAssignedPodAdd, nil, bound, nil)
			}
		})
	}
}
