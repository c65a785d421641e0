package batch

import (
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

// TestStorm covers row 36 of the table of faults. Nodes are deleted and added while batches are planned and bound,
// and pods of other strategies are created in between. Finally, all pods are bound and the memory and goroutines of
// the scheduler have not grown.
func TestStorm(t *testing.T) {
	nodes, rounds, pods := 200, 4, 60
	if os.Getenv("KUBENERGY_LONG") != "" {
		nodes, rounds, pods = 5000, 20, 500
	}
	w := start(t, "ecsched-dp", func(profile map[string]any) {
		args := profile["pluginConfig"].([]any)[0].(map[string]any)["args"].(map[string]any)
		args["batch"] = map[string]any{"leastPods": 4, "believed": "2s"} // plans become stale while they are followed
	})
	w.addNodes(0, nodes, 64)
	var names []string
	var heap []uint64
	goroutines := 0
	for round := range rounds {
		created := make(chan []string)
		go func() {
			created <- append(w.addPods(fmt.Sprint("batch-", round), pods, "100m", "", nil),
				w.addPods(fmt.Sprint("alone-", round), pods/10, "100m", "", func(_ int, p *v1.Pod) {
					p.Annotations = map[string]string{"kubenergy.io/strategy": "energy"}
				})...)
		}()
		// Replace one half of the nodes in each round, alternating between the halves.
		half := nodes / 2 * (round % 2)
		w.removeNodes(half, half+nodes/2)
		w.addNodes(half, half+nodes/2, 64)
		names = append(names, <-created...)
		w.allBound(names, 5*time.Minute)
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		heap = append(heap, m.HeapAlloc>>20)
		if round == 0 {
			goroutines = runtime.NumGoroutine()
		}
	}
	if left := w.remaining(); len(left) > 0 {
		t.Errorf("pods are still pending: %v", left)
	}
	w.eventually("the number of goroutines is at most that after the first round", time.Minute,
		func() bool { return runtime.NumGoroutine() <= goroutines+20 })
	// The heap includes the objects of the control plane, which runs in this process. A leak of plans would grow
	// with nodes × rounds.
	perPod := uint64(100) << 10
	if grown, most := heap[len(heap)-1], heap[0]+uint64(len(names))*perPod>>20+64; grown > most {
		t.Errorf("heap grew from %d MiB to %d MiB: %v", heap[0], grown, heap)
	}
	if panics := metric(t, "kubenergy_batch_plans_total", schedulerName, "failed"); panics != 0 {
		t.Errorf("%v plans failed, want none", panics)
	}
	t.Logf("%d nodes, %d rounds, %d pods; plans: whole %v, cut %v, late %v; heap by round, MiB: %v", nodes, rounds,
		len(names),
		metric(t, "kubenergy_batch_plans_total", schedulerName, "whole"),
		metric(t, "kubenergy_batch_plans_total", schedulerName, "cut"),
		metric(t, "kubenergy_batch_plans_total", schedulerName, "late"), heap)
}
