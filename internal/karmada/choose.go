package karmada

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
	"github.com/kubenergy/kubenergy/internal/sliceutil"
)

// question is the input of a strategy for a binding: a single replica and the candidate nodes of all clusters.
type question struct {
	*sched.Snapshot

	all      []*sched.Node // candidate nodes; the snapshot contains a representative of each group
	strategy string
	refused  []string // entries of the form "cluster: reason"
	most     int      // maximum number of clusters; 0 for no limit
	kept     []target // replicas that remain in their clusters
}

// ask returns the question for a binding. The function room returns the nodes of a cluster that a binding may use,
// or the reason why there are none.
func ask(b *binding, job sched.Job, settings *policy.Settings, view *kube.View, clusters []*cluster,
	room func(*cluster) ([]*sched.Node, string), now time.Time,
) *question {
	job.Released, job.Selector = true, nil // the start time and the node selector have already been applied
	q := &question{
		Snapshot: &sched.Snapshot{Now: now, Queue: []sched.Job{job}, Sites: view.Sites(), Policy: settings.Policy()},
		strategy: cmp.Or(settings.Where, "carbon"), most: b.most(),
	}
	for _, c := range clusters {
		why, nodes := b.refuses(c), []*sched.Node(nil)
		if why == "" {
			nodes, why = room(c)
		}
		if why != "" {
			q.refused = append(q.refused, c.Name+": "+why)
		}
		fit := slices.DeleteFunc(slices.Clone(nodes), func(n *sched.Node) bool {
			_, ok := job.Admits(n, settings.MaxPower, settings.MinEfficiency)
			return !ok || !job.Fits(n)
		})
		q.all, q.Nodes = append(q.all, fit...), append(q.Nodes, sched.Fold(fit)...) // exclude full nodes before folding
	}
	return q
}

// stock is the fallback strategy if the configured one has no opinion: Karmada's dynamic weights.
const stock = "karmada-dynamic"

var errNoOpinion = errors.New("the strategy has no opinion")

// answer contains the clusters of a binding, and the input of the decision: a new replica and the candidate nodes.
type answer struct {
	targets []target
	on      *sched.Snapshot // nil if there is no new replica
	first   sched.Decision  // decision for the first new replica
	record  ledger.Record
}

// answer places all new replicas or returns an error. A representative node has the capacity of the fullest node in
// its group, so if that is insufficient, all nodes are tried.
func (q *question) answer(replicas int32) (answer, error) {
	a, err := q.divide(replicas)
	if err != nil && len(q.Nodes) < len(q.all) {
		q.Nodes = q.all
		return q.divide(replicas)
	}
	return a, err
}

// divide places the replicas one by one where they cost least, in at most q.most clusters.
func (q *question) divide(replicas int32) (answer, error) {
	strategy, err := strategy.ByName(q.strategy)
	if err != nil {
		return answer{}, err
	}
	a, err := q.plan(strategy, replicas, nil)
	if err != nil || q.most == 0 || len(a.targets) <= q.most {
		return a, err
	}
	// Order the clusters: first those with kept replicas, then by the cost of a single replica. Use the first ones
	// that have enough capacity together.
	order := sliceutil.Map(q.kept, func(t target) string { return t.Name })
	for len(q.kept) < q.most {
		one, err := q.plan(strategy, 1, func(cluster string) bool { return !slices.Contains(order, cluster) })
		if err != nil {
			break
		}
		order = append(order, ledger.ClusterOf(one.first.Node))
	}
	for _, last := range order[min(q.most-1, len(order)):] {
		in := append(slices.Clone(order[:q.most-1]), last)
		a, err = q.plan(strategy, replicas, func(cluster string) bool { return slices.Contains(in, cluster) })
		if err == nil {
			return a, nil
		}
	}
	return answer{}, fmt.Errorf("no %d clusters have enough capacity for all %d replicas", q.most, replicas)
}

// plan places all replicas in the clusters selected by in. If in is nil, all clusters are used.
func (q *question) plan(strategy strategy.Strategy, replicas int32, in func(cluster string) bool) (answer, error) {
	s := *q.Snapshot
	s.Queue = slices.Repeat(s.Queue, int(replicas))
	if in != nil {
		s.Nodes = slices.DeleteFunc(slices.Clone(s.Nodes), func(n *sched.Node) bool {
			return !in(ledger.ClusterOf(n.Name))
		})
	}
	plan := strategy.Plan(&s)
	one := s
	one.Queue = s.Queue[:1] // record only the first replica, so that its decision can be replayed
	a, of := answer{on: &one, first: strategy.Plan(&one)[0]}, map[string]int32{}
	for _, t := range q.kept {
		of[t.Name] += t.Replicas
	}
	for i := range plan {
		switch d := &plan[i]; {
		case d.Node == "" && d.Reason.Kind == sched.NoRoom:
			refused := append(slices.Clip(q.refused), fmt.Sprintf("%d of %d replicas have capacity", i, replicas))
			return answer{}, errors.New(strings.Join(refused, "; "))
		case d.Node == "":
			return answer{}, fmt.Errorf("%w: %s", errNoOpinion, d.Reason)
		}
		of[ledger.ClusterOf(plan[i].Node)]++
	}
	for _, name := range slices.Sorted(maps.Keys(of)) {
		a.targets = append(a.targets, target{name, of[name]})
	}
	return a, nil
}
