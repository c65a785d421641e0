package karmada

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/kube"
	"github.com/kubenergy/kubenergy/policy"
	"github.com/kubenergy/kubenergy/sched"
)

// question is what the core is asked about one replica of a binding: the nodes of all clusters where it may go.
type question struct {
	snapshot *sched.Snapshot
	strategy string
	refused  []string // cluster: why
	most     int      // clusters that may have some; 0: any number
}

// placed is one replica, with what it was decided on.
type placed struct {
	question *sched.Snapshot
	strategy string
	decision sched.Decision
}

// ask makes the question of a binding.
func ask(b *binding, job sched.Job, settings *policy.Settings, view *kube.View, clusters []*cluster,
	room func(name string) ([]*sched.Node, string), now time.Time,
) *question {
	job.Released = true // when is decided already
	q := &question{
		snapshot: &sched.Snapshot{Now: now, Queue: []sched.Job{job}, Sites: view.Sites(), Policy: settings.Policy()},
		strategy: cmp.Or(settings.Where, "carbon"), most: b.most(),
	}
	for _, c := range slices.SortedFunc(slices.Values(clusters), func(a, b *cluster) int {
		return strings.Compare(a.Name, b.Name)
	}) {
		why, nodes := b.refuses(c), []*sched.Node(nil)
		if why == "" {
			nodes, why = room(c.Name)
		}
		if why != "" {
			q.refused = append(q.refused, c.Name+": "+why)
		}
		for _, n := range nodes {
			if _, ok := job.Admits(n, settings.MaxPower, settings.MinEfficiency); ok {
				q.snapshot.Nodes = append(q.snapshot.Nodes, n)
			}
		}
	}
	return q
}

// answer places all replicas, each where it costs least once those before it are placed, or none. It returns how many
// go to each cluster, by name.
func (q *question) answer(replicas int32) (targets []target, all []placed, err error) {
	strategy, err := sched.New(q.strategy)
	if err != nil {
		return nil, nil, err
	}
	of := map[string]int32{}
	for i := range replicas {
		s := *q.snapshot
		s.Nodes = slices.DeleteFunc(slices.Clone(s.Nodes), func(n *sched.Node) bool {
			full := q.most > 0 && len(of) >= q.most && of[clusterOf(n.Name)] == 0
			return full || !s.Queue[0].Request.Within(n.Free)
		})
		d := strategy.Plan(&s)[0]
		if d.Node == "" {
			return nil, nil, fmt.Errorf("%d of %d replicas have room: %s", i, replicas,
				cmp.Or(strings.Join(q.refused, "; "), d.Reason.String()))
		}
		all = append(all, placed{&s, q.strategy, d})
		of[clusterOf(d.Node)]++
		k := slices.IndexFunc(q.snapshot.Nodes, func(n *sched.Node) bool { return n.Name == d.Node })
		taken := q.snapshot.Nodes[k].Place(s.Queue[0].Request)
		q.snapshot.Nodes = slices.Clone(q.snapshot.Nodes)
		q.snapshot.Nodes[k] = &taken
	}
	for _, name := range slices.Sorted(maps.Keys(of)) {
		targets = append(targets, target{name, of[name]})
	}
	return targets, all, nil
}
