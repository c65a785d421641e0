package karmada

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/sched"
)

// filled is a fake informer with fixed objects that sends no requests.
type filled struct{ cache.SharedIndexInformer }

func (filled) HasSynced() bool { return true }

func fill[T any](tb testing.TB, objects ...T) filled {
	tb.Helper()
	i := filled{cache.NewSharedIndexInformer(&cache.ListWatch{}, &v1.Pod{}, 0, cache.Indexers{})}
	for _, o := range objects {
		if err := i.GetStore().Add(o); err != nil {
			tb.Fatal(err)
		}
	}
	return i
}

// federated returns a Driver with the given number of clusters and of empty nodes with eight cores in each. The
// carbon intensity increases from c000 on.
func federated(tb testing.TB, clusters, nodes int, clock func() time.Time) *Driver {
	tb.Helper()
	now := clock()
	d := &Driver{
		Options: Options{
			Log: slog.New(slog.DiscardHandler), Clock: clock, Record: func(ledger.Record, *sched.Snapshot) {},
		},
		client: fake.NewClientset(), bound: fill[*binding](tb),
	}
	if err := d.bound.AddIndexers(indexers); err != nil {
		tb.Fatal(err)
	}
	d.members = &members{view: func() *kube.View { return d.View() }, of: map[string]*member{}}
	capacity := v1.ResourceList{v1.ResourceCPU: resource.MustParse("8"), v1.ResourceMemory: resource.MustParse("32Gi")}
	d.joined = fill[*cluster](tb)
	var sites []*sched.Site
	for i := range clusters {
		name := fmt.Sprintf("c%03d", i)
		series, err := grid.Constant(now.Add(-time.Hour), 72*time.Hour, float64(50*(i+1)))
		if err != nil {
			tb.Fatal(err)
		}
		sites = append(sites, &sched.Site{Name: name, Carbon: grid.Signal{Series: series}})
		var all []*v1.Node
		for j := range nodes {
			all = append(all, &v1.Node{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n%03d", j)},
				Status:     v1.NodeStatus{Capacity: capacity, Allocatable: capacity},
			})
		}
		c := parsed[cluster](tb, fmt.Sprintf(`{"metadata": {"name": %q, "labels": {%q: %[1]q}}, "status": {
			"conditions": [{"type": "Ready", "status": "True"}],
			"apiEnablements": [{"groupVersion": "apps/v1", "resources": [{"kind": "Deployment"}]}]}}`,
			name, v1alpha1.LabelSite))
		if err := d.joined.GetStore().Add(c); err != nil {
			tb.Fatal(err)
		}
		d.members.of[name] = &member{
			cluster: c,
			nodes:   fill(tb, all...), pods: fill[*v1.Pod](tb), stop: func() {}, waits: map[types.UID]time.Time{},
		}
	}
	view, err := kube.NewView(sites, []*energy.Profile{{Name: "box", Idle: 100, Max: 300}}, "box")
	if err != nil {
		tb.Fatal(err)
	}
	d.View = func() *kube.View { return view }
	return d
}

// divided returns a binding of a Deployment with replicas that request two cores each.
func divided(tb testing.TB, name string, replicas int) *binding {
	tb.Helper()
	return parsed[binding](tb, fmt.Sprintf(`{"metadata": {"namespace": "team", "name": %q, "uid": %[1]q}, "spec": {
		"resource": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "team", "name": %[1]q}, "replicas": %d,
		"replicaRequirements": {"resourceRequest": {"cpu": "2", "memory": "1Gi"}}, "schedulerName": "kubenergy",
		"placement": {"replicaScheduling": {"replicaSchedulingType": "Divided"}}}}`, name, replicas))
}

// settled sets the clusters of a binding and marks it as scheduled now.
func (d *Driver) settled(tb testing.TB, b *binding, to []target) {
	tb.Helper()
	now := metav1.NewTime(d.Clock())
	b.Spec.Clusters, b.Status.LastScheduledTime = to, &now
	if err := d.bound.GetStore().Update(b); err != nil {
		tb.Fatal(err)
	}
}

// TestRoomOfWhatIsOnItsWay verifies that scheduled replicas use capacity before their pods are observed.
func TestRoomOfWhatIsOnItsWay(t *testing.T) {
	now := noon
	d := federated(t, 2, 2, func() time.Time { return now })
	for i, want := range []string{"[{c000 3}]", "[{c000 3}]", "[{c000 2} {c001 1}]", "[{c001 3}]"} {
		b := divided(t, fmt.Sprint("b", i), 3)
		a, err := d.answer(t.Context(), b, nil, "")
		if err != nil || fmt.Sprint(a.targets) != want {
			t.Errorf("binding %d: got %v (%v), want %s", i, a.targets, err, want)
		}
		d.settled(t, b, a.targets)
	}
	now = now.Add(arrival + lookEvery)
	if a, err := d.answer(t.Context(), divided(t, "late", 8), nil, ""); err != nil || fmt.Sprint(a.targets) != "[{c000 8}]" {
		t.Errorf("30 seconds later: got %v (%v)", a.targets, err)
	}
}

// running returns an advancing clock, so that snapshots of members are updated.
func running() func() time.Time {
	began := time.Now()
	return func() time.Time { return noon.Add(time.Since(began)) }
}

