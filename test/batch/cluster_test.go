package batch

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"k8s.io/component-base/metrics/legacyregistry"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"
	"k8s.io/kubernetes/pkg/scheduler"
	"sigs.k8s.io/yaml"

	"github.com/kubenergy/kubenergy/deploy"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/lab"
	"github.com/kubenergy/kubenergy/internal/scheduler/fallback"
	"github.com/kubenergy/kubenergy/internal/scheduler/place"
	"github.com/kubenergy/kubenergy/test/kit"
	"github.com/kubenergy/kubenergy/test/kit/cluster"
)

// plane is the control plane that all tests share. Each test removes its objects.
var plane = cluster.Shared{Options: lab.Options{
	ControlPlaneOnly: true,
	APIServerArgs:    []string{"--disable-admission-plugins=ServiceAccount"}, // the tests create no service accounts
}}

func TestMain(m *testing.M) { os.Exit(plane.Main(m)) }

// world is a KubEnergy scheduler in a cluster of nodes without kubelets, so pods remain pending after they are
// bound.
type world struct {
	t      *testing.T
	ctx    context.Context
	client kubernetes.Interface
	dir    string
	*witness
	scheduler *scheduler.Scheduler
	stop      func()

	mu      sync.Mutex
	bound   map[string]string // node by pod
	evicted map[string]bool   // pods with the condition DisruptionTarget
	named   map[string]bool   // pods that had a nominated node
}

const schedulerName = "kubenergy"

// start runs the default profile with the given strategy for all pods, the witness plugin and small limits.
func start(t *testing.T, strategy string, change func(profile map[string]any)) *world {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a control plane")
	}
	w := &world{
		t: t, ctx: t.Context(), witness: newWitness(), client: plane.Client,
		dir:   t.TempDir(),
		bound: map[string]string{}, evicted: map[string]bool{}, named: map[string]bool{},
	}
	t.Cleanup(w.clear)
	for name, value := range map[string]int32{"high": 1000, "low": -1000} {
		_, _ = w.client.SchedulingV1().PriorityClasses().Create(w.ctx,
			&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value},
			metav1.CreateOptions{})
	}
	w.follow()
	profile := &energy.Profile{Name: "p", Idle: 50, Max: 150, Sleep: 5}
	view, err := kube.NewView(nil, []*energy.Profile{profile}, "p")
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	deps := place.Deps{
		View: func() *kube.View { return view }, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Go: func(ctx context.Context, _ string, run func(context.Context) error) {
			running.Go(func() { _ = run(ctx) })
		},
	}
	plugins := []app.Option{app.WithPlugin(witnessName,
		func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) { return w.witness, nil })}
	for name, factory := range place.New(deps) {
		plugins = append(plugins, app.WithPlugin(name, factory))
	}
	stop, err := plane.StartScheduler(w.ctx, lab.Scheduler{
		Name: "scheduler", ConfigFile: w.config(strategy, change), Plugins: plugins,
		Prepare: fallback.Install,
		OnReady: func(s *scheduler.Scheduler) { w.scheduler = s },
	})
	if err != nil {
		t.Fatal(err)
	}
	w.stop = sync.OnceFunc(func() {
		stop()
		running.Wait()
	})
	t.Cleanup(w.stop)
	return w
}

// config writes the default configuration with the witness plugin and the given strategy and returns its path.
func (w *world) config(strategy string, change func(profile map[string]any)) string {
	w.t.Helper()
	var config map[string]any
	if err := yaml.Unmarshal(deploy.SchedulerConfig, &config); err != nil {
		w.t.Fatal(err)
	}
	profile := config["profiles"].([]any)[0].(map[string]any)
	point := profile["plugins"].(map[string]any)["multiPoint"].(map[string]any)
	point["enabled"] = append([]any{map[string]any{"name": witnessName}}, point["enabled"].([]any)...)
	args := profile["pluginConfig"].([]any)[0].(map[string]any)["args"].(map[string]any)
	args["strategy"], args["scope"] = strategy, "All"
	args["batch"] = map[string]any{"leastPods": 8}
	if change != nil {
		change(profile)
	}
	config["profiles"] = []any{profile}
	config["clientConnection"] = map[string]any{"qps": 5000, "burst": 5000}
	text, err := yaml.Marshal(config)
	if err != nil {
		w.t.Fatal(err)
	}
	path := filepath.Join(w.dir, "config.yaml")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		w.t.Fatal(err)
	}
	return path
}

