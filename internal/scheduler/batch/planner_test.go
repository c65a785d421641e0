package batch

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/kube/panics"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
	"github.com/kubenergy/kubenergy/test/kit"
	"github.com/kubenergy/kubenergy/test/kit/bubble"
)

var view = &kube.View{}

// limits contains limits that do not interfere with the tests.
var limits = Limits{
	TimeLimit: metav1.Duration{Duration: time.Second}, MinPods: 2, MaxPods: 100,
	Believed: metav1.Duration{Duration: 30 * time.Second}, Options: 2,
}

// world is a planner with synthetic pods and nodes.
type world struct {
	*Planner
	nodes []sched.Node
	objs  []*v1.Node
	slots []int
}

func newWorld(change func(*Config)) *world {
	c := Config{
		Limits: limits, Profile: "test", View: func() *kube.View { return view }, Read: read,
		Strategies: map[string]Strategy{}, Held: func(*v1.Pod) bool { return false },
		Log: slog.New(slog.DiscardHandler),
	}
	wheres, _ := strategy.Names()
	for _, where := range wheres {
		if g, err := strategy.New(where); err == nil && g.Batches() {
			c.Strategies[where] = g
		}
	}
	if change != nil {
		change(&c)
	}
	return &world{Planner: New(c)}
}

func read(pod *v1.Pod) (Pod, bool) {
	work, err := policy.ReadPod(pod)
	job, _ := view.Settle(&work)
	job.Duration = time.Hour
	where := pod.Annotations[v1alpha1.AnnotationStrategy]
	return Pod{Object: pod, View: view, Job: job, Where: where}, err == nil && where != ""
}

// node adds a node with the given number of cores, which are all free.
func (w *world) node(name string, cores int64, change func(*v1.Node)) {
	object := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1.LabelHostname: name}}}
	if change != nil {
		change(object)
	}
	room := sched.Resources{MilliCPU: 1000 * cores, Memory: cores << 30}
	w.nodes = append(w.nodes, sched.Node{
		Name: name, Site: &sched.Site{Name: "here"}, Capacity: room, Free: room,
		Profile: &energy.Profile{Name: "p", Idle: 50, Max: 150, Sleep: 5},
	})
	w.objs, w.slots = append(w.objs, object), append(w.slots, 110)
}

// pod adds a pod that requests the given number of cores.
func (w *world) pod(name, where string, cores int64, change func(*v1.Pod)) types.UID {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "d", Name: name, UID: types.UID(name),
		Annotations: map[string]string{v1alpha1.AnnotationStrategy: where},
	}}
	pod.Spec.Containers = []v1.Container{{Resources: v1.ResourceRequirements{Requests: v1.ResourceList{
		v1.ResourceCPU:    *resource.NewQuantity(cores, resource.DecimalSI),
		v1.ResourceMemory: *resource.NewQuantity(1<<20, resource.BinarySI),
	}}}}
	if change != nil {
		change(pod)
	}
	p, ok := read(pod)
	if !ok {
		panic("unknown pod")
	}
	w.Put(p)
	return pod.UID
}

// question copies the current nodes.
func (w *world) question() *Question {
	return &Question{
		View: view, At: time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC), Nodes: append([]sched.Node(nil), w.nodes...),
		Objects: w.objs, Slots: append([]int(nil), w.slots...),
	}
}

// plan makes a plan in the goroutine of the test.
func (w *world) plan() {
	w.Turn("nobody") // discards a plan that has expired
	w.busy.Store(true)
	w.Ask(w.question())
	w.answer(context.Background(), <-w.asked)
	w.busy.Store(false)
}

func TestPlanIsHandedOutOnce(t *testing.T) {
	w := newWorld(nil)
	w.node("a", 1, nil)
	w.node("b", 1, nil)
	w.node("c", 4, nil)
	x, y := w.pod("x", "ecsched-ml", 1, nil), w.pod("y", "ecsched-ml", 1, nil)
	if _, planned, wanted := w.Turn(x); planned || wanted {
		t.Errorf("planned = %v, wanted = %v without a plan and with a single pod, want false", planned, wanted)
	}
	w.Requeue(x)
	w.plan()
	nodes := map[string]bool{}
	for _, uid := range []types.UID{x, y} {
		step, planned, wanted := w.Turn(uid)
		if !planned || wanted || step.Of != 2 || len(step.Next) == 0 {
			t.Errorf("%s: %+v, %v, %v", uid, step, planned, wanted)
		}
		nodes[step.Node] = true
		if _, again, _ := w.Turn(uid); again {
			t.Errorf("%s has two steps of one plan", uid)
		}
	}
	// the fullest node is chosen first, and a node with one core has capacity for one pod
	if !nodes["a"] || !nodes["b"] {
		t.Errorf("planned nodes %v", nodes)
	}
}

