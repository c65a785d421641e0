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

// planned pauses the scheduler with a plan for n pods in effect and returns a function that resumes it. No pod of
// the plan has been scheduled yet.
func (w *world) planned(n int, cores string, change func(int, *v1.Pod)) (names []string, goOn func()) {
	w.t.Helper()
	return w.plannedFor(n, n, cores, change)
}

// plannedFor is like planned, for plans that place only some of the pods. The planner has its own event handler for
// pods, so it may plan before it has received all of them. Such a plan is discarded.
func (w *world) plannedFor(n, placed int, cores string, change func(int, *v1.Pod)) (names []string, goOn func()) {
	w.t.Helper()
	for attempt := range 10 {
		before := metric(w.t, "kubenergy_batch_planned_pods_total", schedulerName)
		names, goOn = w.plan(attempt, n, cores, change)
		got := metric(w.t, "kubenergy_batch_planned_pods_total", schedulerName) - before
		if got == float64(placed) {
			return names, goOn
		}
		w.t.Logf("plan contains nodes for %v pods, want %d; planning again", got, placed)
		w.each(n, func(i int) error {
			return w.client.CoreV1().Pods(metav1.NamespaceDefault).Delete(w.ctx, names[i], *metav1.NewDeleteOptions(0))
		})
		w.eventually("the pods are removed from the queue", timeout, func() bool {
			pods, _ := w.scheduler.SchedulingQueue.PendingPods()
			return !slices.ContainsFunc(pods, func(p *v1.Pod) bool { return slices.Contains(names, p.Name) })
		})
		goOn()
		w.allBound([]string{stopName(attempt, 0), stopName(attempt, 1)}, timeout)
	}
	w.t.Fatal("no plan contains all pods")
	return nil, nil
}

// stopName returns the name of one of the two pods that plan uses to pause the scheduler.
func stopName(attempt, i int) string { return fmt.Sprintf("stop%d-%04d", attempt, i) }

func (w *world) plan(attempt, n int, cores string, change func(int, *v1.Pod)) (names []string, goOn func()) {
	w.t.Helper()
	stops := [2]string{stopName(attempt, 0), stopName(attempt, 1)}
	// The two stop pods have the highest priority. The nodes are copied in the cycle of the first one, and the plan
	// is in effect in the cycle of the second one.
	first, second := w.block(stops[0]), w.block(stops[1])
	w.t.Cleanup(first)
	w.t.Cleanup(second)
	before := metric(w.t, "kubenergy_batch_plans_total", schedulerName)
	w.addPods(fmt.Sprint("stop", attempt), 2, "1m", "high", func(_ int, p *v1.Pod) {
		p.Annotations = map[string]string{v1alpha1.AnnotationMaxPower: "1000"} // excludes them from planning
	})
	w.eventually("the scheduler is paused", timeout,
		func() bool { return w.tried(stops[0])+w.tried(stops[1]) > 0 })
	if w.tried(stops[0]) == 0 {
		first, second = second, first
	}
	names = w.addPods("planned", n, cores, "", change)
	w.eventually("the pods are in the queue", timeout, func() bool {
		pods, _ := w.scheduler.SchedulingQueue.PendingPods()
		return len(pods) > n
	})
	first()
	w.eventually("a plan exists", timeout, func() bool {
		return metric(w.t, "kubenergy_batch_plans_total", schedulerName) > before
	})
	w.eventually("the scheduler is paused again", timeout,
		func() bool { return w.tried(stops[0]) > 0 && w.tried(stops[1]) > 0 })
	return names, second
}

// outcomes returns a function that formats the number of planned pods by outcome since the call of outcomes.
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

// TestPlanIsFollowed verifies that all pods of a batch are bound to their planned nodes in one cycle each, whether
// the plan is enforced through scores (up to one hundred nodes) or by narrowing the cycle.
func TestPlanIsFollowed(t *testing.T) {
	t.Run("scores", func(t *testing.T) { testPlanIsFollowed(t, 60) })
	t.Run("narrowed cycles", func(t *testing.T) { testPlanIsFollowed(t, 150) })
}

