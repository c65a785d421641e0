package kube

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/sched"
)

func nodesOf(n int) []*v1.Node {
	nodes := make([]*v1.Node, n)
	for i := range nodes {
		nodes[i] = &v1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprint("node-", i), Labels: map[string]string{
				v1alpha1.LabelSite: "north", v1.LabelInstanceTypeStable: "m5.large",
			},
		}}
	}
	return nodes
}

// hardwareContents returns contents that are typical of a cluster, with a signal of the given value.
func hardwareContents(t testing.TB, value float64) Contents {
	t.Helper()
	series, err := grid.NewSeries(noon, time.Hour, []float64{value})
	if err != nil {
		t.Fatal(err)
	}
	return Contents{
		Sites:          []*sched.Site{{Name: "home"}, {Name: "north", Carbon: grid.Signal{Series: series}}},
		DefaultSite:    "home",
		Profiles:       []*NodeProfile{{Profile: energy.Profile{Name: "small", Idle: 10, Max: 20, Sleep: 10}}},
		DefaultProfile: "small",
	}
}

func siteOfNode(v *View, n *v1.Node) *sched.Site {
	node, _ := v.Node(n, sched.Resources{}, sched.Resources{}, 0)
	return node.Site
}

func TestFactsAreThoseOfTheObject(t *testing.T) {
	v := viewOf(t, hardwareContents(t, 300))
	n := nodesOf(1)[0]
	if first := v.facts(n); v.facts(n) != first {
		t.Error("the facts of a node are not cached")
	}
	moved := n.DeepCopy()
	moved.Labels[v1alpha1.LabelSite] = "home"
	if site := siteOfNode(v, moved); site.Name != "home" {
		t.Errorf("the site of another object of the node is %q", site.Name)
	}
}

// TestUnsettledViewRemembersNoNodes verifies that the unsettled view does not cache nodes, because it exists as
// long as the process and would never release them.
func TestUnsettledViewRemembersNoNodes(t *testing.T) {
	Unsettled().facts(nodesOf(1)[0])
	if n := Unsettled().nodes.size.Load(); n != 0 {
		t.Errorf("%d nodes are cached", n)
	}
}

func TestFactsOfNodesThatAreGone(t *testing.T) {
	v := viewOf(t, hardwareContents(t, 300))
	for _, n := range nodesOf(maxNodes + 100) {
		v.facts(n)
	}
	if n := v.nodes.size.Load(); n > 100 {
		t.Errorf("%d nodes are cached", n)
	}
}

// TestPUEOfANode verifies that the PUE annotation of a node is used regardless of the source of its power profile.
func TestPUEOfANode(t *testing.T) {
	own := &v1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: "n1", Annotations: map[string]string{"compute-gardener-scheduler.kubernetes.io/pue": "1.7"},
	}}
	absurd := &v1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: "n1", Annotations: map[string]string{"compute-gardener-scheduler.kubernetes.io/pue": "0.5"},
	}}
	selected := func(n *v1.Node) *v1.Node {
		n = n.DeepCopy()
		n.Labels = map[string]string{v1alpha1.LabelPowerProfile: "server"}
		return n
	}
	v := viewOf(t, Contents{
		Profiles: []*NodeProfile{{Profile: energy.Profile{Name: "server", Max: 100}, PUE: 1.2}},
		Defaults: policy.Defaults{NodePower: map[string]*energy.Profile{"n1": {Name: "environment-n1", Max: 300}}},
	})
	for _, tc := range []struct {
		name string
		node *v1.Node
		want float64
	}{
		{"PowerProfile", selected(own), 1.7},
		{"PowerProfile, absurd", selected(absurd), 1.2},
		{"NODE_POWER_CONFIG", own, 1.7},
		{"NODE_POWER_CONFIG, absurd", absurd, 0},
	} {
		if n, ok := v.Node(tc.node, sched.Resources{}, sched.Resources{}, 0); !ok || n.PUE != tc.want {
			t.Errorf("%s: PUE is %v, want %v", tc.name, n.PUE, tc.want)
		}
	}
}

func BenchmarkNodesWarm(b *testing.B) {
	nodes := nodesOf(5000)
	v := viewOf(b, hardwareContents(b, 300))
	for _, n := range nodes {
		siteOfNode(v, n)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		siteOfNode(v, nodes[i%len(nodes)])
	}
}