func TestWhenAPlanIsWanted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(func(c *Config) { c.MinPods = 4 })
		for i := range 4 {
			w.node(fmt.Sprint("n", i), 8, nil)
		}
		wants := func(uid types.UID) bool {
			_, _, wanted := w.Turn(uid)
			if wanted {
				w.busy.Store(false) // simulates a response
			}
			return wanted
		}
		var uids []types.UID
		add := func(n int) {
			for range n {
				uids = append(uids, w.pod(fmt.Sprint("p", len(uids)), "ecsched-dp", 1, nil))
			}
		}
		add(3)
		if wants("") {
			t.Error("wanted for three pods")
		}
		if add(1); !wants("") {
			t.Error("not wanted for four")
		}
		add(16)
		w.plan()
		if wants("") {
			t.Error("a plan is wanted although all pods are planned")
		}
		if add(4); wants("") {
			t.Error("a plan is wanted for 4 new pods while 20 steps are left")
		}
		for _, uid := range uids[:11] {
			if wants(uid) {
				t.Fatalf("a plan is wanted before %s while the remaining steps exceed twice the new pods", uid)
			}
		}
		if !wants(uids[11]) {
			t.Error("no plan is wanted for 4 new pods while 8 steps are left")
		}
		w.plan()
		bubble.Advance(limits.Believed.Duration + 1)
		if _, planned, wanted := w.Turn(uids[20]); planned || !wanted {
			t.Errorf("planned = %v, wanted = %v after the plan has expired", planned, wanted)
		}
	})
}

// TestOnlyOneAsks verifies that no plan is requested while another one is in progress.
func TestOnlyOneAsks(t *testing.T) {
	w := newWorld(nil)
	w.node("a", 8, nil)
	for i := range 4 {
		w.pod(fmt.Sprint("p", i), "ecsched-dp", 1, nil)
	}
	if _, _, wanted := w.Turn(""); !wanted {
		t.Fatal("not wanted")
	}
	if _, _, wanted := w.Turn(""); wanted {
		t.Error("wanted twice")
	}
	w.Ask(nil) // the nodes could not be copied
	if _, _, wanted := w.Turn(""); wanted {
		t.Error("wanted again at once")
	}
}

func TestStruckAndFailedPods(t *testing.T) {
	w := newWorld(func(c *Config) { c.MaxPods = 3 })
	w.node("a", 8, nil)
	giant := w.pod("giant", "ecsched-dp", 100, nil) // does not fit on any node
	w.Turn(giant)
	w.Requeue(giant)
	struck := w.pod("struck", "ecsched-dp", 1, nil)
	w.Turn(struck)
	w.Exclude(struck)
	w.Requeue(struck)
	var others []types.UID
	for i := range 3 {
		others = append(others, w.pod(fmt.Sprint("p", i), "ecsched-dp", 1, nil))
	}
	w.plan()
	if _, planned, _ := w.Turn(struck); planned {
		t.Error("an excluded pod is planned")
	}
	for _, uid := range others {
		if _, planned, _ := w.Turn(uid); !planned {
			t.Errorf("%s has no step, because failed pods came first", uid)
		}
	}
}

func TestPriorityComesFirst(t *testing.T) {
	w := newWorld(func(c *Config) { c.MaxPods = 1 })
	w.node("a", 8, nil)
	low := w.pod("low", "ecsched-dp", 1, nil)
	high := w.pod("high", "ecsched-dp", 1, func(p *v1.Pod) { p.Spec.Priority = ptr.To[int32](10) })
	w.plan()
	_, planned, _ := w.Turn(high)
	if _, other, _ := w.Turn(low); !planned || other {
		t.Errorf("planned: high priority %v, low %v", planned, other)
	}
}

func TestHeldPodsAreNotPlanned(t *testing.T) {
	w := newWorld(func(c *Config) { c.Held = func(p *v1.Pod) bool { return p.Name == "held" } })
	w.node("a", 8, nil)
	held, free := w.pod("held", "ecsched-dp", 1, nil), w.pod("free", "ecsched-dp", 1, nil)
	w.plan()
	_, planned, _ := w.Turn(free)
	if _, other, _ := w.Turn(held); !planned || other {
		t.Errorf("planned: free %v, held %v", planned, other)
	}
}