// follow records bindings, evictions and nominated nodes of pods.
func (w *world) follow() {
	w.t.Helper()
	pods := w.client.CoreV1().Pods(metav1.NamespaceDefault)
	present, err := pods.List(w.ctx, metav1.ListOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	// The API server closes watches of slow clients, which is common under high load.
	watched, err := watchtools.NewRetryWatcherWithContext(w.ctx, present.ResourceVersion,
		&cache.ListWatch{WatchFuncWithContext: pods.Watch})
	if err != nil {
		w.t.Fatal(err)
	}
	go func() {
		for event := range watched.ResultChan() {
			pod, ok := event.Object.(*v1.Pod)
			if !ok {
				continue
			}
			w.mu.Lock()
			if pod.Spec.NodeName != "" {
				w.bound[pod.Name] = pod.Spec.NodeName
			}
			if pod.Status.NominatedNodeName != "" {
				w.named[pod.Name] = true
			}
			for _, c := range pod.Status.Conditions {
				if c.Type == v1.DisruptionTarget && event.Type == watch.Modified {
					w.evicted[pod.Name] = true
				}
			}
			w.mu.Unlock()
		}
	}()
}

func (w *world) clear() {
	ctx := context.Background()
	_ = w.client.CoreV1().Pods(metav1.NamespaceDefault).DeleteCollection(ctx, *metav1.NewDeleteOptions(0),
		metav1.ListOptions{})
	_ = w.client.CoreV1().Nodes().DeleteCollection(ctx, *metav1.NewDeleteOptions(0), metav1.ListOptions{})
}

// each calls do for 0 to n−1 with limited concurrency.
func (w *world) each(n int, do func(i int) error) {
	w.t.Helper()
	var group errgroup.Group
	group.SetLimit(16)
	for i := range n {
		group.Go(func() error { return do(i) })
	}
	if err := group.Wait(); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) addNodes(from, to int, cores int64) {
	w.t.Helper()
	w.each(to-from, func(i int) error {
		room := lab.Capacity(cores, 4*cores)
		_, err := w.client.CoreV1().Nodes().Create(w.ctx, &v1.Node{
			ObjectMeta: metav1.ObjectMeta{
				Name: nodeName(from + i), Labels: map[string]string{v1.LabelHostname: nodeName(from + i)},
			},
			Status: v1.NodeStatus{Capacity: room, Allocatable: room},
		}, metav1.CreateOptions{})
		return err
	})
}

func (w *world) removeNodes(from, to int) {
	w.t.Helper()
	w.each(to-from, func(i int) error {
		return w.client.CoreV1().Nodes().Delete(w.ctx, nodeName(from+i), metav1.DeleteOptions{})
	})
}

func nodeName(i int) string { return fmt.Sprintf("n%04d", i) }

// addPods creates n pods with the given name prefix, CPU request and priority.
func (w *world) addPods(prefix string, n int, cores, priority string, change func(i int, p *v1.Pod)) []string {
	w.t.Helper()
	names := make([]string, n)
	w.each(n, func(i int) error {
		names[i] = fmt.Sprintf("%s-%04d", prefix, i)
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: names[i], Labels: map[string]string{"kind": prefix}}}
		pod.Spec = v1.PodSpec{
			SchedulerName: schedulerName, PriorityClassName: priority, TerminationGracePeriodSeconds: new(int64),
			Containers: []v1.Container{{
				Name: "main", Image: "none",
				Resources: v1.ResourceRequirements{Requests: v1.ResourceList{
					v1.ResourceCPU: resource.MustParse(cores),
				}},
			}},
		}
		if change != nil {
			change(i, pod)
		}
		_, err := w.client.CoreV1().Pods(metav1.NamespaceDefault).Create(w.ctx, pod, metav1.CreateOptions{})
		return err
	})
	return names
}