func TestLiveWatts(t *testing.T) {
	node := func(watts, updated string) *v1.Node {
		return &v1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
			"energy.thesis.io/current-watts": watts, "energy.thesis.io/last-updated": updated,
		}}}
	}
	at := func(age time.Duration) string {
		return strconv.FormatInt(noon.Add(-age).Unix(), 10)
	}
	for _, tc := range []struct {
		name string
		node *v1.Node
		want energy.Watts
		ok   bool
	}{
		{"none", &v1.Node{}, 0, false},
		{"fresh", node("63.5", at(10*time.Second)), 63.5, true},
		{"half a minute old", node("63.5", at(31*time.Second)), 63.5, false},
		{"of the future", node("63.5", at(-time.Hour)), 63.5, false},
		{"without a time", node("63.5", ""), 63.5, false},
		{"nonsense", node("NaN", at(0)), 0, false},
	} {
		if got, ok := LiveWatts(tc.node, noon, WattsWritten); ok != tc.ok || ok && got != tc.want {
			t.Errorf("%s: %v, %v", tc.name, got, ok)
		}
	}
}

// TestWattsWithoutTheirTime verifies that power annotations without a timestamp have the age of their last change,
// which is either observed by watching the node or derived from its managed fields.
func TestWattsWithoutTheirTime(t *testing.T) {
	node := func(watts string) *v1.Node {
		return &v1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: "a", Annotations: map[string]string{"energy.thesis.io/current-watts": watts},
		}}
	}
	now := noon
	var seen SeenWatts
	handler := seen.Handler(func() time.Time { return now })
	check := func(what string, n *v1.Node, after time.Duration, want bool) {
		t.Helper()
		if watts, ok := LiveWatts(n, now.Add(after), seen.Changed); ok != want || ok && watts != 80 {
			t.Errorf("%s: %v, %v", what, watts, ok)
		}
	}
	handler.OnAdd(node("80"), true)
	check("value before the first observation", node("80"), 0, false)
	handler.OnUpdate(node("70"), node("80"))
	check("just changed", node("80"), 0, true)
	now = now.Add(4 * time.Minute)
	handler.OnUpdate(node("80"), node("80"))
	check("for five minutes", node("80"), time.Minute, true)
	check("after five minutes", node("80"), time.Minute+time.Second, false)
	handler.OnDelete(cache.DeletedFinalStateUnknown{Key: "a", Obj: node("80")})
	check("deleted", node("80"), 0, false)
	handler.OnAdd(node("80"), false)
	check("a new node", node("80"), 0, false)

	written := node("80")
	written.ManagedFields = []metav1.ManagedFieldsEntry{
		{Manager: "kubelet", Time: &metav1.Time{Time: noon.Add(-time.Minute)}, FieldsV1: metav1.NewFieldsV1(
			`{"f:metadata":{"f:annotations":{"f:node.alpha.kubernetes.io/ttl":{}}}}`)},
		{Manager: "monitor", Time: &metav1.Time{Time: noon.Add(-6 * time.Minute)}, FieldsV1: metav1.NewFieldsV1(
			`{"f:metadata":{"f:annotations":{"f:energy.thesis.io/current-watts":{}}}}`)},
	}
	if _, ok := LiveWatts(written, noon, WattsWritten); ok {
		t.Error("a value written six minutes ago is used")
	}
	if watts, ok := LiveWatts(written, noon.Add(-2*time.Minute), WattsWritten); !ok || watts != 80 {
		t.Errorf("written four minutes ago: %v, %v", watts, ok)
	}
}

// TestPodsLackWhatTheyAskFor verifies that a pod that does not request a resource may run on a node on which it is
// overcommitted, as in kube-scheduler.
func TestPodsLackWhatTheyAskFor(t *testing.T) {
	free := sched.Resources{MilliCPU: 1000, Memory: 100, GPU: -2}
	for want, lacking := range map[sched.Resources]string{
		{MilliCPU: 1000, Memory: 100}:         "",
		{MilliCPU: 1001, Memory: 101, GPU: 1}: "CPU and memory and GPUs",
	} {
		if got := lacks(want, free); got != lacking {
			t.Errorf("%+v lacks %q, want %q", want, got, lacking)
		}
	}
}

// TestHottest verifies that the temperature limit is that of the PowerProfile that applies to the node.
func TestHottest(t *testing.T) {
	c := hardwareContents(t, 300)
	c.Profiles[0].Hottest = 70
	c.Profiles = append(c.Profiles, &NodeProfile{
		Profile: energy.Profile{Name: "rack", Idle: 10, Max: 20, Sleep: 10}, Selector: map[string]string{"rack": "1"},
		Hottest: 85,
	})
	v := viewOf(t, c)
	for _, tc := range []struct {
		labels map[string]string
		want   energy.Celsius
	}{
		{map[string]string{"rack": "1"}, 85},
		{map[string]string{"rack": "1", v1alpha1.LabelPowerProfile: "small"}, 70},
		{nil, 70},
		{map[string]string{v1alpha1.LabelPowerProfile: "gone"}, 0},
		// its hardware is known, so the default profile does not apply
		{map[string]string{v1.LabelInstanceTypeStable: "m5.large"}, 0},
	} {
		if got := v.Hottest(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: tc.labels}}); got != tc.want {
			t.Errorf("%v: %v, want %v", tc.labels, got, tc.want)
		}
	}
}