// TestHeldPodsWantNoPlan verifies that held pods, which may be numerous and wait for a long time, do not trigger
// planning before they are released.
func TestHeldPodsWantNoPlan(t *testing.T) {
	holding := true
	w := newWorld(func(c *Config) { c.Held = func(p *v1.Pod) bool { return holding && p.Labels["held"] != "" } })
	w.node("a", 8, nil)
	var held []types.UID
	for i := range 5 {
		held = append(held, w.pod(fmt.Sprint("held", i), "ecsched-dp", 1,
			func(p *v1.Pod) { p.Labels = map[string]string{"held": "yes"} }))
	}
	for i := range 3 {
		w.pod(fmt.Sprint("free", i), "ecsched-dp", 1, nil)
	}
	w.plan()
	if _, _, wanted := w.Turn("nobody"); wanted {
		t.Error("another plan is wanted for held pods")
	}
	w.busy.Store(false)
	for i := range 3 {
		w.Turn(types.UID(fmt.Sprint("free", i)))
	}
	holding = false
	if _, planned, wanted := w.Turn(held[0]); planned || !wanted {
		t.Errorf("planned = %v, wanted = %v after the pods were released", planned, wanted)
	}
}

// TestMoreThanAPlanHolds verifies that a queue that exceeds the size of a plan is planned in parts, and that each
// part is planned when most steps of the previous one have been taken.
func TestMoreThanAPlanHolds(t *testing.T) {
	w := newWorld(func(c *Config) { c.MaxPods = 6 })
	w.node("a", 100, nil)
	var uids []types.UID
	for i := range 30 {
		uids = append(uids, w.pod(fmt.Sprint("p", i), "ecsched-dp", 1, nil))
	}
	w.plan()
	for i, uid := range uids[:6] {
		_, planned, wanted := w.Turn(uid)
		if last := i == 4; !planned || wanted != last {
			t.Errorf("pod %d: planned = %v, wanted = %v, want a plan for the rest when one step is left", i, planned,
				wanted)
		}
	}
}

// TestDemands verifies that plans respect taints and affinities, although the core does not support them.
func TestDemands(t *testing.T) {
	taint := v1.Taint{Key: "only", Value: "gpu", Effect: v1.TaintEffectNoSchedule}
	w := newWorld(nil)
	w.node("cordoned", 8, func(n *v1.Node) { n.Spec.Unschedulable = true })
	w.node("tainted", 8, func(n *v1.Node) { n.Spec.Taints = []v1.Taint{taint} })
	w.node("plain", 2, nil)
	w.node("labelled", 2, func(n *v1.Node) { n.Labels["disk"] = "fast" })
	w.node("crowded", 100, nil)
	w.slots[4] = 0
	allowed := map[types.UID][]string{
		w.pod("plain-0", "ecsched-dp", 1, nil): {"plain", "labelled"},
		w.pod("plain-1", "ecsched-dp", 1, nil): {"plain", "labelled"},
		w.pod("tolerant", "ecsched-dp", 8, func(p *v1.Pod) {
			p.Spec.Tolerations = []v1.Toleration{{Key: "only", Operator: v1.TolerationOpExists}}
		}): {"tainted"},
		w.pod("selective", "ecsched-dp", 1, func(p *v1.Pod) {
			p.Spec.NodeSelector = map[string]string{"disk": "fast"}
		}): {"labelled"},
		w.pod("affine", "ecsched-dp", 1, func(p *v1.Pod) {
			p.Spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{
				NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchExpressions: []v1.NodeSelectorRequirement{
					{Key: "disk", Operator: v1.NodeSelectorOpDoesNotExist},
				}}},
			}}}
		}): {"plain"},
		w.pod("nowhere", "ecsched-dp", 1, func(p *v1.Pod) {
			p.Spec.NodeSelector = map[string]string{"disk": "holographic"}
		}): nil,
	}
	w.plan()
	for uid, nodes := range allowed {
		step, planned, _ := w.Turn(uid)
		if planned != (nodes != nil) {
			t.Errorf("%s: planned %v on %q", uid, planned, step.Node)
		}
		for _, name := range append(step.Next, step.Node) {
			ok := name == "" && !planned
			for _, n := range nodes {
				ok = ok || n == name
			}
			if !ok {
				t.Errorf("%s is planned on %q, want one of %v", uid, name, nodes)
			}
		}
	}
}

