package batch

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"
)

// TestBurst measures the rate at which a burst of pods is bound, starting when all pods are pending and the
// scheduler is resumed. It alternates between the plugins of kube-scheduler, the energy plugins without batching
// and the energy plugins with batch plans. It requires KUBENERGY_BENCH=1. KUBENERGY_NODES, KUBENERGY_PODS and
// KUBENERGY_ROUNDS set the size, and KUBENERGY_STRATEGY sets the planning strategy. The raw results are logged as
// JSON.
func TestBurst(t *testing.T) {
	if os.Getenv("KUBENERGY_BENCH") == "" {
		t.Skip("takes several minutes: set KUBENERGY_BENCH=1")
	}
	nodes, pods, rounds := size("NODES", 5000), size("PODS", 5000), size("ROUNDS", 3)
	strategy := cmp.Or(os.Getenv("KUBENERGY_STRATEGY"), "flow-energy")
	variants := []struct {
		name, strategy string
		change         func(profile map[string]any)
	}{
		{"stock", strategy, func(profile map[string]any) {
			stock(profile)
			// 0 selects the adaptive default of kube-scheduler and overrides the value for all profiles.
			profile["percentageOfNodesToScore"] = 0
		}},
		{"stock, all nodes", strategy, stock},
		{"one by one", strategy, func(profile map[string]any) { batchArgs(profile, map[string]any{"mostPods": 0}) }},
		{"batch", strategy, nil},
		{"batch, no options", strategy, func(profile map[string]any) {
			batchArgs(profile, map[string]any{"options": 0})
		}},
	}
	rates := map[string][]float64{}
	for round := range rounds {
		for _, v := range variants {
			t.Run(fmt.Sprint(v.name, " ", round), func(t *testing.T) {
				rates[v.name] = append(rates[v.name], burst(t, v.strategy, v.change, nodes, pods))
			})
		}
	}
	raw, err := json.Marshal(map[string]any{"strategy": strategy, "nodes": nodes, "pods": pods, "podsPerSecond": rates})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s", raw)
	for _, v := range variants {
		of := slices.Sorted(slices.Values(rates[v.name]))
		if len(of) > 0 {
			t.Logf("%-18s median %.0f pods/s", v.name, of[len(of)/2])
		}
	}
}

// stock replaces the plugins of a profile by the default plugins of kube-scheduler.
func stock(profile map[string]any) {
	profile["plugins"] = map[string]any{"multiPoint": map[string]any{"enabled": []any{map[string]any{"name": witnessName}}}}
	delete(profile, "pluginConfig")
}

func size(name string, otherwise int) int {
	if n, err := strconv.Atoi(os.Getenv("KUBENERGY_" + name)); err == nil {
		return n
	}
	return otherwise
}

func batchArgs(profile map[string]any, args map[string]any) {
	profile["pluginConfig"].([]any)[0].(map[string]any)["args"].(map[string]any)["batch"] = args
}

func burst(t *testing.T, strategy string, change func(map[string]any), nodes, pods int) float64 {
	w := start(t, strategy, func(profile map[string]any) {
		if change != nil {
			change(profile)
		}
		// The filter of the witness locks a mutex for every node, which would slow down profiles that evaluate many
		// nodes.
		profile["plugins"].(map[string]any)["filter"] = map[string]any{"disabled": []any{map[string]any{"name": witnessName}}}
	})
	w.addNodes(0, nodes, 16)
	goOn := w.block("stop-0000")
	t.Cleanup(goOn)
	w.addPods("stop", 1, "1m", "high", nil)
	w.eventually("the scheduler is paused", timeout, func() bool { return w.tried("stop-0000") > 0 })
	outcomes := w.outcomes()
	names := w.addPods("burst", pods, "2", "", nil)
	time.Sleep(2 * time.Second) // until the scheduler has received all pods
	begun := time.Now()
	goOn()
	w.eventually("all pods are bound", 10*time.Minute, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.bound) >= pods+1
	})
	took := time.Since(begun)
	w.allBound(names, time.Second)
	t.Logf("bound %d pods in %v; %s; plans: whole %v, cut %v", pods, took.Round(time.Millisecond), outcomes(),
		metric(t, "kubenergy_batch_plans_total", schedulerName, "whole"),
		metric(t, "kubenergy_batch_plans_total", schedulerName, "cut"))
	return float64(pods) / took.Seconds()
}
