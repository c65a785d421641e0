package batch

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/scheduler/place"
)

const timeout = 2 * time.Minute

// planned makes the scheduler stand still with a plan for n pods in force, and returns what lets it go on. Nothing of
// the plan has been followed yet.
func (w *world) planned(n int, cores string, change func(int, *v1.Pod)) (names []string, goOn func()) {
	w.t.Helper()
	return w.plannedFor(n, n, cores, change)
}

// plannedFor is planned where the plan has a node for some of the pods. The planner has a handler of its own for pods:
// a plan that it made before it had seen all of them is not what a test is about, and is discarded.
func (w *world) plannedFor(n, placed int, cores string, change func(int, *v1.Pod)) (names []string, goOn func()) {
	w.t.Helper()
	for attempt := range 10 {
		before := metric(w.t, "kubenergy_batch_planned_pods_total", schedulerName)
		names, goOn = w.plan(attempt, n, cores, change)
		got := metric(w.t, "kubenergy_batch_planned_pods_total", schedulerName) - before
		if got == float64(placed) {
			return names, goOn
		}
		w.t.Logf("the plan has a node for %v pods instead of %d: planning again", got, placed)
		w.each(n, func(i int) error {
			return w.client.CoreV1().Pods(metav1.NamespaceDefault).Delete(w.ctx, names[i], *metav1.NewDeleteOptions(0))
		})
		w.eventually("the pods have left the queue", timeout, func() bool {
			pods, _ := w.scheduler.SchedulingQueue.PendingPods()
			return !slices.ContainsFunc(pods, func(p *v1.Pod) bool { return slices.Contains(names, p.Name) })
		})
		goOn()
		w.allBound([]string{stopName(attempt, 0), stopName(attempt, 1)}, timeout)
	}
	w.t.Fatal("no plan has all pods")
	return nil, nil
}

// stopName is the name of one of the two pods that plan makes the scheduler stand still with.
func stopName(attempt, i int) string { return fmt.Sprintf("stop%d-%04d", attempt, i) }

func (w *world) plan(attempt, n int, cores string, change func(int, *v1.Pod)) (names []string, goOn func()) {
	w.t.Helper()
	stops := [2]string{stopName(attempt, 0), stopName(attempt, 1)}
	// Two stops, both before all others by priority. In the cycle of the first the nodes are copied, in that of the
	// second the plan is in force.
	first, second := w.block(stops[0]), w.block(stops[1])
	w.t.Cleanup(first)
	w.t.Cleanup(second)
	before := metric(w.t, "kubenergy_batch_plans_total", schedulerName)
	w.addPods(fmt.Sprint("stop", attempt), 2, "1m", "high", func(_ int, p *v1.Pod) {
		p.Annotations = map[string]string{v1alpha1.AnnotationMaxPower: "1000"} // so that no plan is made for them
	})
	w.eventually("the scheduler stands still", timeout,
		func() bool { return w.tried(stops[0])+w.tried(stops[1]) > 0 })
	if w.tried(stops[0]) == 0 {
		first, second = second, first
	}
	names = w.addPods("planned", n, cores, "", change)
	w.eventually("the pods wait in the queue", timeout, func() bool {
		pods, _ := w.scheduler.SchedulingQueue.PendingPods()
		return len(pods) > n
	})
	first()
	w.eventually("there is a plan", timeout, func() bool {
		return metric(w.t, "kubenergy_batch_plans_total", schedulerName) > before
	})
	w.eventually("the scheduler stands still again", timeout,
		func() bool { return w.tried(stops[0]) > 0 && w.tried(stops[1]) > 0 })
	return names, second
}

// outcomes counts planned pods by where they went, since the last call.
func (w *world) outcomes() func() string {
	read := func() map[string]float64 {
		sums := map[string]float64{}
		for _, outcome := range []string{"followed", "next", "elsewhere", "retried"} {
			sums[outcome] = metric(w.t, "kubenergy_batch_pods_total", schedulerName, outcome)
		}
		return sums
	}
	before := read()
	return func() string {
		after := read()
		return fmt.Sprintf("followed %v, next %v, elsewhere %v, retried %v", after["followed"]-before["followed"],
			after["next"]-before["next"],
			after["elsewhere"]-before["elsewhere"], after["retried"]-before["retried"])
	}
}

