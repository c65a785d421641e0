// Package controllertest provides fixtures for tests of the controller's components: a fake API server that counts
// status updates, and test objects.
package controllertest

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/controller/cached"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/sched"
)

// Silent is a logger that discards all output.
var Silent = slog.New(slog.DiscardHandler)

// Noon is a fixed point in time for tests.
var Noon = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

// Scheme returns a scheme with the types of Kubernetes and of KubEnergy.
func Scheme(t testing.TB) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// World is a fake API server that counts status updates.
type World struct {
	client.Client
	Writes atomic.Int32
	Refuse error // returned by status updates unless nil
}

// NewWorld returns a World with the given objects.
func NewWorld(t testing.TB, objects ...client.Object) *World {
	w := &World{}
	w.Client = fake.NewClientBuilder().WithScheme(Scheme(t)).WithObjects(objects...).
		WithStatusSubresource(&v1alpha1.GridZone{}, &v1alpha1.PowerProfile{}, &v1alpha1.EnergyPolicy{}).
		WithIndex(&v1.Pod{}, cached.NodeIndex, cached.PodsByNode).
		WithInterceptorFuncs(interceptor.Funcs{
			SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, obj client.Object,
				opts ...client.SubResourceUpdateOption,
			) error {
				w.Writes.Add(1)
				if w.Refuse != nil {
					return w.Refuse
				}
				return c.SubResource(sub).Update(ctx, obj, opts...)
			},
		}).Build()
	return w
}

// Get reads an object and fails the test on an error.
func Get[T client.Object](t testing.TB, c client.Client, key client.ObjectKey, into T) T {
	t.Helper()
	if err := c.Get(context.Background(), key, into); err != nil {
		t.Fatal(err)
	}
	return into
}

// Eventually polls ok until it returns true and fails the test after within or one minute, whichever is longer.
// Tests of latencies must measure the elapsed time themselves.
func Eventually(t testing.TB, within time.Duration, what string, ok func() bool) {
	t.Helper()
	within = max(within, time.Minute)
	for end := time.Now().Add(within); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("timed out after %v: %s", within, what)
		}
	}
}

// Zone returns a GridZone in Germany with a constant carbon intensity.
func Zone(name string, generation int64) *v1alpha1.GridZone {
	return &v1alpha1.GridZone{
		ObjectMeta: metav1.ObjectMeta{Name: name, Generation: generation},
		Spec: v1alpha1.GridZoneSpec{Zone: "DE", Carbon: &v1alpha1.CarbonSpec{
			Signal: "Average", Sources: []v1alpha1.CarbonSource{{Static: &v1alpha1.StaticSource{Value: 300}}},
		}},
	}
}

// Namespace returns a namespace with the given labels and annotations.
func Namespace(name string, labels, annotations map[string]string) *v1.Namespace {
	return &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, Annotations: annotations}}
}

// Policy returns an EnergyPolicy for a namespace. The allowed delay is set only if it is positive.
func Policy(ns string, mode v1alpha1.Mode, delay time.Duration) *v1alpha1.EnergyPolicy {
	p := &v1alpha1.EnergyPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: v1alpha1.PolicyName, Generation: 1}}
	p.Spec.Mode = mode
	if delay > 0 {
		p.Spec.AllowedDelay = &metav1.Duration{Duration: delay}
	}
	return p
}

func meta(ns, name string, created time.Time) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: ns, Name: name, UID: types.UID(ns + "." + name), CreationTimestamp: metav1.NewTime(created),
	}
}

// Job returns a Job with the given creation time.
func Job(ns, name string, created time.Time) *batchv1.Job {
	return &batchv1.Job{ObjectMeta: meta(ns, name, created)}
}

// HeldUntil returns a held Job with the latest start time latest. If latest is zero, the annotation is not set.
func HeldUntil(ns, name string, created time.Time, latest time.Time) *batchv1.Job {
	j := Job(ns, name, created)
	j.Labels = map[string]string{v1alpha1.LabelHeld: "true"}
	j.Spec.Suspend = new(true)
	if !latest.IsZero() {
		j.Annotations = map[string]string{v1alpha1.AnnotationLatestStart: latest.UTC().Format(time.RFC3339)}
	}
	return j
}

// Pod returns a pod with the given creation time.
func Pod(ns, name string, created time.Time) *v1.Pod {
	return &v1.Pod{ObjectMeta: meta(ns, name, created)}
}

// Quantities returns a resource list with the given CPU quantity and 1 GiB of memory.
func Quantities(cpu string) v1.ResourceList {
	return v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse("1Gi")}
}

// Node returns a node with the given CPU capacity.
func Node(name, cpu string) *v1.Node {
	return &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)},
		Status:     v1.NodeStatus{Allocatable: Quantities(cpu), Capacity: Quantities(cpu)},
	}
}

// On assigns a pod to a node, sets its CPU request and marks it as running since started.
func On(p *v1.Pod, node, cpu string, started time.Time) *v1.Pod {
	p.Spec.NodeName = node
	p.Spec.Containers = []v1.Container{{Resources: v1.ResourceRequirements{Requests: Quantities(cpu)}}}
	start := metav1.NewTime(started)
	p.Status.StartTime, p.Status.Phase = &start, v1.PodRunning
	return p
}

// Ended returns a copy of a pod that succeeded, with the given start and end times of its container.
func Ended(p *v1.Pod, start, end time.Time) *v1.Pod {
	p = p.DeepCopy()
	p.Status.Phase = v1.PodSucceeded
	p.Status.ContainerStatuses = []v1.ContainerStatus{{State: v1.ContainerState{
		Terminated: &v1.ContainerStateTerminated{StartedAt: metav1.NewTime(start), FinishedAt: metav1.NewTime(end)},
	}}}
	return p
}

// Valley returns a view with a single site that has a high carbon intensity for one hour and a low one afterwards.
// Each namespace with the name of a mode is in that mode and allows a delay of six hours.
func Valley(t testing.TB, now time.Time) *kube.View {
	t.Helper()
	values := []float64{500, 100, 100, 100, 100, 100, 100, 100, 100, 100}
	series, err := grid.NewSeries(now.Truncate(time.Hour), time.Hour, values)
	if err != nil {
		t.Fatal(err)
	}
	contents := kube.Contents{
		Sites: []*sched.Site{{Name: "home", Zone: "DE", Carbon: grid.Signal{Series: series}}},
		Profiles: []*kube.NodeProfile{{
			Profile: energy.Profile{Name: "server", Idle: 100, Max: 200, Sleep: 100}, PUE: 1.5,
		}},
		DefaultProfile: "server",
		Defaults: policy.Defaults{
			Terms: policy.Terms{ExpectedDuration: time.Hour},
			Mode:  v1alpha1.ModeShadow, MaxDelay: 24 * time.Hour,
		},
	}
	for _, mode := range []v1alpha1.Mode{
		v1alpha1.ModeOff, v1alpha1.ModeShadow, v1alpha1.ModeAdvise, v1alpha1.ModeEnforce,
	} {
		contents.Policies = append(contents.Policies, Policy(string(mode), mode, 6*time.Hour))
	}
	v, err := contents.View()
	if err != nil {
		t.Fatal(err)
	}
	return v
}
