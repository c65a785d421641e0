package karmada

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/codec"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
)

var noon = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

// world is a federation with the carbon intensity and the free cores per node of each cluster.
type world map[string]struct {
	grams float64
	free  []int64
}

func (w world) clusters(t *testing.T) (all []*cluster, view *kube.View, room func(*cluster) ([]*sched.Node, string)) {
	t.Helper()
	var sites []*sched.Site
	nodes := map[string][]*sched.Node{}
	for _, name := range slices.Sorted(maps.Keys(w)) {
		c := w[name]
		series, err := grid.Constant(noon.Add(-time.Hour), 72*time.Hour, c.grams)
		if err != nil {
			t.Fatal(err)
		}
		site := &sched.Site{Name: name, Carbon: grid.Signal{Series: series}}
		sites = append(sites, site)
		all = append(all, parsed[cluster](t, fmt.Sprintf(`{"metadata": {"name": %q}, "status": {"apiEnablements": [
			{"groupVersion": "batch/v1", "resources": [{"kind": "Job"}]}]}}`, name)))
		for i, cores := range c.free {
			nodes[name] = append(nodes[name], &sched.Node{
				Name: fmt.Sprintf("%s/n%d", name, i), Site: site, Jobs: 1, Awake: true,
				Capacity: sched.Resources{MilliCPU: 8000, Memory: 32 << 30},
				Free:     sched.Resources{MilliCPU: 1000 * cores, Memory: 32 << 30},
				Profile:  &energy.Profile{Idle: 100, Max: 300},
			})
		}
	}
	view, err := kube.NewView(sites, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	return all, view, func(c *cluster) ([]*sched.Node, string) { return nodes[c.Name], "" }
}

// TestChoose verifies that all replicas are placed in the clusters with the lowest carbon intensity and enough
// capacity, within the maximum number of clusters, and that each decision can be replayed from its record.
func TestChoose(t *testing.T) {
	w := world{"full": {20, []int64{1}}, "clean": {50, []int64{4, 3}}, "middle": {100, []int64{8}}, "dirty": {400, []int64{8, 8}}}
	for name, c := range map[string]struct {
		replicas  int32
		placement string
		want      string
	}{
		"one":             {1, `{}`, "[{clean 1}]"},
		"all fit in one":  {3, `{}`, "[{clean 3}]"},
		"in two of them":  {5, `{}`, "[{clean 3} {middle 2}]"},
		"in one cluster":  {4, `{"spreadConstraints": [{"spreadByField": "cluster", "maxGroups": 1}]}`, "[{middle 4}]"},
		"no capacity":     {9, `{"spreadConstraints": [{"spreadByField": "cluster", "maxGroups": 1}]}`, "[]"},
		"with affinity":   {2, `{"clusterAffinity": {"exclude": ["clean"]}}`, "[{middle 2}]"},
		"in two clusters": {7, `{"spreadConstraints": [{"spreadByField": "cluster", "maxGroups": 2}]}`, "[{clean 3} {middle 4}]"},
		"too many":        {20, `{}`, "[]"},
	} {
		clusters, view, room := w.clusters(t)
		b := parsed[binding](t, fmt.Sprintf(`{"spec": {"resource": {"apiVersion": "batch/v1", "kind": "Job"}, "replicas": %d,
			"placement": %s}}`, c.replicas, c.placement))
		job := sched.Job{ID: "j", Submitted: noon, Duration: time.Hour, Request: sched.Resources{MilliCPU: 2000, Memory: 1 << 30}}
		q := ask(b, job, &policy.Settings{}, view, clusters, room, noon)
		a, err := q.answer(c.replicas)
		if err != nil {
			if c.want != "[]" {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if got := fmt.Sprint(a.targets); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
		data, err := codec.Encode(a.on)
		if err != nil {
			t.Fatal(err)
		}
		again, err := codec.Decode(data)
		if err != nil || len(again.Queue) != 1 { // as required by kubenergy replay
			t.Fatal(len(again.Queue), err)
		}
		strategy, err := strategy.ByName(q.strategy)
		if err != nil {
			t.Fatal(err)
		}
		if d := strategy.Plan(again)[0]; d.Node != a.first.Node {
			t.Errorf("%s: got node %s, the replayed decision is %s", name, a.first.Node, d.Node)
		}
	}
}

// TestChooseBesideFullNodes verifies that a full node does not hide the capacity of similar nodes.
func TestChooseBesideFullNodes(t *testing.T) {
	clusters, view, room := world{"clean": {50, []int64{0, 2, 7}}, "dirty": {400, []int64{8}}}.clusters(t)
	profile := &energy.Profile{Idle: 100, Max: 300}
	large := func(c *cluster) ([]*sched.Node, string) {
		nodes, why := room(c)
		for _, n := range nodes {
			n.Capacity.MilliCPU, n.Profile = 64000, profile
		}
		return nodes, why
	}
	b := parsed[binding](t, `{"spec": {"resource": {"apiVersion": "batch/v1", "kind": "Job"},
		"placement": {"clusterAffinity": {"clusterNames": ["clean"]}}}}`)
	job := sched.Job{ID: "j", Submitted: noon, Duration: time.Hour, Request: sched.Resources{MilliCPU: 2000}}
	for _, replicas := range []int32{1, 2, 4} {
		a, err := ask(b, job, &policy.Settings{}, view, clusters, large, noon).answer(replicas)
		if want := fmt.Sprintf("[{clean %d}]", replicas); err != nil || fmt.Sprint(a.targets) != want {
			t.Errorf("%d: %+v: %v, want %s", replicas, a, err, want)
		}
	}
}

// TestChooseWithoutSignals verifies that Karmada's dynamic weights are used if there are no signals.
func TestChooseWithoutSignals(t *testing.T) {
	clusters, _, room := world{"clean": {50, []int64{4}}, "dirty": {400, []int64{8, 8}}}.clusters(t)
	bare := func(c *cluster) ([]*sched.Node, string) {
		nodes, why := room(c)
		for _, n := range nodes {
			n.Site = &sched.Site{Name: c.Name}
		}
		return nodes, why
	}
	b := parsed[binding](t, `{"spec": {"resource": {"apiVersion": "batch/v1", "kind": "Job"}, "replicas": 1, "placement": {}}}`)
	job := sched.Job{ID: "j", Submitted: noon, Duration: time.Hour, Request: sched.Resources{MilliCPU: 2000, Memory: 1 << 30}}
	q := ask(b, job, &policy.Settings{}, kube.Unsettled(), clusters, bare, noon)
	if a, err := q.answer(1); !errors.Is(err, errNoOpinion) {
		t.Errorf("%+v: %v", a, err)
	}
	q.strategy = stock
	if a, err := q.answer(1); err != nil || fmt.Sprint(a.targets) != "[{dirty 1}]" || q.strategy != "karmada-dynamic" {
		t.Errorf("%+v by %s: %v", a, q.strategy, err)
	}
}
