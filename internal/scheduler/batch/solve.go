package batch

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
)

// solution is a plan that has not been adopted yet.
type solution struct {
	steps  []Step // in queue order; the node is empty if the pod is not planned
	placed int
	whole  bool    // the strategies completed within the time limit
	gap    float64 // optimality gap of the largest part, see [strategy.Optimality]
	hasGap bool
}

// part contains the pods that a strategy plans jointly.
type part struct {
	where   string
	weights sched.Weights
	queue   []int // positions in the queue
}

// solve plans the pods on the nodes. Pods with different strategies or weights are planned one group after the
// other, the largest group first, with the remaining capacity.
func (p *Planner) solve(q *Question, queue []waiter, stop func() bool) *solution {
	s := &solution{steps: make([]Step, len(queue)), whole: true}
	g := newFloor(q, queue)
	for i, part := range partsOf(queue, g) {
		strategy, known := p.c.Strategies[part.where]
		if !known {
			continue
		}
		proof := p.solvePart(s, g, strategy, part, stop)
		s.whole = s.whole && proof.Whole
		if i == 0 {
			s.gap, s.hasGap = proof.Gap, proof.HasGap
		}
	}
	for i := range s.steps {
		s.steps[i].Of = s.placed
	}
	return s
}

func partsOf(queue []waiter, g *floor) []part {
	var parts []part
	for i := range queue {
		if g.demandOf[i] == nowhere {
			continue
		}
		pod := &queue[i].pod
		k := slices.IndexFunc(parts, func(x part) bool { return x.where == pod.Where && x.weights == pod.Weights })
		if k < 0 {
			k = len(parts)
			parts = append(parts, part{where: pod.Where, weights: pod.Weights})
		}
		parts[k].queue = append(parts[k].queue, i)
	}
	slices.SortStableFunc(parts, func(a, b part) int { return cmp.Compare(len(b.queue), len(a.queue)) })
	return parts
}

func (p *Planner) solvePart(s *solution, g *floor, strategy Strategy, part part, stop func() bool) strategy.Optimality {
	snapshot := sched.Snapshot{Now: g.q.At, Nodes: g.nodes, Sites: g.q.View.Sites(), Policy: p.c.Policy}
	snapshot.Policy.Weights = part.weights
	for _, i := range part.queue {
		job := g.queue[i].pod.Job
		job.Selector = g.selectors[g.demandOf[i]]
		snapshot.Queue = append(snapshot.Queue, job)
	}
	plan, proof := strategy.PlanWithin(&snapshot, stop)
	var options [][]string
	if p.c.Options > 0 && !stop() {
		// one more, because the planned node may be among them
		options = strategy.Options(&snapshot, plan, p.c.Options+1)
	}
	for k, i := range part.queue {
		if !g.place(plan[k].Node, &snapshot.Queue[k]) {
			continue
		}
		s.placed++
		s.steps[i] = Step{Node: plan[k].Node}
		if options != nil {
			s.steps[i].Next = without(options[k], plan[k].Node, p.c.Options)
		}
	}
	return proof
}

// without returns at most the given number of names except the given one. The strings are shared.
func without(names []string, one string, most int) []string {
	if slices.Contains(names, one) {
		names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name == one })
	}
	return names[:min(len(names), most)]
}

// floor contains the nodes on which a queue is planned. The core only considers capacity and labels, so the
// admission of pods by nodes is encoded as labels that represent the demands of the queue.
type floor struct {
	q         *Question
	queue     []waiter
	nodes     []*sched.Node
	position  map[string]int      // index of each node in the question
	demandOf  []int               // by position in the queue; nowhere if the pod is not planned
	selectors []map[string]string // by demand
}

const (
	nowhere    = -1
	maxDemands = 64 // pods with further demands have ordinary cycles
)

func newFloor(q *Question, queue []waiter) *floor {
	g := &floor{q: q, queue: queue, position: make(map[string]int, len(q.Nodes)), demandOf: make([]int, len(queue))}
	known := map[demand]int{}
	var admissions []kube.Admission
	for i := range queue {
		k, ok := known[queue[i].demand]
		switch {
		case ok:
		case len(admissions) == maxDemands:
			k = nowhere
		default:
			k = len(admissions)
			known[queue[i].demand] = k
			admissions = append(admissions, kube.AdmissionOf(queue[i].pod.Object))
		}
		g.demandOf[i] = k
	}
	g.label(admissions)
	return g
}

// label removes nodes that admit none of the pods, and labels the others with the demands that they meet. Nodes
// that meet the same demands, usually all of them, share a set of labels. A demand that all nodes meet needs no
// label.
func (g *floor) label(admissions []kube.Admission) {
	shared := map[uint64]map[string]string{}
	common := ^uint64(0)
	met := make([]uint64, len(g.q.Nodes))
	for i := range g.q.Nodes {
		if g.q.Slots[i] <= 0 {
			continue
		}
		for k := range admissions {
			if admissions[k].Admits(g.q.Objects[i]) {
				met[i] |= 1 << k
			}
		}
		if met[i] == 0 {
			continue
		}
		common &= met[i]
		g.position[g.q.Nodes[i].Name] = i
		g.nodes = append(g.nodes, &g.q.Nodes[i])
	}
	for _, n := range g.nodes {
		set := met[g.position[n.Name]] &^ common
		labels, ok := shared[set]
		if !ok {
			labels = map[string]string{}
			for k := range admissions {
				if set&(1<<k) != 0 {
					labels[strconv.Itoa(k)] = ""
				}
			}
			shared[set] = labels
		}
		n.Labels = labels
	}
	g.selectors = make([]map[string]string, len(admissions))
	for k := range admissions {
		if common&(1<<k) == 0 {
			g.selectors[k] = map[string]string{strconv.Itoa(k): ""}
		}
	}
}

// place assigns a job to a node. It reports whether the node can run another pod, because strategies do not
// consider the max number of pods.
func (g *floor) place(name string, job *sched.Job) bool {
	i, ok := g.position[name]
	if !ok || g.q.Slots[i] <= 0 {
		return false
	}
	g.q.Slots[i]--
	n := &g.q.Nodes[i]
	n.Provisional += n.Added(job)
	*n = n.Place(job.Request)
	return true
}