// BenchmarkAnswer schedules a binding in 100 clusters with 50 nodes each, with many other bindings that were
// scheduled long ago.
func BenchmarkAnswer(b *testing.B) {
	for _, others := range []int{0, 5000} {
		b.Run(fmt.Sprintf("others=%d", others), func(b *testing.B) {
			d := federated(b, 100, 50, running())
			for i := range others {
				old := divided(b, fmt.Sprint("old", i), 1)
				d.settled(b, old, []target{{fmt.Sprintf("c%03d", i%100), 1}})
				old.Status.LastScheduledTime.Time = noon.Add(-time.Hour)
			}
			asked := divided(b, "asked", 1)
			for b.Loop() {
				if _, err := d.answer(b.Context(), asked, nil, ""); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(b.N), "ms/op")
		})
	}
}

// BenchmarkQueue schedules 5,000 bindings one after the other.
func BenchmarkQueue(b *testing.B) {
	for b.Loop() {
		d := federated(b, 100, 50, running())
		for i := range 5000 {
			asked := divided(b, fmt.Sprint("b", i), 1)
			a, err := d.answer(b.Context(), asked, nil, "")
			if err != nil {
				b.Fatal(err)
			}
			d.settled(b, asked, a.targets)
		}
	}
}

// TestRoomOfMoreThanNodesHold verifies that a huge number of replicas uses at most the capacity of the nodes.
func TestRoomOfMoreThanNodesHold(t *testing.T) {
	d := federated(t, 2, 2, func() time.Time { return noon })
	huge := divided(t, "huge", math.MaxInt32)
	d.settled(t, huge, []target{{"c000", math.MaxInt32}})
	if a, err := d.answer(t.Context(), divided(t, "b", 1), nil, ""); err != nil || fmt.Sprint(a.targets) != "[{c001 1}]" {
		t.Errorf("%v, %v", a.targets, err)
	}
	huge.Spec.ReplicaRequirements = nil
	if a, err := d.answer(t.Context(), divided(t, "b", 1), nil, ""); err != nil || fmt.Sprint(a.targets) != "[{c000 1}]" {
		t.Errorf("with a binding without requests: got %v, %v", a.targets, err)
	}
}

// TestFreed verifies that the release time of a binding is recorded in the binding, where all replicas can read it.
func TestFreed(t *testing.T) {
	d := federated(t, 1, 1, func() time.Time { return noon })
	client := dynamicfake.NewSimpleDynamicClient(runtime.NewScheme())
	d.dynamic = client
	b := divided(t, "b", 1)
	client.PrependReactor("patch", kube.Bindings.Resource, func(a clienttesting.Action) (bool, runtime.Object, error) {
		return true, &unstructured.Unstructured{}, json.Unmarshal(a.(clienttesting.PatchAction).GetPatch(), b)
	})
	b.Labels = map[string]string{v1alpha1.LabelHeld: "true"}
	b.CreationTimestamp.Time = noon.Add(-time.Hour)
	if err := json.Unmarshal([]byte(`{"suspension": {"scheduling": true}}`), &b.Spec); err != nil {
		t.Fatal(err)
	}
	if err := d.free(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if since := b.since(); time.Since(since).Abs() > time.Minute || b.suspended() {
		t.Errorf("waiting since %v, suspended is %v", since, b.suspended())
	}
}

// TestLeadsInItsTermOnly verifies that a term is ignored if it is stored after its end.
func TestLeadsInItsTermOnly(t *testing.T) {
	d := &Driver{}
	term, end := context.WithCancel(t.Context())
	if d.leads() {
		t.Error("leads() is true before the term")
	}
	if d.term.Store(&term); !d.leads() {
		t.Error("leads() is false during the term")
	}
	end()
	if d.term.Store(&term); d.leads() {
		t.Error("leads() is true after the term")
	}
}

// TestMembersListNoMoreThanTheyMay verifies that a member fails if the pages of a list contain too many objects.
func TestMembersListNoMoreThanTheyMay(t *testing.T) {
	page := &v1.PodList{Items: make([]v1.Pod, maxListed/2+1)}
	b := &bounded{ListWatch: &cache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) { return page, nil },
	}}
	for range 2 {
		if _, err := b.ListWithContext(t.Context(), metav1.ListOptions{}); err != nil {
			t.Error(err)
		}
	}
	if _, err := b.ListWithContext(t.Context(), metav1.ListOptions{Continue: "more"}); err == nil {
		t.Error("expected an error for too many objects")
	}
}

// TestChangesOfClusters verifies that only changes that can affect the placement of bindings are reported.
func TestChangesOfClusters(t *testing.T) {
	d := federated(t, 1, 1, func() time.Time { return noon })
	d.members.config = &rest.Config{Host: "http://127.0.0.1:1"}
	for name, c := range map[string]struct {
		change func(*cluster)
		want   bool
	}{
		"heartbeat": {func(c *cluster) { c.ResourceVersion = "2" }, false},
		"label":     {func(c *cluster) { c.Labels = map[string]string{"tier": "gold"} }, true},
		"taint":     {func(c *cluster) { c.Generation = 2 }, true},
		"not ready": {func(c *cluster) { c.Status.Conditions = nil }, true},
		"kinds":     {func(c *cluster) { c.Status.APIEnablements = nil }, true},
		"joined":    {func(c *cluster) { c.Name = "new" }, true},
	} {
		previous := *d.cluster("c000")
		changed := previous
		c.change(&changed)
		if got, err := d.members.saw(t.Context(), &changed); err != nil || got != c.want {
			t.Errorf("%s: %v, %v", name, got, err)
		}
		if _, err := d.members.saw(t.Context(), &previous); err != nil {
			t.Error(err)
		}
	}
}