func testPlanIsFollowed(t *testing.T, nodes int) {
	w := start(t, "ecsched-ml", nil)
	w.addNodes(0, nodes, 4)
	outcomes := w.outcomes()
	names, goOn := w.planned(60, "2", nil)
	goOn()
	w.allBound(names, timeout)
	if cycles := w.cycles(names); cycles[1] != 60 {
		t.Errorf("unexpected number of pods by cycles: %v", cycles)
	}
	if got := outcomes(); got != "followed 60, next 0, elsewhere 0, retried 0" {
		t.Error(got)
	}
	onNode := map[string]int{}
	for _, name := range names {
		if onNode[w.nodeOf(name)]++; onNode[w.nodeOf(name)] > 2 {
			t.Errorf("more than two pods with 2 cores are bound to %s with 4 cores", w.nodeOf(name))
		}
	}
	w.nobodyWentFor()
}

// TestPlannedNodeIsTaken verifies that pods are placed elsewhere if another scheduler fills the planned nodes. The
// cycle detects this before it is restricted to the planned nodes.
func TestPlannedNodeIsTaken(t *testing.T) {
	w := start(t, "ecsched-ml", nil)
	w.addNodes(0, 150, 4)
	outcomes := w.outcomes()
	names, goOn := w.planned(40, "3", nil)
	w.occupy("rival", 0, 100, "4")
	w.eventually("the scheduler cache contains all pods", timeout, func() bool {
		pods, err := w.scheduler.Cache.PodCount()
		return err == nil && pods > 100 // the first stop pod has been placed as well
	})
	goOn()
	w.allBound(names, timeout)
	for _, name := range names {
		if node := w.nodeOf(name); node < nodeName(100) {
			t.Errorf("pod %s is bound to node %s, which is full", name, node)
		}
	}
	if cycles := w.cycles(names); cycles[1] != len(names) {
		t.Errorf("number of pods by cycles: %v, want one cycle for each pod", cycles)
	}
	w.nobodyWentFor()
	t.Log(outcomes())
}

// hasVictim reports whether a pod of the kind "victim" runs on the node.
func hasVictim(_ *v1.Pod, n fwk.NodeInfo) bool {
	return slices.ContainsFunc(n.GetPods(), func(p fwk.PodInfo) bool { return p.GetPod().Labels["kind"] == "victim" })
}

// TestPlansEvictNoPod verifies that no pod is evicted if a filter that is unknown to the planner rejects the
// planned nodes, although evicting a pod of low priority would make them feasible. Other nodes are available, so
// each pod needs one additional cycle.
func TestPlansEvictNoPod(t *testing.T) {
	w := start(t, "ecsched-ml", nil)
	w.addNodes(0, 150, 4)
	w.occupy("victim", 0, 100, "1m") // the fullest nodes, so that the plan uses them
	w.refuse = hasVictim
	outcomes := w.outcomes()
	names, goOn := w.planned(40, "3", nil)
	goOn()
	begun := time.Now()
	w.allBound(names, timeout)
	if cycles := w.cycles(names); cycles[2] != len(names) {
		t.Errorf("number of pods by cycles: %v, want two cycles for each pod", cycles)
	}
	if got := outcomes(); !strings.HasSuffix(got, fmt.Sprint("retried ", len(names))) {
		t.Error(got)
	}
	w.nobodyWentFor()
	t.Logf("%d pods were bound after %v; %s", len(names), time.Since(begun).Round(time.Millisecond), outcomes())
}

