package explain

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubenergy/kubenergy/api/v1alpha1"
	"github.com/kubenergy/kubenergy/internal/apiclient/api"
	"github.com/kubenergy/kubenergy/internal/cli/cmdutil"
	"github.com/kubenergy/kubenergy/internal/dashboard"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
)

const modelNote = "feasibility is based on requests, node selector, affinity, taints and limits of KubEnergy; the " +
	"scheduler checks additional conditions"

// rank ranks the feasible nodes for the pod.
func (e *Explainer) rank(ctx context.Context, s *subject, job *sched.Job, settings *policy.Settings) {
	p := &dashboard.Placement{Strategy: settings.Strategy(), Note: modelNote}
	if s, err := strategy.New(p.Strategy); err == nil && s.Alone().LeavesRoom() {
		p.Note += ", and leaves room for large pods that are expected soon"
	}
	name := cmp.Or(s.pod.Spec.SchedulerName, v1.DefaultSchedulerName)
	if serving, _ := cmdutil.ReadServing(ctx, e.Cluster, v1alpha1.SystemNamespace, e.Now); !serving.Places(name) {
		p.Unused, p.Note = "schedulerName "+name, "the scheduler "+name+" chooses the node without KubEnergy; to let "+
			"KubEnergy choose it, set schedulerName: "+policy.SchedulerName
		e.out.Placement = p
		return
	}
	nodes, err := e.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		e.unseen("nodes: " + cmdutil.Because(err))
		return
	}
	e.out.Placement = p
	used, err := e.requested(ctx)
	if err != nil {
		e.unseen("pods of all namespaces, so nodes are treated as empty: " + cmdutil.Because(err))
	}
	one := *job
	one.Request = policy.PodRequest(s.pod) // the pods of a Job are placed separately
	ask := &kube.Placement{
		Now: e.Now, View: e.View, Pod: s.pod, Job: &one, Settings: settings, Hot: e.hot(ctx, nodes.Items),
	}
	var feasible []*sched.Node
	for _, n := range nodes.Items {
		load := used[n.Name]
		if node, why := ask.Consider(&n, &load); why != "" {
			p.Out = append(p.Out, dashboard.NodeOut{Node: n.Name, Why: why})
		} else {
			feasible = append(feasible, node)
		}
	}
	slices.SortFunc(p.Out, func(a, b dashboard.NodeOut) int { return strings.Compare(a.Node, b.Node) })
	ranked, opinion := ask.Rank(feasible)
	if opinion && len(ranked) > 0 {
		e.Best = ranked[0].Node
	}
	if !opinion && len(ranked) > 0 {
		p.Note = "the strategy cannot rank nodes without current signals and power profiles, so the default scores " +
			"apply; " + p.Note
	}
	for i, r := range ranked {
		shown := dashboard.NodeRank{
			Node: r.Node.Name, Site: r.Node.Site.Name, Zone: string(r.Node.Site.Zone), Grams: r.Grams,
		}
		if r.Node.Profile != nil {
			shown.Profile = r.Node.Profile.Name
		}
		if r.KWh != nil {
			shown.WattHours = new(*r.KWh * 1000)
		}
		if opinion {
			shown.Rank, shown.Cost = i+1, &r.Cost
		}
		p.Ranked = append(p.Ranked, shown)
	}
}

// hot returns the overheated nodes as reported by the controller. It only queries the controller if a PowerProfile
// limits the temperature.
func (e *Explainer) hot(ctx context.Context, nodes []v1.Node) map[string]sched.Heat {
	if !slices.ContainsFunc(nodes, func(n v1.Node) bool { return e.View.Hottest(&n) > 0 }) {
		return nil
	}
	var power api.NodesPower
	now := e.Now // time of the controller's clock
	c, err := cmdutil.ThroughProxy(ctx, e.Config, v1alpha1.SystemNamespace, "", func() time.Time { return e.Now })
	if err == nil {
		now, err = c.Get(ctx, "/api/v1/nodes/power", nil, &power)
	}
	if err != nil {
		e.unseen("temperatures of nodes, so no node is treated as too hot: " + cmdutil.Because(err))
	}
	return power.Hot(e.Now, e.Now.Sub(now))
}

// requested returns the total requests of the pods on each node.
func (e *Explainer) requested(ctx context.Context) (map[string]kube.Load, error) {
	used := map[string]kube.Load{}
	err := cmdutil.EachItem(ctx, metav1.ListOptions{
		FieldSelector: "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed",
	}, e.CoreV1().Pods(v1.NamespaceAll).List, func(pod *v1.Pod) {
		l := used[pod.Spec.NodeName]
		l.Add(pod)
		used[pod.Spec.NodeName] = l
	})
	if apierrors.IsResourceExpired(err) {
		err = fmt.Errorf("listing pods took too long: %w", err)
	}
	return used, err
}
