package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"github.com/kubenergy/kubenergy/kube"
	"github.com/kubenergy/kubenergy/policy"
	"github.com/kubenergy/kubenergy/sched"
)

// placement is how the nodes suit a pod now.
type placement struct {
	Strategy string     `json:"strategy"`
	Note     string     `json:"note,omitempty"`
	Ranked   []nodeRank `json:"ranked"`
	Out      []nodeOut  `json:"out,omitempty"`
}

// nodeRank is a node that could take the pod. What running it there adds is estimated from the power profile.
type nodeRank struct {
	Rank      int      `json:"rank,omitempty"` // 0: the strategy has no opinion
	Node      string   `json:"node"`
	Site      string   `json:"site,omitempty"`
	Zone      string   `json:"zone,omitempty"`
	Profile   string   `json:"profile,omitempty"`
	Cost      *float64 `json:"cost,omitempty"` // in the strategy's own unit
	WattHours *float64 `json:"wattHours,omitempty"`
	Grams     *float64 `json:"grams,omitempty"`
}

type nodeOut struct {
	Node string `json:"node"`
	Why  string `json:"why"`
}

const modelNote = "a model of feasibility: requests, node selector, affinity, taints and our own limits; the real " +
	"scheduler checks more"

// rank puts the nodes that could take the pod in order.
func (e *explainer) rank(ctx context.Context, s *subject, job *sched.Job, settings *policy.Settings) {
	nodes, err := e.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		e.unseen("nodes: " + because(err))
		return
	}
	used, err := e.requested(ctx)
	p := &placement{Strategy: settings.Strategy(), Note: modelNote}
	e.out.Placement = p
	if err != nil {
		e.unseen("pods of all namespaces, so that nodes count as empty: " + because(err))
	}
	one := *job
	one.Request = policy.PodRequest(s.pod) // a Job's pods are placed one by one
	var feasible []*sched.Node
	for i := range nodes.Items {
		node, why := e.consider(&nodes.Items[i], used, s.pod, &one, settings)
		if why != "" {
			p.Out = append(p.Out, nodeOut{nodes.Items[i].Name, why})
			continue
		}
		feasible = append(feasible, node)
	}
	slices.SortFunc(p.Out, func(a, b nodeOut) int { return strings.Compare(a.Node, b.Node) })
	e.order(p, feasible, &one, settings)
}

// requested adds up what is bound to each node.
func (e *explainer) requested(ctx context.Context) (map[string]kube.Load, error) {
	used := map[string]kube.Load{}
	options := metav1.ListOptions{
		FieldSelector: "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed", Limit: releasePage,
	}
	for {
		page, err := e.client.CoreV1().Pods(v1.NamespaceAll).List(ctx, options)
		if err != nil {
			if apierrors.IsResourceExpired(err) {
				err = fmt.Errorf("the list took too long: %w", err)
			}
			return nil, err
		}
		for i := range page.Items {
			pod := &page.Items[i]
			l := used[pod.Spec.NodeName]
			l.Add(pod)
			used[pod.Spec.NodeName] = l
		}
		if options.Continue = page.Continue; options.Continue == "" {
			return used, nil
		}
	}
}

// consider returns the node as the core sees it, or why the pod cannot run there.
func (e *explainer) consider(n *v1.Node, used map[string]kube.Load, pod *v1.Pod, job *sched.Job,
	settings *policy.Settings,
) (node *sched.Node, why string) {
	l := used[n.Name]
	found, _ := l.Node(e.view, n)
	if w, ok := kube.LiveWatts(n, e.now); ok {
		found.Live, found.HasLive = w, true
	}
	if why := refuses(n, pod); why != "" {
		return nil, why
	}
	if lacking := lacks(job.Request, found.Free); lacking != "" {
		return nil, "not enough " + lacking
	}
	if why, ok := job.Admits(&found, settings.MaxPower, settings.MinEfficiency); !ok {
		return nil, why
	}
	return &found, ""
}

// refuses is why a node does not take the pod whatever room it has, or "".
func refuses(n *v1.Node, pod *v1.Pod) string {
	if n.Spec.Unschedulable {
		return "cordoned"
	}
	match, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(n)
	if err != nil || !match {
		return "node selector or affinity does not match"
	}
	hard := func(t *v1.Taint) bool {
		return t.Effect == v1.TaintEffectNoSchedule || t.Effect == v1.TaintEffectNoExecute
	}
	if taint, found := corev1.FindMatchingUntoleratedTaint(klog.Background(), n.Spec.Taints, pod.Spec.Tolerations, hard,
		true); found {
		return "taint " + taint.ToString()
	}
	return ""
}

func lacks(want, free sched.Resources) string {
	var short []string
	for _, r := range []struct {
		name       string
		want, free int64
	}{{"CPU", want.MilliCPU, free.MilliCPU}, {"memory", want.Memory, free.Memory}, {"GPUs", want.GPU, free.GPU}} {
		if r.want > r.free {
			short = append(short, r.name)
		}
	}
	return strings.Join(short, " and ")
}

// order ranks by the costs that the scheduler scores by.
func (e *explainer) order(p *placement, nodes []*sched.Node, job *sched.Job, settings *policy.Settings) {
	snapshot := &sched.Snapshot{
		Now: e.now, Queue: []sched.Job{*job}, Nodes: nodes, Sites: e.view.Sites(), Policy: settings.Policy(),
	}
	var costs []float64
	opinion := false
	if strategy, err := sched.New(settings.Strategy()); err == nil {
		costs, opinion = strategy.Costs(snapshot, job, nil)
	}
	if !opinion && len(nodes) > 0 {
		p.Note = "the strategy has no opinion, for want of fresh signals or power profiles: stock's scores decide; " +
			p.Note
	}
	for i, n := range nodes {
		r := nodeRank{Node: n.Name, Site: n.Site.Name, Zone: string(n.Site.Zone)}
		if n.Profile != nil {
			r.Profile = n.Profile.Name
			window := sched.Window{Start: e.now, End: e.now.Add(n.Runtime(job))}
			added := snapshot.Estimate(job, n, window)
			r.WattHours = new(added.Energy.KWh() * 1000)
			if n.Site.Carbon.Series != nil {
				r.Grams = new(float64(added.Carbon))
			}
		}
		if opinion {
			r.Cost = &costs[i]
		}
		p.Ranked = append(p.Ranked, r)
	}
	slices.SortFunc(p.Ranked, func(a, b nodeRank) int {
		if opinion && *a.Cost != *b.Cost {
			return cmp.Compare(*a.Cost, *b.Cost)
		}
		return strings.Compare(a.Node, b.Node)
	})
	for i := range p.Ranked {
		if opinion {
			p.Ranked[i].Rank = i + 1
		}
	}
}
