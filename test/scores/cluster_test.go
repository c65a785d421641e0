package scores

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/lab"
	"github.com/kubenergy/kubenergy/internal/scheduler/fallback"
	"github.com/kubenergy/kubenergy/internal/scheduler/place"
	"github.com/kubenergy/kubenergy/test/kit"
	"github.com/kubenergy/kubenergy/test/kit/cluster"
)

// A run contains the decisions of a scheduler for the same pods, created in the same order.
type run struct {
	Totals map[string]total  // by pod, on the snapshot used for its decision
	Nodes  map[string]string // by pod
}

// plane is a control plane with nodes, pods that are created in each run, and one scheduler at a time.
type plane struct {
	*cluster.Cluster
	pods  []*v1.Pod
	view  atomic.Pointer[kube.View]
	sched *scheduler.Scheduler

	mu     sync.Mutex
	totals map[string]total // of the current run
}

// recorded is a profile that records its total scores in plane.
type recorded struct {
	framework.Framework
	plane *plane
}

func (r recorded) RunScorePlugins(ctx context.Context, state fwk.CycleState, pod *v1.Pod,
	nodes []fwk.NodeInfo,
) ([]fwk.NodePluginScores, *fwk.Status) {
	scores, status := r.Framework.RunScorePlugins(ctx, state, pod, nodes)
	sums := total{}
	for _, s := range scores {
		sums[s.Name] = s.TotalScore
	}
	r.plane.mu.Lock()
	defer r.plane.mu.Unlock()
	r.plane.totals[pod.Name] = sums
	return scores, status
}

// start runs a scheduler that scores with a single goroutine until stop is called.
func (p *plane) start(t *testing.T, name, text string) (stop func()) {
	t.Helper()
	deps := knowing(nil)
	deps.View, deps.Live = p.view.Load, deadFeed(t)
	var plugins []app.Option
	for name, factory := range place.New(deps) {
		plugins = append(plugins, app.WithPlugin(name, factory))
	}
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(text+"\nparallelism: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	stop, err := p.StartScheduler(t.Context(), lab.Scheduler{
		Name: name, ConfigFile: file, Plugins: plugins,
		Prepare: func(s *scheduler.Scheduler) error {
			err := fallback.Install(s)
			for name, f := range s.Profiles {
				s.Profiles[name] = recorded{f, p}
			}
			return err
		},
		OnReady: func(s *scheduler.Scheduler) { p.sched = s },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return stop
}

// run creates the pods, waits until all are bound and deletes them.
func (p *plane) run(t *testing.T, schedulerName string, mark func(*v1.Pod) *v1.Pod) run {
	t.Helper()
	ctx, pods := t.Context(), p.Client.CoreV1().Pods(metav1.NamespaceDefault)
	p.mu.Lock()
	p.totals = map[string]total{}
	p.mu.Unlock()
	for _, pod := range p.pods {
		pod = pod.DeepCopy()
		pod.Spec.SchedulerName = schedulerName
		if _, err := pods.Create(ctx, mark(pod), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	nodes := map[string]string{}
	kit.Eventually(t, time.Minute, "all pods are bound", func() bool {
		list, err := pods.List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, pod := range list.Items {
			if pod.Spec.NodeName != "" {
				nodes[pod.Name] = pod.Spec.NodeName
			}
		}
		return len(nodes) == len(p.pods)
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := pods.DeleteCollection(ctx, *metav1.NewDeleteOptions(0), metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	kit.Eventually(t, time.Minute, "the scheduler cache contains no pods", func() bool {
		n, err := p.sched.Cache.PodCount()
		return err == nil && n == 0
	})
	return run{p.totals, nodes}
}

// newPlane starts a control plane with nodes of different sizes and pods with a different preference for each node,
// so that the maximum score is unique.
func newPlane(t *testing.T) *plane {
	t.Helper()
	p := &plane{Cluster: cluster.Start(t, lab.Options{
		ControlPlaneOnly: true, APIServerArgs: []string{"--disable-admission-plugins=ServiceAccount"},
	})}
	w := newWorld(11)
	nodes := w.nodes(12)
	for i, node := range nodes {
		node.Status.Allocatable = lab.Capacity(int64(16+5*i), int64(48+11*i))
		node.Status.Capacity = node.Status.Allocatable
		node.Spec.Taints = nil
		if _, err := p.Client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 30 {
		pod := w.pod(fmt.Sprintf("pod-%02d", i))
		pod.ObjectMeta = metav1.ObjectMeta{Name: pod.Name, Labels: pod.Labels}
		var preferred []v1.PreferredSchedulingTerm
		for rank, n := range w.Perm(len(nodes)) {
			preferred = append(preferred, v1.PreferredSchedulingTerm{
				Weight: int32(1 + 8*rank),
				Preference: v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{
					{Key: v1.LabelHostname, Operator: v1.NodeSelectorOpIn, Values: []string{nodes[n].Name}},
				}},
			})
		}
		pod.Spec.Affinity.NodeAffinity = &v1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: preferred}
		p.pods = append(p.pods, pod)
	}
	p.view.Store(&kube.View{})
	return p
}

// TestSameNodesAsStock verifies guarantee P2 on a real control plane. A scheduler with a released configuration
// that has no opinion must bind 30 pods to the same nodes as kube-scheduler. kube-scheduler breaks ties at random,
// so the pods are generated without ties.
func TestSameNodesAsStock(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a control plane")
	}
	p := newPlane(t)
	asIs := func(pod *v1.Pod) *v1.Pod { return pod }
	stop := p.start(t, "stock", stockConfig)
	want := p.run(t, "default-scheduler", asIs)
	stop()
	for pod, sums := range want.Totals {
		if node, unique := sums.binding(); !unique || node != want.Nodes[pod] {
			t.Fatalf("kube-scheduler binds %s to %s with the scores %v, want a unique maximum; change the seed", pod,
				want.Nodes[pod], sums)
		}
	}
	for _, shipped := range []struct {
		name, text string
		profiles   []string
	}{{"second", second, secondNames}, {"in-place", inPlace, []string{"default-scheduler"}}} {
		stop := p.start(t, shipped.name, shipped.text)
		for _, profile := range shipped.profiles {
			for _, s := range silences {
				if !s.inCluster {
					continue
				}
				t.Run(profile+"/"+s.name, func(t *testing.T) {
					p.view.Store(s.view(t))
					if diff := cmp.Diff(want, p.run(t, profile, s.marked)); diff != "" {
						t.Errorf("decisions differ from kube-scheduler (-want,+got):\n%s", diff)
					}
				})
			}
			// Verify that the results can differ.
			p.view.Store(knowledge(t))
			if got := p.run(t, profile, (&silence{}).marked); maps.Equal(want.Nodes, got.Nodes) {
				t.Errorf("profile %s: expected different nodes for pods on which KubEnergy has an opinion", profile)
			}
		}
		stop()
	}
}
