package estimate

import (
	"context"
	"math"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubenergy/kubenergy/internal/controller/cached"
	kit "github.com/kubenergy/kubenergy/internal/controller/controllertest"
	"github.com/kubenergy/kubenergy/internal/controller/release"
	"github.com/kubenergy/kubenergy/internal/kube"
)

func collector(api client.Client, view *kube.View, held *release.Held, leads func() bool) *NodePower {
	return &NodePower{
		Nodes: func(ctx context.Context) ([]v1.Node, error) {
			var all v1.NodeList
			err := api.List(ctx, &all)
			return all.Items, err
		},
		Pods: func(ctx context.Context, node string) ([]v1.Pod, error) {
			var all v1.PodList
			err := api.List(ctx, &all, client.MatchingFields{cached.NodeIndex: node})
			return all.Items, err
		},
		View: func() *kube.View { return view }, Held: held, Leads: leads, Log: kit.Silent,
	}
}

// TestPowerOfNodesWithGPUs verifies that the power of GPUs depends on their class of work, as in estimates of pods.
func TestPowerOfNodesWithGPUs(t *testing.T) {
	node := kit.Node("n1", "4")
	node.Status.Allocatable["nvidia.com/gpu"] = resource.MustParse("4")
	pod := kit.On(kit.Pod("team", "p", kit.Noon), "n1", "1", kit.Noon)
	pod.Annotations = map[string]string{gpuClass: "inference"}
	pod.Spec.Containers[0].Resources.Requests["nvidia.com/gpu"] = resource.MustParse("2")
	other := kit.On(kit.Pod("team", "q", kit.Noon), "n1", "1", kit.Noon)
	other.Spec.Containers[0].Resources.Requests["nvidia.com/gpu"] = resource.MustParse("1")
	w, view := kit.NewWorld(t, node, pod, other), testView(t)
	c := collector(w.Client, view, release.NewHeld(), func() bool { return true })
	// Half of the cores, two GPUs with inference, one with an unknown class and one without a pod.
	if err := testutil.CollectAndCompare(c, strings.NewReader(`
# HELP kubenergy_node_power_watts Power of a node by its power profile at the load requested by its pods, without PUE.
# TYPE kubenergy_node_power_watts gauge
kubenergy_node_power_watts{node="n1"} 590
`), "kubenergy_node_power_watts"); err != nil {
		t.Error(err)
	}
}

// TestPowerOfPartitions verifies that partitions of a GPU count as fractions of it, as in the mixed strategy of MIG.
func TestPowerOfPartitions(t *testing.T) {
	node := kit.Node("n1", "4")
	node.Status.Allocatable["nvidia.com/mig-3g.20gb"] = resource.MustParse("2")
	without, with := kit.On(kit.Pod("team", "p", kit.Noon), "n1", "1", kit.Noon), 0.856
	view := testView(t)
	load := kube.Load{}
	load.Add(without)
	idle, _ := load.Node(view, node)
	pod := without.DeepCopy()
	pod.Spec.Containers[0].Resources.Requests["nvidia.com/mig-3g.20gb"] = resource.MustParse("2")
	load = kube.Load{}
	load.Add(pod)
	busy, _ := load.Node(view, node)
	rise := float64(busy.Profile.GPUMax-busy.Profile.GPUIdle) * with
	if got := float64(busy.Power() - idle.Power()); math.Abs(got-rise) > 1e-9 || rise == 0 {
		t.Errorf("a pod with two instances adds %v W in decisions, want %v W", got, rise)
	}
	got := float64(powerOf(&busy, workersOf([]v1.Pod{*pod}, view)) -
		powerOf(&idle, workersOf([]v1.Pod{*without}, view)))
	if math.Abs(got-rise) > 1e-9 {
		t.Errorf("a pod with two instances adds %v W in estimates, want %v W", got, rise)
	}
}

// TestNodesComeAndGoTwice deletes and recreates nodes twice. Compute Gardener stops its workers when a node is
// deleted and crashes when the next node is deleted.
func TestNodesComeAndGoTwice(t *testing.T) {
	w := kit.NewWorld(t, kit.Node("n1", "4"), kit.Node("n2", "4"),
		kit.On(kit.Pod("team", "p", kit.Noon), "n1", "1", kit.Noon))
	view := kit.Valley(t, kit.Noon)
	leads := true
	held := release.NewHeld()
	held.Saw(kit.HeldUntil("team", "job", kit.Noon, kit.Noon))
	c := collector(w.Client, view, held, func() bool { return leads })
	if err := testutil.CollectAndCompare(c, strings.NewReader(`
# HELP kubenergy_held_jobs Jobs that are held.
# TYPE kubenergy_held_jobs gauge
kubenergy_held_jobs{namespace="team"} 1
# HELP kubenergy_node_efficiency Cores per watt at full load, including PUE, as compared with min-efficiency.
# TYPE kubenergy_node_efficiency gauge
kubenergy_node_efficiency{node="n1"} 0.013333333333333334
kubenergy_node_efficiency{node="n2"} 0.013333333333333334
# HELP kubenergy_node_power_watts Power of a node by its power profile at the load requested by its pods, without PUE.
# TYPE kubenergy_node_power_watts gauge
kubenergy_node_power_watts{node="n1"} 125
kubenergy_node_power_watts{node="n2"} 100
# HELP kubenergy_node_pue Ratio of the facility's energy to the node's energy.
# TYPE kubenergy_node_pue gauge
kubenergy_node_pue{node="n1"} 1.5
kubenergy_node_pue{node="n2"} 1.5
`), "kubenergy_held_jobs", "kubenergy_node_efficiency", "kubenergy_node_power_watts", "kubenergy_node_pue"); err != nil {
		t.Error(err)
	}
	for range 2 {
		for _, name := range []string{"n1", "n2"} {
			if err := w.Delete(t.Context(), kit.Node(name, "4")); err != nil {
				t.Fatal(err)
			}
		}
		if n := testutil.CollectAndCount(c, "kubenergy_node_power_watts", "kubenergy_node_pue",
			"kubenergy_node_efficiency"); n != 0 {
			t.Errorf("got %d series of deleted nodes", n)
		}
		for _, name := range []string{"n1", "n2"} {
			if err := w.Create(t.Context(), kit.Node(name, "4")); err != nil {
				t.Fatal(err)
			}
		}
		if n := testutil.CollectAndCount(c, "kubenergy_node_power_watts"); n != 2 {
			t.Errorf("got %d series of two nodes", n)
		}
	}
	leads = false
	if n := testutil.CollectAndCount(c); n != 0 {
		t.Errorf("got %d series without leadership", n)
	}
}
