package scores

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/sched"
)

var noon = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

// world generates random nodes and pods that use all inputs of the default score plugins.
type world struct{ *rand.Rand }

func newWorld(seed uint64) world { return world{rand.New(rand.NewPCG(seed, 0))} }

func pick[T any](w world, from ...T) T { return from[w.IntN(len(from))] }

func (w world) one(in int) bool { return w.IntN(in) == 0 }

func quantities(milliCPU, memoryMiB int64) v1.ResourceList {
	return v1.ResourceList{
		v1.ResourceCPU:    *resource.NewMilliQuantity(milliCPU, resource.DecimalSI),
		v1.ResourceMemory: *resource.NewQuantity(memoryMiB<<20, resource.BinarySI),
	}
}

var (
	zones = []string{"z1", "z2", "z3"}
	apps  = []string{"web", "db", "batch"}
	image = []string{"registry/a:1", "registry/b:1", "registry/c:1"}
)

func (w world) nodes(n int) []*v1.Node {
	nodes := make([]*v1.Node, n)
	for i := range nodes {
		name := fmt.Sprintf("node-%02d", i)
		node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			v1.LabelHostname: name, v1.LabelTopologyZone: pick(w, zones...), "disk": pick(w, "ssd", "hdd"),
			v1alpha1.LabelPowerProfile: pick(w, "frugal", "hungry"), v1alpha1.LabelSite: pick(w, "coal", "wind"),
		}}}
		node.Status.Allocatable = quantities(pick[int64](w, 8000, 16000, 64000),
			pick[int64](w, 16<<10, 64<<10, 256<<10))
		node.Status.Allocatable[v1.ResourcePods] = resource.MustParse("110")
		node.Status.Capacity = node.Status.Allocatable
		node.Status.Images = []v1.ContainerImage{{Names: []string{pick(w, image...)}, SizeBytes: 500 << 20}}
		if w.one(4) {
			node.Spec.Taints = []v1.Taint{{
				Key: "slow", Effect: pick(w, v1.TaintEffectPreferNoSchedule, v1.TaintEffectNoSchedule),
			}}
		}
		nodes[i] = node
	}
	return nodes
}

func (w world) pod(name string) *v1.Pod {
	app := pick(w, apps...)
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "lab", Name: name, UID: types.UID(name), Labels: map[string]string{"app": app},
		CreationTimestamp: metav1.NewTime(noon),
	}}
	container := v1.Container{Name: "c", Image: pick(w, image...)}
	if !w.one(8) {
		container.Resources.Requests = quantities(50+w.Int64N(3000), 64+w.Int64N(4<<10))
	}
	pod.Spec = v1.PodSpec{SchedulerName: "kubenergy", Containers: []v1.Container{container}, Affinity: &v1.Affinity{}}
	if w.one(3) {
		pod.Spec.Tolerations = []v1.Toleration{{Key: "slow", Operator: v1.TolerationOpExists}}
	}
	if w.one(3) {
		pod.Spec.Affinity.NodeAffinity = &v1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []v1.PreferredSchedulingTerm{{
			Weight: 1 + w.Int32N(100),
			Preference: v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{
				{Key: "disk", Operator: v1.NodeSelectorOpIn, Values: []string{"ssd"}},
			}},
		}}}
	}
	peers := &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
	if w.one(3) {
		pod.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{{
			MaxSkew: 1, TopologyKey: v1.LabelTopologyZone, WhenUnsatisfiable: v1.ScheduleAnyway, LabelSelector: peers,
		}}
	}
	if w.one(3) {
		pod.Spec.Affinity.PodAntiAffinity = &v1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []v1.WeightedPodAffinityTerm{{
			Weight: 1 + w.Int32N(100), PodAffinityTerm: v1.PodAffinityTerm{
				TopologyKey: v1.LabelHostname, LabelSelector: peers,
			},
		}}}
	}
	return pod
}

// running returns pods that are already bound to nodes.
func (w world) running(n int, nodes []*v1.Node) []*v1.Pod {
	pods := make([]*v1.Pod, n)
	for i := range pods {
		pods[i] = w.pod(fmt.Sprintf("running-%03d", i))
		pods[i].Spec.NodeName = pick(w, nodes...).Name
	}
	return pods
}

func marked(pod *v1.Pod, strategy string) *v1.Pod {
	pod.Annotations = map[string]string{v1alpha1.AnnotationStrategy: strategy}
	return pod
}

// plain removes the placement preferences of a pod.
func plain(pod *v1.Pod) *v1.Pod {
	pod.Spec.Affinity, pod.Spec.TopologySpreadConstraints = nil, nil
	pod.Spec.Tolerations = []v1.Toleration{{Operator: v1.TolerationOpExists}}
	return pod
}

func knowledge(t testing.TB) *kube.View {
	t.Helper()
	v, err := contents(t).View()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// changed returns the same view as knowledge with one change.
func changed(t testing.TB, change func(*kube.Contents)) *kube.View {
	t.Helper()
	c := contents(t)
	change(c)
	v, err := c.View()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func contents(t testing.TB) *kube.Contents {
	t.Helper()
	site := func(name string, intensity float64) *sched.Site {
		series, err := grid.Constant(noon, 24*time.Hour, intensity)
		if err != nil {
			t.Fatal(err)
		}
		return &sched.Site{Name: name, Carbon: grid.Signal{Series: series, AsOf: noon}}
	}
	return &kube.Contents{
		Sites: []*sched.Site{site("coal", 500), site("wind", 100)},
		Profiles: []*kube.NodeProfile{
			{Profile: energy.Profile{Name: "frugal", Idle: 50, Max: 100, Sleep: 50}},
			{Profile: energy.Profile{Name: "hungry", Idle: 100, Max: 400, Sleep: 100}},
		},
	}
}