// TestSlots verifies that plans respect the max number of pods per node, although strategies do not consider it.
func TestSlots(t *testing.T) {
	w := newWorld(nil)
	w.node("a", 8, nil)
	w.slots[0] = 2
	planned := 0
	var uids []types.UID
	for i := range 5 {
		uids = append(uids, w.pod(fmt.Sprint("p", i), "ecsched-ml", 1, nil))
	}
	w.plan()
	for _, uid := range uids {
		if _, ok, _ := w.Turn(uid); ok {
			planned++
		}
	}
	if planned != 2 {
		t.Errorf("%d pods are planned on a node with a maximum of 2", planned)
	}
}

// TestStrategiesShareNodes verifies that two strategies of a profile do not plan the same capacity.
func TestStrategiesShareNodes(t *testing.T) {
	w := newWorld(nil)
	w.node("a", 3, nil)
	var uids []types.UID
	for i := range 4 {
		uids = append(uids, w.pod(fmt.Sprint("p", i), []string{"ecsched-dp", "ecsched-ml"}[i%2], 1, nil))
	}
	w.plan()
	planned := 0
	for _, uid := range uids {
		if _, ok, _ := w.Turn(uid); ok {
			planned++
		}
	}
	if planned != 3 {
		t.Errorf("%d pods are planned with capacity for 3", planned)
	}
}

// strategyFunc is a strategy that is implemented by the test.
type strategyFunc func(s *sched.Snapshot, stop func() bool) (sched.Plan, strategy.Optimality)

func (f strategyFunc) PlanWithin(s *sched.Snapshot, stop func() bool) (sched.Plan, strategy.Optimality) {
	return f(s, stop)
}

func (strategyFunc) Options(_ *sched.Snapshot, plan sched.Plan, _ int) [][]string {
	return make([][]string, len(plan))
}

// TestAPanicKeepsThePlanBefore verifies that after a panic, the current plan remains in use until it expires, no
// plan is requested in the meantime, and the planner continues to run.
func TestAPanicKeepsThePlanBefore(t *testing.T) {
	t.Cleanup(panics.Reset)
	synctest.Test(t, func(t *testing.T) {
		panics := false
		w := newWorld(func(c *Config) {
			c.Strategies["ecsched-dp"] = strategyFunc(func(s *sched.Snapshot, stop func() bool) (sched.Plan, strategy.Optimality) {
				if panics {
					panic("no solution")
				}
				g, _ := strategy.New("ecsched-dp")
				return g.PlanWithin(s, stop)
			})
		})
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = w.Run(ctx) })
		w.node("a", 100, nil)
		ask := func() bool {
			_, _, wanted := w.Turn("")
			if wanted {
				w.Ask(w.question())
				synctest.Wait()
			}
			return wanted
		}
		first := []types.UID{w.pod("x", "ecsched-dp", 1, nil), w.pod("y", "ecsched-dp", 1, nil)}
		if !ask() {
			t.Fatal("not wanted")
		}
		panics = true
		for i := range 4 {
			w.pod(fmt.Sprint("late", i), "ecsched-dp", 1, nil)
		}
		if !ask() {
			t.Fatal("not wanted")
		}
		if ask() {
			t.Error("a plan is wanted immediately after a panic")
		}
		if _, planned, _ := w.Turn(first[0]); !planned {
			t.Error("the previous plan was discarded")
		}
		panics = false
		bubble.Advance(limits.Believed.Duration + 1)
		if !ask() {
			t.Error("not wanted after the pause")
		}
		if _, planned, _ := w.Turn(first[1]); !planned {
			t.Error("no plan after a panic")
		}
		cancel()
		running.Wait()
	})
}

