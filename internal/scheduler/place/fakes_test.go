package place

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/sched"
)

var noon = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

// cycle is a CycleState that only implements the storage of plugin data. All other methods panic.
type cycle struct {
	fwk.CycleState
	stored map[fwk.StateKey]fwk.StateData
}

func newCycle() *cycle { return &cycle{stored: map[fwk.StateKey]fwk.StateData{}} }

func (c *cycle) Write(key fwk.StateKey, value fwk.StateData) { c.stored[key] = value }

func (c *cycle) Read(key fwk.StateKey) (fwk.StateData, error) {
	if value, ok := c.stored[key]; ok {
		return value, nil
	}
	return nil, fwk.ErrNotFound
}

type amounts struct {
	fwk.Resource
	cpu, memory int64
	pods        int
	scalars     map[v1.ResourceName]int64
}

func (a *amounts) GetMilliCPU() int64                            { return a.cpu }
func (a *amounts) GetMemory() int64                              { return a.memory }
func (a *amounts) GetEphemeralStorage() int64                    { return 0 }
func (a *amounts) GetAllowedPodNumber() int                      { return a.pods }
func (a *amounts) GetScalarResources() map[v1.ResourceName]int64 { return a.scalars }

type runningPod struct {
	fwk.PodInfo
	pod *v1.Pod
}

func (p runningPod) GetPod() *v1.Pod { return p.pod }

type machine struct {
	fwk.NodeInfo
	node                   *v1.Node
	allocatable, requested amounts
	pods                   []fwk.PodInfo
	generation             int64
}

func (m *machine) Node() *v1.Node               { return m.node }
func (m *machine) GetGeneration() int64         { return m.generation }
func (m *machine) GetPods() []fwk.PodInfo       { return m.pods }
func (m *machine) GetAllocatable() fwk.Resource { return &m.allocatable }
func (m *machine) GetRequested() fwk.Resource   { return &m.requested }

// generations is the source of unique generations of nodes.
var generations atomic.Int64

func newMachine(name, site, profile string) *machine {
	return &machine{
		generation: generations.Add(1),
		node: &v1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{v1alpha1.LabelSite: site, v1alpha1.LabelPowerProfile: profile},
		}},
		allocatable: amounts{cpu: 8000, memory: 32 << 30},
		requested:   amounts{cpu: 2000, memory: 4 << 30},
		pods:        []fwk.PodInfo{runningPod{pod: &v1.Pod{}}},
	}
}

func newPod(annotations ...string) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: "p", CreationTimestamp: metav1.NewTime(noon)}}
	pod.Spec.Containers = []v1.Container{{Resources: v1.ResourceRequirements{Requests: v1.ResourceList{
		v1.ResourceCPU: resource.MustParse("1"), v1.ResourceMemory: resource.MustParse("1Gi"),
	}}}}
	for i := 0; i < len(annotations); i += 2 {
		if pod.Annotations == nil {
			pod.Annotations = map[string]string{}
		}
		pod.Annotations[annotations[i]] = annotations[i+1]
	}
	return pod
}

// knowledge returns a view with two sites, where one has five times the carbon intensity of the other, and two node
// profiles.
func knowledge(t testing.TB, asOf time.Time) *kube.View {
	t.Helper()
	site := func(name string, intensity float64) *sched.Site {
		series, err := grid.Constant(noon, 24*time.Hour, intensity)
		if err != nil {
			t.Fatal(err)
		}
		return &sched.Site{Name: name, Carbon: grid.Signal{Series: series, AsOf: asOf}}
	}
	profiles := []*energy.Profile{
		{Name: "frugal", Idle: 50, Max: 100, Sleep: 50}, {Name: "hungry", Idle: 100, Max: 400, Sleep: 100},
	}
	v, err := kube.NewView([]*sched.Site{site("coal", 500), site("wind", 100)}, profiles, "")
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func deps(v *kube.View) Deps {
	return Deps{View: func() *kube.View { return v }, Clock: func() time.Time { return noon.Add(time.Hour) }}
}

func newEnergyPlugin(t testing.TB, d Deps, args string) *Energy {
	t.Helper()
	var obj runtime.Object
	if args != "" {
		obj = &runtime.Unknown{Raw: []byte(args), ContentType: runtime.ContentTypeJSON}
	}
	pl, err := New(d)[EnergyName](context.Background(), obj, nil)
	if err != nil {
		t.Fatal(err)
	}
	return pl.(*Energy)
}

func farm(n int) []fwk.NodeInfo {
	sites, profiles := [2]string{"coal", "wind"}, [2]string{"frugal", "hungry"}
	nodes := make([]fwk.NodeInfo, n)
	for i := range nodes {
		m := newMachine(fmt.Sprintf("n%04d", i), sites[i%2], profiles[i/2%2])
		m.requested.cpu = int64(i * 7 % 7000)
		nodes[i] = m
	}
	return nodes
}

func amount(text string) resource.Quantity { return resource.MustParse(text) }
