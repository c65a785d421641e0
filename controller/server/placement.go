package server

import (
	"cmp"
	"math"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"github.com/kubenergy/kubenergy/energy"
	"github.com/kubenergy/kubenergy/kube"
	"github.com/kubenergy/kubenergy/policy"
	"github.com/kubenergy/kubenergy/sched"
)

// choice is what a node is chosen for.
type choice struct {
	now      time.Time
	view     *kube.View
	pod      *v1.Pod
	job      *sched.Job
	settings *policy.Settings
}

// choose fills in the node that the strategy would choose, by a model of what fits: the scheduler checks more.
func (s *server) choose(e *Expected, c *choice, loaded []loadedNode) {
	watts := s.liveNow(c.now)
	var nodes []*sched.Node
	for i := range loaded {
		if node := c.consider(&loaded[i], watts); node != nil {
			nodes = append(nodes, node)
		}
	}
	if len(nodes) == 0 {
		e.Note = joinNotes(e.Note, "no node fits now")
		return
	}
	snapshot := &sched.Snapshot{
		Now: c.now, Queue: []sched.Job{*c.job}, Nodes: nodes, Sites: c.view.Sites(), Policy: c.settings.Policy(),
	}
	strategy, err := sched.New(c.settings.Strategy())
	if err != nil {
		e.Note = joinNotes(e.Note, err.Error())
		return
	}
	costs, ok := strategy.Costs(snapshot, c.job, nil)
	if !ok {
		e.Note = joinNotes(e.Note,
			"the strategy has no opinion, for want of fresh signals or power profiles: stock's scores decide")
		return
	}
	best := 0
	for i := range costs {
		if cmp.Or(cmp.Compare(costs[i], costs[best]), cmp.Compare(nodes[i].Name, nodes[best].Name)) < 0 {
			best = i
		}
	}
	n := nodes[best]
	e.Node = n.Name
	if n.Profile != nil {
		added := snapshot.Estimate(c.job, n, sched.Window{Start: c.now, End: c.now.Add(n.Runtime(c.job))})
		e.KWh = finite(added.Energy.KWh())
		if n.Site.Carbon.Series != nil {
			e.Grams = finite(float64(added.Carbon))
		}
	}
	if carbon := n.Site.Carbon; carbon.Series != nil && carbon.Series.Covers(c.now, c.now) {
		e.CarbonIntensity = finite(carbon.Series.At(c.now))
	}
}

// finite returns nil for what JSON cannot say.
func finite(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}

func joinNotes(a, b string) string {
	if a == "" {
		return b
	}
	return a + "; " + b
}

// consider returns the node as the core sees it, nil if the pod cannot run there.
func (c *choice) consider(l *loadedNode, watts map[string]float64) *sched.Node {
	if !takes(l.node, c.pod) {
		return nil
	}
	node, _ := l.on(c.view)
	if w, ok := watts[node.Name]; ok {
		node.Live, node.HasLive = energy.Watts(w), true
	} else if w, ok := kube.LiveWatts(l.node, c.now); ok {
		node.Live, node.HasLive = w, true
	}
	if !c.job.Request.Within(node.Free) {
		return nil
	}
	if _, ok := c.job.Admits(&node, c.settings.MaxPower, c.settings.MinEfficiency); !ok {
		return nil
	}
	return &node
}

func takes(n *v1.Node, pod *v1.Pod) bool {
	if n.Spec.Unschedulable {
		return false
	}
	if match, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(n); err != nil || !match {
		return false
	}
	hard := func(t *v1.Taint) bool {
		return t.Effect == v1.TaintEffectNoSchedule || t.Effect == v1.TaintEffectNoExecute
	}
	_, found := corev1.FindMatchingUntoleratedTaint(klog.Background(), n.Spec.Taints, pod.Spec.Tolerations, hard, true)
	return !found
}
