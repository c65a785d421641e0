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

// A Placement says which nodes suit one pod now, for people: by a model of what fits that knows requests, node
// selector, affinity, taints and the limits of the settings. The real scheduler checks more.
type Placement struct {
	Now      time.Time
	View     *View
	Pod      *v1.Pod
	Job      *sched.Job // requests what this one pod does
	Settings *policy.Settings
	// Live is what nodes draw now; of others it is what the hybrid scheduler's monitor wrote on them.
	Live map[string]energy.Watts
	Hot  map[string]sched.Heat // nodes that are too hot
}

// Ranked is a node that could take the pod. What running it there adds is estimated from the power profile.
type Ranked struct {
	Node       *sched.Node
	Cost       float64  // in the strategy's own unit
	KWh, Grams *float64 // nil: not known
}

// Consider returns a node as the core sees it, or why the pod cannot run there.
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
	}{{"CPU", want.MilliCPU, free.MilliCPU}, {"memory", want.Memory, free.Memory}, {"GPUs", want.GPU, free.GPU}} {
		if r.want > max(r.free, 0) {
			short = append(short, r.name)
		}
	}
	return strings.Join(short, " and ")
}

// Rank orders nodes by the costs that the scheduler scores by, and then by name. Where the strategy has no opinion it
// orders by name alone.
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

// finite returns nil for what JSON cannot say.
func finite(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}