// TestTimeLimit verifies that a strategy is stopped after its time limit and when the scheduler terminates, and
// that a plan that takes longer than the lifetime of plans is discarded.
func TestTimeLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := time.Duration(0)
		stopped := false
		w := newWorld(func(c *Config) {
			c.Strategies["ecsched-dp"] = strategyFunc(func(s *sched.Snapshot, stop func() bool) (sched.Plan, strategy.Optimality) {
				for stopped = stop(); !stopped; stopped = stop() {
					time.Sleep(10 * time.Millisecond)
				}
				time.Sleep(slow) // ignores stop
				plan := make(sched.Plan, len(s.Queue))
				for i := range plan {
					plan[i].Node = "a"
				}
				return plan, strategy.Optimality{}
			})
		})
		w.node("a", 100, nil)
		x, y := w.pod("x", "ecsched-dp", 1, nil), w.pod("y", "ecsched-dp", 1, nil)
		begun := time.Now()
		w.plan()
		if took := time.Since(begun); took < limits.TimeLimit.Duration ||
			took > limits.TimeLimit.Duration+100*time.Millisecond {
			t.Errorf("planning took %v", took)
		}
		if _, planned, _ := w.Turn(x); !planned {
			t.Error("a plan that reached the time limit is discarded")
		}
		bubble.Advance(2 * limits.Believed.Duration)
		slow = 2 * limits.Believed.Duration
		w.plan()
		if _, planned, _ := w.Turn(y); planned {
			t.Error("an expired plan is followed")
		}
		// Planning stops when the scheduler stops.
		slow = 0
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		w.busy.Store(true)
		w.Ask(w.question())
		begun = time.Now()
		w.answer(ctx, <-w.asked)
		if time.Since(begun) != 0 {
			t.Error("planning continues after the scheduler has stopped")
		}
	})
}

// TestAbsurdCosts verifies that a plan is made and respects capacity even with absurd power values and weights.
func TestAbsurdCosts(t *testing.T) {
	for _, watts := range []energy.Watts{energy.Watts(math.NaN()), energy.Watts(math.Inf(1)), 1e18, -1e18, 1e308} {
		for _, where := range []string{
			"ecsched-energy", "ecsched-carbon", "flow-energy", "flow-carbon", "flow-dp", "ecsched-ml",
		} {
			t.Run(fmt.Sprint(where, watts), func(t *testing.T) {
				w := newWorld(nil)
				for i := range 8 {
					w.node(fmt.Sprint("n", i), 4, nil)
					if i%2 == 0 {
						w.nodes[i].Profile = &energy.Profile{
							Name: "absurd", Idle: watts, Max: watts, Sleep: 1, WakeUp: energy.Joules(watts),
						}
					}
				}
				var uids []types.UID
				for i := range 40 {
					uids = append(uids, w.pod(fmt.Sprint("p", i), where, 1, nil))
				}
				w.plan()
				taken := map[string]int{}
				for _, uid := range uids {
					if step, planned, _ := w.Turn(uid); planned {
						taken[step.Node]++
					}
				}
				for name, n := range taken {
					if n > 4 {
						t.Errorf("%d pods are planned on %s, which has capacity for 4", n, name)
					}
				}
				if w.logged {
					t.Error("planning panicked")
				}
			})
		}
	}
}

// TestStorm adds and removes pods and nodes between questions, and verifies that no state of deleted pods remains.
func TestStorm(t *testing.T) {
	before := runtime.NumGoroutine()
	ctx, cancel := context.WithCancel(t.Context())
	w := newWorld(func(c *Config) { c.Believed.Duration = time.Millisecond })
	var running sync.WaitGroup
	running.Go(func() { _ = w.Run(ctx) })
	for round := range 50 {
		w.nodes, w.objs, w.slots = nil, nil, nil
		for i := range 20 {
			w.node(fmt.Sprint("n", (round*7+i)%40), 8, nil)
		}
		var uids []types.UID
		for i := range 100 {
			uids = append(uids, w.pod(fmt.Sprint("p", round, "-", i), "ecsched-dp", 1, nil))
		}
		for i, uid := range uids {
			if _, _, wanted := w.Turn(uid); wanted {
				w.Ask(w.question())
			}
			switch i % 3 {
			case 0:
				w.Requeue(uid)
				w.Turn(uid)
			case 1:
				w.Exclude(uid)
				w.Requeue(uid)
			}
		}
		for _, uid := range uids {
			w.Drop(uid)
		}
	}
	cancel()
	running.Wait()
	if len(w.pods) != 0 || w.unplanned != 0 || w.unused != 0 {
		t.Errorf("%d pods, %d unplanned and %d unused steps remain", len(w.pods), w.unplanned, w.unused)
	}
	// A goroutine may be counted briefly after it has signaled its completion.
	kit.Eventually(t, 10*time.Second, "the number of goroutines returns to its initial value", func() bool {
		return runtime.NumGoroutine() <= before
	})
}
