package controller

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/kube"
	"github.com/kubenergy/kubenergy/policy"
)

// Compute Gardener closes its workers when a node is deleted, and dies when the next one is.
func TestNodesComeAndGoTwice(t *testing.T) {
	profile := &v1alpha1.PowerProfile{ObjectMeta: metav1.ObjectMeta{Name: "server", Generation: 1}}
	profile.Spec.IdleWatts, profile.Spec.MaxWatts = 100, 200
	w := newWorld(t, newNode("n1", "4"), newNode("n2", "4"), profile, on(newPod("team", "p", noon), "n1", "1", noon))
	view := valley(t, noon)
	leads := true
	held := newHeldJobs()
	held.saw(heldUntilDeadline("team", "job", noon, noon))
	c := &cluster{
		client: w.Client, view: func() *kube.View { return view }, held: held, leads: func() bool { return leads },
		log: silent,
	}
	p := &profiles{
		client: w.Client, view: func() *kube.View { return view }, now: func() time.Time { return noon }, log: silent,
	}
	nodes := func(want int32) {
		t.Helper()
		if _, err := p.Reconcile(t.Context(), request("server")); err != nil {
			t.Fatal(err)
		}
		got := get(t, w.Client, client.ObjectKey{Name: "server"}, &v1alpha1.PowerProfile{}).Status
		if got.Nodes != want || meta.FindStatusCondition(got.Conditions,
			v1alpha1.ConditionValid).Status != metav1.ConditionTrue {
			t.Errorf("status is %+v, want %d nodes", got, want)
		}
	}
	if err := testutil.CollectAndCompare(c, strings.NewReader(`
# HELP kubenergy_held_jobs Jobs that are held.
# TYPE kubenergy_held_jobs gauge
kubenergy_held_jobs{namespace="team"} 1
# HELP kubenergy_node_efficiency Cores per watt at full load, PUE included: what min-efficiency compares with.
# TYPE kubenergy_node_efficiency gauge
kubenergy_node_efficiency{node="n1"} 0.013333333333333334
kubenergy_node_efficiency{node="n2"} 0.013333333333333334
# HELP kubenergy_node_power_watts Power that a node draws at the load that its pods request, by its power profile, without PUE.
# TYPE kubenergy_node_power_watts gauge
kubenergy_node_power_watts{node="n1"} 125
kubenergy_node_power_watts{node="n2"} 100
# HELP kubenergy_node_pue Energy of the facility per energy of the node.
# TYPE kubenergy_node_pue gauge
kubenergy_node_pue{node="n1"} 1.5
kubenergy_node_pue{node="n2"} 1.5
`)); err != nil {
		t.Error(err)
	}
	nodes(2)
	for range 2 {
		for _, name := range []string{"n1", "n2"} {
			if err := w.Delete(t.Context(), newNode(name, "4")); err != nil {
				t.Fatal(err)
			}
		}
		if n := testutil.CollectAndCount(c, "kubenergy_node_power_watts", "kubenergy_node_pue",
			"kubenergy_node_efficiency"); n != 0 {
			t.Errorf("%d series of nodes that are gone", n)
		}
		nodes(0)
		for _, name := range []string{"n1", "n2"} {
			if err := w.Create(t.Context(), newNode(name, "4")); err != nil {
				t.Fatal(err)
			}
		}
		if n := testutil.CollectAndCount(c, "kubenergy_node_power_watts"); n != 2 {
			t.Errorf("%d series of two nodes", n)
		}
		nodes(2)
	}
	leads = false
	if n := testutil.CollectAndCount(c); n != 0 {
		t.Errorf("%d series in a replica that does not lead", n)
	}
	if n := w.writes.Load(); n != 5 {
		t.Errorf("%d writes for five counts", n)
	}
}

func TestProfileConditions(t *testing.T) {
	bad := &v1alpha1.PowerProfile{ObjectMeta: metav1.ObjectMeta{Name: "bad", Generation: 4}}
	bad.Spec.IdleWatts, bad.Spec.MaxWatts = 300, 200
	w := newWorld(t, bad)
	p := &profiles{
		client: w.Client, view: func() *kube.View { return &kube.View{} }, now: func() time.Time { return noon },
		log: silent,
	}
	for range 3 {
		if _, err := p.Reconcile(t.Context(), request("bad")); err != nil {
			t.Fatal(err)
		}
	}
	got := get(t, w.Client, client.ObjectKey{Name: "bad"}, &v1alpha1.PowerProfile{}).Status
	c := meta.FindStatusCondition(got.Conditions, v1alpha1.ConditionValid)
	if c == nil || c.Status != metav1.ConditionFalse || c.Reason != reasonInvalid || got.ObservedGeneration != 4 ||
		w.writes.Load() != 1 {
		t.Errorf("status is %+v after %d writes", got, w.writes.Load())
	}
	if _,
		err := p.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: "gone"}}); err != nil {
		t.Error(err)
	}
}

