package scale

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/test/kit"
	"github.com/kubenergy/kubenergy/test/kit/cluster"
)

// holdCluster consists of a control plane with simulated nodes, a controller manager with a limited request rate,
// and kubenergy-scheduler, each in a separate process.
type holdCluster struct {
	plane   *plane
	client  kubernetes.Interface
	signals string // path of the signals file
	*cluster.Scheduler
	seen *tallies
	sets int // number of sets created so far

	writesOfIdle float64 // writes per second below which the control plane is considered idle
	collected    int64   // garbage collections of the control plane during bursts
}

func newHoldCluster(t *testing.T, nodes, qps int, memory int64) *holdCluster {
	t.Helper()
	dir := kit.Dir(t, "hold")
	c := &holdCluster{signals: filepath.Join(dir, "signals.json")}
	c.writesOfIdle = 20 + float64(nodes)/5 // twice the rate of node lease renewals, plus other leases
	c.plane = startPlane(t, planeOptions{Dir: filepath.Join(dir, "c"), Nodes: nodes, QPS: qps, Memory: memory})
	config, err := clientcmd.BuildConfigFromFlags("", c.plane.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	config.ContentType = runtime.ContentTypeProtobuf // like Kubernetes components
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	if c.client, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	if _, err := c.client.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: others}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.watch(t)
	c.cleanFrom(t, time.Now().Add(6*time.Hour))
	// Run the default configuration with administrator permissions.
	c.Scheduler = cluster.StartScheduler(t, dir, "scheduler", c.plane.kubeconfig, nil,
		"--kubenergy-signals="+c.signals, "--kubenergy-max-signal-age=0")
	c.KeepsWindows(t, 2*time.Minute)
	return c
}

// cleanFrom writes signals of a grid with a low carbon intensity starting at the given time. Work with a sufficient
// allowed delay is held until then.
func (c *holdCluster) cleanFrom(t *testing.T, at time.Time) {
	t.Helper()
	start := time.Now().UTC().Add(-time.Minute).Truncate(time.Second)
	values := []float64{500}
	for range 20 {
		values = append(values, 100)
	}
	raw, err := json.Marshal(map[string]any{
		"apiVersion": "kubenergy.io/v1alpha1", "kind": "Signals",
		"sites": []any{map[string]any{
			"name": "here", "carbon": map[string]any{
				"start": start, "step": at.Sub(start).Round(time.Second).String(), "values": values,
				"quality": "estimated",
			},
		}},
	})
	if err == nil {
		err = os.WriteFile(c.signals+".new", raw, 0o600)
	}
	if err == nil {
		err = os.Rename(c.signals+".new", c.signals)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// metric returns the sum of all series of a scheduler metric with the given labels, or 0.
func (c *holdCluster) metric(t *testing.T, name string, labels ...string) float64 {
	t.Helper()
	sum, _ := c.Metric(t, name, labels...)
	return sum
}

// heaps returns the live heap size of each scheduler after a garbage collection that started after the call. An
// idle scheduler collects garbage every two minutes.
func heaps(t *testing.T, clusters ...*holdCluster) (bytes []float64) {
	t.Helper()
	const cycles = "go_gc_cycles_total_gc_cycles_total"
	var wanted []float64
	for _, c := range clusters {
		wanted = append(wanted, c.metric(t, cycles)+2)
	}
	for i, c := range clusters {
		kit.Eventually(t, 6*time.Minute, "two garbage collections are finished",
			func() bool { return c.metric(t, cycles) >= wanted[i] })
		live := c.metric(t, "go_gc_heap_live_bytes")
		if live == 0 {
			t.Fatal("scheduler exposes no metric for its live heap")
		}
		bytes = append(bytes, live)
	}
	return bytes
}

// tallies records when pods were bound and removed, by the set of the pods or their Jobs.
type tallies struct {
	mu  sync.Mutex
	set map[string]*tally
}

// tally is the state of the pods of one set.
type tally struct {
	Bound map[string]time.Time
	Alive int
}

func (s *tallies) of(set string) *tally {
	if s.set[set] == nil {
		s.set[set] = &tally{Bound: map[string]time.Time{}}
	}
	return s.set[set]
}

// span returns the number of bound pods of a set and the times of the first and last binding.
func (s *tallies) span(set string) (n int, first, last time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, at := range s.of(set).Bound {
		if n++; first.IsZero() || at.Before(first) {
			first = at
		}
		if at.After(last) {
			last = at
		}
	}
	return n, first, last
}

func (s *tallies) alive(set string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.of(set).Alive
}

const setLabel = "set"

func (c *holdCluster) watch(t *testing.T) {
	t.Helper()
	c.seen = &tallies{set: map[string]*tally{}}
	factory := informers.NewSharedInformerFactoryWithOptions(c.client, 0,
		informers.WithTransform(func(obj any) (any, error) {
			pod, ok := obj.(*corev1.Pod)
			if !ok {
				return obj, nil
			}
			slim := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
				Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, Labels: pod.Labels,
				ResourceVersion: pod.ResourceVersion,
			}}
			slim.Spec.NodeName = pod.Spec.NodeName
			return slim, nil
		}))
	bound := func(s *tally, pod *corev1.Pod) {
		if _, known := s.Bound[pod.Name]; !known && pod.Spec.NodeName != "" {
			s.Bound[pod.Name] = time.Now()
		}
	}
	locked := func(obj any, f func(*tally, *corev1.Pod)) {
		if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = gone.Obj
		}
		pod := obj.(*corev1.Pod)
		c.seen.mu.Lock()
		defer c.seen.mu.Unlock()
		f(c.seen.of(pod.Labels[setLabel]), pod)
	}
	_, err := factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { locked(obj, func(s *tally, pod *corev1.Pod) { s.Alive++; bound(s, pod) }) },
		UpdateFunc: func(_, obj any) { locked(obj, bound) },
		DeleteFunc: func(obj any) { locked(obj, func(s *tally, _ *corev1.Pod) { s.Alive-- }) },
	})
	if err != nil {
		t.Fatal(err)
	}
	factory.StartWithContext(t.Context())
	factory.WaitForCacheSyncWithContext(t.Context())
}

