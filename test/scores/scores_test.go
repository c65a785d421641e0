package scores

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	resourceslicetracker "k8s.io/dynamic-resource-allocation/resourceslice/tracker"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/validation"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodevolumelimits"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
	"k8s.io/kubernetes/pkg/scheduler/util/assumecache"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/deploy"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/scheduler/fallback"
	"github.com/kubenergy/kubenergy/internal/scheduler/place"
)

const stockConfig = `
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
`

// The released configurations of a second scheduler and of a replacement for the default scheduler.
var second, inPlace = string(deploy.SchedulerConfig), string(deploy.DefaultSchedulerConfig)

func decode(t testing.TB, text string) *config.KubeSchedulerConfiguration {
	t.Helper()
	obj, gvk, err := scheme.Codecs.UniversalDecoder().Decode([]byte(text), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	c := obj.(*config.KubeSchedulerConfiguration)
	c.APIVersion = gvk.GroupVersion().String()
	if err := validation.ValidateKubeSchedulerConfiguration(c); err != nil {
		t.Fatal(err)
	}
	return c
}

// harness is the framework of kube-scheduler on a snapshot, without an API server.
type harness struct {
	framework.Framework
	nodes []fwk.NodeInfo
}

// knowing returns plugin dependencies with a constant view and a constant clock.
func knowing(view *kube.View) place.Deps {
	return place.Deps{View: func() *kube.View { return view }, Clock: func() time.Time { return noon.Add(time.Hour) }}
}

// newHarness builds the profile with the given scheduler name from a configuration.
func newHarness(t testing.TB, text, name string, deps place.Deps, nodes []*v1.Node, pods []*v1.Pod) harness {
	t.Helper()
	metrics.Register()
	registry := plugins.NewInTreeRegistry()
	if err := registry.Merge(place.New(deps)); err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	client := fake.NewClientset()
	informerFactory := informers.NewSharedInformerFactory(client, 0)
	claims := assumecache.NewAssumeCache(klog.Background(), informerFactory.Resource().V1().ResourceClaims().Informer(),
		"ResourceClaim", "", nil)
	tracker, err := resourceslicetracker.StartTracker(ctx, resourceslicetracker.Options{
		SliceInformer: informerFactory.Resource().V1().ResourceSlices(), KubeClient: client,
	})
	if err != nil {
		t.Fatal(err)
	}
	snapshot := internalcache.NewSnapshot(pods, nodes)
	profiles := decode(t, text).Profiles
	at := slices.IndexFunc(profiles, func(p config.KubeSchedulerProfile) bool { return p.SchedulerName == name })
	if at < 0 {
		t.Fatalf("configuration contains no profile %s", name)
	}
	f, err := frameworkruntime.NewFramework(ctx, registry, &profiles[at],
		frameworkruntime.WithClientSet(client),
		frameworkruntime.WithInformerFactory(informerFactory),
		frameworkruntime.WithSnapshotSharedLister(snapshot),
		frameworkruntime.WithSharedDRAManager(dynamicresources.NewDRAManager(ctx, claims, tracker, informerFactory)),
		frameworkruntime.WithSharedCSIManager(nodevolumelimits.NewCSIManager(
			informerFactory.Storage().V1().CSINodes().Lister())),
		frameworkruntime.WithWaitingPods(frameworkruntime.NewWaitingPodsMap()),
		frameworkruntime.WithPodsInPreBind(frameworkruntime.NewPodsInPreBindMap()),
	)
	if err == nil {
		f, err = fallback.Wrap(f)
	}
	if err != nil {
		t.Fatal(err)
	}
	informerFactory.Start(ctx.Done())
	informerFactory.WaitForCacheSync(ctx.Done())
	infos, err := snapshot.NodeInfos().List()
	if err != nil {
		t.Fatal(err)
	}
	return harness{f, infos}
}

// total contains the weighted sum of all scores for each feasible node.
type total map[string]int64

// binding returns the node with the maximum score and whether it is unique. Otherwise the scheduler would choose
// randomly.
func (s total) binding() (node string, unique bool) {
	best := int64(-1)
	for name, sum := range s {
		switch {
		case sum > best:
			node, best, unique = name, sum, true
		case sum == best:
			unique = false
		}
	}
	return node, unique
}

// play runs one scheduling cycle up to the selection of the node.
func (c harness) play(ctx context.Context, pod *v1.Pod) (total, map[string]int64, error) {
	state := framework.NewCycleState()
	allowed, status, _ := c.RunPreFilterPlugins(ctx, state, pod)
	if status.Code() == fwk.Error {
		return nil, nil, status.AsError()
	}
	if !status.IsSuccess() || !allowed.AllNodes() {
		return nil, nil, fmt.Errorf("PreFilter restricts the nodes of pod %s or rejects it: %v", pod.Name, status)
	}
	var feasible []fwk.NodeInfo
	for _, n := range c.nodes {
		if c.RunFilterPlugins(ctx, state, pod, n).IsSuccess() {
			feasible = append(feasible, n)
		}
	}
	if status := c.RunPreScorePlugins(ctx, state, pod, feasible); !status.IsSuccess() {
		return nil, nil, status.AsError()
	}
	scores, status := c.RunScorePlugins(ctx, state, pod, feasible)
	if !status.IsSuccess() {
		return nil, nil, status.AsError()
	}
	sums, ours := total{}, map[string]int64{}
	for _, s := range scores {
		sums[s.Name] = s.TotalScore
		for _, p := range s.Scores {
			if p.Name == place.EnergyName {
				ours[s.Name] = p.Score
			}
		}
	}
	return sums, ours, nil
}

// TestBestNodeWins verifies that kube-scheduler accepts the released configuration of a second scheduler and that
// the node with the lowest cost has the unique maximum score for pods without preferences. The default plugins for
// resources and images must not affect the result.
func TestBestNodeWins(t *testing.T) {
	if c := decode(t, second); c.PercentageOfNodesToScore == nil || *c.PercentageOfNodesToScore != 100 {
		t.Error("percentageOfNodesToScore is not 100")
	}
	w := newWorld(2)
	nodes := w.nodes(50)
	// Preferences of running pods would also affect the incoming pod.
	running := w.running(300, nodes)
	for _, pod := range running {
		plain(pod)
	}
	for _, name := range secondNames {
		shipped := newHarness(t, second, name, knowing(knowledge(t)), nodes, running)
		for i := range 200 {
			pod := plain(marked(w.pod(fmt.Sprintf("pod-%03d", i)), "carbon"))
			sums, ours, err := shipped.play(t.Context(), pod)
			if err != nil {
				t.Fatal(err)
			}
			best := ""
			for name, score := range ours {
				if score == 100*fwk.MaxScore {
					best = name
				}
			}
			if best == "" {
				t.Fatalf("pod %s: no node has the maximum score: %v", pod.Name, ours)
			}
			for name, sum := range sums {
				if name != best && sum >= sums[best] {
					t.Errorf("pod %s: score of %s is %d, want less than that of the best node %s with %d",
						pod.Name, name, sum, best, sums[best])
				}
			}
		}
	}
}

// TestBatchingStaysOn verifies that the KubEnergy plugins do not disable opportunistic batching. A plugin without
// signatures would disable it for all pods.
func TestBatchingStaysOn(t *testing.T) {
	// The default spreading by Services and owners never allows signatures.
	const args = "  - name: KubEnergy\n    args:\n"
	const listOnly = `  - name: PodTopologySpread
    args: {defaultingType: List, defaultConstraints: []}
`
	for name, text := range map[string]string{"kubenergy": second, "default-scheduler": inPlace} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(3)
			c := newHarness(t, strings.Replace(text, args, listOnly+args, 1), name, knowing(knowledge(t)), w.nodes(3), nil)
			checkSignatures(t, c)
		})
	}
}

