package place

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/sched"
)

// factoryHandle provides the informers of a cluster.
type factoryHandle struct {
	fwk.Handle
	factory informers.SharedInformerFactory
}

func (h *factoryHandle) ProfileName() string { return "kubenergy" }

func (h *factoryHandle) SharedInformerFactory() informers.SharedInformerFactory { return h.factory }

// TestMachinesOfAPlan verifies that a plan considers schedulable and sleeping nodes with their running pods and the
// expected end of these.
func TestMachinesOfAPlan(t *testing.T) {
	node := func(name string, cordoned bool, taints ...string) *v1.Node {
		var keeps []v1.Taint
		for _, key := range taints {
			keeps = append(keeps, v1.Taint{Key: key, Effect: v1.TaintEffectNoSchedule})
		}
		return &v1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.NodeSpec{Unschedulable: cordoned, Taints: keeps},
			Status: v1.NodeStatus{Allocatable: v1.ResourceList{v1.ResourceCPU: resource.MustParse("8")}},
		}
	}
	pod := func(name, on string, annotations map[string]string, change func(*v1.Pod)) *v1.Pod {
		p := &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "lab", Name: name, Annotations: annotations, CreationTimestamp: metav1.NewTime(noon.Add(-2 * time.Hour)),
			},
			Spec: v1.PodSpec{NodeName: on, Containers: []v1.Container{{Name: "c", Resources: v1.ResourceRequirements{
				Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")},
			}}}},
			Status: v1.PodStatus{StartTime: &metav1.Time{Time: noon.Add(-time.Hour)}},
		}
		if change != nil {
			change(p)
		}
		return p
	}
	lasts := func(d string) map[string]string { return map[string]string{v1alpha1.AnnotationExpectedDuration: d} }
	controller := true
	asleepNode := node("asleep", false, v1alpha1.TaintAsleep)
	asleepNode.Labels = map[string]string{v1alpha1.LabelPowerState: v1alpha1.PowerAsleep}
	factory := informers.NewSharedInformerFactory(fake.NewClientset(
		node("busy", false), node("cordoned", true), node("control plane", false, "node-role.kubernetes.io/control-plane"),
		asleepNode,
		pod("ends", "busy", lasts("3h"), nil), pod("outlives", "busy", lasts("10m"), nil), pod("stays", "busy", nil, nil),
		pod("done", "busy", lasts("3h"), func(p *v1.Pod) { p.Status.Phase = v1.PodSucceeded }),
		pod("with the node", "busy", nil, func(p *v1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Name: "d", Controller: &controller}}
		}),
		pod("of a Job", "busy", nil, func(p *v1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{Kind: "Job", Name: "j", Controller: &controller}}
		}),
		pod("waits", "", nil, nil),
	), 0)
	notify := machinesOf(&factoryHandle{factory: factory})
	factory.Core().V1().Nodes().Informer()
	factory.Core().V1().Pods().Informer()
	factory.StartWithContext(t.Context())
	factory.WaitForCacheSync(t.Context().Done())
	view, err := (&kube.Contents{}).View()
	if err != nil {
		t.Fatal(err)
	}
	nodes := map[string]sched.Node{}
	for _, n := range notify(view, noon) {
		nodes[n.Name] = n
	}
	busy, asleep := nodes["busy"], nodes["asleep"]
	if len(nodes) != 2 || asleep.Awake || asleep.Jobs != 0 || asleep.Free != asleep.Capacity || !busy.Awake {
		t.Errorf("got %+v", nodes)
	}
	if busy.Jobs != 4 || busy.Free.MilliCPU != 3000 {
		t.Errorf("the busy node has %d jobs and %d free CPU, want 4 and 3000", busy.Jobs, busy.Free.MilliCPU)
	}
	ends := map[time.Duration]int{}
	for _, e := range busy.Ends {
		ends[e.At.Sub(noon)]++
	}
	// pods of Jobs without an expected duration end in an hour
	if len(busy.Ends) != 3 || ends[2*time.Hour] != 1 || ends[time.Hour] != 2 {
		t.Errorf("ends %v", ends)
	}
}