// Whatever is shortened, what we read of an object stays.
func TestTrim(t *testing.T) {
	long := strings.Repeat("x", 5000)
	j := heldUntilDeadline("team", "job", noon, noon)
	j.Annotations = map[string]string{"kubectl.kubernetes.io/last-applied-configuration": long}
	j.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
	j.Spec.Parallelism, j.Spec.Completions = new(int32(4)), new(int32(3))
	j.Spec.Template = podTemplate()
	before, errBefore := policy.ReadJob(j)
	if _, err := transform(trimJob)(j); err != nil {
		t.Fatal(err)
	}
	after, errAfter := policy.ReadJob(j)
	if fmt.Sprintf("%+v", before) != fmt.Sprintf("%+v", after) || errBefore != nil || errAfter != nil {
		t.Errorf("a Job reads as %+v, was %+v", after, before)
	}
	if !kube.SeenJob(j).Annotated || j.ManagedFields != nil ||
		len(j.Annotations["kubectl.kubernetes.io/last-applied-configuration"]) != 0 {
		t.Errorf("metadata is %+v", j.ObjectMeta)
	}
	p := on(newPod("team", "pod", noon), "n1", "1", noon)
	p.Spec = podTemplate().Spec
	p.Spec.NodeName = "n1"
	p.Annotations = map[string]string{v1alpha1.AnnotationAllowedDelay: "1h", "other": long}
	p.Spec.Volumes = append(p.Spec.Volumes, podTemplate().Spec.Volumes...)
	podBefore, errBefore := policy.ReadPod(p)
	p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "c", ContainerID: "containerd://1"}}
	seen := 0
	pods := newPodTrimmer(func(p *v1.Pod) { seen += len(p.Status.ContainerStatuses) })
	for range 2 { // what is trimmed may be trimmed again
		if _, err := transform(pods.trim)(p); err != nil {
			t.Fatal(err)
		}
	}
	if seen != 1 {
		t.Errorf("%d containers were seen, want 1 before it was trimmed and none after", seen)
	}
	podAfter, errAfter := policy.ReadPod(p)
	if fmt.Sprintf("%+v", podBefore) != fmt.Sprintf("%+v", podAfter) || errBefore != nil || errAfter != nil {
		t.Errorf("a pod reads as %+v, was %+v", podAfter, podBefore)
	}
	if p.Spec.Volumes != nil || p.Spec.Containers[0].Image != "" || p.Spec.NodeName != "n1" ||
		p.Status.Phase != "Running" {
		t.Errorf("the pod is %+v", p)
	}
}

// A hundred thousand pods of a thousand owners must fit into memory: what is alike is there once.
func TestTrimmedPodsShare(t *testing.T) {
	pods := newPodTrimmer(func(*v1.Pod) {})
	trimmed := func(name, app, cpu string) *v1.Pod {
		p := newPod("team", name, noon)
		p.Spec = podTemplate().Spec
		p.Spec.Containers[0].Resources.Requests = quantities(cpu)
		p.Labels = map[string]string{"app": app}
		p.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: app, UID: types.UID("uid of " + app)}}
		pods.trim(p)
		return p
	}
	a, b, other := trimmed("a", "web", "500m"), trimmed("b", "web", "500m"), trimmed("c", "db", "250m")
	if &a.Spec.Containers[0] != &b.Spec.Containers[0] || &a.OwnerReferences[0] != &b.OwnerReferences[0] ||
		reflect.ValueOf(a.Labels).Pointer() != reflect.ValueOf(b.Labels).Pointer() {
		t.Error("two pods of one owner share nothing")
	}
	if have, want := policy.PodRequest(other).MilliCPU, int64(250+100+10); have != want ||
		other.Labels["app"] != "db" ||
		other.OwnerReferences[0].Name != "db" {
		t.Errorf("the third pod requests %d, want %d, and is of %v, %v", have, want, other.Labels,
			other.OwnerReferences)
	}
	var few pool[int]
	for i := range 2*mostPooled + 1 {
		if have := few.share(strconv.Itoa(i), i); have != i || len(few.known) > mostPooled {
			t.Fatalf("value %d is %d, with %d kept", i, have, len(few.known))
		}
	}
}

func podTemplate() v1.PodTemplateSpec {
	always := v1.ContainerRestartPolicyAlways
	return v1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{
			Labels:      map[string]string{v1alpha1.LabelWorkloadClass: "training"},
			Annotations: map[string]string{v1alpha1.AnnotationExpectedDuration: "2h"},
		},
		Spec: v1.PodSpec{
			SchedulerName: "kubenergy", PriorityClassName: "low", NodeSelector: map[string]string{"a": "b"},
			Containers: []v1.Container{{
				Name: "c", Image: "example.org/c:1", Resources: v1.ResourceRequirements{Requests: quantities("500m")},
			}},
			InitContainers: []v1.Container{{
				Name: "i", RestartPolicy: &always, Resources: v1.ResourceRequirements{Requests: quantities("100m")},
			}},
			Overhead: quantities("10m"),
			Volumes:  []v1.Volume{{Name: "v"}},
		},
	}
}