// Pods without an owner that are not held use separate namespaces, because for each of them the Job controller
// iterates over all Jobs in its namespace.
const (
	others  = "others"
	burst   = "burst"
	trickle = "trickle"
)

func namespaceOf(set string) string {
	if strings.HasPrefix(set, burst) || strings.HasPrefix(set, trickle) {
		return others
	}
	return "default"
}

func (c *holdCluster) newSet(kind string) string {
	c.sets++
	return fmt.Sprintf("%s%d", kind, c.sets)
}

func holdPodSpec() corev1.PodSpec {
	return corev1.PodSpec{
		SchedulerName: "kubenergy", RestartPolicy: corev1.RestartPolicyNever,
		TerminationGracePeriodSeconds: new(int64(0)), AutomountServiceAccountToken: new(false),
		Containers: []corev1.Container{{
			Name: "main", Image: "registry.example.com/training:1.2.3",
			Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{
					corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("16Mi"),
				},
			},
		}},
	}
}

// pods creates n pods of a set as fast as possible.
func (c *holdCluster) pods(t *testing.T, set string, n int, annotations map[string]string) {
	t.Helper()
	parallel(t, n, func(ctx context.Context, i int) error {
		return c.pod(ctx, set, fmt.Sprintf("%s-%06d", set, i), annotations)
	})
}

func (c *holdCluster) pod(ctx context.Context, set, name string, annotations map[string]string) error {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{setLabel: set}, Annotations: annotations,
	}, Spec: holdPodSpec()}
	_, err := c.client.CoreV1().Pods(namespaceOf(set)).Create(ctx, pod, metav1.CreateOptions{})
	return err
}

// jobs creates n Jobs of a set as fast as possible.
func (c *holdCluster) jobs(t *testing.T, set string, n int, annotations map[string]string, suspended bool) {
	t.Helper()
	parallel(t, n, func(ctx context.Context, i int) error {
		labels := map[string]string{setLabel: set}
		job := &batchv1.Job{
			ObjectMeta: metav1.ObjectMeta{
				Name: fmt.Sprintf("%s-%06d", set, i), Labels: labels, Annotations: annotations,
			},
			Spec: batchv1.JobSpec{
				Suspend: new(suspended), Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: holdPodSpec(),
				},
			},
		}
		_, err := c.client.BatchV1().Jobs("default").Create(ctx, job, metav1.CreateOptions{})
		return err
	})
}

// parallel calls create n times with limited concurrency.
func parallel(t *testing.T, n int, create func(ctx context.Context, i int) error) {
	t.Helper()
	group, ctx := errgroup.WithContext(t.Context())
	group.SetLimit(writers)
	for i := range n {
		group.Go(func() error { return create(ctx, i) })
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
}

// bound waits until n pods of a set are bound and returns the times of the first and last binding.
func (c *holdCluster) bound(t *testing.T, set string, n int, within time.Duration) (first, last time.Time) {
	t.Helper()
	kit.Eventually(t, within, fmt.Sprintf("%d pods of %s are bound", n, set), func() bool {
		known, _, _ := c.seen.span(set)
		return known >= n
	})
	_, first, last = c.seen.span(set)
	return first, last
}

// remove deletes all objects of a set and waits until they no longer exist.
func (c *holdCluster) remove(t *testing.T, set string) {
	t.Helper()
	began := time.Now()
	selector := metav1.ListOptions{LabelSelector: setLabel + "=" + set}
	at := metav1.DeletePropagationBackground
	jobs, pods := c.client.BatchV1().Jobs(namespaceOf(set)), c.client.CoreV1().Pods(namespaceOf(set))
	some := metav1.ListOptions{LabelSelector: selector.LabelSelector, Limit: 1}
	kit.Eventually(t, 20*time.Minute, "all objects of "+set+" are deleted", func() bool {
		// A request times out after one minute. Remaining objects are deleted by the next request.
		_ = jobs.DeleteCollection(t.Context(), metav1.DeleteOptions{PropagationPolicy: &at}, selector)
		left, err := jobs.List(t.Context(), some)
		if err != nil || len(left.Items) > 0 {
			return false
		}
		_ = pods.DeleteCollection(t.Context(), metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}, selector)
		return c.seen.alive(set) == 0
	})
	if took := time.Since(began); took > time.Minute {
		t.Logf("deleted %s after %v", set, took.Round(time.Second))
	}
}

// waiting returns annotations with the given allowed delay.
func waiting(delay time.Duration) map[string]string {
	return map[string]string{v1alpha1.AnnotationAllowedDelay: delay.String(), v1alpha1.AnnotationExpectedDuration: "1m"}
}
