package kube

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
)

// A Placement ranks nodes for a single pod and is used to inform users. It considers resource requests, node
// selector, affinity, taints and the limits in the settings. The actual scheduler checks additional conditions.
type Placement struct {
	Now      time.Time
	View     *View
	Pod      *v1.Pod
	Job      *sched.Job // with the requests of this single pod
	Settings *policy.Settings
	// Live is the measured power of nodes. For other nodes, the annotation of the hybrid scheduler's monitor is
	// used.
	Live map[string]energy.Watts
	Hot  map[string]sched.Heat // nodes that are too hot
}

// Ranked is a feasible node. The additional energy is estimated with the power profile.
type Ranked struct {
	Node       *sched.Node
	Cost       float64  // in the unit of the strategy
	KWh, Grams *float64 // nil if unknown
}

// Consider converts a node, or returns the reason why the pod cannot run there.
func (p *Placement) Consider(n *v1.Node, load *Load) (node *sched.Node, why string) {
	found, _ := load.Node(p.View, n)
	if found.Live, found.HasLive = p.Live[n.Name]; !found.HasLive {
		found.Live, found.HasLive = LiveWatts(n, p.Now, WattsWritten)
	}
	admission := AdmissionOf(p.Pod)
	if why, taint := admission.Refuses(n); why != "" {
		return nil, strings.TrimSpace(why + " " + taint.ToString())
	}
	if lacking := lacks(p.Job.Request, found.Free); lacking != "" {
		return nil, "not enough " + lacking
	}
	if why, ok := p.Job.Admits(&found, p.Settings.MaxPower, p.Settings.MinEfficiency); !ok {
		return nil, why
	}
	if why, hot := p.Hot[n.Name].Refuses(p.Now); hot {
		return nil, why
	}
	return &found, ""
}

func lacks(want, free sched.Resources) string {
	var short []string
	for _, r := range []struct {
		name       string
		want, free int64
	}{{"CPU", want.MilliCPU, free.MilliCPU}, {"memory", want.Memory, free.Memory}, {"GPUs", want.GPU, free.GPU},
		{"partitions of GPUs", want.MilliGPU, free.MilliGPU}} {
		if r.want > max(r.free, 0) {
			short = append(short, r.name)
		}
	}
	return strings.Join(short, " and ")
}

// Rank sorts nodes by the costs that the scheduler uses and then by name. If the strategy has no opinion, it sorts
// by name only.
func (p *Placement) Rank(nodes []*sched.Node) (ranked []Ranked, opinion bool) {
	snapshot := &sched.Snapshot{
		Now: p.Now, Queue: []sched.Job{*p.Job}, Nodes: nodes, Sites: p.View.Sites(), Policy: p.Settings.Policy(),
	}
	var costs []float64
	if strategy, err := strategy.New(p.Settings.Strategy()); err == nil {
		costs, opinion = strategy.Costs(snapshot, p.Job, nil)
	}
	for i, n := range nodes {
		r := Ranked{Node: n}
		if opinion {
			r.Cost = costs[i]
		}
		if n.Profile != nil {
			added := snapshot.Estimate(p.Job, n, sched.Window{Start: p.Now, End: p.Now.Add(n.Runtime(p.Job))})
			r.KWh = finite(added.Energy.KWh())
			if n.Site.Carbon.Series != nil {
				r.Grams = finite(float64(added.Carbon))
			}
		}
		ranked = append(ranked, r)
	}
	slices.SortFunc(ranked, func(a, b Ranked) int {
		return cmp.Or(cmp.Compare(a.Cost, b.Cost), strings.Compare(a.Node.Name, b.Node.Name))
	})
	return ranked, opinion
}

// finite returns nil for values that are not representable in JSON.
func finite(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}
