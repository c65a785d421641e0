package perf

import (
	"context"
	"fmt"
	"maps"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/scheduler/place"
)

// Nodes are the same as in upstream's SchedulingBasic, with two kinds of hardware in two grids.
var (
	siteNames    = []string{"coal", "wind"}
	profileNames = []string{"frugal", "hungry"}
)

func newNode(i int) *v1.Node {
	name := fmt.Sprintf("node-%05d", i)
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{
		v1.LabelHostname: name, v1alpha1.LabelSite: siteNames[i%2], v1alpha1.LabelPowerProfile: profileNames[i/2%2],
	}}}
	node.Status.Allocatable = v1.ResourceList{
		v1.ResourceCPU: resource.MustParse("4"), v1.ResourceMemory: resource.MustParse("32Gi"),
		v1.ResourcePods: resource.MustParse("110"),
	}
	node.Status.Capacity = node.Status.Allocatable
	return node
}

// newPod returns a pod like in SchedulingBasic with the given CPU request.
func newPod(name, scheduler, cpu string, annotations map[string]string) *v1.Pod {
	amounts := v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse("500Mi")}
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "perf", Name: name, UID: types.UID(name), Annotations: annotations,
			CreationTimestamp: metav1.Now(),
		},
		Spec: v1.PodSpec{SchedulerName: scheduler, Containers: []v1.Container{{
			Name: "pause", Image: "registry.k8s.io/pause:3.10.2", Resources: v1.ResourceRequirements{
				Requests: amounts, Limits: amounts,
			},
		}}},
	}
}

func newView(t testing.TB) *kube.View {
	t.Helper()
	var sites []*sched.Site
	start := time.Now().Add(-time.Hour)
	for i, name := range siteNames {
		series, err := grid.Constant(start, 48*time.Hour, 500/float64(1+4*i))
		if err != nil {
			t.Fatal(err)
		}
		sites = append(sites, &sched.Site{Name: name, Carbon: grid.Signal{Series: series, AsOf: time.Now()}})
	}
	view, err := kube.NewView(sites, []*energy.Profile{
		{Name: profileNames[0], Idle: 50, Max: 100, Sleep: 50}, {
			Name: profileNames[1], Idle: 100, Max: 400, Sleep: 20, WakeUp: 5000,
		},
	}, profileNames[0])
	if err != nil {
		t.Fatal(err)
	}
	return view
}

// ours returns the factories of the KubEnergy plugins, which share one view.
func ours(t testing.TB) frameworkruntime.Registry {
	t.Helper()
	view := newView(t)
	registry := frameworkruntime.Registry{
		finishName: func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) { return finish{}, nil },
	}
	maps.Copy(registry, place.New(place.Deps{View: func() *kube.View { return view }}))
	return registry
}
