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
)

// question is what the core is asked about a binding: one replica of it, and the nodes of all clusters where it may go.
type question struct {
	*sched.Snapshot

	all      []*sched.Node // of which few that stand for many are in the snapshot
	strategy string
	refused  []string // cluster: why
	most     int      // clusters that may have some; 0: any number
	kept     []target // that stay where they are
}

// ask makes the question of a binding. room returns the nodes of a cluster that a binding may use, or why there are
// none.
func ask(b *binding, job sched.Job, settings *policy.Settings, view *kube.View, clusters []*cluster,
	room func(*cluster) ([]*sched.Node, string), now time.Time,
) *question {
	job.Released, job.Selector = true, nil // when is decided already, and which nodes were selected
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
		var fit []*sched.Node
		for _, n := range nodes {
			if _, ok := job.Admits(n, settings.MaxPower, settings.MinEfficiency); ok && job.Fits(n) {
				fit = append(fit, n)
			}
		}
		q.all, q.Nodes = append(q.all, fit...), append(q.Nodes, sched.Fold(fit)...) // what is full would hide its like
	}
	return q
}

// stock is what decides where our strategy cannot: Karmada's own dynamic weights.
const stock = "karmada-dynamic"

var errNoOpinion = errors.New("the strategy has no opinion")

// answer is where the replicas of a binding are, and what that was decided on: a new replica, and the nodes of clusters
// that may have some.
type answer struct {
	targets []target
	on      *sched.Snapshot // nil: no replica is new
	first   sched.Decision  // about the first new replica
	record  ledger.Record
}

// answer places all new replicas, or none. A node that stands for many has as much room as the fullest of them: where
// that is too little, all nodes are looked at.
func (q *question) answer(replicas int32) (answer, error) {
	a, err := q.divide(replicas)
	if err != nil && len(q.Nodes) < len(q.all) {
		q.Nodes = q.all
		return q.divide(replicas)
	}
	return a, err
}

// divide places each replica where it costs least once those before it are placed.
func (q *question) divide(replicas int32) (answer, error) {
	strategy, err := strategy.ByName(q.strategy)
	if err != nil {
		return answer{}, err
	}
	a, err := q.plan(strategy, replicas, nil)
	if err != nil || q.most == 0 || len(a.targets) <= q.most {
		return a, err
	}
	// Of the clusters beside those that have some, the one that costs least for one replica first, those that have room
	// together.
	var order []string
	for _, t := range q.kept {
		order = append(order, t.Name)
	}
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
	return answer{}, fmt.Errorf("no %d clusters together have room for all %d replicas", q.most, replicas)
}

// plan places all replicas in some clusters; nil: in any.
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
	one.Queue = s.Queue[:1] // a record is of one job: what is decided about the first is decided again from it
	a, of := answer{on: &one, first: strategy.Plan(&one)[0]}, map[string]int32{}
	for _, t := range q.kept {
		of[t.Name] += t.Replicas
	}
	for i := range plan {
		switch d := &plan[i]; {
		case d.Node == "" && d.Reason.Kind == sched.NoRoom:
			refused := append(slices.Clip(q.refused), fmt.Sprintf("%d of %d replicas have room", i, replicas))
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