// TestPlanIsFollowed: all pods of a batch go where the plan says, in one cycle each.
func TestPlanIsFollowed(t *testing.T) {
	w := start(t, "ecsched-ml", nil)
	w.addNodes(0, 150, 4)
	outcomes := w.outcomes()
	names, goOn := w.planned(60, "2", nil)
	goOn()
	w.allBound(names, timeout)
	if cycles := w.cycles(names); cycles[1] != 60 {
		t.Errorf("cycles of pods: %v", cycles)
	}
	if got := outcomes(); got != "followed 60, next 0, elsewhere 0, retried 0" {
		t.Error(got)
	}
	onNode := map[string]int{}
	for _, name := range names {
		if onNode[w.nodeOf(name)]++; onNode[w.nodeOf(name)] > 2 {
			t.Errorf("more than two pods of 2 cores are on %s of 4", w.nodeOf(name))
		}
	}
	w.nobodyWentFor()
}

// TestPlannedNodeIsTaken: another scheduler fills the planned nodes in between. The cycle sees that before it is
// narrowed.
func TestPlannedNodeIsTaken(t *testing.T) {
	w := start(t, "ecsched-ml", nil)
	w.addNodes(0, 150, 4)
	outcomes := w.outcomes()
	names, goOn := w.planned(40, "3", nil)
	w.occupy("rival", 0, 100, "4")
	w.eventually("the scheduler has seen them", timeout, func() bool {
		pods, err := w.scheduler.Cache.PodCount()
		return err == nil && pods > 100 // the first stop has been placed as well
	})
	goOn()
	w.allBound(names, timeout)
	for _, name := range names {
		if node := w.nodeOf(name); node < nodeName(100) {
			t.Errorf("%s is on %s, which is full", name, node)
		}
	}
	if cycles := w.cycles(names); cycles[1] != len(names) {
		t.Errorf("cycles of pods: %v, want one each", cycles)
	}
	w.nobodyWentFor()
	t.Log(outcomes())
}

// hasVictim reports whether a pod runs there that others must not run beside.
func hasVictim(_ *v1.Pod, n fwk.NodeInfo) bool {
	return slices.ContainsFunc(n.GetPods(), func(p fwk.PodInfo) bool { return p.GetPod().Labels["kind"] == "victim" })
}

// TestPlansEvictNoPod: the planned nodes are refused by a filter that the plan knows nothing of, and that evicting a
// pod of low priority would please. There are other nodes: no pod is evicted, and each pod has one cycle more.
func TestPlansEvictNoPod(t *testing.T) {
	w := start(t, "ecsched-ml", nil)
	w.addNodes(0, 150, 4)
	w.occupy("victim", 0, 100, "1m") // the fullest nodes, so that they are planned
	w.refuse = hasVictim
	outcomes := w.outcomes()
	names, goOn := w.planned(40, "3", nil)
	goOn()
	begun := time.Now()
	w.allBound(names, timeout)
	if cycles := w.cycles(names); cycles[2] != len(names) {
		t.Errorf("cycles of pods: %v, want two each", cycles)
	}
	if got := outcomes(); !strings.HasSuffix(got, fmt.Sprint("retried ", len(names))) {
		t.Error(got)
	}
	w.nobodyWentFor()
	t.Logf("%d pods are bound after %v; %s", len(names), time.Since(begun).Round(time.Millisecond), outcomes())
}

// TestPreemptionGoesOn: where no node is left without evicting, the ordinary cycle that follows a narrowed one evicts
// as stock does.
func TestPreemptionGoesOn(t *testing.T) {
	w := start(t, "ecsched-ml", nil)
	w.addNodes(0, 150, 4)
	w.occupy("victim", 0, 150, "1m")
	w.refuse = func(p *v1.Pod, n fwk.NodeInfo) bool { return p.Labels["kind"] == "planned" && hasVictim(p, n) }
	names, goOn := w.planned(10, "3", nil)
	goOn()
	w.allBound(names, timeout)
	w.mu.Lock()
	evicted := len(w.evicted)
	w.mu.Unlock()
	// Victims without a grace period are gone before the scheduler hears of it. A pod that is tried in between evicts
	// another: stock does not know that its first victim is on the way out.
	if evicted < 1 || evicted > 2*len(names) {
		t.Errorf("%d pods were evicted for %d", evicted, len(names))
	}
	if cycles := w.cycles(names); cycles[1] > 0 || cycles[2] > 0 {
		t.Errorf("cycles of pods: %v: a narrowed and an ordinary one come before an eviction", cycles)
	}
}