// occupy creates one pod of low priority on each node, as if another scheduler had bound it.
func (w *world) occupy(prefix string, from, to int, cores string) {
	w.t.Helper()
	w.addPods(prefix, to-from, cores, "low", func(i int, p *v1.Pod) {
		p.Spec.SchedulerName = "another"
		p.Spec.NodeName = nodeName(from + i)
	})
}

func (w *world) nodeOf(pod string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.bound[pod]
}

// allBound waits until all given pods are bound.
func (w *world) allBound(names []string, within time.Duration) {
	w.t.Helper()
	waiting := ""
	defer func() {
		if pod, err := w.client.CoreV1().Pods(metav1.NamespaceDefault).Get(context.Background(), waiting,
			metav1.GetOptions{}); w.t.Failed() && err == nil {
			w.t.Logf("pod %s is not bound: node %q, nominated node %q, conditions %+v", waiting, pod.Spec.NodeName,
				pod.Status.NominatedNodeName, pod.Status.Conditions)
		}
	}()
	w.eventually("all pods are bound", within, func() bool {
		for _, name := range names {
			if w.nodeOf(name) == "" {
				waiting = name
				return false
			}
		}
		return true
	})
}

func (w *world) eventually(what string, within time.Duration, ok func() bool) {
	w.t.Helper()
	kit.Eventually(w.t, within, what, ok)
}

// nobodyWentFor checks that no pod was evicted and that no nominated node was set.
func (w *world) nobodyWentFor() {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.evicted) > 0 || len(w.named) > 0 {
		w.t.Errorf("evicted pods %v and pods with nominated nodes %v, want none", w.evicted, w.named)
	}
}

// metric returns the sum of all series of a metric that have the given label values.
func metric(t *testing.T, name string, values ...string) float64 {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			has := map[string]bool{}
			for _, l := range m.GetLabel() {
				has[l.GetValue()] = true
			}
			all := true
			for _, v := range values {
				all = all && has[v]
			}
			if all {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

const witnessName = "Witness"

// witness is a plugin that counts the scheduling cycles of pods, pauses the scheduler at selected pods and rejects
// nodes.
type witness struct {
	mu      sync.Mutex
	tries   map[string]int
	blocked map[string]chan struct{} // by pod; its cycle waits until the channel is closed
	refuse  func(pod *v1.Pod, n fwk.NodeInfo) bool
}

var (
	_ fwk.PreFilterPlugin   = &witness{}
	_ fwk.FilterPlugin      = &witness{}
	_ fwk.EnqueueExtensions = &witness{}
)

func newWitness() *witness {
	return &witness{tries: map[string]int{}, blocked: map[string]chan struct{}{}}
}

func (*witness) Name() string { return witnessName }

func (w *witness) PreFilter(_ context.Context, _ fwk.CycleState, pod *v1.Pod,
	_ []fwk.NodeInfo,
) (*fwk.PreFilterResult, *fwk.Status) {
	w.mu.Lock()
	w.tries[pod.Name]++
	wait := w.blocked[pod.Name]
	w.mu.Unlock()
	if wait != nil {
		<-wait
	}
	return nil, nil
}

func (*witness) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

func (w *witness) Filter(_ context.Context, _ fwk.CycleState, pod *v1.Pod, n fwk.NodeInfo) *fwk.Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.refuse != nil && w.refuse(pod, n) {
		return fwk.NewStatus(fwk.Unschedulable, "rejected by the witness")
	}
	return nil
}

// EventsToRegister returns the events after which Filter may accept a rejected pod: added nodes and deleted pods.
func (*witness) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return []fwk.ClusterEventWithHint{
		{Event: fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Add}},
		{Event: fwk.ClusterEvent{Resource: fwk.Pod, ActionType: fwk.Delete}},
	}, nil
}

// cycles returns the number of given pods by the number of their scheduling cycles.
func (w *witness) cycles(names []string) map[int]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	count := map[int]int{}
	for _, name := range names {
		count[w.tries[name]]++
	}
	return count
}

func (w *witness) tried(name string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.tries[name]
}

// block pauses the scheduler in the cycle of a pod. goOn resumes it.
func (w *witness) block(pod string) (goOn func()) {
	c := make(chan struct{})
	w.mu.Lock()
	w.blocked[pod] = c
	w.mu.Unlock()
	return sync.OnceFunc(func() { close(c) })
}
