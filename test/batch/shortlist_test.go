package batch

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

// seen waits until the scheduler cache contains the given number of pods.
func (w *world) seen(pods int) {
	w.t.Helper()
	w.eventually("the scheduler cache contains the pods", timeout, func() bool {
		n, err := w.scheduler.Cache.PodCount()
		return err == nil && n >= pods
	})
}

// TestShortlist verifies that pods are placed on the nodes with the lowest cost by cycles that evaluate only a few
// of 150 nodes.
func TestShortlist(t *testing.T) {
	w := start(t, "energy", nil)
	w.addNodes(0, 150, 4)
	w.occupy("awake", 120, 150, "1m")
	w.seen(30)
	before := metric(t, "kubenergy_shortlisted_cycles_total", "narrowed")
	names := w.addPods("short", 60, "1", "high", nil)
	w.allBound(names, timeout)
	for _, name := range names {
		if node := w.nodeOf(name); node < nodeName(120) {
			t.Errorf("pod %s is bound to node %s, want a node that was already on", name, node)
		}
	}
	if narrowed := metric(t, "kubenergy_shortlisted_cycles_total", "narrowed") - before; narrowed != 60 {
		t.Errorf("%v of 60 cycles were restricted, want all", narrowed)
	}
	if cycles := w.cycles(names); cycles[1] != 60 {
		t.Errorf("number of pods by cycles: %v, want one cycle for each pod", cycles)
	}
	w.nobodyWentFor()
}

// TestShortlistInVain verifies that no pod is evicted if a filter rejects all nodes of minimum cost, although
// evicting a pod of low priority would make them feasible. Other nodes are available, so each pod needs at most one
// additional cycle.
func TestShortlistInVain(t *testing.T) {
	w := start(t, "energy", nil)
	w.addNodes(0, 150, 4)
	w.occupy("victim", 0, 100, "1m")
	w.seen(100)
	w.refuse = hasVictim
	before := metric(t, "kubenergy_shortlisted_cycles_total", "retried")
	names := w.addPods("short", 40, "1", "high", nil)
	w.allBound(names, timeout)
	cycles := w.cycles(names)
	if cycles[1]+cycles[2] != len(names) || cycles[2] == 0 {
		t.Errorf("number of pods by cycles: %v, want one or two cycles for each pod", cycles)
	}
	if retried := metric(t, "kubenergy_shortlisted_cycles_total", "retried") - before; int(retried) != cycles[2] {
		t.Errorf("%v pods were retried, want %d, the number of pods with two cycles", retried, cycles[2])
	}
	w.nobodyWentFor()
}

// TestShortlistsLeavePreemptionAlone verifies that the ordinary cycle preempts as in kube-scheduler if no node is
// feasible without evicting pods.
func TestShortlistsLeavePreemptionAlone(t *testing.T) {
	w := start(t, "energy", nil)
	w.addNodes(0, 150, 4)
	w.occupy("victim", 0, 150, "1m")
	w.seen(150)
	w.refuse = func(p *v1.Pod, n fwk.NodeInfo) bool { return p.Labels["kind"] == "short" && hasVictim(p, n) }
	names := w.addPods("short", 10, "3", "high", nil)
	w.allBound(names, timeout)
	w.mu.Lock()
	evicted := len(w.evicted)
	w.mu.Unlock()
	if evicted < 1 || evicted > 2*len(names) {
		t.Errorf("%d pods were evicted for %d pods", evicted, len(names))
	}
	if cycles := w.cycles(names); cycles[1] > 0 {
		t.Errorf("number of pods by cycles: %v, want a restricted and an ordinary cycle before an eviction", cycles)
	}
}