// TestOrder: in what we ship our PostFilter is asked before stock's; where it is not, cycles are not narrowed, and
// no pod is evicted either.
func TestOrder(t *testing.T) {
	first := func(w *world) string {
		return w.scheduler.Profiles[schedulerName].ListPlugins().PostFilter.Enabled[0].Name
	}
	w := start(t, "ecsched-ml", nil)
	if got := first(w); got != place.EnergyName {
		t.Errorf("the first plugin at postFilter is %s", got)
	}
	w.stop()
	w = start(t, "ecsched-ml", func(profile map[string]any) {
		delete(profile["plugins"].(map[string]any), "postFilter")
	})
	if got := first(w); got == place.EnergyName {
		t.Fatal("the order does not depend on the configuration, so this proves nothing")
	}
	w.addNodes(0, 150, 4)
	w.occupy("victim", 0, 100, "1m")
	w.refuse = hasVictim
	names, goOn := w.planned(20, "3", nil)
	goOn()
	w.allBound(names, timeout)
	if cycles := w.cycles(names); cycles[1] != len(names) {
		t.Errorf("cycles of pods: %v, want one each", cycles)
	}
	w.nobodyWentFor()
}

// TestNodesVanish: the planned nodes are deleted before the pods' turns come.
func TestNodesVanish(t *testing.T) {
	w := start(t, "ecsched-ml", nil)
	w.addNodes(0, 150, 4)
	names, goOn := w.planned(40, "3", nil)
	w.removeNodes(0, 100)
	// one may have a pod
	w.eventually("the scheduler knows", timeout, func() bool { return w.scheduler.Cache.NodeCount() <= 51 })
	goOn()
	w.allBound(names, timeout)
	if cycles := w.cycles(names); cycles[1] != len(names) {
		t.Errorf("cycles of pods: %v, want one each", cycles)
	}
	for _, name := range names {
		if w.nodeOf(name) < nodeName(100) {
			t.Errorf("%s is on %s, which is gone", name, w.nodeOf(name))
		}
	}
}

// TestInfeasibleBatch: a batch that fits nowhere keeps no other pod waiting, and is bound once there is room.
func TestInfeasibleBatch(t *testing.T) {
	w := start(t, "ecsched-dp", nil)
	w.addNodes(0, 120, 4)
	giants, goOn := w.plannedFor(30, 0, "64", nil)
	goOn()
	others := w.addPods("other", 100, "1", "", nil)
	w.allBound(others, timeout)
	for _, name := range giants {
		if node := w.nodeOf(name); node != "" {
			t.Fatalf("%s is on %s", name, node)
		}
	}
	w.addNodes(120, 135, 128)
	w.allBound(giants, timeout)
	w.nobodyWentFor()
}

// TestFewNodes: up to a hundred nodes the plan leads by scores, and a pod may be filtered from its planned node without
// another cycle.
func TestFewNodes(t *testing.T) {
	w := start(t, "ecsched-ml", nil)
	w.addNodes(0, 60, 4)
	w.occupy("victim", 0, 10, "1m")
	w.refuse = hasVictim
	outcomes := w.outcomes()
	names, goOn := w.planned(40, "3", nil)
	goOn()
	w.allBound(names, timeout)
	if cycles := w.cycles(names); cycles[1] != len(names) {
		t.Errorf("cycles of pods: %v, want one each", cycles)
	}
	if got := outcomes(); strings.HasPrefix(got, "followed 0") {
		t.Error(got)
	}
	w.nobodyWentFor()
}

// remaining returns the pods that are not bound, as the API server knows them.
func (w *world) remaining() (names []string) {
	w.t.Helper()
	pods, err := w.client.CoreV1().Pods(metav1.NamespaceDefault).List(w.ctx,
		metav1.ListOptions{FieldSelector: "spec.nodeName="})
	if err != nil {
		w.t.Fatal(err)
	}
	for i := range pods.Items {
		names = append(names, pods.Items[i].Name)
	}
	return names
}