func checkSignatures(t *testing.T, c harness) {
	t.Helper()
	sign := func(name string, annotations map[string]string) string {
		pod := plain(newWorld(4).pod("x"))
		pod.Name, pod.Annotations = name, annotations
		return string(c.SignPod(t.Context(), pod))
	}
	unmarked, carbon := sign("a", nil), sign("a", map[string]string{v1alpha1.AnnotationStrategy: "carbon"})
	if unmarked == "" || carbon == "" {
		t.Fatal("pod has no signature")
	}
	if unmarked == carbon {
		t.Error("signatures of a marked and an unmarked pod are equal")
	}
	if other := sign("b", map[string]string{v1alpha1.AnnotationStrategy: "carbon"}); other != carbon {
		t.Error("signatures of similar pods differ")
	}
	if other := sign("b", map[string]string{v1alpha1.AnnotationStrategy: "least-allocated"}); other == carbon ||
		other == "" {
		t.Error("signatures of pods with different strategies are equal")
	}
}

// TestScoringAllocates checks the allocations of scoring with the real CycleState, which cannot be used in the
// tests of the plugin. One key is allocated for all nodes.
func TestScoringAllocates(t *testing.T) {
	w := newWorld(5)
	nodes := w.nodes(50)
	c := newHarness(t, inPlace, "default-scheduler", knowing(knowledge(t)), nodes, w.running(100, nodes))
	energy := energyOf(t, knowledge(t))
	state, pod := framework.NewCycleState(), marked(w.pod("p"), "carbon")
	ctx := context.Background()
	if status := score(ctx, energy, state, pod, c.nodes); !status.IsSuccess() {
		t.Fatal(status)
	}
	scores := make(fwk.NodeScoreList, len(c.nodes))
	for i, n := range c.nodes {
		scores[i].Name = n.Node().Name
	}
	if n := testing.AllocsPerRun(100, func() { energy.Score(ctx, state, pod, c.nodes[7]) }); n != 0 {
		t.Errorf("Score() performs %v allocations, want none", n)
	}
	if n := testing.AllocsPerRun(100, func() { energy.NormalizeScore(ctx, state, pod, scores) }); n > 1 {
		t.Errorf("NormalizeScore() performs %v allocations, want at most 1", n)
	}
}

