package kube

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/energy"
	"github.com/kubenergy/kubenergy/grid"
	"github.com/kubenergy/kubenergy/policy"
	"github.com/kubenergy/kubenergy/sched"
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

// hardwareContents is what most clusters know, with a signal of the given value.
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

func viewAfter(t testing.TB, before *View, c Contents) *View {
	t.Helper()
	v, err := c.View()
	if err != nil {
		t.Fatal(err)
	}
	v.adopt(before)
	return v
}

func siteOf(v *View, n *v1.Node) *sched.Site {
	node, _ := v.Node(n, sched.Resources{}, sched.Resources{}, 0)
	return node.Site
}

func TestFactsOutliveASignal(t *testing.T) {
	n := nodesOf(1)[0]
	first := viewAfter(t, nil, hardwareContents(t, 300))
	siteOf(first, n)
	known := first.facts(n)
	second := viewAfter(t, first, hardwareContents(t, 100))
	if second.facts(n) != known {
		t.Error("a signal made a view forget its nodes")
	}
	if got := siteOf(second, n).Carbon.Series.Value(0); got != 100 {
		t.Errorf("the site has the signal %v", got)
	}
	if got := siteOf(first, n).Carbon.Series.Value(0); got != 300 {
		t.Errorf("the first view's site has the signal %v", got)
	}

	for name, change := range map[string]func(*Contents){
		"profile":         func(c *Contents) { c.Profiles[0].Max = 30 },
		"default profile": func(c *Contents) { c.DefaultProfile = "" },
		"site":            func(c *Contents) { c.Sites[1].Name = "south" },
		"zone":            func(c *Contents) { c.Sites[1].Zone = "NO" },
		"default site":    func(c *Contents) { c.DefaultSite = "north" },
		"region":          func(c *Contents) { c.Regions = map[string]string{"eu-north-1": "north"} },
		"benchmark": func(c *Contents) {
			c.Benchmarks = map[string]map[string]energy.Benchmark{"training": {n.Name: {Rate: 1, Power: 20}}}
		},
		"node power": func(c *Contents) {
			c.Defaults.NodePower = map[string]*energy.Profile{n.Name: {
				Name: "own",
				Max:  5,
			}}
		},
	} {
		c := hardwareContents(t, 300)
		change(&c)
		if v := viewAfter(t, first, c); v.facts(n) == known {
			t.Errorf("%s: the view takes over what no longer holds", name)
		}
	}
	if first.facts(n.DeepCopy()) == known {
		t.Error("another object of the node has the facts of the first")
	}
}

func TestFactsOfNodesThatAreGone(t *testing.T) {
	v := viewAfter(t, nil, hardwareContents(t, 300))
	stays := nodesOf(1)[0]
	known := v.facts(stays)
	for i := range 20 {
		for _, n := range nodesOf(100) {
			n.Name = fmt.Sprint("round-", i, "-", n.Name)
			v.facts(n)
		}
		runtime.GC()
	}
	if n := v.nodes.size.Load(); n > 4*fewNodes {
		t.Errorf("%d nodes are remembered", n)
	}
	if v.facts(stays) != known {
		t.Error("a node that stayed was forgotten")
	}
	runtime.KeepAlive(stays)
}

// A node's own PUE counts whoever tells its watts.
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
	v := viewAfter(b, nil, hardwareContents(b, 300))
	for _, n := range nodes {
		siteOf(v, n)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		siteOf(v, nodes[i%len(nodes)])
	}
}

// BenchmarkNodesAfterASignal is a cycle over 5,000 nodes right after another view.
func BenchmarkNodesAfterASignal(b *testing.B) {
	nodes := nodesOf(5000)
	v := viewAfter(b, nil, hardwareContents(b, 300))
	for b.Loop() {
		v = viewAfter(b, v, hardwareContents(b, 100))
		for _, n := range nodes {
			siteOf(v, n)
		}
	}
}