// TestPreemptionGoesOn verifies that, if no node is feasible without evicting pods, the ordinary cycle that follows
// a restricted one preempts as in kube-scheduler.
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
	// Victims without a grace period are deleted before the scheduler receives the event. A pod that is retried in
	// the meantime evicts another pod, because the scheduler does not consider its first victim as terminating.
	if evicted < 1 || evicted > 2*len(names) {
		t.Errorf("%d pods were evicted for %d pods", evicted, len(names))
	}
	if cycles := w.cycles(names); cycles[1] > 0 || cycles[2] > 0 {
		t.Errorf("number of pods by cycles: %v, want a restricted and an ordinary cycle before an eviction", cycles)
	}
}

// TestOrder verifies that the energy plugin is the first PostFilter plugin in the default configuration. If it is
// not the first one, cycles are not restricted, and no pod is evicted either.
func TestOrder(t *testing.T) {
	first := func(w *world) string {
		return w.scheduler.Profiles[schedulerName].ListPlugins().PostFilter.Enabled[0].Name
	}
	w := start(t, "ecsched-ml", nil)
	if got := first(w); got != place.EnergyName {
		t.Errorf("first postFilter plugin is %s, want the energy plugin", got)
	}
	w.stop()
	w = start(t, "ecsched-ml", func(profile map[string]any) {
		delete(profile["plugins"].(map[string]any), "postFilter")
	})
	if got := first(w); got == place.EnergyName {
		t.Fatal("the order of the plugins does not depend on the configuration")
	}
	w.addNodes(0, 150, 4)
	w.occupy("victim", 0, 100, "1m")
	w.refuse = hasVictim
	names, goOn := w.planned(20, "3", nil)
	goOn()
	w.allBound(names, timeout)
	if cycles := w.cycles(names); cycles[1] != len(names) {
		t.Errorf("number of pods by cycles: %v, want one cycle for each pod", cycles)
	}
	w.nobodyWentFor()
}

// TestNodesVanish verifies that pods are placed elsewhere if their planned nodes are deleted before they are
// scheduled.
func TestNodesVanish(t *testing.T) {
	w := start(t, "ecsched-ml", nil)
	w.addNodes(0, 150, 4)
	names, goOn := w.planned(40, "3", nil)
	w.removeNodes(0, 100)
	// A node may remain because of its pod.
	w.eventually("the scheduler cache does not contain the deleted nodes",
		timeout, func() bool { return w.scheduler.Cache.NodeCount() <= 51 })
	goOn()
	w.allBound(names, timeout)
	if cycles := w.cycles(names); cycles[1] != len(names) {
		t.Errorf("number of pods by cycles: %v, want one cycle for each pod", cycles)
	}
	for _, name := range names {
		if w.nodeOf(name) < nodeName(100) {
			t.Errorf("pod %s is bound to node %s, which was deleted", name, w.nodeOf(name))
		}
	}
}

// TestInfeasibleBatch verifies that a batch that fits on no node does not block other pods and is bound when
// capacity becomes available.
func TestInfeasibleBatch(t *testing.T) {
	w := start(t, "ecsched-dp", nil)
	w.addNodes(0, 120, 4)
	giants, goOn := w.plannedFor(30, 0, "64", nil)
	goOn()
	others := w.addPods("other", 100, "1", "", nil)
	w.allBound(others, timeout)
	for _, name := range giants {
		if node := w.nodeOf(name); node != "" {
			t.Fatalf("pod %s is bound to node %s, want it pending", name, node)
		}
	}
	w.addNodes(120, 135, 128)
	w.allBound(giants, timeout)
	w.nobodyWentFor()
}

// TestFewNodes verifies that, with up to one hundred nodes, a pod does not need another cycle if a filter rejects its
// planned node, because the plan is enforced through scores. A rejected pod may take the planned node of another pod,
// so the number of pods on their planned nodes is arbitrary.
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
		t.Errorf("number of pods by cycles: %v, want one cycle for each pod", cycles)
	}
	if got := outcomes(); !strings.HasSuffix(got, "retried 0") {
		t.Error(got)
	}
	w.nobodyWentFor()
}

// remaining returns the names of the pods that are not bound according to the API server.
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