// score runs the extension points of a cycle up to PreScore.
func score(ctx context.Context, e *place.Energy, state fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo) *fwk.Status {
	if _, status := e.PreFilter(ctx, state, pod, nodes); !status.IsSuccess() && !status.IsSkip() {
		return status
	}
	return e.PreScore(ctx, state, pod, nodes)
}

func energyOf(t testing.TB, view *kube.View) *place.Energy {
	t.Helper()
	pl, err := place.New(knowing(view))[place.EnergyName](context.Background(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return pl.(*place.Energy)
}

// BenchmarkEnergy measures the plugin with the nodes and cycle state of kube-scheduler.
func BenchmarkEnergy(b *testing.B) {
	w := newWorld(6)
	nodes := w.nodes(1000)
	infos, err := internalcache.NewSnapshot(w.running(10_000, nodes), nodes).NodeInfos().List()
	if err != nil {
		b.Fatal(err)
	}
	energy, ctx := energyOf(b, knowledge(b)), context.Background()
	for _, bc := range []struct {
		name string
		pod  *v1.Pod
	}{{"unmarked", w.pod("u")}, {"carbon", marked(w.pod("m"), "carbon")}} {
		b.Run("PreScore/1000nodes/"+bc.name, func(b *testing.B) {
			b.ReportAllocs()
			state := framework.NewCycleState()
			for b.Loop() {
				score(ctx, energy, state, bc.pod, infos)
			}
		})
	}
	state, pod := framework.NewCycleState(), marked(w.pod("m"), "carbon")
	score(ctx, energy, state, pod, infos)
	scores := make(fwk.NodeScoreList, len(infos))
	for i, n := range infos {
		scores[i].Name = n.Node().Name
	}
	b.Run("NormalizeScore/1000nodes", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			energy.NormalizeScore(ctx, state, pod, scores)
		}
	})
}
